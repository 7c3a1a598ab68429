"""Chains that are lost, stuck or still climbing; and those that only look like it."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import autoreparam as ar
from autoreparam.errors import SamplingWarning
from autoreparam.mcmc import health as health_module
from autoreparam.mcmc.health import judge, restart
from autoreparam.mcmc.hmc import State
from autoreparam.mcmc.settings import SamplerSettings
from autoreparam.mcmc.state import RunState
from autoreparam.mcmc.trail import Trail

CHAINS, DRAWS, SIZE = 4, 60, 5


def window(levels=None, position=None, score=None):
    """Chains of a standard Gaussian, or with other log densities, positions or scores."""
    rng = np.random.default_rng(0)
    if position is None:
        position = rng.normal(size=(CHAINS, DRAWS, SIZE))
    if levels is None:
        levels = -0.5 * np.sum(position**2, axis=-1)
    steps = np.full((CHAINS, DRAWS, 1), 0.5)
    return Trail(position, -position if score is None else score, levels, steps, None)


def shifted(chain, by):
    trail = window()
    levels = trail.logdensity.copy()
    levels[chain] += by
    return trail._replace(logdensity=levels)


def test_chains_of_one_posterior_are_sound_and_do_not_climb():
    health = judge(window())
    assert health.sound.all()
    assert not health.climbing


def test_a_chain_far_below_the_others_is_lost():
    np.testing.assert_array_equal(judge(shifted(2, -500.0)).sound, [True, True, False, True])


def test_fewer_draws_of_very_many_numbers_lead_to_the_same_verdict(monkeypatch):
    monkeypatch.setattr(health_module, "ENOUGH_NUMBERS", 1)
    few = replace(SamplerSettings(), settled=5)
    np.testing.assert_array_equal(judge(shifted(2, -500.0), few).sound, [True, True, False, True])
    assert judge(window(), few).sound.all()


@pytest.mark.parametrize(("name", "value"), [("negligible", 0.0), ("settled", DRAWS)])
def test_what_is_negligible_is_a_setting(name, value):
    trail = modes((0.5, 0.3, 1e-12, 0.2), (1, 1, 1, 0.5))
    assert not judge(trail).sound.all()
    with np.errstate(divide="ignore"):
        assert judge(trail, replace(SamplerSettings(), **{name: value})).sound.all()


def test_a_chain_that_does_not_move_is_lost():
    trail = window()
    position = trail.position.copy()
    position[1] = position[1, :1]
    np.testing.assert_array_equal(judge(window(position=position)).sound, [True, False, True, True])


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_a_chain_without_a_finite_density_is_lost(bad):
    health = judge(shifted(3, bad))
    np.testing.assert_array_equal(health.sound, [True, True, True, False])
    assert not health.climbing


def test_modes_of_similar_levels_are_left_alone():
    trail = window()
    position = trail.position.copy()
    position[2:] += 100.0  # elsewhere, and by two nats less likely
    levels = trail.logdensity - np.array([0.0, 0.0, 2.0, 2.0])[:, None]
    assert judge(window(levels, position)).sound.all()


def modes(weights, widths, size=20, at=10.0, draws=80):
    """One chain in each of several Gaussian modes with these weights and widths."""
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(len(weights), draws, size))
    width = np.reshape(widths, (-1, 1, 1))
    level = np.log(weights)[:, None] - size * np.log(widths)[:, None]
    return window(
        level - 0.5 * np.sum(noise**2, axis=-1),
        at * np.arange(len(weights))[:, None, None] + width * noise,
        -noise / width,
    )


@pytest.mark.parametrize(
    "widths", [(1, 1, 1, 1), (1, 1, 0.1, 0.1), (1, 1, 1, 0.1), (5, 1, 3, 0.02)]
)
def test_modes_that_hold_some_of_the_posterior_are_left_alone(widths):
    assert judge(modes((0.5, 0.49, 0.005, 0.005), widths)).sound.all()


@pytest.mark.parametrize("width", [0.01, 0.3, 1, 20])
def test_a_chain_in_a_mode_with_next_to_no_probability_is_lost(width):
    health = judge(modes((0.5, 0.3, 1e-12, 0.2), (1, 1, width, 0.5)))
    np.testing.assert_array_equal(health.sound, [True, True, False, True])


@pytest.mark.parametrize("width", [0.1, 1, 10])
def test_half_of_the_chains_may_be_lost(width):
    health = judge(modes((1e-15, 0.5, 0.5, 1e-15), (width, 1, 1, width)))
    np.testing.assert_array_equal(health.sound, [False, True, True, False])


def test_a_wide_mode_in_which_a_chain_mixes_slowly_is_left_alone():
    """Its draws alone would be too narrow by a factor of 100 in all directions."""
    trail = modes((0.25, 0.25, 0.25, 0.25), (1, 1, 100, 1))
    middle = trail.position[2].mean(axis=0)
    position = trail.position.copy()
    position[2] = middle + (position[2] - middle) / 100
    assert judge(trail._replace(position=position)).sound.all()


def correlated(size, rho):
    return (1 - rho) * np.eye(size) + rho


def halves(covariance, other, draws, memory=0.0, shift=50.0):
    """Two chains in each of two Gaussian modes with half of the probability each.

    Draws of the second one remember those before: `memory` is their autocorrelation.
    """
    rng = np.random.default_rng(2)
    size = len(covariance)
    position, score, level = [], [], []
    for chain, shape in enumerate((covariance, covariance, other, other)):
        keep = memory if chain > 1 else 0.0
        noise = rng.normal(size=(draws, size))
        for i in range(1, draws):
            noise[i] = keep * noise[i - 1] + np.sqrt(1 - keep**2) * noise[i]
        factor = np.linalg.cholesky(shape)
        position.append(noise @ factor.T + (chain > 1) * shift)
        score.append(-np.linalg.solve(factor.T, noise.T).T)
        level.append(-0.5 * np.sum(noise**2, axis=-1) - np.log(np.diag(factor)).sum())
    return window(np.array(level), np.array(position), np.array(score))


@pytest.mark.parametrize("draws", [10, 40, 50, 80, 250])
@pytest.mark.parametrize(("size", "rho"), [(5, 0.999), (20, 0.99), (100, 0.5), (300, 0.3)])
def test_correlation_does_not_make_a_mode_look_larger_than_another(draws, size, rho):
    assert judge(halves(np.eye(size), correlated(size, rho), draws)).sound.all()


@pytest.mark.parametrize("draws", [10, 40, 80, 250])
@pytest.mark.parametrize("width", [0.02, 50.0])
def test_wide_and_narrow_modes_are_left_alone_in_windows_of_any_length(draws, width):
    assert judge(halves(np.eye(20), width**2 * np.eye(20), draws)).sound.all()


@pytest.mark.parametrize("draws", [80, 250])
@pytest.mark.parametrize(("size", "rho", "memory"), [(1000, 0.0, 0.98), (100, 0.9, 0.97)])
def test_chains_that_mix_slowly_are_left_alone_and_so_are_the_others(draws, size, rho, memory):
    shape = correlated(size, rho)
    assert judge(halves(shape, shape, draws, memory)).sound.all()


@pytest.mark.parametrize("width", [1e-9, 1.0, 1e9])
def test_a_coordinate_that_some_chains_do_not_move_in_is_left_out(width):
    trail = window()
    position, score = trail.position.copy(), trail.score.copy()
    position[..., 0] *= width
    score[..., 0] /= width
    position[:2, :, 0], score[:2, :, 0] = 0.0, 0.0
    assert judge(window(trail.logdensity, position, score)).sound.all()


def test_a_few_of_many_chains_by_chance_below_the_others_are_left_alone():
    many = 512
    assert judge(modes(np.full(many, 1 / many), np.ones(many), at=0.0)).sound.all()


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("height", [5.0, 50.0, 500.0])
def test_one_chain_in_a_spike_does_not_make_the_others_look_lost(height, settled):
    """It is as narrow as it is high, in one direction or in all; or its draws are few."""
    few = SamplerSettings() if settled else replace(SamplerSettings(), settled=DRAWS)
    for directions in (1, SIZE):
        trail = shifted(0, height)
        width = np.exp(-height / directions) if settled else 1.0
        position, score = trail.position.copy(), trail.score.copy()
        position[0, :, :directions] *= width
        score[0, :, :directions] /= width
        assert judge(trail._replace(position=position, score=score), few).sound.all()


@pytest.mark.parametrize("flat", [3, 10])
@pytest.mark.parametrize("width", [1e2, 1e4])
@pytest.mark.parametrize("odds", [-20.0, -40.0])
def test_a_chain_that_hardly_moves_on_a_plateau_does_not_make_the_others_look_lost(
    flat, width, odds
):
    """Near the middle of something wide scores are small, whatever is far away."""
    size, rng = 10, np.random.default_rng(3)
    position = rng.normal(size=(CHAINS, DRAWS, size))
    position[0, :, :flat] = np.cumsum(0.3 * rng.normal(size=(DRAWS, flat)), axis=0)
    widths = np.ones((CHAINS, 1, size))
    widths[0, 0, :flat] = width
    score = -position / widths**2
    levels = 0.5 * np.sum(position * score, axis=-1)
    levels[0] += odds - flat * np.log(width)
    assert judge(window(levels, position, score)).sound[1:].all()


def test_one_chain_that_found_a_far_more_probable_place_is_enough():
    np.testing.assert_array_equal(judge(shifted(0, 50.0)).sound, [True, False, False, False])


def test_chains_on_their_way_up_are_climbing_and_those_that_came_are_not():
    trail = window()
    slope = np.linspace(-300.0, 0.0, DRAWS)
    assert judge(trail._replace(logdensity=trail.logdensity + slope)).climbing
    one = trail.logdensity.copy()
    one[0] += slope  # the others have arrived
    assert not judge(trail._replace(logdensity=one)).climbing


@pytest.mark.parametrize("draws", [0, 1, 2, 3])
def test_hardly_any_draws_say_nothing(draws):
    trail = window()
    short = Trail(
        trail.position[:, :draws],
        trail.score[:, :draws],
        trail.logdensity[:, :draws],
        trail.step_size[:, :draws],
        None,
    )
    assert judge(short).sound.shape == (CHAINS,)
    assert judge(short).sound.any()


def test_where_no_chain_has_a_density_none_is_called_lost():
    trail = window()
    assert judge(trail._replace(logdensity=np.full((CHAINS, DRAWS), np.nan))).sound.all()


# -- where lost chains go on ------------------------------------------------------------------


def run_of(trail):
    """A run whose chains stand at the end of a window."""
    last = [np.array(part[:, -1]) for part in (trail.position, trail.logdensity, trail.score)]
    return RunState(State(*last), (), None, "hmc", 0.8, (), None, drawn=DRAWS)


def test_a_lost_chain_goes_on_from_a_late_draw_of_a_sound_one():
    trail = shifted(1, -500.0)
    state, sound = run_of(trail), np.array([True, False, True, True])
    moved = restart(state, trail, sound)
    assert moved.restarts == 1
    here = (trail.position == moved.chains.position[1]).all(axis=-1)
    ((chain, draw),) = np.argwhere(here)
    assert sound[chain]
    assert draw >= DRAWS // 2
    assert moved.chains.logdensity[1] == trail.logdensity[chain, draw]
    np.testing.assert_array_equal(moved.chains.score[1], trail.score[chain, draw])
    for part, before in zip(moved.chains, state.chains):
        np.testing.assert_array_equal(part[sound], before[sound])
    for part, again in zip(moved.chains, restart(state, trail, sound).chains):
        np.testing.assert_array_equal(part, again)  # the same run, the same draws


@pytest.mark.parametrize("all_or_none", [True, False])
def test_a_run_of_sound_chains_alone_or_of_none_stays_as_it_is(all_or_none):
    trail = window()
    state = run_of(trail)
    assert restart(state, trail, np.full(CHAINS, all_or_none)) is state


def one_factor(y):
    """Loadings of a common factor: turned around, it leaves the first variable to noise alone."""
    first = numpyro.sample("first", dist.HalfNormal(1.0))
    others = numpyro.sample("others", dist.Normal(0, 1).expand([5]).to_event(1))
    noise = numpyro.sample("noise", dist.HalfCauchy(1.0).expand([6]).to_event(1))
    with numpyro.plate("people", len(y)):
        factor = numpyro.sample("factor", dist.Normal(0, 1))
    mean = factor[:, None] * jnp.append(first, others)
    numpyro.sample("y", dist.Normal(mean, noise), obs=y)


LOADINGS = np.array([1, 0.8, 0.6, 0.9, -0.5, 0.7])


def people(rng):
    return rng.normal(size=(60, 1)) * LOADINGS + rng.normal(0, 0.5, (60, 6))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 5, 7, 9])
def test_chains_leave_a_mode_that_does_not_matter(seed):
    y = people(np.random.default_rng(3))
    tree = ar.sample(one_factor, (y,), seed=seed, progress=False)
    assert ar.efficiency(tree).r_hat < 1.02
    found = tree["posterior"]["others"].values.mean(axis=(0, 1))
    np.testing.assert_allclose(found, LOADINGS[1:], atol=0.3)


@pytest.mark.slow
def test_chains_of_many_data_sets_leave_it_too():
    rng = np.random.default_rng(3)
    y = np.stack([people(rng) for _ in range(4)])
    tree = ar.sample_many(one_factor, (y,), draws=100, progress=False)
    by_chain = tree["posterior"]["others"].values.mean(axis=2)
    np.testing.assert_allclose(by_chain, np.broadcast_to(LOADINGS[1:], by_chain.shape), atol=0.5)


@pytest.mark.slow
def test_a_mode_of_half_the_posterior_is_never_left_without_a_warning():
    """Chains of the independent mode seem 40 nats less likely where correlation is left out."""
    size, rng = 20, np.random.default_rng(0)
    apart = 5.0 * (-1.0) ** np.arange(size)
    shapes = np.stack([np.eye(size), correlated(size, 0.99)])
    centers = np.stack([apart, np.zeros(size)])

    def two_modes():
        modes = [dist.MultivariateNormal(c, covariance_matrix=s) for c, s in zip(centers, shapes)]
        numpyro.sample("x", dist.MixtureGeneral(dist.Categorical(probs=jnp.full(2, 0.5)), modes))

    of = np.array([0, 0, 1, 1])
    noise = np.einsum("cij,cj->ci", np.linalg.cholesky(shapes)[of], rng.normal(size=(4, size)))
    with pytest.warns(SamplingWarning, match="the chains do not agree"):
        tree = ar.sample(two_modes, init={"x": centers[of] + noise}, draws=200, progress=False)
    assert tree.attrs["restarts"] == 0
