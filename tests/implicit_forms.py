"""Models as people write them when they non-center by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
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
