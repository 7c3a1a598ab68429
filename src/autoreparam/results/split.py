"""ESS and R-hat of a few long chains: ArviZ's numbers.

ArviZ brings SciPy's statistics and matplotlib along: to import them takes as long as to compile a
small model, and its functions as long as sampling one. Here draws are sorted once for everything.
"""

from __future__ import annotations

import numpy as np

from autoreparam.results.pooled import Pooled, blom, halves, lagged_sums, normal_scores

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
    for i, draws in enumerate(scalars):
        if np.isnan(draws).any():
            continue
        parts = halves(draws)
        plain, folded = normal_scores(parts, np.argsort(parts, axis=None), quantiles)
        if chains > 1:
            found.r_hat[i] = max(_r_hat(plain), _r_hat(folded))
        found.bulk[i], found.means[i] = _ess(plain), _ess(parts)
        ends = np.quantile(draws, tails)
        found.tail[i] = min(_ess(halves(draws <= end)) for end in ends)
    return found


def _r_hat(chains: np.ndarray) -> float:
    length = chains.shape[1]
    between = length * chains.mean(axis=1).var(ddof=1)
    within = chains.var(axis=1, ddof=1).mean()
    return float(np.sqrt((between / within + length - 1) / length))


def _ess(chains: np.ndarray) -> float:
    """Effective sample size by Geyer's pairs of autocorrelations: positive, and made to fall."""
    values = np.array(chains, dtype=float)
    count, length = values.shape
    if np.ptp(values) < np.finfo(float).resolution:
        return float(values.size)
    means = values.mean(axis=1, keepdims=True)
    covariances = lagged_sums(values - means) / values.size
    within = covariances[0] * length / (length - 1)
    spread = covariances[0] + (means.var(ddof=1) if count > 1 else 0.0)
    correlations = 1 - (within - covariances) / spread
    correlations[0] = 1
    usable = 2 + max(length - 3, 0) // 2 * 2  # the last lag has too few products
    even, odd = correlations[:usable].reshape(-1, 2).T
    pairs = even + odd
    last = int(np.argmin(np.append(pairs[:-1] > 0, False)))  # the first that is not positive
    if np.isnan(pairs[: last + 1]).any():
        return np.nan
    rest = even[last] if even[last] > 0 or pairs[last] >= 0 else 0.0
    time = 2 * np.minimum.accumulate(pairs[:last]).sum() + rest - 1
    return float(values.size / max(time, 1 / np.log10(values.size)))
