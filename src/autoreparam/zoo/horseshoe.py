"""Sparse regression: a few of many coefficients differ from zero, and the horseshoe finds which.

Source: Carvalho, Polson and Scott (2010), "The horseshoe estimator for sparse signals"; the
regularized form is that of Piironen and Vehtari (2017). The data are simulated here.
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from autoreparam.errors import ModelError
from autoreparam.zoo.data import Loaded


def horseshoe(X, y=None):
    """Linear regression whose coefficients have half-Cauchy local scales under a global one."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    with numpyro.plate("features", X.shape[1]):
        local = numpyro.sample("local", dist.HalfCauchy(1.0))
        beta = numpyro.sample("beta", dist.Normal(0.0, tau * local))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def regularized_horseshoe(X, y=None):
    """Linear regression as in `horseshoe`, with large coefficients shrunk a little as well."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(0.1))
    slab = numpyro.sample("slab", dist.InverseGamma(2.0, 8.0))
    with numpyro.plate("features", X.shape[1]):
        local = numpyro.sample("local", dist.HalfCauchy(1.0))
        scale = tau * local * jnp.sqrt(slab / (slab + (tau * local) ** 2))
        beta = numpyro.sample("beta", dist.Normal(0.0, scale))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def load(
    rows: int = 100, features: int = 50, signals: int = 5, regularized: bool = False, seed: int = 0
) -> Loaded:
    """The model, with simulated features of which the first `signals` matter."""
    if rows < 1 or not 0 <= signals <= features:
        raise ModelError(
            "The zoo's model 'horseshoe' needs at least one row and no more signals than features; "
            f"it was given rows={rows}, features={features}, signals={signals}."
        )
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, features))
    beta = np.append(np.linspace(3.0, 0.5, signals), np.zeros(features - signals))
    y = X @ beta + random.normal(size=rows)
    counts = {"rows": rows, "features": features, "signals": signals}
    return regularized_horseshoe if regularized else horseshoe, {"X": X, "y": y}, counts
