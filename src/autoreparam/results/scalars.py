"""What the draws say about each scalar: its posterior, ESS and R-hat."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autoreparam.results.pooled import THREADS, Pooled, pooled
from autoreparam.results.split import split
from autoreparam.results.superchains import MANY_CHAINS, superchains

if TYPE_CHECKING:
    import xarray

COLUMNS = ("mean", "sd", "5%", "95%", "mcse_mean", "ess_bulk", "ess_tail", "r_hat")
BLOCK = 64  # scalars whose draws stay in a cache
ENOUGH_DRAWS = 2**16  # of many chains, to know how good the draws are
OF_CHAINS = "of_chains"  # the attribute of a variable whose chains stand for so many
TAILS = (0.05, 0.95)  # of Vehtari and others (2021) and of Stan; ArviZ's own are 11% and 89%


def estimates(scalars: np.ndarray) -> dict[str, np.ndarray]:
    """Mean, sd and quantiles of draws of shape (scalar, chain, draw); NaN for fewer than two."""
    flat = scalars.reshape(len(scalars), math.prod(scalars.shape[1:]))
    if flat.shape[1] < 2:
        return dict.fromkeys(COLUMNS[:4], np.full(len(scalars), np.nan))
    with np.errstate(all="ignore"):
        low, high = np.quantile(flat, [0.05, 0.95], axis=1)
        return dict(zip(COLUMNS, (flat.mean(axis=1), flat.std(axis=1, ddof=1), low, high)))


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
        """The columns of a table, one entry per scalar."""
        found = estimates(self.draws)
        with np.errstate(all="ignore"):
            mcse = found["sd"] / np.sqrt(self.means)
        return found | dict(zip(COLUMNS[4:], (mcse, self.bulk, self.tail, self.r_hat)))


def load_libraries() -> None:
    """Imports what the end of a run needs, while the sampler runs."""
    import xarray

    del xarray


def ess_of(draws: np.ndarray) -> float | None:
    """Bulk ESS of one scalar's draws of shape (chain, draw); None while there are too few."""
    if draws.shape[1] < 8:
        return None
    return float(_judge(np.asarray(draws, dtype=float)[None], superchains(len(draws))).bulk[0])


def _judge(scalars: np.ndarray, groups: np.ndarray) -> Pooled:
    """ESS and R-hat of draws of shape (scalar, chain, draw), whose chains form superchains."""
    with np.errstate(all="ignore"):
        if scalars.shape[1] >= MANY_CHAINS:
            return pooled(scalars, TAILS, groups)
        return split(scalars, TAILS)


def measure(variable: xarray.DataArray, only: np.ndarray | None = None) -> Measured:
    """ArviZ's ESS and R-hat of every scalar of a variable that varies; NaN for the others.

    R-hat of many chains is nested R-hat. `only`, as long as the variable, says which scalars to
    measure; of thousands of chains, some then stand for all.
    """
    labels, values = scalar_names(variable), _flat(variable)
    chains = variable.attrs.get(OF_CHAINS, len(values))
    groups, some = superchains(chains), _some_chains(chains, values.shape[1])
    known = np.ones(values.shape[2], dtype=bool)
    if only is not None:
        labels, known = [labels[i] for i in np.flatnonzero(only)], ~np.isnan(_sums(values)[only])
        values = values[..., only] if chains > len(values) else values[some][..., only]
    if chains > len(values):
        groups = groups[some]
    count = values.shape[2]
    scalars = np.moveaxis(np.asarray(values, dtype=float), 2, 0)
    varies = np.zeros(count, dtype=bool)
    if scalars.size:
        # A NaN equals nothing, so draws with one count as varying.
        varies = (scalars != scalars[:, :1, :1]).any(axis=(1, 2)) | ~known
    found = Pooled(*np.full((4, count), np.nan))
    each = chains / max(len(values), 1)  # chains that one stands for
    for whole, part, factor in zip(found, _judge(scalars[varies], groups), (each, each, each, 1)):
        whole[varies] = factor * part
        whole[~known] = np.nan  # in a chain that was left out, perhaps
    return Measured(labels, scalars, varies, *found)


def estimate(variable: xarray.DataArray) -> tuple[list[str], dict[str, np.ndarray]]:
    """Names and estimates of every scalar of a variable."""
    scalars = np.moveaxis(np.asarray(_flat(variable), dtype=float), 2, 0)
    return scalar_names(variable), estimates(scalars)


def slowest(variables: list[xarray.DataArray], most: int) -> list[np.ndarray]:
    """Which scalars of each variable look the worst, `most` of them in all."""
    slow = [slowness(_flat(variable)) for variable in variables]
    chosen = np.zeros(sum(map(len, slow)), dtype=bool)
    chosen[np.argsort(-np.concatenate([np.empty(0), *slow]), kind="stable")[:most]] = True
    return np.split(chosen, np.cumsum([len(part) for part in slow])[:-1])


def smallest(measured: list[Measured], of: Callable[[Measured], np.ndarray]) -> tuple[float, str]:
    """The smallest value over scalars that vary and whose it is; a NaN is worse than any number."""
    labels = [name for m in measured for name, moves in zip(m.labels, m.varies) if moves]
    values = np.concatenate([np.empty(0), *(of(m)[m.varies] for m in measured)])
    if not values.size:
        return np.nan, ""
    index = int(np.argmin(values))  # numpy takes the first NaN for the minimum
    return float(values[index]), labels[index]


def squares(latents: list[xarray.DataArray]) -> list[xarray.DataArray]:
    """Of deviations from the mean; of thousands of chains, of some that stand for all."""
    found = []
    for latent in latents:
        own = latent.transpose("chain", "draw", ...)
        some = own[_some_chains(*own.shape[:2])]
        with np.errstate(all="ignore"):
            square = (some - some.mean(("chain", "draw"))) ** 2
        found.append(square.rename(f"the square of {latent.name}").assign_attrs(
            {OF_CHAINS: latent.sizes["chain"]}
        ))  # fmt: skip
    return found


def slowness(values: np.ndarray) -> np.ndarray:
    """Variance of batch means relative to that of independent draws, for (chain, draw, scalar).

    It is large where ESS is small or chains disagree, and takes a thousandth of the time of either.
    Draws are squashed, so that heavy tails do not hide it; their absolute values are checked too.
    Of thousands of chains some are looked at, and the others only for numbers that are not finite.
    """
    usual = np.isfinite(_sums(values))
    usual[~usual] = (values[..., ~usual] == values[:1, :1, ~usual]).all(axis=(0, 1))
    values = values[_some_chains(*values.shape[:2])]
    draws, count = values.shape[1:]
    length = max(1, int(draws**0.5))
    found = np.zeros(count)

    @np.errstate(all="ignore")  # in this thread
    def some(first: int) -> None:
        here = values[:, : draws - draws % length, first : first + BLOCK]
        x = here.astype(float)
        x -= x.mean(axis=(0, 1))
        x /= x.std(axis=(0, 1)) + np.abs(x)
        ratio = np.maximum(_batch_ratio(x, length), _batch_ratio(np.abs(x), length))
        # A scalar that does not vary has no ratio and no ESS; one that is not finite is the worst.
        still = (here == here[:1, :1]).all(axis=(0, 1))
        found[first : first + BLOCK] = np.where(still, 0, np.nan_to_num(ratio, nan=np.inf))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(some, range(0, count if draws >= 4 else 0, BLOCK)))
    return np.where(usual, found, np.inf)


def _sums(values: np.ndarray) -> np.ndarray:
    """The sum over the draws of each scalar: finite only if all are numbers."""
    with np.errstate(all="ignore"):
        sums = values.sum(axis=(0, 1)).astype(float)
        large = ~np.isfinite(sums)  # for single precision, perhaps
        sums[large] = values[..., large].sum(axis=(0, 1), dtype=float)
    return sums


def _some_chains(chains: int, draws: int) -> slice:
    """All chains, or evenly spread ones that have draws enough."""
    least = max(MANY_CHAINS, -(-ENOUGH_DRAWS // max(draws, 1)))
    return slice(None, None, max(1, chains // least))


def _batch_ratio(x: np.ndarray, length: int) -> np.ndarray:
    means = x.reshape(len(x), -1, length, x.shape[2]).mean(axis=2)
    return length * means.var(axis=(0, 1)) / x.var(axis=(0, 1))


def _own(variable: xarray.DataArray) -> list:
    return [dim for dim in variable.dims if dim not in ("chain", "draw")]


def _flat(variable: xarray.DataArray) -> np.ndarray:
    """The draws of a variable, of shape (chain, draw, scalar)."""
    values = variable.transpose("chain", "draw", *_own(variable)).values
    return values.reshape(*values.shape[:2], math.prod(values.shape[2:]))


def scalar_names(variable: xarray.DataArray) -> list[str]:
    """A name for each element of a variable, chains and draws aside: `theta[3]`."""
    own = _own(variable)
    if not own:
        return [str(variable.name)]
    axes = [variable[dim].values.tolist() for dim in own]
    shape = tuple(len(axis) for axis in axes)
    return [
        f"{variable.name}[{', '.join(str(axis[i]) for axis, i in zip(axes, index))}]"
        for index in np.ndindex(shape)
    ]
