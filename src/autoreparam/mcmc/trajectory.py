"""How long HMC trajectories should be, judged by the Gaussian that the draws resemble.

In whitened coordinates a direction with standard deviation `s` oscillates with frequency `1/s`;
after a time `t` the correlation of its values is `cos(t/s)` and that of their squares `cos²(t/s)`.
For trajectories of random length both are averaged over the length, and an autoregression with that
correlation gives the effective draws per transition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autoreparam.mcmc.integrator import turn
from autoreparam.mcmc.settings import DEFAULTS, SamplerSettings
from autoreparam.mcmc.step_size import accepted

NODES = 33  # trajectory lengths over which correlations are averaged
MEANS = 40  # trajectory lengths that compete, evenly spread in their logarithms
LONGEST = 3.0  # of them, in scales of the slowest direction: about half a turn


class Length(NamedTuple):
    """The trajectory length, and the step size that goes with it."""

    steps: float  # on average, one gradient each
    jitter: float
    step_size: float


def best_length(
    spread: np.ndarray,
    step_size: float,
    acceptance: float,
    stages: int = 1,
    paid: int = 0,
    draws: int = 0,
    settings: SamplerSettings = DEFAULTS,
) -> Length:
    """The length that gives the most effective draws per gradient.

    With `draws` still to come, the gradients `paid` so far are counted too, and steps may shrink so
    that a whole number of them has the right length.
    """
    # Steps that are accepted are not much longer than any direction is wide, whatever draws show.
    spread = np.clip(spread, np.clip(step_size, 1e-3, 1.0), 1e3)
    spread = np.exp(np.unique(np.round(np.log(spread), 2)))
    uniform = np.linspace(-1, 1, NODES + 2)[1:-1]
    longest = np.clip(LONGEST * spread.max() / step_size, 2 * stages, settings.most_leapfrog)
    best, most = Length(float(stages), 1.0, step_size), -np.inf
    smear = (1 / settings.smear, 1.0, settings.smear)
    for factor in settings.shrink if draws else settings.shrink[:1]:
        angle = turn((factor * step_size / np.outer(spread, smear)).clip(1e-6, None), stages)
        rate = accepted(acceptance, factor)
        for jitter in settings.jitters:
            means = np.unique(np.round(np.geomspace(stages, longest, MEANS), 2))[:, None]
            steps = np.maximum(np.round(means * (1 + jitter * uniform) / stages), 1)
            swing = np.cos(angle[..., None] * steps[:, None, None, :])
            worst = np.minimum(_effective(swing, rate), _effective(swing**2, rate))
            worth = worst / (stages * steps.mean(axis=1) + (paid / draws if draws else 0))
            i = int(np.argmax(worth))
            if worth[i] > most:
                best, most = Length(float(means[i, 0]), jitter, factor * step_size), worth[i]
    return best


def _effective(correlation: np.ndarray, acceptance: float) -> np.ndarray:
    """Effective draws per transition along the worst direction, for each mean length."""
    rho = 1 - acceptance * (1 - correlation.mean(axis=(2, 3)))
    return np.min((1 - rho) / (1 + rho), axis=1)
