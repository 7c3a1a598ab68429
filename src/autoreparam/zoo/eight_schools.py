"""Eight schools: the effect of coaching on test scores in eight parallel experiments.

Source: Rubin (1981), "Estimation in parallel randomized experiments"; the prior is the paper's.
Nothing to correct.
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from autoreparam.zoo.data import Loaded


def eight_schools(sigma, y=None):
    """Effects of eight schools around a common mean, each observed with a known error."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    log_tau = numpyro.sample("log_tau", dist.Normal(0.0, 5.0))
    with numpyro.plate("schools", sigma.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, jnp.exp(log_tau)))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def load() -> Loaded:
    """The model, with the eight estimates and their standard errors."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    return eight_schools, {"sigma": sigma, "y": y}, {"schools": len(y)}
