"""Sparse regression by a prior on R²: the variance explained is shared out among coefficients.

Source: Zhang, Naughton, Bondell and Reich (2022), "Bayesian regression using a prior on the model
fit: the R2-D2 shrinkage prior". The data are those of `horseshoe`.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from autoreparam.zoo import horseshoe
from autoreparam.zoo.data import Loaded


def r2d2(X, y=None):
    """Linear regression whose coefficients share out the variance that R² says they explain."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    r2 = numpyro.sample("r2", dist.Beta(1.0, 1.0))
    share = numpyro.sample("share", dist.Dirichlet(jnp.full(X.shape[1], 0.5)))
    with numpyro.plate("features", X.shape[1]):
        scale = sigma * jnp.sqrt(r2 / (1 - r2) * share)
        beta = numpyro.sample("beta", dist.Normal(0.0, scale))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def load(rows: int = 100, features: int = 50, signals: int = 5, seed: int = 0) -> Loaded:
    """The model, with simulated features of which the first `signals` matter."""
    return r2d2, *horseshoe.load(rows, features, signals, seed=seed)[1:]
