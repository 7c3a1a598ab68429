"""Models that only look as if they were non-centered by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from implicit_forms import GROUP, MEASURED, UNIT, X, factor, noise, observe, positive, real
from numpyro.contrib.control_flow import cond


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
