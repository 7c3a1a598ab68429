"""Where chains mix slowly, more is drawn and less of it kept."""

from dataclasses import replace

import numpy as np
import pytest
from interrupts import interrupted_at
from test_faults import assert_same
from test_sampling import Y, groups

import autoreparam as ar
from autoreparam.mcmc.settings import SamplerSettings
from autoreparam.results import advice
from autoreparam.results.advice import FEW_MEASURED, suffice
from autoreparam.run.settings import Adaptation

ASKED = 50  # so few never have an ESS of 100 per chain


def run(kernel="auto", most_every=4, **keywords):
    sampler = replace(SamplerSettings(), fewest_extended=ASKED, most_every=most_every)
    return ar.sample(groups, (Y,), kernel=kernel, draws=ASKED, warmup=60, chains=2, progress=False,
                     adaptation=Adaptation(sampler), **keywords)  # fmt: skip


@pytest.fixture(scope="module")
def extended():
    return run(save_working=True)


def chains_of(rho, shift=0.0, seed=0):
    """Four chains of 1000 draws with an autocorrelation; the last one may be elsewhere."""
    noise = np.random.default_rng(seed).normal(size=(1000, 4, 3))
    x = np.zeros_like(noise)
    for i in range(1, len(x)):
        x[i] = rho * x[i - 1] + np.sqrt(1 - rho**2) * noise[i]
    x[:, 3] += shift
    return np.moveaxis(x, 0, 1)


@pytest.mark.parametrize(
    ("rho", "shift", "enough"), [(0.2, 0, True), (0.97, 0, False), (0.2, 1, False)]
)
def test_draws_suffice_if_chains_mix_and_agree(rho, shift, enough):
    latents = {"x": chains_of(rho, shift), "fixed": np.ones((4, 1000))}
    assert suffice(latents, chains_of(0.2, seed=1)[..., 0]) == enough
    assert suffice({"z": latents["x"][..., 0] * np.nan}, np.zeros((4, 1000)))  # no use going on


def test_more_is_measured_where_the_worst_at_a_glance_do_not_make_it_clear(monkeypatch):
    asked = []

    def first(variables, most):  # a glance that takes the first scalar for the worst
        asked.append(most)
        chosen = [np.zeros(variable[0, 0].size, bool) for variable in variables]
        chosen[0][: most // FEW_MEASURED] = True
        return chosen

    monkeypatch.setattr(advice, "slowest", first)
    slow, log_density = chains_of(0.97)[..., 0], chains_of(0.2, seed=1)[..., 0]
    for rho, enough, looks in ((0.2, True, 1), (0.75, False, 2), (0.97, False, 1)):
        asked.clear()
        latents = {"x": np.stack([chains_of(rho, seed=2)[..., 0], slow], axis=-1)}
        assert suffice(latents, log_density) == enough
        assert len(asked) == looks


def test_as_many_are_kept_as_were_asked_for_and_all_are_counted(extended):
    assert extended["posterior"].sizes["draw"] == ASKED
    assert extended.attrs["kept_every"] == 4
    assert extended.attrs["draws"] == ASKED
    steps = extended["sample_stats"]["n_steps"].values.sum()
    assert extended.attrs["gradients_sampling"] > 3 * steps


def test_kept_draws_are_every_fourth_of_one_chain(extended):
    # The same chain, cut off after half: then every other one is kept.
    half = run(most_every=2, save_working=True)
    for draws in ("mu", "theta"):
        np.testing.assert_array_equal(
            extended["posterior"][draws].values[:, : ASKED // 2],
            half["posterior"][draws].values[:, 1::2],
        )


def test_who_asks_for_a_kernel_or_for_few_draws_gets_just_that():
    assert run(kernel="hmc").attrs["kept_every"] == 1
    few = ar.sample(groups, (Y,), draws=20, warmup=60, chains=2, progress=False)
    assert few.attrs["kept_every"] == 1


@pytest.mark.parametrize("call", [9, 12], ids=["first", "second"])
def test_an_interrupt_on_the_way_loses_no_draw_and_can_be_resumed(tmp_path, extended, call):
    with interrupted_at(call):
        tree = run(checkpoint=tmp_path / "run", save_working=True)
    assert tree.attrs["interrupted"]
    assert tree["posterior"].sizes["draw"] >= ASKED
    resumed = ar.resume(tmp_path / "run", groups, (Y,), progress=False)
    assert_same(resumed, extended)
    assert_same(ar.resume(tmp_path / "run", groups, (Y,), progress=False), extended)
