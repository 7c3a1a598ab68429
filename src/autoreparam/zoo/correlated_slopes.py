"""Intercepts and slopes that vary together over groups of unequal size.

Source: simulated here. The model is written as a user would, with an LKJ prior on the correlation
and a multivariate Normal in a plate. Some groups have one observation, some have hundreds.
"""

import numpy as np
import numpyro
import numpyro.distributions as dist

from autoreparam.errors import ModelError
from autoreparam.zoo.data import Loaded

_MEAN, _SD, _CORRELATION = (1.0, -0.5), (1.0, 0.5), -0.6


def correlated_slopes(group, x, size, y=None):
    """Linear regression with an intercept and a slope per group, correlated over groups."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0).expand([2]).to_event(1))
    corr = numpyro.sample("corr", dist.LKJCholesky(2, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("groups", size.shape[0]):
        factor = tau[:, None] * corr
        beta = numpyro.sample("beta", dist.MultivariateNormal(mu, scale_tril=factor))
    with numpyro.plate("observations", x.shape[0]):
        mean = beta[group, 0] + beta[group, 1] * x
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


def load(n: int = 50, largest: int = 300, seed: int = 0) -> Loaded:
    """The model, with `n` groups of 1 to `largest` observations, their logarithms uniform."""
    if n < 2 or largest < 1:
        raise ModelError(
            "The zoo's model 'correlated_slopes' needs n of at least 2 and a largest group of at "
            f"least 1 observation; it was given n={n}, largest={largest}."
        )
    random = np.random.default_rng(seed)
    size = np.floor(np.exp(random.uniform(0, np.log(largest + 1), n))).astype(np.int32)
    factor = np.array([[_SD[0], 0], [_CORRELATION * _SD[1], np.sqrt(1 - _CORRELATION**2) * _SD[1]]])
    beta = np.array(_MEAN) + random.normal(size=(n, 2)) @ factor.T
    group = np.repeat(np.arange(n, dtype=np.int32), size)
    x = random.normal(size=group.size)
    y = random.normal(beta[group, 0] + beta[group, 1] * x, 1.0)
    counts = {"groups": n, "observations": int(group.size)}
    return correlated_slopes, {"group": group, "x": x, "size": size, "y": y}, counts
