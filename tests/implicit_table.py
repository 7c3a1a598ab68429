"""Ways in which people write non-centering by hand, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import cond, scan
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

GROUP = np.array([0, 1, 2, 0, 1, 2])  # of six observations
OTHER = np.array([0, 0, 1, 1, 2, 2])
X = np.array([0.5, -1.0, 2.0, 0.3, -0.4, 1.5])
Y = np.array([0.2, -0.3, 1.1, 0.4, -0.6, 0.9])
MEASURED = np.array([1.0, 2.0, 0.5])
UNIT = dist.Normal(0.0, 1.0)


def real(name: str = "mu", *shape: int) -> Any:
    """A hyperparameter on the real line."""
    return numpyro.sample(name, dist.Normal(0.0, 1.5).expand(shape).to_event(len(shape)))


def positive(name: str = "tau", *shape: int) -> Any:
    """A positive hyperparameter."""
    return numpyro.sample(name, dist.HalfNormal(1.0).expand(shape).to_event(len(shape)))


def noise(*shape: int, name: str = "eps", family: Any = UNIT) -> Any:
    """Noise of unit scale."""
    return numpyro.sample(name, family.expand(shape).to_event(len(shape)))


def factor(size: int = 3) -> Any:
    """A Cholesky factor of correlations."""
    return numpyro.sample("L", dist.LKJCholesky(size))


def observe(mean: Any, scale: Any = 1.0, name: str = "y") -> None:
    """Data around a mean, one or six of them."""
    data = jnp.asarray(np.resize(Y, jnp.shape(mean)))
    numpyro.sample(name, dist.Normal(mean, scale).to_event(jnp.ndim(mean)), obs=data)


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


def scalar():
    mu, tau, eps = real(), positive(), noise()
    observe(numpyro.deterministic("theta", mu + tau * eps))


def plated():
    mu, tau = real(), positive()
    with numpyro.plate("groups", 3):
        eps = numpyro.sample("eps", UNIT)
        theta = numpyro.deterministic("theta", mu + tau * eps)
    observe(theta[GROUP])


def unnamed():
    mu, tau, eps = real(), positive(), noise(3)
    observe((mu + tau * eps)[GROUP])


def product_first():
    mu, tau, eps = real(), positive(), noise(3)
    observe((eps * tau + mu)[GROUP])


def gathered_late():
    mu, tau, eps = real(), positive(), noise(3)
    observe(mu + tau * eps[GROUP])


def gathered_parameters():
    mu, tau, eps = real("mu", 2), positive("tau", 2), noise(3)
    kind = np.array([0, 1, 0])
    observe((mu[kind] + tau[kind] * eps)[GROUP])


def gathered_everywhere():
    mu, tau, eps = real("mu", 3), positive("tau", 3), noise(3)
    observe(mu[GROUP] + tau[GROUP] * eps[GROUP])


def offset_later():
    mu, tau, beta, eps = real(), positive(), real("beta"), noise(3)
    observe((mu + tau * eps)[GROUP] + beta * X)


def log_scale():
    mu, log_tau, eps = real(), real("log_tau"), noise(3)
    observe((mu + jnp.exp(log_tau) * eps)[GROUP])


def softplus_scale():
    mu, raw, eps = real(), real("raw"), noise(3)
    observe((mu + jax.nn.softplus(raw) * eps)[GROUP])


def precision():
    mu, precision, eps = real(), positive("precision"), noise(3)
    observe((mu + eps / jnp.sqrt(precision))[GROUP])


def variance():
    mu, variance, eps = real(), positive("variance"), noise(3)
    observe((mu + jnp.sqrt(variance) * eps)[GROUP])


def wide_noise():
    mu, tau, eps = real(), positive(), noise(3, family=dist.Normal(0.0, 2.0))
    observe((mu + tau * eps)[GROUP])


def minus():
    mu, tau, eps = real(), positive(), noise(3)
    observe((mu - tau * eps)[GROUP])


def location_only():
    mu, slope, eps = real(), real("slope"), noise(3)
    observe(numpyro.deterministic("theta", mu + slope * MEASURED + eps)[GROUP])


def scale_only():
    tau, eps = positive(), noise(3)
    observe(numpyro.deterministic("theta", tau * eps)[GROUP])


def two_names():
    mu, tau, eps = real(), positive(), noise(3)
    numpyro.deterministic("shift", tau * eps)
    numpyro.deterministic("theta", mu + tau * eps)
    observe((mu + tau * eps)[GROUP])


def used_twice_alike():
    mu, tau, eps = real(), positive(), noise(3)
    observe((mu + tau * eps)[GROUP])
    observe(jnp.exp(mu + tau * eps)[OTHER], name="z")


def two_levels():
    mu, tau, sigma = real(), positive(), positive("sigma")
    upper = numpyro.deterministic("upper", mu + tau * noise(2, name="eps_upper"))
    eps = noise(3)
    observe(numpyro.deterministic("theta", upper[np.array([0, 1, 1])] + sigma * eps)[GROUP])


def same_level():
    mu, tau, sigma = real(), positive(), positive("sigma")
    first, eps = noise(3, name="first"), noise(3)
    observe((mu + tau * first + sigma * eps)[GROUP])


def noise_first():
    eps = noise(3)
    mu, tau = real(), positive()
    observe(numpyro.deterministic("theta", mu + tau * eps)[GROUP])


def matrix_of_noise():
    mu, tau, eps = real("mu", 2), positive("tau", 2), noise(3, 2)
    observe(numpyro.deterministic("theta", mu + tau * eps)[GROUP, 0])


def transposed():
    mu, tau, eps = real("mu", 2), positive("tau", 2), noise(2, 3)
    theta = numpyro.deterministic("theta", mu[:, None] + tau[:, None] * eps)
    observe(theta.T[GROUP, 1])


def reshaped():
    mu, tau, eps = real(), positive(), noise(6)
    observe((mu + tau * eps.reshape(2, 3))[0])


def repeated():
    mu, tau, eps = real("mu", 2), positive("tau", 2), noise(2)
    observe(jnp.broadcast_to((mu + tau * eps)[:, None], (2, 3)))


def lognormal():
    mu, tau, eps = real(), positive(), noise(3)
    observe(jnp.exp(mu + tau * eps)[GROUP])


def in_a_scale():
    mu, tau, eps = real(), positive(), noise(3)
    observe(jnp.zeros(6), jnp.exp(mu + tau * eps)[GROUP])


def of_a_latent():
    mu, tau, eps = real(), positive(), noise(3)
    theta = numpyro.deterministic("theta", mu + tau * eps)
    numpyro.sample("below", dist.Normal(theta, 1.0).to_event(1))


def student():
    mu, tau, eps = real(), positive(), noise(3, family=dist.StudentT(4.0, 0.0, 1.0))
    observe((mu + tau * eps)[GROUP])


def cauchy():
    mu, tau, eps = real(), positive(), noise(3, family=dist.Cauchy(0.0, 1.0))
    observe((mu + tau * eps)[GROUP])


def half_normal():
    tau, eps = positive(), noise(3, family=dist.HalfNormal(1.0))
    observe(jnp.zeros(6), numpyro.deterministic("scale", tau * eps)[GROUP])


def exponential():
    tau, eps = positive(), noise(3, family=dist.Exponential(1.0))
    observe((eps * tau)[GROUP])


def cholesky_times_noise():
    mu, tau, L, eps = real("mu", 3), positive("tau", 3), factor(), noise(3)
    observe(numpyro.deterministic("theta", mu + (tau[:, None] * L) @ eps))


def diagonal_times_cholesky():
    tau, L, eps = positive("tau", 3), factor(), noise(3, 4)
    observe((jnp.diag(tau) @ L @ eps).T[0])


def noise_times_transpose():
    tau, L, eps = positive("tau", 3), factor(), noise(4, 3)
    observe(numpyro.deterministic("theta", eps @ (tau[:, None] * L).T)[0])


def einsum():
    tau, L, eps = positive("tau", 3), factor(), noise(4, 3)
    observe(jnp.einsum("ij,gj->gi", tau[:, None] * L, eps)[0])


def einsum_rows():
    tau, L, eps = positive("tau", 3), factor(), noise(3)
    observe(jnp.einsum("i,ij->ij", tau, L) @ eps)


def gaussian_process():
    length, amplitude, eps = positive("length"), positive("amplitude"), noise(3)
    distance = (MEASURED[:, None] - MEASURED) ** 2
    kernel = amplitude * jnp.exp(-distance / length) + 1e-3 * jnp.eye(3)
    observe(numpyro.deterministic("f", jnp.linalg.cholesky(kernel) @ eps))


def multivariate_noise():
    mu, tau = real(), positive()
    eps = numpyro.sample("eps", dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
    observe((mu + tau * eps)[GROUP])


def random_walk():
    start, sigma, eps = real("start"), positive("sigma"), noise(6)
    observe(numpyro.deterministic("x", start + jnp.cumsum(sigma * eps)))


def scaled_random_walk():
    sigma, eps = positive("sigma"), noise(6)
    observe(sigma * jnp.cumsum(eps))


def autoregression():
    phi = numpyro.sample("phi", dist.Uniform(-1.0, 1.0))
    sigma, eps = positive("sigma"), noise(6)

    def step(previous, here):
        x = phi * previous + sigma * here
        return x, x

    observe(numpyro.deterministic("x", jax.lax.scan(step, 0.0, eps)[1]))


def site_in_a_scan():
    mu, sigma = real(), positive("sigma")

    def step(previous, _):
        x = 0.9 * previous + mu + sigma * numpyro.sample("eps", UNIT)
        return x, x

    observe(scan(step, 0.0, None, length=6)[1])


def trend():
    level_scale, slope_scale = positive("level_scale"), positive("slope_scale")

    def step(previous, _):
        level, slope = previous
        level = level + slope + level_scale * numpyro.sample("eps", UNIT)
        slope = slope + slope_scale * numpyro.sample("turn", UNIT)
        return (level, slope), level

    observe(scan(step, (0.0, 0.0), None, length=6)[1])


def by_numpyro():
    def model():
        mu, tau = real(), positive()
        with numpyro.plate("groups", 3):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
        observe(theta[GROUP])

    return numpyro.handlers.reparam(model, config={"theta": LocScaleReparam(0.0)})


def by_transform():
    def model():
        mu, tau = real(), positive()
        affine = dist.transforms.AffineTransform(mu, tau)
        with numpyro.plate("groups", 3):
            theta = numpyro.sample("theta", dist.TransformedDistribution(UNIT, affine))
        observe(theta[GROUP])

    return numpyro.handlers.reparam(model, config={"theta": TransformReparam()})


RECOGNIZED = [
    Row("a scalar", scalar, "Normal(mu, tau)", "theta"),
    Row("in a plate", plated, "Normal(mu, tau)", "theta"),
    Row("without a name", unnamed, "Normal(mu, tau)"),
    Row("the product first", product_first, "Normal(mu, tau)"),
    Row("gathered before it is scaled", gathered_late, "Normal(mu, tau)"),
    Row("parameters by kind", gathered_parameters, "Normal(mu[...], tau[...])"),
    Row("all gathered alike", gathered_everywhere, "Normal(mu, tau)"),
    Row("an offset added later", offset_later, "Normal(mu, tau)"),
    Row("a log scale", log_scale, "Normal(mu, jnp.exp(log_tau))"),
    Row("a softplus scale", softplus_scale, "Normal(mu, f(raw))"),
    Row("a precision", precision, "Normal(mu, 1 / jnp.sqrt(precision))"),
    Row("a variance", variance, "Normal(mu, jnp.sqrt(variance))"),
    Row("noise of another scale", wide_noise, "Normal(mu, 2 * tau)"),
    Row("subtracted", minus, "Normal(mu, tau)"),
    Row("only a location", location_only, "Normal(f(mu, slope), 1.0)", "theta"),
    Row("only a scale", scale_only, "Normal(0.0, tau)", "theta"),
    Row("two names for one product", two_names, "Normal(mu, tau)", "theta"),
    Row("one expression in two places", used_twice_alike, "Normal(mu, tau)"),
    Row("two levels", two_levels, "Normal(upper[...], sigma)", "theta"),
    Row("two levels, the upper one", two_levels, "Normal(mu, tau)", "upper", "eps_upper"),
    Row("two noises of one size", same_level, "Normal(mu + tau * first, sigma)"),
    Row("sampled before its parents", noise_first, "Normal(mu, tau)", "theta"),
    Row("a matrix", matrix_of_noise, "Normal(mu, tau)", "theta"),
    Row("a matrix the other way", transposed, "Normal(mu, tau)", "theta"),
    Row("in another shape", reshaped, "Normal(mu, tau)"),
    Row("repeated", repeated, "Normal(mu, tau)"),
    Row("exponentiated", lognormal, "Normal(mu, tau)"),
    Row("a log scale of data", in_a_scale, "Normal(mu, tau)"),
    Row("the mean of a latent", of_a_latent, "Normal(mu, tau)", "theta"),
    Row("Student-t noise", student, "StudentT(df=..., loc=mu, scale=tau)"),
    Row("Cauchy noise", cauchy, "Cauchy(mu, tau)"),
    Row("half-Normal noise", half_normal, "HalfNormal(tau)", "scale"),
    Row("exponential noise", exponential, "Exponential(1 / (tau))"),
    Row("a Cholesky factor", cholesky_times_noise, "scale_tril=tau * L", "theta"),
    Row("a diagonal and a factor", diagonal_times_cholesky, "MultivariateNormal(0.0"),
    Row("noise in rows", noise_times_transpose, "scale_tril=tau * L", "theta"),
    Row("einsum", einsum, "MultivariateNormal(0.0, scale_tril=tau * L)"),
    Row("einsum of rows", einsum_rows, "MultivariateNormal(0.0"),
    Row("a Gaussian process", gaussian_process, "MultivariateNormal(0.0", "f"),
    Row("multivariate noise", multivariate_noise, "MultivariateNormal"),
    Row("a random walk", random_walk, "start + GaussianRandomWalk(sigma, 6)", "x"),
    Row("a scaled random walk", scaled_random_walk, "GaussianRandomWalk(sigma, 6)"),
    Row("an autoregression", autoregression, "depend on phi, sigma", "x"),
    Row("a site in a scan", site_in_a_scan, "depend on mu, sigma"),
    Row("a trend, its level", trend, "depend on level_scale, slope_scale, turn"),
    Row("a trend, its slope", trend, "depend on slope_scale", "", "turn"),
    Row("NumPyro's LocScaleReparam", by_numpyro(), "Normal(mu, tau)", "theta", "theta_decentered"),
    Row("NumPyro's TransformReparam", by_transform(), "Normal(mu, tau)", "theta", "theta_base"),
]


# -- look-alikes ------------------------------------------------------------------------------


def made(use: Callable[..., Any], **noise_as: Any) -> Callable[[], Any]:
    """A model that makes the mean of its data from `mu`, `tau` and three elements of `eps`."""

    def model():
        mu, tau = real(), positive()
        observe(use(mu, tau, noise(3, **noise_as)))

    return model


def shared():
    eps = noise(3)
    observe((real() + positive() * eps)[GROUP])
    observe((real("nu") + positive("sigma") * eps)[GROUP], name="z")


def in_mean_and_scale():
    mu, tau, eps = real(), positive(), noise(3)
    observe((mu + tau * eps)[GROUP], jnp.exp(eps)[GROUP])


def in_a_factor():
    mu, tau, eps = real(), positive(), noise(3)
    numpyro.factor("penalty", -jnp.sum(eps**2))
    observe((mu + tau * eps)[GROUP])


def is_observed():
    mu, tau = real(), positive()
    eps = numpyro.sample("eps", UNIT.expand([3]).to_event(1), obs=jnp.zeros(3))
    observe((mu + tau * eps)[GROUP])


def masked():
    mu, tau = real(), positive()
    eps = numpyro.sample("eps", UNIT.expand([3]).mask(np.array([True, False, True])))
    observe((mu + tau * eps)[GROUP])


def real_scale():
    mu, weight, eps = real(), real("weight"), noise(3)
    observe(mu + weight * eps)


def squared_scale():
    mu, weight, eps = real(), real("weight"), noise(3)
    observe(mu + weight**2 * eps)


def scale_per_observation():
    tau, eps = positive("tau", 6), noise(3)
    observe(tau * eps[GROUP])


def as_many_parents():
    mu, eps = real("mu", 3), noise(3)
    observe((mu + eps)[GROUP])


def constant():
    observe((3.0 + 2.0 * noise(3))[GROUP])


def unused():
    noise(3)
    observe(real())


def any_matrix():
    matrix, eps = real("matrix", 3, 3), noise(3)
    observe(matrix @ eps)


def covariance():
    tau, L, eps = positive(), factor(), noise(3)
    observe((tau * L @ L.T) @ eps)


def upper_triangle():
    L, eps = factor(), noise(3)
    observe(L.T @ eps)


def design_matrix():
    tau, eps = positive(), noise(3)
    observe(tau * (np.outer(X, MEASURED) @ eps))


def backward_sum():
    tau, eps = positive(), noise(6)
    observe(jnp.cumsum((tau * eps)[::-1])[::-1] + jax.lax.cumsum(eps, reverse=True))


def reverse_walk():
    tau, eps = positive(), noise(6)
    observe(tau * jax.lax.cumsum(eps, reverse=True))


def walk_of_changing_scale():
    tau, eps = positive("tau", 6), noise(6)
    observe(tau * jnp.cumsum(eps))


def heavy_walk():
    tau, eps = positive(), noise(6, family=dist.StudentT(4.0, 0.0, 1.0))
    observe(tau * jnp.cumsum(eps))


def loop(step: Callable, reverse: bool = False) -> Callable[[], Any]:
    def model():
        tau, eps = positive(), noise(6)
        observe(jax.lax.scan(lambda x, e: step(tau, x, e), 0.0, eps, reverse=reverse)[1])

    return model


def steps_see_everything():
    tau, eps = positive(), noise(6)
    step = lambda x, i: (x + tau * eps[i], x)  # noqa: E731
    observe(jax.lax.scan(step, 0.0, jnp.arange(6))[1])


def both(value: Any) -> tuple[Any, Any]:
    return value, value


def in_a_cond():
    mu, tau = real(), positive()
    draw = lambda _: numpyro.sample("eps", UNIT)  # noqa: E731
    inside = cond(True, draw, draw, 0)
    observe(mu + tau * inside)


TWICE, CURVED, SIGN = "different expressions", "not affine", "may be zero or change its sign"

REFUSED = [
    Refused("used twice", made(lambda mu, tau, eps: mu + tau * eps + eps), TWICE),
    Refused("its location depends on it", made(lambda m, t, eps: jnp.sin(eps) + t * eps), TWICE),
    Refused("its scale depends on it", made(lambda m, t, eps: m + t * jnp.exp(eps) * eps), TWICE),
    Refused("shared by two forms", shared, TWICE),
    Refused("in the mean and in the scale of data", in_mean_and_scale, TWICE),
    Refused("in a factor", in_a_factor, TWICE),
    Refused("cut in two", made(lambda mu, tau, eps: tau * eps[0] + eps[1:]), TWICE),
    Refused("squared", made(lambda mu, tau, eps: mu + tau * eps**2), CURVED),
    Refused("exponentiated", made(lambda mu, tau, eps: mu + tau * jnp.exp(eps)), "(exp)"),
    Refused("its absolute value", made(lambda mu, tau, eps: mu + tau * jnp.abs(eps)), "(abs)"),
    Refused("squashed", made(lambda mu, tau, eps: mu + tau * jnp.tanh(eps)), "(tanh)"),
    Refused("a wave", made(lambda mu, tau, eps: mu + tau * jnp.sin(eps)), "(sin)"),
    Refused("rounded", made(lambda mu, tau, eps: mu + tau * jnp.floor(eps)), "(floor)"),
    Refused("times itself", made(lambda mu, tau, eps: mu + tau * (eps * eps)), "with itself"),
    Refused("a divisor", made(lambda mu, tau, eps: mu + tau / eps), "it divides"),
    Refused("summed", made(lambda mu, tau, eps: mu + tau * jnp.sum(eps)), "(reduce_sum)"),
    Refused("sorted", made(lambda mu, tau, eps: mu + tau * jnp.sort(eps)), "(sort)"),
    Refused("its maximum", made(lambda mu, tau, eps: mu + tau * jnp.max(eps)), "(reduce_max)"),
    Refused("only a part of it", made(lambda mu, tau, eps: mu + tau * eps[1:]), "(slice)"),
    Refused(
        "replaced here and there",
        made(lambda mu, tau, eps: mu + tau * jnp.where(MEASURED > 1, eps, 0.0)),
        "(select_n)",
    ),
    Refused(
        "joined with others",
        made(lambda mu, tau, eps: tau * jnp.concatenate([eps, MEASURED])),
        "(concatenate)",
    ),
    Refused("chosen by itself", made(lambda m, t, eps: jnp.where(eps > 0, t * eps, m)), TWICE),
    Refused("observed", is_observed, ""),
    Refused("masked", masked, "masked"),
    Refused("a scale that may be negative", real_scale, SIGN),
    Refused("a scale that may be zero", squared_scale, SIGN),
    Refused("times data of both signs", made(lambda m, t, eps: m + (t * X[:3]) * eps), SIGN),
    Refused("a scale for each observation", scale_per_observation, "differs between uses"),
    Refused("as many parents as children", as_many_parents, "not fewer"),
    Refused("a constant form", constant, "constant location and scale"),
    Refused("not used", unused, "nothing depends on it"),
    Refused("any matrix", any_matrix, "lower triangular"),
    Refused("a covariance matrix", covariance, "lower triangular"),
    Refused("an upper triangle", upper_triangle, "lower triangular"),
    Refused("a design matrix", design_matrix, "not square"),
    Refused("sums in both directions", backward_sum, TWICE),
    Refused("a walk from the end", reverse_walk, "from the end"),
    Refused("a walk of changing scale", walk_of_changing_scale, "different numbers along it"),
    Refused("a walk of heavy steps", heavy_walk, "not Normal"),
    Refused("a curved step", loop(lambda t, x, e: both(t * jnp.tanh(x + e))), "more of its past"),
    Refused("a loop from the end", loop(lambda t, x, e: both(x + t * e), True), "backward"),
    Refused("a loop that sees everything", steps_see_everything, "all of it"),
    Refused("in a cond", in_a_cond, ""),
    Refused(
        "uniform noise",
        made(lambda mu, tau, eps: mu + tau * eps, family=dist.Uniform(-1.0, 1.0)),
        "neither shifted nor scaled",
    ),
    Refused(
        "positive noise, shifted",
        made(lambda mu, tau, eps: (mu + eps) * tau, family=dist.Exponential(1.0)),
        "positive, and shifted",
    ),
    Refused(
        "positive noise, its sign changed",
        made(lambda mu, tau, eps: mu - tau * -eps, family=dist.HalfNormal(1.0)),
        "its sign is changed",
    ),
]
