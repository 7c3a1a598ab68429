"""How far an HMC trajectory should go, judged by the Gaussian that the draws resemble.

In whitened coordinates a direction of standard deviation `s` swings with frequency `1/s`; after a
time `t` its values correlate with those before as `cos(t/s)` and their squares as `cos²(t/s)`. For
trajectories of random length both are averages over it, and an autoregression with that
correlation gives the effective draws per transition.
"""

from __future__ import annotations

import numpy as np

JITTERS = (0.25, 0.5, 0.75, 1.0)
NODES = 33  # trajectory lengths over which correlations are averaged
SMEAR = (0.8, 1.0, 1.25)  # frequencies are not quite constant where the posterior is not Gaussian
MOST_STEPS = 1024


def best_length(
    spread: np.ndarray, step_size: float, acceptance: float, paid: int = 0, draws: int = 0
) -> tuple[float, float]:
    """Mean number of steps and jitter that give most effective draws per gradient.

    With `draws` to be made, what was `paid` already counts among the gradients.
    """
    spread = np.exp(np.unique(np.round(np.log(np.clip(spread, 1e-3, 1e3)), 2)))
    phase = (step_size / np.outer(spread, SMEAR)).clip(1e-6, 1.99)
    angle = np.arccos(1 - phase**2 / 2)  # per leapfrog step
    longest = np.clip(3 * spread.max() / step_size, 2, MOST_STEPS)
    uniform = np.linspace(-1, 1, NODES + 2)[1:-1]
    best, most = (1.0, 1.0), -np.inf
    for jitter in JITTERS:
        for mean in np.unique(np.round(np.geomspace(1, longest, 40), 2)):
            steps = np.maximum(np.round(mean * (1 + jitter * uniform)), 1)
            swing = np.cos(angle[..., None] * steps)
            worst = min(_effective(swing, acceptance), _effective(swing**2, acceptance))
            value = worst / (steps.mean() + (paid / draws if draws else 0))
            if value > most:
                best, most = (float(mean), jitter), value
    return best


def _effective(correlation: np.ndarray, acceptance: float) -> float:
    """Effective draws per transition along the worst direction."""
    rho = 1 - acceptance * (1 - correlation.mean(axis=(1, 2)))
    return float(np.min((1 - rho) / (1 + rho)))
