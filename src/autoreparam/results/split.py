"""ESS and R-hat of a few long chains: ArviZ's numbers.

ArviZ brings SciPy's statistics and matplotlib along: to import them takes as long as to compile a
small model, and its functions as long as sampling one. Here draws are sorted once for everything.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from autoreparam.results.pooled import (
    THREADS,
    TOGETHER,
    Pooled,
    blom,
    flat,
    halves,
    lagged_sums,
    normal_scores,
)

FEWEST = 4  # draws per chain


def split(scalars: np.ndarray, tails: tuple[float, float]) -> Pooled:
    """ESS and rank-normalized split R-hat of draws, (scalar, chain, draw).

    After Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021). R-hat of one chain is NaN.
    """
    count, chains, length = scalars.shape
    found = Pooled(*np.full((4, count), np.nan))
    if length < FEWEST:
        return found
    quantiles = blom(chains * (length // 2) * 2)

    def some(which: np.ndarray) -> None:
        draws = scalars[which]
        parts = halves(draws)
        with np.errstate(all="ignore"):  # in this thread
            plain, folded = normal_scores(parts, np.argsort(flat(parts), axis=-1), quantiles)
            if chains > 1:
                found.r_hat[which] = np.fmax(_r_hat(plain), _r_hat(folded))
            found.bulk[which], found.means[which] = _ess(plain), _ess(parts)
            ends = np.quantile(flat(draws), tails, axis=-1)[..., None, None]
            found.tail[which] = np.minimum(*(_ess(halves(draws <= end)) for end in ends))

    known = np.flatnonzero(~np.isnan(scalars).any(axis=(1, 2)))
    pieces = np.array_split(known, -(-len(known) * chains * length // TOGETHER) or 1)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(some, [piece for piece in pieces if len(piece)]))
    return found


def _r_hat(chains: np.ndarray) -> np.ndarray:
    length = chains.shape[-1]
    between = length * chains.mean(axis=-1).var(axis=-1, ddof=1)
    within = chains.var(axis=-1, ddof=1).mean(axis=-1)
    return np.sqrt((between / within + length - 1) / length)


def _ess(chains: np.ndarray) -> np.ndarray:
    """Effective sample size by Geyer's pairs of autocorrelations: positive, and made to fall."""
    values = np.array(chains, dtype=float)
    count, length = values.shape[-2:]
    still = np.ptp(flat(values), axis=-1) < np.finfo(float).resolution
    means = values.mean(axis=-1)
    covariances = lagged_sums(values - means[..., None]) / (count * length)
    within = covariances[..., :1] * length / (length - 1)
    between = means.var(axis=-1, ddof=1) if count > 1 else np.zeros(means.shape[:-1])
    correlations = 1 - (within - covariances) / (covariances[..., :1] + between[..., None])
    correlations[..., 0] = 1
    usable = 2 + max(length - 3, 0) // 2 * 2  # the last lag has too few products
    even = correlations[..., :usable:2]
    pairs = even + correlations[..., 1:usable:2]
    falls = ~(pairs > 0)
    falls[..., -1] = True
    last = np.argmax(falls, axis=-1)[..., None]  # the first that is not positive
    place = np.arange(pairs.shape[-1])
    unknown = (np.isnan(pairs) & (place <= last)).any(axis=-1)
    rest, pair = (np.take_along_axis(x, last, axis=-1)[..., 0] for x in (even, pairs))
    falling = np.where(place < last, np.minimum.accumulate(pairs, axis=-1), 0).sum(axis=-1)
    time = 2 * falling + np.where((rest > 0) | (pair >= 0), rest, 0) - 1
    size = count * length
    found = np.where(unknown, np.nan, size / np.maximum(time, 1 / np.log10(size)))
    return np.where(still, size, found)
