"""Groups of very unequal size: no single parameterization suits them all.

Source: simulated here. Groups with one observation are best non-centered, groups with thousands
centered, and both kinds share one mean and one scale.
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from autoreparam.errors import ModelError
from autoreparam.zoo.data import Loaded

SD = 5.0  # of a single observation


def unequal_groups(size, y=None):
    """Group means around a common mean, observed through averages of very unequal precision."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    log_tau = numpyro.sample("log_tau", dist.Normal(0.0, 1.0))
    with numpyro.plate("groups", size.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, jnp.exp(log_tau)))
        numpyro.sample("y", dist.Normal(theta, SD / jnp.sqrt(size)), obs=y)


def load(n: int = 20, small: int = 1, large: int = 2000, seed: int = 0) -> Loaded:
    """The model, with the means of `n` groups, the first half `small` and the others `large`."""
    if n < 2 or small < 1 or large < 1:
        raise ModelError(
            "The zoo's model 'unequal_groups' needs n of at least 2 and groups of at least 1 "
            f"observation; it was given n={n}, small={small}, large={large}."
        )
    random = np.random.default_rng(seed)
    size = np.where(np.arange(n) < n // 2, float(small), float(large))
    theta = random.normal(size=n)
    y = random.normal(theta, SD / np.sqrt(size))
    counts = {"groups": n, "observations": int(size.sum())}
    return unequal_groups, {"size": size, "y": y}, counts
