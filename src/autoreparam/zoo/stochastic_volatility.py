"""Stochastic volatility: returns whose log variance is an autoregression.

Source: the simulated series of Stan's example models (misc/moving-avg), 500 returns. Not in the
paper.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from autoreparam.zoo.data import Loaded, read_json


def stochastic_volatility(y):
    """Returns whose log variance is a stationary autoregression of order one."""
    to_interval = dist.transforms.AffineTransform(-1.0, 2.0, domain=dist.constraints.unit_interval)
    phi = numpyro.sample("phi", dist.TransformedDistribution(dist.Beta(20.0, 1.5), to_interval))
    mu = numpyro.sample("mu", dist.Normal(-1.0, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    h_1 = numpyro.sample("h_1", dist.Normal(mu, sigma / jnp.sqrt(1 - phi**2)))

    def step(previous, _):
        h = numpyro.sample("h", dist.Normal(mu + phi * (previous - mu), sigma))
        return h, h

    _, later = scan(step, h_1, None, length=y.shape[0] - 1)
    log_variance = jnp.append(h_1, later)
    with numpyro.plate("days", y.shape[0]):
        numpyro.sample("y", dist.Normal(0.0, jnp.exp(log_variance / 2)), obs=y)


def load() -> Loaded:
    """The model, with 500 returns."""
    arrays = parse(read_json("stochastic-volatility.data.json"))
    return stochastic_volatility, arrays, {"days": len(arrays["y"])}


def parse(content: dict[str, Any]) -> dict[str, np.ndarray]:
    """The returns."""
    return {"y": np.array(content["y"], dtype=float)}
