"""Where chains come to the posterior only while sampling, the run warms up once more."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_stats.base import array_stats as az
from interrupts import interrupted_at
from test_faults import assert_same
from test_longer import ASKED, run
from test_sampling import Y, groups

import autoreparam as ar
from autoreparam.errors import SamplingError
from autoreparam.mcmc.health import found_better
from autoreparam.run import session as session_module
from autoreparam.run.session import Session


def levels(rise, at, draws=200):
    """Log densities of four chains in ten dimensions, one of which comes to a better place."""
    found = -0.5 * np.random.default_rng(0).chisquare(10, size=(4, draws))
    found[2, int(at * draws) :] += rise
    return found


@pytest.mark.parametrize(
    ("rise", "at", "found"), [(44, 0.1, True), (44, 0.7, True), (4, 0.1, False), (-44, 0.1, False)]
)
def test_a_chain_that_rises_far_has_found_a_better_place(rise, at, found):
    before = levels(0, 0, draws=25)
    assert found_better(before, levels(rise, at), 10) == found


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("chains", [4, 64])
def test_chains_that_mix_slowly_have_not_found_a_better_place(size, chains):
    for seed in range(5):
        rng, position = np.random.default_rng(seed), np.zeros((700, chains, size))
        position[0] = rng.normal(size=(chains, size))
        for i in range(1, 700):
            noise = rng.normal(size=(chains, size))
            position[i] = 0.98 * position[i - 1] + np.sqrt(1 - 0.98**2) * noise
        found = -0.5 * np.sum(position**2, axis=-1).T
        assert not found_better(found[:, :50], found[:, 50:], size)


def test_where_warmup_ended_does_not_depend_on_chunks(tmp_path, better_once):
    seen = []
    for path in (None, tmp_path / "run"):
        run(checkpoint=path)
        seen.append(better_once[0])
        better_once.clear()
    assert seen[0] == seen[1]
    assert seen[0][0] == (2, 6)  # a tenth of 60


@pytest.fixture
def better_once(monkeypatch):
    """Chains of the first sampling phase come to a better place, others do not."""
    looks = []

    def found(before, levels, size):
        looks.append((before.shape, levels.shape))
        return len(looks) == 1

    monkeypatch.setattr(session_module, "found_better", found)
    return looks


def test_a_second_warmup_replaces_the_first_and_what_was_sampled_after_it(better_once):
    once, tree = run(most_every=1), run(save_warmup=True)
    assert better_once[0][1] == (2, ASKED)
    assert tree.attrs["added_windows"] == once.attrs["added_windows"] + 1
    assert tree["posterior"].sizes["draw"] == ASKED
    assert tree["warmup_posterior"].sizes["draw"] >= 2 * 60 + ASKED
    spent = once.attrs["gradients_warmup"] + once.attrs["gradients_sampling"]
    assert tree.attrs["gradients_warmup"] > spent
    assert np.isfinite(tree["warmup_posterior"]["theta"].values).all()


@pytest.mark.parametrize("call", [8, 12, 16])
def test_an_interrupt_in_a_second_warmup_loses_nothing(tmp_path, monkeypatch, call):
    monkeypatch.setattr(Session, "_found_better", lambda self: self.state.warmup_until == 0)
    whole = run(save_warmup=True)
    with interrupted_at(call):
        tree = run(save_warmup=True, checkpoint=tmp_path / "run")
    assert tree.attrs["interrupted"]
    resumed = ar.resume(tmp_path / "run", groups, (Y,), progress=False)
    assert_same(resumed, whole)
    assert resumed.attrs["gradients_warmup"] == whole.attrs["gradients_warmup"]
    for name in ("mu", "theta"):
        np.testing.assert_array_equal(
            resumed["warmup_posterior"][name].values, whole["warmup_posterior"][name].values
        )


def test_a_failure_in_a_second_warmup_leaves_the_draws_on_disk(tmp_path, monkeypatch, better_once):
    monkeypatch.chdir(tmp_path)
    again = session_module.warm_up_again

    def fail(*given):
        def full(*_):
            raise MemoryError

        monkeypatch.setattr(Session, "_advance", full)
        return again(*given)

    monkeypatch.setattr(session_module, "warm_up_again", fail)
    with pytest.raises(SamplingError, match="the draws are safe"):
        run()
    monkeypatch.undo()
    (folder,) = tmp_path.glob("autoreparam-run-*")
    assert ar.resume(folder, groups, (Y,), progress=False)["posterior"].sizes["draw"] == ASKED


# Thousands of pelts that the Hudson's Bay Company bought each year from 1900 to 1920.
HARES = [30, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22, 25.4, 27.1, 40.3, 57, 76.6, 52.3, 19.5,
         11.2, 7.6, 14.6, 16.2, 24.7]  # fmt: skip
LYNXES = [4, 6.1, 9.8, 35.2, 59.4, 41.7, 19, 13, 8.3, 9.1, 7.4, 8, 12.3, 19.5, 45.7, 51.1, 29.7,
          15.8, 9.7, 10.1, 8.6]  # fmt: skip
STEPS = 10  # a year


def predators_and_prey(pelts):
    """Lotka and Volterra's equations, with Runge and Kutta's steps."""
    usual = jnp.array([1.0, 0.05, 1.0, 0.05])
    rates = numpyro.sample("rates", dist.TruncatedNormal(usual, usual / 2, low=0.0).to_event(1))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0).expand([2]).to_event(1))
    first = numpyro.sample("first", dist.LogNormal(jnp.log(10.0), 1.0).expand([2]).to_event(1))

    def slope(z):
        return z * jnp.stack([rates[0] - rates[1] * z[1], rates[3] * z[0] - rates[2]])

    def step(z, _):
        one = slope(z)
        two = slope(z + one / (2 * STEPS))
        three = slope(z + two / (2 * STEPS))
        four = slope(z + three / STEPS)
        return z + (one + 2 * two + 2 * three + four) / (6 * STEPS), None

    def year(z, _):
        z, _ = jax.lax.scan(step, z, None, STEPS)
        return z, z

    _, later = jax.lax.scan(year, first, None, len(pelts) - 1)
    level = jnp.log(jnp.maximum(jnp.concatenate([first[None], later]), 1e-10))
    numpyro.sample("pelts", dist.LogNormal(level, noise).to_event(2), obs=pelts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(3, marks=pytest.mark.long)])
def test_chains_leave_a_mode_without_cycles(seed):
    """It holds e^-44 of the posterior, and is where nearly all chains begin."""
    pelts = np.stack([HARES, LYNXES], axis=1)
    tree = ar.sample(predators_and_prey, (pelts,), seed=seed, progress=False)
    for name, mean, width in (
        ("rates", [0.548, 0.0278, 0.799, 0.0241], 0.01),
        ("noise", 0.25, 0.01),
    ):
        values = tree["posterior"][name].values
        assert np.abs(values.mean(axis=(0, 1)) - mean).max() < width
        assert np.max(az.rhat(values, chain_axis=0, draw_axis=1)) < 1.02
