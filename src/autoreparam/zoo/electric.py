"""Electric company: whether an educational television show helps classes read, by grade.

Source: Gelman and Hill (2007), chapter 23; the model is that of the paper's code. Corrections:

- grades and pairs are counted from 0: the published code used codes from 1 unchanged, which left
  grade 4 and pair 96 without their effects;
- the paper's text omits the factor 100 on `mu` that its code has; without it the prior puts scores
  near 100 within a few points of 0.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from autoreparam.zoo.data import Loaded, read_json

GRADES = 4


def electric(pair, grade, grade_of_pair, treatment, y=None):
    """Scores of paired classes: pair intercepts around grade means, grade effects of treatment."""
    with numpyro.plate("grades", GRADES):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 100.0))
        log_sigma = numpyro.sample("log_sigma", dist.Normal(0.0, 1.0))
    with numpyro.plate("pairs", grade_of_pair.shape[0]):
        a = numpyro.sample("a", dist.Normal(100 * mu[grade_of_pair], 1.0))
    with numpyro.plate("classes", pair.shape[0]):
        loc = a[pair] + b[grade] * treatment
        numpyro.sample("y", dist.Normal(loc, jnp.exp(log_sigma[grade])), obs=y)


def load() -> Loaded:
    """The model, with 192 classes in 96 pairs."""
    arrays = parse(read_json("electric.data.json"))
    counts = {"classes": len(arrays["y"]), "pairs": len(arrays["grade_of_pair"]), "grades": GRADES}
    return electric, arrays, counts


def parse(content: dict[str, Any]) -> dict[str, np.ndarray]:
    """Pair and grade (counted from 0), treatment and score of each class, and each pair's grade."""
    return {
        "pair": np.array(content["pair"], dtype=np.int32) - 1,
        "grade": np.array(content["grade"], dtype=np.int32) - 1,
        "grade_of_pair": np.array(content["grade_pair"], dtype=np.int32) - 1,
        "treatment": np.array(content["treatment"], dtype=float),
        "y": np.array(content["post_test"], dtype=float),
    }
