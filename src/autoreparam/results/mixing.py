"""R-hat and ESS of thousands of scalars at once, for draws of shape (scalar, chain, draw).

The definitions are those of Vehtari and others (2021), as in ArviZ, with which a test compares
them. ArviZ goes through scalars one by one: at 4 chains of 1000 draws it took 14 ms for each, and
these take 1.5 ms.
"""

from __future__ import annotations

import numpy as np

from autoreparam.results.scalars import TAILS


def r_hat(draws: np.ndarray) -> np.ndarray:
    """Rank-normalized split R-hat: the larger of that for location and that for scale."""
    from scipy.stats import rankdata

    split = _split(draws)
    folded = np.abs(split - np.median(split, axis=(1, 2), keepdims=True))
    return np.maximum(*(_plain_r_hat(_normal(part, rankdata)) for part in (split, folded)))


def ess(draws: np.ndarray) -> np.ndarray:
    """The smaller of bulk ESS and tail ESS."""
    from scipy.stats import rankdata

    split = _split(draws)
    ends = np.quantile(draws, TAILS, axis=(1, 2), keepdims=True)
    tails = (_plain_ess((split <= end).astype(float)) for end in ends)
    return np.minimum.reduce([_plain_ess(_normal(split, rankdata)), *tails])


def _split(draws: np.ndarray) -> np.ndarray:
    """Each chain as two, without the draw in the middle of an odd number."""
    half = draws.shape[2] // 2
    return np.concatenate([draws[:, :, :half], draws[:, :, -half:]], axis=1)


def _normal(split: np.ndarray, rankdata) -> np.ndarray:
    """Normal scores of the ranks among all draws of a scalar."""
    from scipy.special import ndtri

    flat = split.reshape(len(split), -1)
    ranks = rankdata(flat, axis=1)
    return ndtri((ranks - 0.375) / (flat.shape[1] + 0.25)).reshape(split.shape)


def _plain_r_hat(x: np.ndarray) -> np.ndarray:
    draws = x.shape[2]
    between = x.mean(axis=2).var(axis=1, ddof=1)
    within = x.var(axis=2, ddof=1).mean(axis=1)
    return np.sqrt((draws - 1) / draws + between / within)


def _plain_ess(x: np.ndarray) -> np.ndarray:
    """Draws divided by the autocorrelation time, summed over Geyer's monotone positive pairs."""
    from scipy.fft import irfft, next_fast_len, rfft

    _, chains, draws = x.shape
    means = x.mean(axis=2, keepdims=True)
    length = next_fast_len(2 * draws)
    spectrum = np.abs(rfft(x - means, length)) ** 2
    covariance = irfft(spectrum.mean(axis=1), length)[:, :draws] / draws
    within = covariance[:, :1] * draws / (draws - 1)
    total = covariance[:, :1] + means.var(axis=1, ddof=1)
    correlation = 1 - (within - covariance) / total
    correlation[:, 0] = 1
    pairs = correlation[:, : 2 * max(1, (draws - 3) // 2)].reshape(len(x), -1, 2).sum(axis=2)
    positive = np.logical_and.accumulate(pairs > 0, axis=1)
    time = 2 * np.sum(np.minimum.accumulate(pairs, axis=1) * positive, axis=1) - 1
    next_one = np.minimum(2 * positive.sum(axis=1), draws - 1)[:, None]
    time += np.maximum(np.take_along_axis(correlation, next_one, axis=1)[:, 0], 0)
    return chains * draws / np.maximum(time, 1 / np.log10(chains * draws))
