"""Ways in which people write non-centering by hand, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import implicit_forms as forms
import implicit_lookalikes as alike
import jax.numpy as jnp
import numpyro.distributions as dist
from implicit_forms import MEASURED, X


class Row(NamedTuple):
    """A model whose site `eps` is recognized, the words for what is implied, and its name."""

    name: str
    model: Callable[[], Any]
    implied: str
    through: str = ""
    site: str = "eps"


class Refused(NamedTuple):
    """A model whose site `eps` is left alone, and a part of the reason."""

    name: str
    model: Callable[[], Any]
    reason: str
    site: str = "eps"


RECOGNIZED = [
    Row("a scalar", forms.scalar, "Normal(mu, tau)", "theta"),
    Row("in a plate", forms.plated, "Normal(mu, tau)", "theta"),
    Row("without a name", forms.unnamed, "Normal(mu, tau)"),
    Row("the product first", forms.product_first, "Normal(mu, tau)"),
    Row("gathered before it is scaled", forms.gathered_late, "Normal(mu, tau)"),
    Row("parameters by kind", forms.gathered_parameters, "Normal(mu[...], tau[...])"),
    Row("all gathered alike", forms.gathered_everywhere, "Normal(mu, tau)"),
    Row("an offset added later", forms.offset_later, "Normal(mu, tau)"),
    Row("a log scale", forms.log_scale, "Normal(mu, jnp.exp(log_tau))"),
    Row("a softplus scale", forms.softplus_scale, "Normal(mu, f(raw))"),
    Row("a precision", forms.precision, "Normal(mu, 1 / jnp.sqrt(precision))"),
    Row("a variance", forms.variance, "Normal(mu, jnp.sqrt(variance))"),
    Row("noise of another scale", forms.wide_noise, "Normal(mu, 2 * tau)"),
    Row("subtracted", forms.minus, "Normal(mu, tau)"),
    Row("only a location", forms.location_only, "Normal(f(mu, slope), 1.0)", "theta"),
    Row("only a scale", forms.scale_only, "Normal(0.0, tau)", "theta"),
    Row("two names for one product", forms.two_names, "Normal(mu, tau)", "theta"),
    Row("one expression in two places", forms.used_twice_alike, "Normal(mu, tau)"),
    Row("two levels", forms.two_levels, "Normal(upper[...], sigma)", "theta"),
    Row("two levels, the upper one", forms.two_levels, "Normal(mu, tau)", "upper", "eps_upper"),
    Row("two noises of one size", forms.same_level, "Normal(mu + tau * first, sigma)"),
    Row("sampled before its parents", forms.noise_first, "Normal(mu, tau)", "theta"),
    Row("a matrix", forms.matrix_of_noise, "Normal(mu, tau)", "theta"),
    Row("a matrix the other way", forms.transposed, "Normal(mu, tau)", "theta"),
    Row("in another shape", forms.reshaped, "Normal(mu, tau)"),
    Row("repeated", forms.repeated, "Normal(mu, tau)"),
    Row("exponentiated", forms.lognormal, "Normal(mu, tau)"),
    Row("a log scale of data", forms.in_a_scale, "Normal(mu, tau)"),
    Row("the mean of a latent", forms.of_a_latent, "Normal(mu, tau)", "theta"),
    Row("Student-t noise", forms.student, "StudentT(df=..., loc=mu, scale=tau)"),
    Row("Cauchy noise", forms.cauchy, "Cauchy(mu, tau)"),
    Row("half-Normal noise", forms.half_normal, "HalfNormal(tau)", "scale"),
    Row("exponential noise", forms.exponential, "Exponential(1 / (tau))"),
    Row("a Cholesky factor", forms.cholesky_times_noise, "scale_tril=tau * L", "theta"),
    Row("a diagonal and a factor", forms.diagonal_times_cholesky, "MultivariateNormal(0.0"),
    Row("noise in rows", forms.noise_times_transpose, "scale_tril=tau * L", "theta"),
    Row("einsum", forms.einsum, "MultivariateNormal(0.0, scale_tril=tau * L)"),
    Row("einsum of rows", forms.einsum_rows, "MultivariateNormal(0.0"),
    Row("a Gaussian process", forms.gaussian_process, "MultivariateNormal(0.0", "f"),
    Row("multivariate noise", forms.multivariate_noise, "MultivariateNormal"),
    Row("a random walk", forms.random_walk, "start + GaussianRandomWalk(sigma, 6)", "x"),
    Row("a scaled random walk", forms.scaled_random_walk, "GaussianRandomWalk(sigma, 6)"),
    Row("an autoregression", forms.autoregression, "depend on phi, sigma", "x"),
    Row("a site in a scan", forms.site_in_a_scan, "depend on mu, sigma"),
    Row("a trend, its level", forms.trend, "depend on level_scale, slope_scale, turn"),
    Row("a trend, its slope", forms.trend, "depend on slope_scale", "", "turn"),
    Row(
        "NumPyro's LocScaleReparam",
        forms.by_numpyro(),
        "Normal(mu, tau)",
        "theta",
        "theta_decentered",
    ),
    Row(
        "NumPyro's TransformReparam", forms.by_transform(), "Normal(mu, tau)", "theta", "theta_base"
    ),
]

TWICE, CURVED, SIGN = "different expressions", "not affine", "may be zero or change its sign"

REFUSED = [
    Refused("used twice", alike.made(lambda mu, tau, eps: mu + tau * eps + eps), TWICE),
    Refused(
        "its location depends on it", alike.made(lambda m, t, eps: jnp.sin(eps) + t * eps), TWICE
    ),
    Refused(
        "its scale depends on it", alike.made(lambda m, t, eps: m + t * jnp.exp(eps) * eps), TWICE
    ),
    Refused("shared by two forms", alike.shared, TWICE),
    Refused("in the mean and in the scale of data", alike.in_mean_and_scale, TWICE),
    Refused("in a factor", alike.in_a_factor, TWICE),
    Refused("cut in two", alike.made(lambda mu, tau, eps: tau * eps[0] + eps[1:]), TWICE),
    Refused("squared", alike.made(lambda mu, tau, eps: mu + tau * eps**2), CURVED),
    Refused("exponentiated", alike.made(lambda mu, tau, eps: mu + tau * jnp.exp(eps)), "(exp)"),
    Refused(
        "its absolute value", alike.made(lambda mu, tau, eps: mu + tau * jnp.abs(eps)), "(abs)"
    ),
    Refused("squashed", alike.made(lambda mu, tau, eps: mu + tau * jnp.tanh(eps)), "(tanh)"),
    Refused("a wave", alike.made(lambda mu, tau, eps: mu + tau * jnp.sin(eps)), "(sin)"),
    Refused("rounded", alike.made(lambda mu, tau, eps: mu + tau * jnp.floor(eps)), "(floor)"),
    Refused("times itself", alike.made(lambda mu, tau, eps: mu + tau * (eps * eps)), "with itself"),
    Refused("a divisor", alike.made(lambda mu, tau, eps: mu + tau / eps), "it divides"),
    Refused("summed", alike.made(lambda mu, tau, eps: mu + tau * jnp.sum(eps)), "(reduce_sum)"),
    Refused("sorted", alike.made(lambda mu, tau, eps: mu + tau * jnp.sort(eps)), "(sort)"),
    Refused(
        "its maximum", alike.made(lambda mu, tau, eps: mu + tau * jnp.max(eps)), "(reduce_max)"
    ),
    Refused("only a part of it", alike.made(lambda mu, tau, eps: mu + tau * eps[1:]), "(slice)"),
    Refused(
        "replaced here and there",
        alike.made(lambda mu, tau, eps: mu + tau * jnp.where(MEASURED > 1, eps, 0.0)),
        "(select_n)",
    ),
    Refused(
        "joined with others",
        alike.made(lambda mu, tau, eps: tau * jnp.concatenate([eps, MEASURED])),
        "(concatenate)",
    ),
    Refused(
        "chosen by itself", alike.made(lambda m, t, eps: jnp.where(eps > 0, t * eps, m)), TWICE
    ),
    Refused("observed", alike.is_observed, ""),
    Refused("masked", alike.masked, "masked"),
    Refused("a scale that may be negative", alike.real_scale, SIGN),
    Refused("a scale that may be zero", alike.squared_scale, SIGN),
    Refused("times data of both signs", alike.made(lambda m, t, eps: m + (t * X[:3]) * eps), SIGN),
    Refused("a scale for each observation", alike.scale_per_observation, "differs between uses"),
    Refused("as many parents as children", alike.as_many_parents, "not fewer"),
    Refused("a constant form", alike.constant, "constant location and scale"),
    Refused("not used", alike.unused, "nothing depends on it"),
    Refused("any matrix", alike.any_matrix, "lower triangular"),
    Refused("a covariance matrix", alike.covariance, "lower triangular"),
    Refused("an upper triangle", alike.upper_triangle, "lower triangular"),
    Refused("a design matrix", alike.design_matrix, "not square"),
    Refused("sums in both directions", alike.backward_sum, TWICE),
    Refused("a walk from the end", alike.reverse_walk, "from the end"),
    Refused("a walk of changing scale", alike.walk_of_changing_scale, "different numbers along it"),
    Refused("a walk of heavy steps", alike.heavy_walk, "not Normal"),
    Refused(
        "a curved step",
        alike.loop(lambda t, x, e: alike.both(t * jnp.tanh(x + e))),
        "more of its past",
    ),
    Refused(
        "a loop from the end", alike.loop(lambda t, x, e: alike.both(x + t * e), True), "backward"
    ),
    Refused("a loop that sees everything", alike.steps_see_everything, "all of it"),
    Refused("in a cond", alike.in_a_cond, ""),
    Refused(
        "uniform noise",
        alike.made(lambda mu, tau, eps: mu + tau * eps, family=dist.Uniform(-1.0, 1.0)),
        "neither shifted nor scaled",
    ),
    Refused(
        "positive noise, shifted",
        alike.made(lambda mu, tau, eps: (mu + eps) * tau, family=dist.Exponential(1.0)),
        "positive, and shifted",
    ),
    Refused(
        "positive noise, its sign changed",
        alike.made(lambda mu, tau, eps: mu - tau * -eps, family=dist.HalfNormal(1.0)),
        "its sign is changed",
    ),
]
