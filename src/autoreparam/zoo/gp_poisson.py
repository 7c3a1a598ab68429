"""Radiation on Rongelap island: gamma-ray counts at 157 places, with a smooth rate.

Source: Diggle, Tawn and Moyeed (1998), "Model-based geostatistics", as in the R package geoRglm.
"""

import csv

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from autoreparam.zoo.data import Loaded, read_text

_JITTER = 1e-5


def gp_poisson(coordinates, seconds, counts=None):
    """Poisson counts whose log rate is a Gaussian process with a Matern-3/2 kernel."""
    log_amplitude = numpyro.sample("log_amplitude", dist.Normal(0.0, 1.0))
    log_length = numpyro.sample("log_length", dist.Normal(0.0, 1.0))
    mean = numpyro.sample("mean", dist.Normal(1.0, 2.0))
    n = seconds.shape[0]
    covariance = matern(coordinates, jnp.exp(log_amplitude), jnp.exp(log_length))
    covariance += _JITTER * jnp.eye(n)
    f = numpyro.sample(
        "f", dist.MultivariateNormal(jnp.full(n, mean), covariance_matrix=covariance)
    )
    with numpyro.plate("places", n):
        numpyro.sample("counts", dist.Poisson(seconds * jnp.exp(f)), obs=counts)


def matern(coordinates, amplitude, length):
    """The Matern-3/2 covariance between all pairs of rows; `amplitude` is a standard deviation."""
    difference = coordinates[:, None, :] - coordinates[None, :, :]
    scaled = jnp.sqrt(3.0) * jnp.sqrt(jnp.sum(difference**2, axis=-1)) / length
    return amplitude**2 * (1 + scaled) * jnp.exp(-scaled)


def load() -> Loaded:
    """The model, with the counts at 157 places and the seconds of counting."""
    arrays = parse(read_text("rongelap.csv"))
    return gp_poisson, arrays, {"places": len(arrays["counts"])}


def parse(text: str) -> dict[str, np.ndarray]:
    """Coordinates (hundreds of meters), seconds of counting and counts."""
    rows = list(csv.DictReader(text.splitlines()))
    meters = np.array([[float(row["X1"]), float(row["X2"])] for row in rows])
    return {
        "coordinates": meters / 100,
        "seconds": np.array([float(row["units.m"]) for row in rows]),
        "counts": np.array([int(row["data"]) for row in rows], dtype=np.int32),
    }
