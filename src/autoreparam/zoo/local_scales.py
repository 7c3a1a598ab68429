"""Groups with a spread of their own: local scales under a global one, and very unequal data.

Source: simulated here. Two observations say little about a group's scale, which then follows the
global one; two hundred determine it well.
"""

import numpy as np
import numpyro
import numpyro.distributions as dist

from autoreparam.errors import ModelError, known
from autoreparam.zoo.data import Loaded

FAMILIES = {
    "half_normal": dist.HalfNormal,
    "exponential": lambda tau: dist.Exponential(1 / tau),
    "gamma": lambda tau: dist.Gamma(2.0, 2.0 / tau),
}


def local_scales(group, groups, family, y=None):
    """Observations around a common mean, each group with a scale drawn under a global scale."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("groups", groups):
        scale = numpyro.sample("scale", FAMILIES[family](tau))
    with numpyro.plate("rows", group.shape[0]):
        numpyro.sample("y", dist.Normal(mu, scale[group]), obs=y)


def load(
    n: int = 40, small: int = 2, large: int = 200, family: str = "half_normal", seed: int = 0
) -> Loaded:
    """The model, with `n` groups, the first half of `small` and the others of `large` size."""
    if n < 2 or small < 1 or large < 1 or family not in FAMILIES:
        raise ModelError(
            "The zoo's model 'local_scales' needs n of at least 2, groups of at least 1 "
            f"observation and a family among {known(FAMILIES)}; "
            f"it was given n={n}, small={small}, large={large}, family={family}."
        )
    random = np.random.default_rng(seed)
    group = np.repeat(np.arange(n), np.where(np.arange(n) < n // 2, small, large))
    scale = np.abs(random.normal(size=n))
    y = random.normal(1.0, scale[group])
    arrays = {"group": group, "groups": n, "family": family, "y": y}
    return local_scales, arrays, {"groups": n, "observations": len(y)}
