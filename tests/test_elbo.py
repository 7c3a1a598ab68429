"""Variational fits against optima known by linear algebra, and the guards around them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from exact import surveys
from scipy.optimize import brentq

import autoreparam as ar
from autoreparam.errors import AutoreparamError, SamplingError
from autoreparam.learn.ascent import Mask, estimate
from autoreparam.learn.elbo import PAPER, fit_elbo
from autoreparam.learn.settings import ElboSettings
from autoreparam.program.target import Target

KEY = jax.random.key(0)
PRECISE = {"steps": 3000, "samples": 256, "learning_rates": (0.1,), "early_stop": False}


def target_of(entry):
    return Target(ar.inspect(entry.model, entry.args, entry.kwargs)), entry


def zoo_target(name, **options):
    return target_of(ar.zoo.load(name, **options))


def halfway(target):
    return ar.Parameterization.constant(target.program, 0.5)


@jax.jit
def gaussian(target, lam):
    """Mean, precision and log evidence of a target that is Gaussian in working coordinates."""
    origin = jnp.zeros(target.size)
    height, slope = jax.value_and_grad(target.logdensity)(origin, lam)
    precision = -jax.hessian(target.logdensity)(origin, lam)
    mean = jnp.linalg.solve(precision, slope)
    log_det = jnp.linalg.slogdet(precision)[1]
    evidence = height + 0.5 * slope @ mean + 0.5 * (target.size * jnp.log(2 * jnp.pi) - log_det)
    return mean, precision, evidence


def best_elbo(target, lam):
    """Log evidence minus the smallest KL, reached at σ² = 1 / diag(precision)."""
    _, precision, evidence = gaussian(target, lam)
    return evidence - 0.5 * (jnp.log(jnp.diag(precision)).sum() - jnp.linalg.slogdet(precision)[1])


def exact_elbo(target, fit):
    """The ELBO of a fit without Monte Carlo error: log evidence minus KL between two Gaussians."""
    mean, precision, evidence = gaussian(target, fit.parameterization)
    off = fit.loc - mean
    spread = jnp.sum(jnp.diag(precision) * fit.scale**2) + off @ precision @ off - target.size
    log_ratio = jnp.linalg.slogdet(precision)[1] + 2 * jnp.log(fit.scale).sum()
    return evidence - 0.5 * (spread - log_ratio)


# -- exact optima -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sigma_mu", [1.0, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.4, 2.0, 10.0))]
)
@pytest.mark.parametrize(
    "s0", [None, pytest.param(1.0, marks=pytest.mark.slow)], ids=["unit-free", "paper"]
)
def test_the_toy_is_centered_as_far_as_theory_says(sigma_mu, s0):
    target, _ = zoo_target("toy", n=3, sigma_mu=sigma_mu, sigma=2.0)
    qv = 3 / 2.0**2 * sigma_mu**2
    w = qv / (1 + qv)
    # With s0 = 1 and a large σ_mu there is a second, lower optimum at λ = 1, uphill from 0.5.
    start = ar.Parameterization.constant(target.program, 0.3, s0=s0)
    turn = min(1.0, 1 / max(np.log(sigma_mu), 1e-9))
    optimum = w if s0 is None else brentq(lambda x: x * sigma_mu ** (1 - x) - w, 0, turn)
    fit = fit_elbo(target, start, key=KEY, **PRECISE)
    np.testing.assert_allclose(fit.parameterization["mu"], optimum, atol=0.02)
    best = best_elbo(target, start.replace({"mu": optimum}))
    assert best - exact_elbo(target, fit) < 0.01
    assert abs(fit.elbo - exact_elbo(target, fit)) < 4 * fit.elbo_error + 1e-6
    assert fit.converged, fit.note


@pytest.mark.slow
@surveys
def test_radon_counties_are_centered_by_their_number_of_homes(survey):
    target, entry = target_of(survey())
    homes = np.bincount(entry.kwargs["county"])
    optimum = halfway(target).replace({"m": homes / (homes + 1)})
    fit = fit_elbo(target, halfway(target), key=KEY, **PRECISE | {"steps": 900, "samples": 64})
    error = fit.parameterization["m"] - optimum["m"]
    # Though the ELBO is flat where a county has few homes: 0.05 of λ costs 0.00005 nats.
    assert np.abs(error).max() < 0.01
    assert 0 <= best_elbo(target, optimum) - exact_elbo(target, fit) < 0.01
    assert abs(fit.elbo - exact_elbo(target, fit)) < 4 * fit.elbo_error
    assert fit.converged, fit.note


@jax.jit
def slopes(target, start, at, noise):
    """The gradient of the estimated ELBO, one a draw of the noise."""
    free, mask = at
    pull = jnp.zeros(target.size)
    return jax.vmap(jax.grad(estimate), (None, None, None, None, None, 0))(
        free, target, start, mask, pull, noise[:, None]
    )


def test_where_the_fit_is_exact_the_gradient_has_no_noise():
    target, _ = zoo_target("toy", n=3, sigma_mu=2.0, sigma=2.0)
    optimum = halfway(target).replace({"mu": 0.75})  # there the posterior is a product of Normals
    mean, precision, _ = gaussian(target, optimum)
    unit = np.array(
        [np.ravel(optimum.reference.get(s.name, 1.0))[0] for s in target.program.latents]
    )
    scale = 1 / np.sqrt(np.diag(precision)) / unit
    free = np.concatenate([mean / unit, np.log(np.expm1(scale)), [np.log(3.0)] * 2])
    mask = Mask(np.asarray(True), {"mu": np.asarray(False)})
    noise = jax.random.normal(KEY, (20, target.size))
    exact = slopes(target, halfway(target), (free, mask), noise)
    np.testing.assert_allclose(exact, 0, atol=1e-9)
    off = slopes(target, halfway(target), (free + 0.1, mask), noise)
    assert np.abs(off).max() > 0.1


@pytest.mark.slow
@surveys
def test_the_default_comes_near_the_best_elbo_at_a_modest_price(survey):
    target, entry = target_of(survey())
    homes = np.bincount(entry.kwargs["county"])
    best = best_elbo(target, halfway(target).replace({"m": homes / (homes + 1)}))
    fit = fit_elbo(target, halfway(target), key=KEY)
    assert best - exact_elbo(target, fit) < 0.1
    assert fit.gradients < 30_000


@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
def test_a_fixed_parameterization_gets_the_exact_mean_field(lam):
    target, _ = zoo_target("toy", n=3, sigma_mu=2.0, sigma=1.0)
    start = ar.Parameterization.constant(target.program, lam)
    fit = fit_elbo(target, start, key=KEY, learn=False, **PRECISE)
    mean, precision, _ = gaussian(target, start)
    np.testing.assert_allclose(fit.loc, mean, atol=0.02)
    np.testing.assert_allclose(fit.scale, 1 / np.sqrt(np.diag(precision)), rtol=0.02)
    assert best_elbo(target, start) - exact_elbo(target, fit) < 0.002
    assert fit.parameterization == start
    assert list(fit.history) == ["fixed"]


def test_the_funnel_is_left_non_centered():
    target, _ = zoo_target("funnel", n=9)
    fit = fit_elbo(target, halfway(target), key=KEY)
    assert np.max(fit.parameterization["x"]) < 0.02
    assert abs(fit.elbo) < 0.01  # the density is normalized, so the evidence is 1
    assert fit.converged, fit.note


def test_location_and_scale_may_have_their_own_lambda():
    target, _ = zoo_target("eight_schools")
    fit = fit_elbo(target, halfway(target), key=KEY, tied=False)
    assert not fit.parameterization.tied
    tied = fit_elbo(target, halfway(target), key=KEY)
    assert tied.parameterization.tied
    assert fit.elbo > tied.elbo - 4 * np.hypot(fit.elbo_error, tied.elbo_error)


def test_a_lambda_without_anything_to_move_with_stays_tied():
    target, _ = zoo_target("funnel", n=9)  # the location is constant
    assert fit_elbo(target, halfway(target), key=KEY, tied=False).parameterization.tied


# -- guards -----------------------------------------------------------------------------------


def test_a_fit_cut_short_falls_back_to_the_better_end_and_says_so():
    target, _ = zoo_target("funnel", n=9)
    fit = fit_elbo(target, halfway(target), key=KEY, steps=150, learning_rates=(0.05, 0.03))
    assert np.all(fit.parameterization["x"] == 0)
    assert "below that of the noncentered model" in fit.note
    assert not fit.converged


@pytest.mark.parametrize("sigma", [1.0, 0.01], ids=["seen in the gain", "hidden by the noise"])
def test_an_elbo_that_still_rises_is_reported(sigma):
    target, _ = zoo_target("toy", sigma_mu=10.0, sigma=sigma)
    fit = fit_elbo(target, halfway(target), key=KEY, steps=150, learning_rates=(0.01, 0.001))
    assert "still rising" in fit.note
    assert not fit.converged


def test_data_with_gaps_are_refused_in_words():
    entry = ar.zoo.load("toy")
    gaps = entry.kwargs | {"y": np.full(10, np.nan)}
    target = Target(ar.inspect(entry.model, (), gaps))
    with pytest.raises(SamplingError, match="no finite ELBO at any learning rate"):
        fit_elbo(target, halfway(target), key=KEY)


def test_a_learning_rate_that_explodes_is_dropped():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        x = numpyro.sample("x", dist.Normal(mu, 1.0))
        rate = jnp.where(jnp.abs(x) < 5, jnp.exp(x), jnp.nan)
        numpyro.sample("y", dist.Poisson(rate), obs=y)

    target = Target(ar.inspect(model, (jnp.asarray(3),)))
    fit = fit_elbo(target, halfway(target), key=KEY, learning_rates=(0.1, 50.0))
    assert np.isfinite(fit.elbo)
    assert np.all(np.isfinite(fit.loc) & (fit.scale > 0))


@pytest.mark.parametrize(
    "bad", [{"steps": 0}, {"samples": 0}, {"learning_rates": ()}, {"learning_rates": (-0.1,)}]
)
def test_settings_without_sense_are_refused(bad):
    target, _ = zoo_target("toy")
    with pytest.raises(AutoreparamError, match="at least one step, one sample"):
        fit_elbo(target, halfway(target), key=KEY, **bad)


def test_a_model_without_candidates_is_fitted_as_it_is():
    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    target = Target(ar.inspect(model, (jnp.asarray(2.0),)))
    fit = fit_elbo(target, halfway(target), key=KEY)
    assert len(fit.parameterization) == 0
    np.testing.assert_allclose(fit.loc, 1.0, atol=0.05)
    assert list(fit.history) == ["fixed"]


# -- bookkeeping ------------------------------------------------------------------------------


def test_other_data_other_starts_and_fixed_lambda_share_one_compiled_program():
    traces = 0

    def model(y):
        nonlocal traces
        traces += 1
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        x = numpyro.sample("x", dist.Normal(mu, 1.0))
        with numpyro.plate("n", y.shape[0]):
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    targets = [Target(ar.inspect(model, (jnp.full(3, mean),))) for mean in (0.0, 4.0)]
    starts = [ar.Parameterization.constant(targets[0].program, lam) for lam in (0.5, 0.2)]
    fit_elbo(targets[0], starts[0], key=KEY)
    paid = traces
    other = fit_elbo(targets[1], starts[1], key=jax.random.key(1), steps=300)
    fit_elbo(targets[1], starts[1], key=KEY, learn=False, learning_rates=(0.2, 0.05))
    fit_elbo(targets[1], starts[1], key=KEY, tied=False)
    assert traces == paid
    assert other.loc[0] > 1  # and it did see the other data


def test_every_gradient_is_counted():
    calls = 0

    def count(_):
        nonlocal calls
        calls += 1

    def model():
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        jax.debug.callback(count, mu)
        numpyro.sample("x", dist.Normal(mu, 1.0))

    target = Target(ar.inspect(model))
    start = halfway(target)
    jax.effects_barrier()
    calls = 0
    fit = fit_elbo(target, start, key=KEY, steps=150, samples=4, learning_rates=(0.1, 0.2))
    jax.effects_barrier()
    chunks = sum(len(elbos) + 1 for elbos in fit.history.values())
    assert fit.gradients == chunks * ElboSettings.chunk * 4 * 2
    # Each sample reads locations and scales once more, without a likelihood; so does each chunk.
    assert calls - 2 * fit.gradients == chunks * 2


def test_the_history_has_a_row_for_each_chunk_and_a_column_for_each_rate():
    target, _ = zoo_target("toy")
    fit = fit_elbo(target, halfway(target), key=KEY, steps=301, early_stop=False)
    assert {name: elbos.shape for name, elbos in fit.history.items()} == {
        "learned": (9, 2),
        "noncentered": (9, 2),
        "centered": (9, 2),
    }
    assert fit.history["learned"][-1].max() > fit.history["learned"][0].max()


def test_the_same_key_gives_the_same_fit():
    target, _ = zoo_target("toy")
    first, again = (fit_elbo(target, halfway(target), key=KEY) for _ in range(2))
    assert first.parameterization == again.parameterization
    assert first.elbo == again.elbo
    np.testing.assert_array_equal(first.loc, again.loc)


def test_an_early_stop_pays_less_for_about_the_same_elbo():
    target, _ = zoo_target("toy")
    quick = fit_elbo(target, halfway(target), key=KEY)
    full = fit_elbo(target, halfway(target), key=KEY, early_stop=False)
    assert quick.gradients < 0.8 * full.gradients
    assert full.elbo - quick.elbo < 0.05


def test_the_papers_settings_are_one_argument_away():
    settings = ElboSettings(**PAPER)
    assert (settings.steps, settings.samples) == (3000, 256)
    assert settings.learning_rates == (0.02, 0.05, 0.1, 0.2, 0.4)
    assert not settings.early_stop


def test_settings_are_passed_as_a_value_or_one_by_one():
    target, _ = zoo_target("toy")
    short = ElboSettings(steps=20, samples=2, chunk=10, decay=(1.0,), learning_rates=(0.1,))
    fit = fit_elbo(target, halfway(target), key=KEY, learn=False, settings=short, early_stop=False)
    assert fit.gradients == (2 + 1) * 10 * 2  # two chunks and an evaluation
    with pytest.raises(TypeError, match="'step'"):
        fit_elbo(target, halfway(target), key=KEY, step=20)


@pytest.mark.slow
def test_single_precision_is_enough(float32):
    target, _ = zoo_target("toy", n=3, sigma_mu=2.0, sigma=2.0)
    fit = fit_elbo(target, halfway(target), key=jax.random.key(0), **PRECISE)
    assert fit.loc.dtype == fit.scale.dtype == fit.parameterization["mu"].dtype == np.float32
    np.testing.assert_allclose(fit.parameterization["mu"], 0.75, atol=0.03)  # qv = 3
    assert fit.converged, fit.note
