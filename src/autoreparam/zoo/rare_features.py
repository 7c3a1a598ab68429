"""Logistic regression with rare features: some occur in so few rows that they separate outcomes.

Source: simulated here. Cauchy coefficients are the default of Gelman, Jakulin, Pittau and Su
(2008), "A weakly informative default prior distribution for logistic and other regression models";
their common scale is unknown. Where a feature separates outcomes, the posterior keeps the tails of
the prior.
"""

import numpy as np
import numpyro
import numpyro.distributions as dist

from autoreparam.errors import ModelError
from autoreparam.zoo.data import Loaded


def rare_features(X, y=None):
    """Logistic regression whose coefficients are Cauchy around zero with a common scale."""
    tau = numpyro.sample("tau", dist.HalfNormal(2.5))
    with numpyro.plate("features", X.shape[1]):
        beta = numpyro.sample("beta", dist.Cauchy(0.0, tau))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ beta), obs=y)


def load(rows: int = 100, features: int = 20, share: float = 0.05, seed: int = 0) -> Loaded:
    """The model, with simulated features: half are numbers, half present in a `share` of rows."""
    if rows < 1 or features < 1 or not 0 < share < 1:
        raise ModelError(
            "The zoo's model 'rare_features' needs rows, features and a share between 0 and 1; "
            f"it was given rows={rows}, features={features}, share={share}."
        )
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, features))
    rare = np.arange(features) >= features // 2
    X[:, rare] = random.random((rows, rare.sum())) < share
    beta = np.where(rare, 2.0, 0.0) * random.normal(size=features)
    beta[: features // 4] = 2.0
    y = (random.random(rows) < 1 / (1 + np.exp(-X @ beta))).astype(np.int32)
    return rare_features, {"X": X, "y": y}, {"rows": rows, "features": features}
