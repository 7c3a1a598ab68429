"""German credit: good and bad loans, a logistic regression with shrinkage on every coefficient.

Source: the Statlog German credit data of the UCI repository; the models are the paper's, the one
with Gamma scales from its code. The local scale there is the logarithm of a Gamma variable; here it
is the Gamma variable itself, which is the same model.
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from autoreparam.zoo.data import Loaded, read_text

_NUMERIC = (1, 4, 7, 10, 12, 15, 17)  # columns of the file; 20 is the label, the others categories
_LABEL = 20


def german_credit(X, y=None):
    """Logistic regression whose coefficients have log scales around a common log scale."""
    log_tau0 = numpyro.sample("log_tau0", dist.Normal(0.0, 10.0))
    with numpyro.plate("features", X.shape[1]):
        log_tau = numpyro.sample("log_tau", dist.Normal(log_tau0, 1.0))
        beta = numpyro.sample("beta", dist.Normal(0.0, jnp.exp(log_tau)))
    with numpyro.plate("loans", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ beta), obs=y)


def german_credit_gamma(X, y=None):
    """Logistic regression whose coefficients have Gamma scales times a common scale."""
    log_tau0 = numpyro.sample("log_tau0", dist.Normal(0.0, 10.0))
    with numpyro.plate("features", X.shape[1]):
        g = numpyro.sample("g", dist.Gamma(0.5, 0.5))
        beta = numpyro.sample("beta", dist.Normal(0.0, jnp.exp(log_tau0) * g))
    with numpyro.plate("loans", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ beta), obs=y)


def load() -> Loaded:
    """The model with log-Normal scales, with 1000 loans and 62 features."""
    return (german_credit, *_arrays())


def load_gamma() -> Loaded:
    """The model with Gamma scales, with 1000 loans and 62 features."""
    return (german_credit_gamma, *_arrays())


def parse(text: str) -> dict[str, np.ndarray]:
    """Features (intercept, standardized numbers, a column per category), and if loans are good."""
    table = np.array([line.split() for line in text.splitlines() if line.strip()])
    numbers = table[:, _NUMERIC].astype(float)
    standardized = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0, ddof=1)
    categories = [table[:, i] for i in range(_LABEL) if i not in _NUMERIC]
    indicators = [(column[:, None] == np.unique(column)).astype(float) for column in categories]
    X = np.hstack([np.ones((len(table), 1)), standardized, *indicators])
    return {"X": X, "y": (table[:, _LABEL] == "1").astype(np.int32)}


def _arrays() -> tuple[dict[str, np.ndarray], dict[str, int]]:
    arrays = parse(read_text("german.data"))
    loans, features = arrays["X"].shape
    return arrays, {"loans": loans, "features": features, "good": int(arrays["y"].sum())}
