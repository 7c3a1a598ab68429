"""What the draws of each scalar say: its posterior, and how well they know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray

COLUMNS = ("mean", "sd", "5%", "95%", "mcse_mean", "ess_bulk", "ess_tail", "r_hat")


@dataclass(frozen=True)
class Measured:
    """The scalars of one variable, each with what its draws say."""

    labels: list[str]
    draws: np.ndarray  # (scalar, chain, draw)
    varies: np.ndarray
    bulk: np.ndarray
    tail: np.ndarray
    means: np.ndarray  # ESS of the mean
    r_hat: np.ndarray

    def columns(self) -> dict[str, np.ndarray]:
        """The columns of a table, one entry a scalar."""
        flat = self.draws.reshape(len(self.labels), -1)
        if flat.shape[1] < 2:
            nothing = np.full(len(self.labels), np.nan)
            return dict.fromkeys(COLUMNS, nothing)
        with np.errstate(all="ignore"):
            sd = flat.std(axis=1, ddof=1)
            low, high = np.quantile(flat, [0.05, 0.95], axis=1)
            mcse = sd / np.sqrt(self.means)
        found = (flat.mean(axis=1), sd, low, high, mcse, self.bulk, self.tail, self.r_hat)
        return dict(zip(COLUMNS, found))


def load_libraries() -> None:
    """Imports what the end of a run needs; it takes a second that the sampler can use."""
    import arviz_base
    import arviz_stats.base
    import xarray

    del arviz_base, arviz_stats, xarray


def ess_of(draws: np.ndarray) -> float | None:
    """Bulk ESS of one scalar's draws of shape (chain, draw); None while there are too few."""
    from arviz_stats.base import array_stats

    if draws.shape[1] < 8:
        return None
    return float(array_stats.ess(draws, chain_axis=0, draw_axis=1))


def measure(variable: xarray.DataArray) -> Measured:
    """ArviZ's ESS and R-hat of every scalar of a variable that varies; NaN for the others."""
    from arviz_base import rcParams
    from arviz_stats.base import array_stats

    own = [dim for dim in variable.dims if dim not in ("chain", "draw")]
    values = np.asarray(variable.transpose("chain", "draw", *own).values, dtype=float)
    chains, draws = values.shape[:2]
    labels = _scalar_names(variable, own)
    count = len(labels)
    scalars = np.moveaxis(values.reshape(chains, draws, count), 2, 0)
    varies = np.zeros(count, dtype=bool)
    if scalars.size:
        # A NaN is not equal to anything, so that draws with one count as varying.
        varies = (scalars != scalars[:, :1, :1]).any(axis=(1, 2))
    bulk, tail, means, r_hat = (np.full(count, np.nan) for _ in range(4))
    if varies.any() and draws >= 4:
        moving = scalars[varies]
        probability = rcParams["stats.ci_prob"]  # as in ArviZ's own tables
        with np.errstate(all="ignore"):
            bulk[varies] = array_stats.ess(moving, method="bulk")
            tail[varies] = array_stats.ess(moving, method="tail", prob=probability)
            means[varies] = array_stats.ess(moving, method="mean")
            if chains > 1:
                r_hat[varies] = array_stats.rhat(moving, method="rank")
    return Measured(labels, scalars, varies, bulk, tail, means, r_hat)


def _scalar_names(variable: xarray.DataArray, own: list) -> list[str]:
    if not own:
        return [str(variable.name)]
    axes = [variable[dim].values.tolist() for dim in own]
    shape = tuple(len(axis) for axis in axes)
    return [
        f"{variable.name}[{', '.join(str(axis[i]) for axis, i in zip(axes, index))}]"
        for index in np.ndindex(shape)
    ]
