"""Neal's funnel: a scale that the variables below it follow over many orders of magnitude.

Source: Neal (2003), "Slice sampling", with nine variables at the narrow end; the paper draws it
with one. There are no data.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from autoreparam.errors import ModelError
from autoreparam.zoo.data import Loaded


def funnel(n):
    """Normal variables whose common log variance is itself Normal, and no data."""
    z = numpyro.sample("z", dist.Normal(0.0, 3.0))
    with numpyro.plate("elements", n):
        numpyro.sample("x", dist.Normal(0.0, jnp.exp(z / 2)))


def load(n: int = 9) -> Loaded:
    """The model, with `n` variables below the scale."""
    if n < 1:
        raise ModelError(f"The zoo's model 'funnel' needs n of at least 1; it was given n={n}.")
    return funnel, {"n": n}, {"elements": n}
