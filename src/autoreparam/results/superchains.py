"""Many chains as a few superchains, each begun at one point, and the R-hat of these.

Nested R-hat is that of Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari and Gelman (2024).
"""

from __future__ import annotations

import numpy as np

# From here on, the 100 effective draws of every chain that R-hat needs to come below 1.01 are more
# than estimates need: 6,400 in all.
MANY_CHAINS = 64
# As many as the paper's experiments with 2,048 chains have: their variance is known to a third.
SUPERCHAINS = 16


def count_superchains(chains: int) -> int:
    """The number of starting points of so many chains: one for each, unless they are many."""
    return SUPERCHAINS if chains >= MANY_CHAINS else chains


def superchains(chains: int) -> np.ndarray:
    """The superchain of each chain: neighbors form one, and sizes differ by at most one."""
    return np.arange(chains) * count_superchains(chains) // max(chains, 1)


def nested_r_hat(draws: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """`sqrt(1 + B / W)` of draws, (..., chain, draw), in superchains numbered from 0.

    B is the variance of the superchains' means. W is the mean over superchains of the variance of
    their chains' means and the mean variance of their chains; with one draw, or chain, that is 0.
    """
    sizes, means = np.bincount(groups), draws.mean(axis=-1)
    member = np.equal.outer(groups, np.arange(len(sizes))).astype(float)
    centers = means @ member / sizes
    among = (means - centers[..., groups]) ** 2 @ member / np.maximum(sizes - 1, 1)
    single = draws.shape[-1] < 2
    inside = 0.0 if single else draws.var(axis=-1, ddof=1) @ member / sizes
    return np.sqrt(1 + centers.var(axis=-1, ddof=1) / np.mean(among + inside, axis=-1))
