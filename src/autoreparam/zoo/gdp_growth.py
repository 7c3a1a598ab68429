"""Growth of the United States' output, whose volatility changes over the decades.

Source: the quarterly series that statsmodels carries (real gross domestic product from FRED, 1959
to 2009, public domain), as annualized growth in percent. The model, in which the log variance is a
stationary autoregression, is that of `stochastic_volatility`, with a mean.
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from autoreparam.zoo.data import Loaded, quarterly_output


def gdp_growth(growth):
    """Growth around a mean, with a log variance that is a stationary autoregression."""
    mean = numpyro.sample("mean", dist.Normal(3.0, 3.0))
    phi = numpyro.sample("phi", dist.Beta(20.0, 1.5))
    level = numpyro.sample("level", dist.Normal(2.0, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    h_1 = numpyro.sample("h_1", dist.Normal(level, sigma / jnp.sqrt(1 - phi**2)))

    def step(previous, _):
        h = numpyro.sample("h", dist.Normal(level + phi * (previous - level), sigma))
        return h, h

    _, later = scan(step, h_1, None, length=growth.shape[0] - 1)
    log_variance = jnp.append(h_1, later)
    with numpyro.plate("quarters", growth.shape[0]):
        numpyro.sample("growth", dist.Normal(mean, jnp.exp(log_variance / 2)), obs=growth)


def load() -> Loaded:
    """The model, with 202 quarters of growth."""
    growth = 400 * np.diff(np.log(quarterly_output()))
    return gdp_growth, {"growth": growth}, {"quarters": len(growth)}
