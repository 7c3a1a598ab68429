"""ESS and nested R-hat of many chains, however short.

ArviZ's ESS is for chains that are long: of 4 independent draws from each of 1,024 chains it makes
14,796 effective ones, and 4,096 chains of 60 draws take it a quarter of a second per scalar, R-hat
included. Here autocorrelations are pooled over chains, and draws are sorted once for everything.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from scipy.fft import next_fast_len
from scipy.special import ndtri

from autoreparam.results.superchains import nested_r_hat, superchains

THREADS = 8  # each with about ten arrays as large as a scalar's draws
BLOCK = 2**19  # numbers to transform at once, few enough to stay in a cache


class Pooled(NamedTuple):
    """What the draws of each scalar say; NaN where they are not all numbers."""

    bulk: np.ndarray
    tail: np.ndarray
    means: np.ndarray
    r_hat: np.ndarray


def pooled(
    scalars: np.ndarray, tails: tuple[float, float], groups: np.ndarray | None = None
) -> Pooled:
    """ESS and nested R-hat of draws, (scalar, chain, draw); `groups` are their superchains.

    As in ArviZ's R-hat, draws are replaced by normal scores of their ranks, once as they are, to
    see locations differ, and once folded at the median, to see scales differ. Halves of
    superchains count as superchains, so that a drift that all share is seen too.
    """
    count, chains, length = scalars.shape
    found = Pooled(*np.full((4, count), np.nan))
    if not length:
        return found
    groups = superchains(chains) if groups is None else groups
    if length > 1:
        groups = np.concatenate([groups, groups + groups[-1] + 1])
    quantiles = blom(chains * length)

    @np.errstate(all="ignore")  # in this thread
    def one(i: int) -> None:
        draws = scalars[i]
        if np.isnan(draws).any():
            return
        order = np.argsort(draws, axis=None)
        plain, folded = normal_scores(draws, order, quantiles)
        location, scale = (nested_r_hat(halves(scores), groups) for scores in (plain, folded))
        found.r_hat[i] = np.fmax(location, scale)
        found.bulk[i], found.means[i] = ess(plain), ess(draws)
        ends = np.quantile(draws.ravel()[order], tails)  # quicker where they are sorted
        found.tail[i] = min(ess(draws <= end) for end in ends)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, range(count)))
    return found


def halves(draws: np.ndarray) -> np.ndarray:
    """The first half of each chain, then the second half of each; a draw in between is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]]) if half else draws


def normal_scores(
    draws: np.ndarray, order: np.ndarray, quantiles: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Normal scores of draws by their rank, and by that of their distance from the median."""
    values = draws.ravel()[order]
    distances = np.abs(values - (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2)
    nearer = np.argsort(distances, kind="stable")  # merges two sorted runs
    plain, folded = np.empty((2, *draws.shape))
    plain.ravel()[order] = _scores(values, quantiles)
    folded.ravel()[order[nearer]] = _scores(distances[nearer], quantiles)
    return plain, folded


def _scores(ordered: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """The scores of sorted values; equal ones share that of their mean rank."""
    differs = ordered[1:] != ordered[:-1]
    if differs.all():
        return quantiles[::2]
    first = np.concatenate([[0], 1 + np.flatnonzero(differs)])
    last = np.append(first[1:], len(ordered))
    return np.repeat(quantiles[first + last - 1], last - first)


def blom(count: int) -> np.ndarray:
    """Blom's normal scores of the ranks 1, 1.5, 2, ..., count."""
    ranks = 1 + np.arange(2 * count - 1) / 2
    return ndtri((ranks - 3 / 8) / (count + 1 / 4))


def ess(draws: np.ndarray) -> float:
    """Effective sample size of the mean of independent chains, (chain, draw).

    The variance of a mean of n draws is `1 + 2 Σ (1 - t/n) ρ_t` times that of independent ones,
    summed over the lags t within a chain as far as Geyer's pairs are positive, and made to fall.
    Deviations from the mean of all chains give ρ without bias, and show where chains disagree.
    """
    values = np.array(draws, dtype=float)
    if np.ptp(values) < np.finfo(float).resolution:
        return float(values.size)
    values -= values.mean()
    sums = lagged_sums(values)  # there are n - t products at lag t
    pairs = np.append(sums, np.zeros(len(sums) % 2)).reshape(-1, 2).sum(axis=1) / sums[0]
    if np.isnan(pairs).any():
        return np.nan
    positive = np.logical_and.accumulate(pairs > 0)
    time = 2 * np.minimum.accumulate(pairs)[positive].sum() - 1
    return float(values.size / max(time, 1 / np.log10(values.size)))  # ArviZ's bound


def lagged_sums(centered: np.ndarray) -> np.ndarray:
    """The products of draws of the same chain, summed, for every lag.

    A product of matrices is as fast for short chains, but its threads get in each other's way.
    """
    count, length = centered.shape
    size = next_fast_len(2 * length, real=True)
    power = np.zeros(size // 2 + 1)
    for block in np.array_split(np.ascontiguousarray(centered), -(-count * size // BLOCK)):
        waves = np.fft.rfft(block, size, axis=1).view(float)  # real and imaginary parts in turn
        power += np.einsum("ij,ij->j", waves, waves).reshape(-1, 2).sum(axis=1)
    return np.fft.irfft(power, size)[:length]
