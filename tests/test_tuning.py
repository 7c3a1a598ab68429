"""Metric, step size and trajectory length against Gaussians, where what they should be is known."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import erfc

import autoreparam as ar
from autoreparam.mcmc.hmc import Kernel, tuning_like
from autoreparam.mcmc.late import not_outlying
from autoreparam.mcmc.metric import (
    Metric,
    _principal,
    diagonal_metric,
    fit_metric,
    most_directions,
    spread,
)
from autoreparam.mcmc.settings import SamplerSettings
from autoreparam.mcmc.step_size import FAR, NEAR, adapt, begin, settled
from autoreparam.mcmc.trajectory import best_length
from autoreparam.mcmc.warmup import plan
from autoreparam.program.move import _carry, move
from autoreparam.program.target import Target
from autoreparam.run.settings import Adaptation


def gaussian(size, seed=0, strong=3, factor=30.0):
    """A covariance with a few strong directions, draws from it and their scores."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
    values = np.ones(size)
    values[:strong] = factor
    scale = np.exp(rng.normal(size=size))
    covariance = scale[:, None] * ((basis * values) @ basis.T) * scale
    draws = rng.multivariate_normal(np.zeros(size), covariance, size=600)
    return covariance, draws, -np.linalg.solve(covariance, draws.T).T


def dense(metric):
    scale = np.sqrt(metric.diagonal)
    inner = np.eye(len(scale)) + (metric.directions * (metric.stretch - 1)) @ metric.directions.T
    return scale[:, None] * inner * scale


def condition(metric, covariance):
    whitened = np.linalg.eigvals(np.linalg.solve(dense(metric), covariance)).real
    return whitened.max() / whitened.min()


@pytest.mark.parametrize("size", [4, 30, 100])
def test_the_metric_finds_the_strong_directions_of_a_gaussian(size):
    covariance, draws, scores = gaussian(size)
    diagonal = Metric.of(diagonal_metric(draws, scores))
    metric = fit_metric(draws, scores)
    assert 0 < metric.rank <= most_directions(size)
    assert condition(diagonal, covariance) > 8
    assert condition(metric, covariance) < 2.5
    x, s = metric.whiten(draws, scores)
    np.testing.assert_allclose(np.sum(x * s, axis=1), np.sum(draws * scores, axis=1))


def test_the_metric_stays_diagonal_where_nothing_more_is_to_be_had():
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(200, 40)) * np.arange(1, 41)
    metric = fit_metric(draws, -draws / np.arange(1, 41) ** 2)
    assert metric.rank == 0
    np.testing.assert_allclose(metric.diagonal, np.arange(1, 41) ** 2)


@pytest.mark.parametrize("unit", [1e-17, 1e-9, 1e9, 1e17])
def test_the_metric_holds_in_wild_units_and_single_precision(unit):
    _, draws, scores = gaussian(6)
    usual = fit_metric(draws, scores)
    wild = fit_metric((unit * draws).astype(np.float32), (scores / unit).astype(np.float32))
    assert wild.diagonal.dtype == np.float32
    np.testing.assert_allclose(dense(wild) / unit**2, dense(usual), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("seed", [79, 109, 143])
def test_no_direction_is_frozen_by_rounding(seed):
    # Some draws and scores are both so wide, and so alike, that rounding decides on eigenvalues.
    rng = np.random.default_rng(seed)
    draws, scores = rng.normal(size=(2, 60, 5))
    many, wide = rng.integers(1, 5), 10 ** rng.uniform(0, 14)
    draws[:, :many] *= wide
    scores[:, :many] *= wide
    draws[:, 0] = draws[:, 1] + 1e-9 * draws[:, 0]
    metric = fit_metric(draws.astype(np.float32), scores.astype(np.float32))
    assert metric.stretch.min() > np.finfo(float).eps
    assert np.isfinite(metric.stretch).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_the_metric_is_sound_whatever_it_is_given(bad):
    draws, scores = np.random.default_rng(0).normal(size=(2, 60, 5))
    scores[3, 2] = bad
    with np.errstate(all="ignore"):
        metric = fit_metric(draws, scores)
    assert np.isfinite(metric.diagonal).all()
    assert (metric.diagonal > 0).all()


def test_large_problems_have_fewer_directions_and_huge_ones_none():
    assert most_directions(10) == 10
    assert most_directions(1000) == 64
    assert most_directions(100_000) == 4
    assert most_directions(1_000_000) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["hmc", "nuts"])
def test_a_stretched_metric_leaves_the_posterior_as_it_is(kernel):
    """Draws with a metric of the wrong shape still have the exact moments."""
    covariance = np.array([[1.0, 0.8], [0.8, 2.0]])

    def model():
        numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(2), covariance))

    target = Target(ar.inspect(model))
    lam = ar.Parameterization.centered(target.program)
    turned = np.array([[0.6, -0.8], [0.8, 0.6]])
    metric = Metric(np.array([1.0, 3.0]), turned, np.array([4.0, 0.5]))
    tuning = tuning_like(target, inverse_mass=metric, step_size=0.3, num_steps=5.0, jitter=1.0)
    move = Kernel(kernel)

    def chain(key):
        first = move.init(target, jnp.zeros(2, target.program.dtype), lam)

        def step(state, key):
            state, _ = move.step(key, target, state, lam, tuning)
            return state, state.position

        return jax.lax.scan(step, first, jax.random.split(key, 1500))[1][100:]

    draws = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), 8))
    np.testing.assert_allclose(np.cov(np.asarray(draws).reshape(-1, 2).T), covariance, atol=0.2)


def test_no_energy_is_below_zero_however_far_a_trajectory_went():
    """A squeezed direction in single precision: a difference would round to less than nothing."""
    direction = np.ones((4, 1), np.float32) / 2
    metric = Metric(np.ones(4, np.float32), direction, np.full(1, 1e-7, np.float32)).build()
    assert metric.kinetic_energy(jnp.full(4, 3e12, jnp.float32)) >= 0


def test_a_draw_with_a_score_out_of_proportion_does_not_decide():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(400, 3))
    scores = -draws
    scores[7] = 1e9
    kept = draws[not_outlying(scores)]
    assert len(kept) == 399


def test_scales_that_are_left_are_those_of_the_whitened_gaussian():
    covariance, draws, scores = gaussian(10)
    found = spread(Metric.of(np.diag(covariance)), draws, scores)
    scale = np.sqrt(np.diag(covariance))
    exact = np.sqrt(np.linalg.eigvalsh(covariance / np.outer(scale, scale)))
    np.testing.assert_allclose(found.max(), exact.max(), rtol=0.25)
    assert len(found) == 20


def test_the_step_size_is_found_from_what_was_accepted():
    from scipy.special import erfc

    rng = np.random.default_rng(0)
    tried = 0.5 * np.exp(rng.uniform(-0.3, 0.3, size=(4, 4000)))
    accepted = np.clip(erfc(0.8 * tried**2) + 0.1 * rng.normal(size=tried.shape), 0, 1)
    found = settled(tried, accepted, 0.5, 0.8)
    assert abs(erfc(0.8 * found**2) - 0.8) < 0.02
    assert settled(tried[:, :2], accepted[:, :2], 0.5, 0.8) == 0.5


def test_the_step_size_is_not_much_longer_than_the_guess():
    tried, all_accepted = np.full(28, 0.4), np.full(28, 0.999)
    assert 0.4 < settled(tried, all_accepted, 0.4, 0.8) < 0.4 * 1.5


def adapted_log_steps(search, first, draws):
    """Log step sizes of chains whose right one is 1, draw by draw; acceptance is a noisy mean."""
    rng, state = np.random.default_rng(0), begin(np.full(200, first), True, 0.8, search)
    found, next_state = [], jax.jit(adapt)
    for _ in range(draws):
        found.append(np.asarray(state.average.log_step_size))
        expected = erfc(0.179 * np.exp(2 * found[-1]))  # 0.8 at a step of 1
        state = next_state(state, rng.binomial(3, expected) / 3)
    return np.array(found), np.log(state.final())


@pytest.mark.parametrize("search", [FAR, NEAR])
@pytest.mark.parametrize("first", [0.1, 1.0, 10.0])
def test_dual_averaging_finds_the_step_size_from_any_guess(search, first):
    _, final = adapted_log_steps(search, first, 100)
    assert abs(np.median(final)) < 0.35


def test_steps_scatter_less_where_their_size_is_known():
    far, near = (adapted_log_steps(search, 1.0, 100)[0][50:].std() for search in (FAR, NEAR))
    assert near < 0.5 * far
    assert near < 0.3


def test_trajectories_are_a_quarter_turn_of_a_round_posterior_and_longer_of_others():
    steps, jitter, _ = best_length(np.ones(5), 0.1, 0.8)
    assert 1.0 < steps * 0.1 < 2.0
    assert jitter < 1
    longer, wider, _ = best_length(np.array([0.3, 1.0, 3.0]), 0.1, 0.8)
    assert longer > 1.5 * steps
    assert wider > jitter
    # What was spent before the first draw speaks for better draws.
    assert best_length(np.ones(5), 0.1, 0.8, paid=100_000, draws=4000)[0] >= steps
    # Chains that climb show directions that no step of this size could follow.
    assert best_length(np.array([0.03, 1.0]), 0.1, 0.8)[0] > steps / 2


@pytest.mark.parametrize("warmup", [0, 1, 9, 10, 50, 137, 500, 2000])
def test_windows_add_up_and_the_last_are_for_the_step_size(warmup):
    steps = [step for step in plan(warmup, 10) if step.phase == "warmup"]
    assert sum(step.draws for step in steps) == warmup
    if warmup >= 50:
        assert steps[-1].last_window
        assert not steps[0].last_window


def funnel_group(y):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("n", 4):
        theta = numpyro.sample("theta", dist.Normal(0, tau))
        numpyro.sample("y", dist.Normal(theta, 1), obs=y)


@pytest.mark.slow
def test_the_kernel_is_hmc_of_its_own_length_unless_it_would_be_too_long(tmp_path):
    y = np.array([0.1, -0.3, 0.2, 0.8])
    keywords = {"draws": 30, "warmup": 100, "chains": 2, "progress": False}
    tree = ar.sample(funnel_group, (y,), **keywords)
    assert tree.attrs["kernel"] == "hmc"
    impatient = Adaptation(SamplerSettings(nuts_beyond=0.1))
    keywords["adaptation"] = impatient
    tree = ar.sample(funnel_group, (y,), **keywords)
    assert tree.attrs["kernel"] == "nuts"
    assert "tree_depth" in tree["sample_stats"]
    run = tmp_path / "run"
    ar.sample(funnel_group, (y,), **{**keywords, "draws": 5, "checkpoint": run})
    resumed = ar.resume(run, funnel_group, (y,), draws=30, progress=False)
    assert resumed.attrs["kernel"] == "nuts"
    np.testing.assert_array_equal(resumed["posterior"]["tau"], tree["posterior"]["tau"])


def test_draws_move_between_parameterizations_by_one_compiled_program():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        theta = numpyro.sample("theta", dist.Normal(mu, 2.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(theta, 1.0).to_event(1), obs=y)

    target = Target(ar.inspect(model, (np.arange(3.0),)))
    lam, new = (ar.Parameterization.constant(target.program, x) for x in (0.2, 0.9))
    rows = np.random.default_rng(0).normal(size=(2, 150, target.size))
    expected = jax.vmap(target.carry, (0, 0, None, None))(*map(jnp.asarray, rows), lam, new)
    compiled = []
    for count in (1, 64, 150):
        moved = move(target, rows[0, :count], rows[1, :count], lam, new)
        for found, wanted in zip(moved, expected):
            np.testing.assert_allclose(found, wanted[:count], rtol=1e-5, atol=1e-5)
        compiled.append(_carry.programs())
    assert max(compiled) == compiled[0]


@pytest.mark.parametrize(("count", "size"), [(60, 7), (20, 45)])
def test_principal_directions_are_those_of_singular_values(count, size):
    rows = np.random.default_rng(0).normal(size=(count, size)) * np.linspace(1, 3, size)
    found, known = _principal(rows), np.linalg.svd(rows, full_matrices=False)[2]
    np.testing.assert_allclose(found @ found.T, np.eye(len(found)), atol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(found * known, axis=1)), 1, atol=1e-6)
    assert _principal(rows, most=size).shape == (size, size)
    still = _principal(np.zeros((count, size)))
    np.testing.assert_allclose(still @ still.T, np.eye(len(still)), atol=1e-12)


def test_scores_that_are_no_numbers_are_outliers_however_many():
    score = np.random.default_rng(0).normal(size=(100, 3))
    score[:40, 1], score[40, 2], score[41] = np.nan, np.inf, 1e6
    assert np.flatnonzero(~not_outlying(score)).tolist() == [*range(42)]
    assert not not_outlying(np.full((5, 2), np.nan)).any()
