"""Eight schools, robust: effects have heavy tails, so that one may differ from all the others.

Source: the data are those of `eight_schools`; the Student-t effects are those of Gelman et al.,
"Bayesian Data Analysis" (section 17.4 of the third edition). With `df=1` effects are Cauchy.
"""

import numpyro
import numpyro.distributions as dist

from autoreparam.errors import ModelError
from autoreparam.zoo import eight_schools
from autoreparam.zoo.data import Loaded


def robust_schools(sigma, df, y=None):
    """Student-t effects of eight schools around a common mean, each observed with a known error."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", sigma.shape[0]):
        theta = numpyro.sample("theta", dist.StudentT(df, mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def load(df: float = 4.0) -> Loaded:
    """The model, with the eight estimates and their standard errors."""
    if not df > 0:
        raise ModelError(
            "The zoo's model 'robust_schools' needs positive degrees of freedom; "
            f"it was given df={df}."
        )
    _, arrays, counts = eight_schools.load()
    return robust_schools, {**arrays, "df": float(df)}, counts
