"""The gauntlet's generator: every kind of model is there, and a seed always gives the same one."""

from dataclasses import replace

import numpy as np
import pytest

import autoreparam as ar
from benchmarks.gauntlet.exact import SEEN, condition_gaussian, exact_moments, simulate_walk
from benchmarks.gauntlet.generator import (
    COUNT,
    KINDS,
    LIKELIHOODS,
    MOST_DIMENSIONS,
    MOST_OBSERVATIONS,
    PATTERNS,
    PRIORS,
    describe,
    draw_spec,
)
from benchmarks.gauntlet.models import build_model
from benchmarks.gauntlet.pool import append, read
from benchmarks.gauntlet.simulate import draw_data
from benchmarks.gauntlet.table import render
from benchmarks.gauntlet.tasks import is_compared, list_tasks

SPECS = [draw_spec(seed) for seed in range(COUNT)]
# One for each likelihood, and then one for each kind of effect.
CHOSEN = [next(s for s in SPECS if s.likelihood == one) for one in LIKELIHOODS] + [
    next(s for s in SPECS[20:] if any(e.kind == one for e in s.effects)) for one in KINDS
]


def test_every_likelihood_effect_prior_and_pattern_appears_in_both_halves():
    for half in (SPECS[::2], SPECS[1::2]):
        assert {spec.likelihood for spec in half} == set(LIKELIHOODS)
        assert {spec.pattern for spec in half} == set(PATTERNS)
        assert {effect.kind for spec in half for effect in spec.effects} == set(KINDS)
        assert {effect.prior for spec in half for effect in spec.effects} == set(PRIORS)
        assert any(effect.parent for spec in half for effect in spec.effects)


def test_all_descriptions_are_distinct():
    assert len({replace(spec, seed=0) for spec in SPECS}) == COUNT


def test_a_seed_gives_the_same_model_and_the_same_data():
    for seed in (0, 7, 108):
        assert draw_spec(seed) == draw_spec(seed)
        once, again = draw_data(draw_spec(seed))[0], draw_data(draw_spec(seed))[0]
        assert once.keys() == again.keys()
        assert all(np.array_equal(once[name], again[name]) for name in once)


def test_data_are_finite_and_of_a_size_that_runs_in_seconds():
    for spec in SPECS[::10]:
        data, truth = draw_data(spec)
        assert np.isfinite(data["y"]).all()
        assert 10 <= len(data["y"]) <= MOST_OBSERVATIONS
        assert sum(np.size(value) for value in truth.values()) <= MOST_DIMENSIONS


@pytest.mark.parametrize("spec", CHOSEN[::5], ids=describe)
def test_a_generated_model_has_the_latents_that_its_data_were_drawn_with(spec):
    data, truth = draw_data(spec)
    shapes = {site.name: site.shape for site in ar.inspect(build_model(spec), (), data).latents}
    assert shapes == {name: np.shape(value) for name, value in truth.items()}


@pytest.mark.slow
@pytest.mark.parametrize("spec", CHOSEN, ids=describe)
def test_the_density_is_finite_at_the_truth(spec):
    data, truth = draw_data(spec)
    assert np.isfinite(ar.log_joint(build_model(spec), (), data)(truth))


def test_the_halves_share_no_generated_model_and_no_seed_of_a_known_one():
    tune, report = (
        {(task.model, task.seed) for task in list_tasks("all", half, 3, ("auto",), False, "")}
        for half in ("tune", "report")
    )
    assert not tune & report
    assert sum(map(is_compared, range(COUNT))) == 50


def test_quadrature_agrees_with_the_formula_at_known_scales(monkeypatch):
    """With a grid of one point, both ways of conditioning a walk give the same."""
    monkeypatch.setattr("benchmarks.gauntlet.exact.POINTS", 1)
    monkeypatch.setattr("benchmarks.gauntlet.exact.REACH", -0.2)
    moments = exact_moments("random_walk")
    scale = np.exp(0.4)
    times = np.arange(1, len(SEEN) + 1)
    covariance = scale**2 * np.minimum(times[:, None], times)
    noise = scale**2 * np.eye(SEEN.sum())
    _, means, squares = condition_gaussian(covariance, SEEN, noise, simulate_walk())
    np.testing.assert_allclose(moments["step"], (scale, scale**2))
    found = np.array([moments[f"walk[{i}]"] for i in range(len(SEEN))])
    np.testing.assert_allclose(found, np.stack([means, squares], axis=1))


def test_the_table_renders_what_the_file_holds(tmp_path):
    scalars = {"name": ["z"], "mean": [0.3], "mcse_mean": [0.1], "sd": [3.0], "square": [9.0],
               "mcse_square": [0.5]}  # fmt: skip
    good = {"model": "opaque_funnel", "method": "auto", "seed": 0, "x64": False, "label": "now",
            "seconds": 2.0, "total": 4.0, "r_hat": 1.002, "divergences": 0, "warnings": [],
            "scalars": scalars}  # fmt: skip
    path = tmp_path / "rows.jsonl"
    for row in (good, good | {"seed": 1, "r_hat": 1.2, "r_hat_worst": "z"}):
        append(path, row)
    late = {"failure": "timeout", "seconds": 9.0, "warnings": []}
    append(
        path, {key: good[key] for key in ("model", "method", "x64", "label")} | {"seed": 2} | late
    )
    with path.open("a") as file:
        file.write('{"cut short')
    text = render(read(path), [{"model": "opaque_funnel", "exact": {"z": (0.0, 9.0)}}])
    assert "2 (66.7%)       1" in text  # two above 1.05, one of them silent
    assert "worst 3.0 (opaque_funnel seed 0, z)" in text
    assert "opaque_funnel auto seed 2: timeout" in text
