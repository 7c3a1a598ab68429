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

THREADS = 8  # each with about ten arrays as large as its scalars' draws
BLOCK = 2**19  # numbers to transform at once, few enough to stay in a cache
TOGETHER = 2**16  # numbers of scalars that are looked at in one go: alone, short ones take longer


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
    def some(which: np.ndarray) -> None:
        draws = scalars[which]
        order = np.argsort(flat(draws))
        plain, folded = normal_scores(draws, order, quantiles)
        location, scale = (nested_r_hat(halves(scores), groups) for scores in (plain, folded))
        found.r_hat[which] = np.fmax(location, scale)
        found.bulk[which], found.means[which] = ess(plain), ess(draws)
        ordered = np.take_along_axis(flat(draws), order, axis=-1)  # quicker where they are sorted
        ends = np.quantile(ordered, tails, axis=-1)[..., None, None]
        found.tail[which] = np.minimum(*(ess(draws <= end) for end in ends))

    known = np.flatnonzero(~np.isnan(scalars).any(axis=(1, 2)))
    parts = np.array_split(known, -(-len(known) * chains * length // TOGETHER) or 1)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(some, [part for part in parts if len(part)]))
    return found


def flat(draws: np.ndarray) -> np.ndarray:
    """The draws of all chains in a row, (..., chain, draw)."""
    return draws.reshape(*draws.shape[:-2], -1)


def halves(draws: np.ndarray) -> np.ndarray:
    """The first half of each chain, then the second half of each; a draw in between is left out."""
    half = draws.shape[-1] // 2
    if not half:
        return draws
    return np.concatenate([draws[..., :half], draws[..., -half:]], axis=-2)


def normal_scores(
    draws: np.ndarray, order: np.ndarray, quantiles: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Normal scores of draws by their rank, and by that of their distance from the median."""
    values = np.take_along_axis(flat(draws), order, axis=-1)
    count = values.shape[-1]
    middle = (values[..., [(count - 1) // 2]] + values[..., [count // 2]]) / 2
    distances = np.abs(values - middle)
    nearer = np.argsort(distances, kind="stable")  # merges two sorted runs
    plain, folded = np.empty((2, *values.shape))
    np.put_along_axis(plain, order, _scores(values, quantiles), axis=-1)
    places = np.take_along_axis(order, nearer, axis=-1)
    distances = np.take_along_axis(distances, nearer, axis=-1)
    np.put_along_axis(folded, places, _scores(distances, quantiles), axis=-1)
    return plain.reshape(draws.shape), folded.reshape(draws.shape)


def _scores(ordered: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """The scores of sorted values; equal ones share that of their mean rank."""
    differs = ordered[..., 1:] != ordered[..., :-1]
    if differs.all():
        return np.broadcast_to(quantiles[::2], ordered.shape)
    ranks, edge = np.arange(ordered.shape[-1]), np.ones((*ordered.shape[:-1], 1), bool)
    first = np.where(np.concatenate([edge, differs], axis=-1), ranks, 0)
    last = np.where(np.concatenate([differs, edge], axis=-1), ranks, ranks[-1])
    first = np.maximum.accumulate(first, axis=-1)
    last = np.minimum.accumulate(last[..., ::-1], axis=-1)[..., ::-1]
    return quantiles[first + last]


def blom(count: int) -> np.ndarray:
    """Blom's normal scores of the ranks 1, 1.5, 2, ..., count."""
    ranks = 1 + np.arange(2 * count - 1) / 2
    return ndtri((ranks - 3 / 8) / (count + 1 / 4))


def ess(draws: np.ndarray) -> np.ndarray:
    """Effective sample size of the mean of independent chains, (..., chain, draw).

    The variance of a mean of n draws is `1 + 2 Σ (1 - t/n) ρ_t` times that of independent ones,
    summed over the lags t within a chain as far as Geyer's pairs are positive, and made to fall.
    Deviations from the mean of all chains give ρ without bias, and show where chains disagree.
    """
    values = np.array(draws, dtype=float)
    count = values.shape[-2] * values.shape[-1]
    still = np.ptp(values, axis=(-2, -1)) < np.finfo(float).resolution
    values -= values.mean(axis=(-2, -1), keepdims=True)
    sums = lagged_sums(values)  # there are n - t products at lag t
    sums = np.concatenate([sums, np.zeros((*sums.shape[:-1], sums.shape[-1] % 2))], axis=-1)
    pairs = sums.reshape(*sums.shape[:-1], -1, 2).sum(axis=-1) / sums[..., :1]
    positive = np.logical_and.accumulate(pairs > 0, axis=-1)
    falling = np.where(positive, np.minimum.accumulate(pairs, axis=-1), 0)
    time = 2 * falling.sum(axis=-1) - 1
    found = count / np.maximum(time, 1 / np.log10(count))  # ArviZ's bound
    return np.where(still, count, np.where(np.isnan(pairs).any(axis=-1), np.nan, found))


def lagged_sums(centered: np.ndarray) -> np.ndarray:
    """The products of draws of the same chain, (..., chain, draw), summed, for every lag.

    A product of matrices is as fast for short chains, but its threads get in each other's way.
    """
    count, length = centered.shape[-2:]
    size = next_fast_len(2 * length, real=True)
    power = np.zeros((*centered.shape[:-2], size // 2 + 1))
    pieces = -(-centered.size // max(length, 1) * size // BLOCK)
    for block in np.array_split(centered, min(count, pieces), axis=-2):
        waves = np.fft.rfft(np.ascontiguousarray(block), size, axis=-1)
        waves = waves.view(float)  # real and imaginary parts in turn
        squares = np.einsum("...ij,...ij->...j", waves, waves)
        power += squares.reshape(*power.shape, 2).sum(axis=-1)
    return np.fft.irfft(power, size, axis=-1)[..., :length]
