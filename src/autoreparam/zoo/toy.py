"""The two-level Gaussian model of the paper's section 3: its conditioning has a closed form.

Source: the paper. The posterior covariance depends on the data only through their number, so the
observations here are simulated.
"""

import numpy as np
import numpyro
import numpyro.distributions as dist

from autoreparam.errors import ModelError
from autoreparam.zoo.data import Loaded


def toy(sigma_mu, sigma, y):
    """A Normal mean with a Normal prior of unknown location, observed several times."""
    theta = numpyro.sample("theta", dist.Normal(0.0, 1.0))
    mu = numpyro.sample("mu", dist.Normal(theta, sigma_mu))
    with numpyro.plate("observations", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, sigma), obs=y)


def load(n: int = 10, sigma_mu: float = 1.0, sigma: float = 1.0, seed: int = 0) -> Loaded:
    """The model, with `n` observations of standard deviation `sigma` drawn from it."""
    if n < 1 or sigma_mu <= 0 or sigma <= 0:
        raise ModelError(
            f"The zoo's model 'toy' needs n of at least 1 and positive sigma_mu and sigma; "
            f"it was given n={n}, sigma_mu={sigma_mu}, sigma={sigma}."
        )
    random = np.random.default_rng(seed)
    mu = random.normal() + sigma_mu * random.normal()
    y = mu + sigma * random.normal(size=n)
    return toy, {"sigma_mu": sigma_mu, "sigma": sigma, "y": y}, {"observations": n}
