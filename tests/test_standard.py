"""Standardized logarithms of Gamma and logits of Beta variables: moments, densities, precision."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special, stats
from test_same_posterior import assert_moments

import autoreparam as ar
from autoreparam.program.families.standard import (
    StandardLogGamma,
    StandardLogitBeta,
    log_gamma_loc,
    log_gamma_scale,
    logit_beta_loc,
    logit_beta_scale,
)
from autoreparam.program.target import Target

SHAPES = [1e-3, 0.05, 0.5, 1.0, 9.0, 300.0, 1e5]
NOISE = np.array([-3.0, -1.0, -0.05, 0.0, 0.1, 0.7])


def test_noise_is_of_the_order_of_one_at_every_shape():
    """Its middle half where shapes are large, and its upper end everywhere."""
    shapes = np.geomspace(0.01, 1e8, 500)
    with jax.enable_x64(True):
        loc, scale = np.asarray(log_gamma_loc(shapes)), np.asarray(log_gamma_scale(shapes))

    def quantile(q, of):
        return (np.log(special.gammaincinv(shapes[of], q)) - loc[of]) / scale[of]

    large, all_ = shapes > 2, shapes > 0
    assert (quantile(0.25, large) > -2).all()
    assert (np.abs(quantile(0.75, large)) < 1).all()
    assert (np.abs(quantile(0.999, all_) - 2) < 2).all()


def test_the_density_of_a_log_gamma_is_scipys():
    shape = np.array(SHAPES)[:, None]
    with jax.enable_x64(True):
        found = StandardLogGamma(shape).log_prob(NOISE)
        loc, scale = (np.asarray(f(shape)) for f in (log_gamma_loc, log_gamma_scale))
    expected = stats.loggamma.logpdf(loc + scale * NOISE, shape) + np.log(scale)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_the_density_of_a_logit_beta_is_that_of_a_beta():
    first, second = np.array(SHAPES)[:, None], np.array(SHAPES)[:, None, None]
    with jax.enable_x64(True):
        found = StandardLogitBeta(first, second).log_prob(NOISE)
        loc, scale = (np.asarray(f(first, second)) for f in (logit_beta_loc, logit_beta_scale))
    x = loc + scale * NOISE
    expected = -first * np.logaddexp(0, -x) - second * np.logaddexp(0, x)
    expected += np.log(scale) - special.betaln(first, second)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


GRID = np.linspace(-3.0, 3.0, 7)


@pytest.mark.parametrize("shape", [1e6, 1e10, 1e16])
def test_single_precision_has_the_density_at_shapes_beyond_its_digits(shape):
    """Each is a Normal there; the formula that everybody uses is off by millions."""
    for density in (
        lambda e, a: StandardLogGamma(a).log_prob(e),
        lambda e, a: StandardLogitBeta(a, 2 * a).log_prob(e),
        lambda e, a: StandardLogitBeta(a, 5.0 * a).log_prob(e),
    ):
        value, slopes = jax.vmap(jax.value_and_grad(density, (0, 1)), (0, None))(
            GRID.astype("f"), np.float32(shape)
        )
        np.testing.assert_allclose(value, stats.norm.logpdf(GRID), atol=0.01)
        np.testing.assert_allclose(slopes[0], -GRID, atol=0.02)
        np.testing.assert_allclose(slopes[1] * shape, 0.0, atol=0.02)


@pytest.mark.parametrize("noise", [-3.0, -0.01, 0.0, 0.05, 2.0])
def test_the_derivatives_of_a_symmetric_beta_are_right(noise):
    """Where both concentrations are equal, which formula is used changes."""

    def density(e, a, b):
        return StandardLogitBeta(a, b).log_prob(e)

    with jax.enable_x64(True):
        slopes = jax.grad(density, (0, 1, 2))(noise, 3.0, 3.0)
        steps = np.eye(3) * 1e-5
        at = np.array([noise, 3.0, 3.0])
        bumped = [(density(*(at + step)) - density(*(at - step))) / 2e-5 for step in steps]
    np.testing.assert_allclose(slopes, bumped, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("noise", [StandardLogGamma(0.3), StandardLogitBeta(0.4, 30.0)])
def test_draws_follow_the_density(noise):
    draws = np.asarray(noise.sample(jax.random.key(0), (4000,)), float)
    grid = np.linspace(-60.0, 30.0, 400_001)
    density = np.exp(np.asarray(noise.log_prob(grid), float))
    cumulated = np.cumsum(density) * (grid[1] - grid[0])
    assert cumulated[-1] == pytest.approx(1, abs=1e-3)
    assert stats.kstest(draws, lambda x: np.interp(x, grid, cumulated)).pvalue > 1e-3


def test_a_dirichlet_has_the_number_of_free_elements_in_lam_and_its_parents_in_both():
    def model():
        kappa = numpyro.sample("kappa", dist.HalfNormal(10.0))
        mean = numpyro.sample("mean", dist.Dirichlet(jnp.ones(4)))
        with numpyro.plate("group", 5):
            numpyro.sample("parts", dist.Dirichlet(kappa * mean))

    program = ar.inspect(model)
    site = program["parts"]
    assert site.candidate
    assert site.unconstrained_shape == (5, 3)
    assert set(site.loc_parents) == set(site.scale_parents) == {"kappa", "mean"}
    assert not program["mean"].candidate
    lam = ar.Parameterization.constant(program, 0.3)
    target = Target(program)
    position = np.random.default_rng(0).normal(size=target.size)
    parts = target.to_sites(position, lam)["parts"]
    np.testing.assert_allclose(parts.sum(-1), 1.0, rtol=1e-5)


def test_a_dirichlet_of_one_part_stays_as_it_is():
    def model():
        kappa = numpyro.sample("kappa", dist.HalfNormal(10.0))
        numpyro.sample("parts", dist.Dirichlet(kappa * jnp.ones(1)))

    program = ar.inspect(model)
    assert program["parts"].note == "a Dirichlet of one part; stays centered"
    target = Target(program)
    assert np.isfinite(target.logdensity(np.zeros(target.size), ar.Parameterization({})))


# -- exact posteriors: the width is the one latent besides the elements, which can be summed out ---

COUNTS = np.array([0, 1, 3, 2, 0, 5, 1, 2, 9, 1])
TRIALS = np.array([3, 12, 10, 4, 8, 15, 2, 9, 30, 6])
PARTS = np.array([[4, 1, 0], [2, 2, 1], [7, 0, 0], [1, 3, 1], [3, 1, 2]])
MEAN = np.array([0.6, 0.3, 0.1])


def counted(width):
    """Gamma rates of Poisson counts: negative binomial ones. `width` is of order one."""
    return dist.Gamma(width**-2, width**-2 / 2), lambda x: dist.Poisson(x), COUNTS


def tried(width):
    return dist.Beta(0.3 * width**-2, 0.7 * width**-2), lambda x: dist.Binomial(TRIALS, x), COUNTS


def parted(width):
    concentration = width**-2 * jnp.array(MEAN)
    return dist.Dirichlet(concentration), lambda x: dist.Multinomial(PARTS.sum(1), x), PARTS


def scattered(width):
    """Variances of Normal pairs."""
    noise = np.stack([COUNTS - 2.0, TRIALS - 8.0])
    v = dist.InverseGamma(1 + width**-2, 30 * width**-2)
    return v, lambda x: dist.Normal(0.0, jnp.sqrt(x)).expand([2, 10]), noise


def log_evidence(kind, a):
    """The log likelihood at `a = width**-2`, elements summed out."""
    g = special.gammaln
    if kind is counted:
        y, b = COUNTS[:, None], a / 2
        each = g(a + y) - g(a) + a * np.log(b) - (a + y) * np.log(b + 1)
    elif kind is tried:
        y, n = COUNTS[:, None], TRIALS[:, None]
        each = special.betaln(0.3 * a + y, 0.7 * a + n - y) - special.betaln(0.3 * a, 0.7 * a)
    elif kind is parted:
        alpha = a * MEAN[:, None]
        each = g(a) - g(a + PARTS.sum(1)[:, None])
        each = each + (g(alpha + PARTS[..., None]) - g(alpha)).sum(1)
    else:
        squares = ((COUNTS - 2.0) ** 2 + (TRIALS - 8.0) ** 2)[:, None] / 2
        shape, rate = 1 + a, 30 * a
        each = shape * np.log(rate) - g(shape) + g(shape + 1)
        each = each - (shape + 1) * np.log(rate + squares)
    return each.sum(0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [counted, tried, parted, scattered])
def test_the_posterior_of_the_width_is_exact(kind):
    def model():
        width = jnp.exp(numpyro.sample("log_width", dist.Normal(-0.5, 1.0)))
        family, likelihood, data = kind(width)
        with numpyro.plate("element", 5 if kind is parted else 10):
            x = numpyro.sample("x", family)
            numpyro.sample("y", likelihood(x), obs=data)

    tree = ar.sample(model, draws=4000, seed=1, progress=False)
    grid = np.linspace(-9.0, 6.0, 4001)
    log_p = log_evidence(kind, np.exp(-2 * grid)) - (grid + 0.5) ** 2 / 2
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    assert_moments(
        tree.posterior["log_width"].values, p @ grid, np.sqrt(p @ (grid - p @ grid) ** 2)
    )
