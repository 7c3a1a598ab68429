"""Runs whose draws take much memory: with a checkpoint, they are on disk alone."""

from dataclasses import replace

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from interrupts import interrupted_at

import autoreparam as ar
from autoreparam import sampling
from autoreparam.run import session
from autoreparam.run.longer import _some

Y = np.random.default_rng(0).normal(size=8)
SIZE, CHAINS, DRAWS, WARMUP = 10, 2, 200, 60  # the largest window has fewer than 55 draws
LARGE = CHAINS * SIZE * 110  # numbers: about half of the draws, and more than any window's
TINY = CHAINS * SIZE * 11  # draws and scores of the first window, and of a part of the others


def groups(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("group", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.deterministic("doubled", 2 * theta)
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def run(**keywords):
    sizes = {"chains": CHAINS, "draws": DRAWS, "warmup": WARMUP}
    return ar.sample(groups, (Y,), progress=False, **sizes, **keywords)


@pytest.fixture(scope="module")
def plain():
    return run(save_warmup=True, log_likelihood=True)


@pytest.fixture
def sessions(monkeypatch):
    """The sessions of runs that are large from now on, as their trees are built."""
    seen, build = [], sampling.build_tree

    def built(one, shown):
        seen.append(one)
        return build(one, shown)

    monkeypatch.setattr(sampling, "build_tree", built)
    monkeypatch.setattr(session, "MOST_NUMBERS", LARGE)
    return seen


def assert_same(tree, other, groups_):
    for group in groups_:
        for name in tree[group].data_vars:
            np.testing.assert_array_equal(tree[group][name], other[group][name], err_msg=name)


def test_draws_are_on_disk_alone_and_the_tree_is_the_same(tmp_path, plain, sessions):
    kept = {"var_names": ["mu", "theta"], "log_likelihood": True}
    tree = run(checkpoint=tmp_path / "run", save_warmup=True, **kept)
    assert all(chunk.trail.position is None for chunk in sessions[0].chunks)
    assert len(list(sessions[0].stretches("sampling"))) == 2
    every = ("posterior", "warmup_posterior", "sample_stats", "warmup_sample_stats")
    assert_same(tree, plain, (*every, "log_likelihood"))
    assert sorted(tree["posterior"].data_vars) == ["mu", "theta"]
    assert "geometry" not in tree.children
    assert tree.attrs["divergences"] == plain.attrs["divergences"]
    assert tree.attrs["e_bfmi"] == plain.attrs["e_bfmi"]
    again = ar.resume(tmp_path / "run", groups, (Y,), progress=False)
    assert sessions[1].chunks[0].trail.position is None
    assert_same(again, plain, ("posterior", "sample_stats"))
    assert sorted(again["posterior"].data_vars) == ["doubled", "mu", "tau", "theta"]
    ar.resume(tmp_path / "run", groups, (Y,), draws=2 * DRAWS, progress=False)
    ar.resume(tmp_path / "run", groups, (Y,), progress=False)
    assert all(chunk.trail.position is None for chunk in sessions[3].chunks)


def test_what_is_not_kept_is_still_looked_at_where_there_is_room(plain):
    tree = run(var_names=["mu"], dims={"doubled": ["twice"]})
    assert list(tree["posterior"].data_vars) == ["mu"]
    assert tree["geometry"].equals(plain["geometry"])


def test_a_run_can_become_large_as_it_goes_on(tmp_path, sessions):
    run(checkpoint=tmp_path / "run", var_names=["mu"])
    (one,) = sessions
    one.settings = replace(one.settings, draws=DRAWS // 4)
    assert not one.large
    one.state = replace(one.state, every=4)
    assert one.large


def test_every_other_draw_of_several_stretches(tmp_path, plain, sessions):
    tree = run(checkpoint=tmp_path / "run", thin=3)
    ((_, trail),) = sessions[0].stretches("sampling", 3)
    assert trail.position.base is None  # nothing else is kept alive by it
    np.testing.assert_array_equal(tree["posterior"]["theta"], plain["posterior"]["theta"][:, 2::3])


def test_without_a_checkpoint_all_draws_are_in_memory(plain, sessions):
    assert_same(run(), plain, ("posterior", "sample_stats"))
    drawn = [chunk.trail.position for chunk in sessions[0].of("sampling")]
    assert np.concatenate(drawn, axis=1).shape == (CHAINS, DRAWS, SIZE)


@pytest.mark.parametrize("call", [2, 4, 6])
def test_a_large_window_is_learned_from_in_part_and_a_resumed_run_is_the_same(
    tmp_path, monkeypatch, sessions, call
):
    monkeypatch.setattr(session, "MOST_NUMBERS", TINY)
    whole = run(checkpoint=tmp_path / "whole")
    rows = [chunk.trail.logdensity.shape[1] for chunk in sessions[0].of("warmup")]
    draws = [chunk.step.draws for chunk in sessions[0].of("warmup")]
    assert rows[0] < draws[0]
    assert all(0 < row <= drawn for row, drawn in zip(rows, draws))
    with interrupted_at(call):
        assert run(checkpoint=tmp_path / "run").attrs["interrupted"]
    resumed = ar.resume(tmp_path / "run", groups, (Y,), progress=False)
    assert_same(resumed, whole, ("posterior", "sample_stats"))


def test_some_elements_stand_for_many():
    values = np.arange(24.0).reshape(1, 2, 3, 4)
    assert _some(values, 12) is values
    np.testing.assert_array_equal(_some(values, 3)[0, 0], [0, 5, 11])
