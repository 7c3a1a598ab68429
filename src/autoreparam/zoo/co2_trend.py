"""CO2 at Mauna Loa: a local linear trend through annual means.

Source: the weekly series that statsmodels carries (Keeling and Whorf, 1958 to 2001), averaged over
the years that have at least 40 weeks. 1964 has too few: its level is a latent variable like the
others, without an observation. The paper's code has a similar model of a longer series, in its own
units and with a regression on the year besides the slope.
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from autoreparam.zoo.data import Loaded, weekly_co2

_WEEKS = 40


def co2_trend(year, observed, y):
    """Local linear trend: level and slope are random walks, the level is observed with error."""
    sd_level, sd_slope, sd_y = _scales()
    level_0 = numpyro.sample("level_0", dist.Normal(y[0], 1.0))
    slope_0 = numpyro.sample("slope_0", dist.Normal(0.0, 0.1))

    def step(previous, _):
        level, slope = previous
        level_next = numpyro.sample("level", dist.Normal(level + slope, sd_level))
        slope_next = numpyro.sample("slope", dist.Normal(slope, sd_slope))
        return (level_next, slope_next), level_next

    _, later = scan(step, (level_0, slope_0), None, length=year.shape[0] - 1)
    level = jnp.append(level_0, later)
    with numpyro.plate("observations", y.shape[0]):
        numpyro.sample("y", dist.Normal(level[observed], sd_y), obs=y)


def co2_trend_plain(year, observed, y):
    """Local linear trend as in `co2_trend`, with a site for the level and slope of every year."""
    sd_level, sd_slope, sd_y = _scales()
    level = [numpyro.sample("level_0", dist.Normal(y[0], 1.0))]
    slope = [numpyro.sample("slope_0", dist.Normal(0.0, 0.1))]
    for t in range(1, year.shape[0]):
        loc = level[t - 1] + slope[t - 1]
        level.append(numpyro.sample(f"level_{t}", dist.Normal(loc, sd_level)))
        slope.append(numpyro.sample(f"slope_{t}", dist.Normal(slope[t - 1], sd_slope)))
    with numpyro.plate("observations", y.shape[0]):
        numpyro.sample("y", dist.Normal(jnp.stack(level)[observed], sd_y), obs=y)


def _scales():
    log_sd_level = numpyro.sample("log_sd_level", dist.Normal(-2.0, 1.0))
    log_sd_slope = numpyro.sample("log_sd_slope", dist.Normal(-2.0, 1.0))
    log_sd_y = numpyro.sample("log_sd_y", dist.Normal(-3.0, 1.0))
    return jnp.exp(log_sd_level), jnp.exp(log_sd_slope), jnp.exp(log_sd_y)


def load(plain: bool = False) -> Loaded:
    """The model, with standardized annual means; `plain` gives every year sites of its own."""
    arrays = parse(*weekly_co2())
    counts = {"years": len(arrays["year"]), "observations": len(arrays["y"])}
    return co2_trend_plain if plain else co2_trend, arrays, counts


def parse(year_of_week: np.ndarray, value: np.ndarray) -> dict[str, np.ndarray]:
    """All years from first to last, which of them are observed, and their standardized means."""
    present = ~np.isnan(value)
    years, weeks = np.unique(year_of_week[present], return_counts=True)
    years = years[weeks >= _WEEKS]
    mean = np.array([value[present & (year_of_week == year)].mean() for year in years])
    return {
        "year": np.arange(years[0], years[-1] + 1, dtype=np.int32),
        "observed": (years - years[0]).astype(np.int32),
        "y": (mean - mean.mean()) / mean.std(ddof=1),
    }
