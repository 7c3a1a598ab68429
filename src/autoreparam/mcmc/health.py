"""Which chains of a window can be learned from, and where the others go on."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from autoreparam.mcmc.hmc import State
from autoreparam.mcmc.state import RunState
from autoreparam.mcmc.trail import Trail

# R-hat of half a window. In the last window of learning it was at most 1.6 where that went well,
# 2.0 on motorcycle splines, and above 3 where λ was of no use. With 1.4, of 24 runs of 8 models one
# was longer, and neither better nor worse.
APART = 2.0
# Draws of a chain after which their width says something. After 20, chains of German credit that
# had hardly moved yet made others seem lost.
SETTLED = 25
NEGLIGIBLE = np.log(1e-3)  # the probability of a place, relative to where other chains are
BEYOND_CHANCE = 2.0  # standard deviations of one chain's level by which another may be below it
ENOUGH_CHAINS = 64  # to know whether they are


class Health(NamedTuple):
    """What the log densities and positions of a window say."""

    sound: np.ndarray  # for each chain, whether it can be learned from
    climbing: bool  # whether sound chains are still on their way to the posterior
    apart: bool = False  # whether each of them has seen another part of it


def judge(window: Trail) -> Health:
    """The health of a window's chains.

    A chain is lost if it does not move, or is where there is next to no probability. Before its
    draws tell how wide that place is, it is lost if it is far below the others: by more than the
    dimension and ten times what chains move by. Chains climb if the second half of a window is
    above the first by half the dimension and more. They are apart if their means differ by more
    than their own standard deviations.
    """
    levels, size = np.asarray(window.logdensity, float), window.position.shape[-1]
    chains, draws = levels.shape
    if draws < 2:
        return Health(np.ones(chains, bool), False)
    half = draws // 2
    late = levels[:, half:]
    moves = np.any(window.position[:, half:] != window.position[:, -1:], axis=(1, 2))
    finite = np.isfinite(late).all(axis=1)
    usable = finite & moves if (finite & moves).any() else finite
    if not usable.any():
        return Health(np.ones(chains, bool), False)
    middle = np.where(usable, np.median(late, axis=1), -np.inf)
    step = 1.5 * np.median(np.abs(np.diff(late[usable], axis=1))) if draws > 3 else 0.0
    if draws - half < SETTLED:
        weights, least = middle, -size - 10 * step
    else:
        weights = np.where(usable, middle + _log_volumes(window, half), -np.inf)
        least = NEGLIGIBLE - BEYOND_CHANCE * np.median(late[usable].std(axis=1))
    # The second best of four: one chain in a spike does not make all the others look lost.
    reference = np.sort(weights)[-1 - (usable.sum() + 1) // 4]
    sound = usable & (weights >= reference + least)
    rise = np.median(late[sound].mean(axis=1) - levels[sound, :half].mean(axis=1))
    positions = window.position[sound, half:]
    apart = _r_hat(positions[:: max(1, len(positions) // ENOUGH_CHAINS)]) > APART
    return Health(sound, bool(rise > size / 2 + 3 * step), apart)


def _log_volumes(window: Trail, half: int) -> np.ndarray:
    """How wide the place is that each chain has seen, up to what is the same for all chains.

    With the level this is the logarithm of the probability there, by Laplace's approximation with
    correlations left out: a mode may be high and narrow, or low and wide. A coordinate is as wide
    as draws or scores say, whichever is more: draws of a chain that mixes slowly are too narrow,
    and scores of correlated coordinates say too little.
    """
    draws = np.asarray(window.position[:, half:], float)
    scores = np.asarray(window.score[:, half:], float)
    with np.errstate(all="ignore"):
        widths = np.fmax(draws.std(axis=1), 1 / np.sqrt(np.mean(scores**2, axis=1)))
        logs = np.log(widths)
    return logs.sum(axis=-1, where=np.isfinite(logs))


def _r_hat(positions: np.ndarray) -> float:
    """The largest over coordinates, without splitting chains."""
    if len(positions) < 2:
        return 1.0
    with np.errstate(all="ignore"):
        between = positions.mean(axis=1).var(axis=0, ddof=1)
        ratio = between / positions.var(axis=1).mean(axis=0)
    return float(np.sqrt(1 + np.max(ratio, initial=0, where=between > 0)))


def restart(state: RunState, window: Trail, sound: np.ndarray) -> RunState:
    """The run with lost chains moved to draws of sound ones, which are in the same coordinates."""
    if sound.all() or not sound.any():
        return state
    rng = np.random.default_rng([state.drawn, len(sound)])
    half = window.position.shape[1] // 2
    parts = [np.array(part) for part in state.chains]
    for chain in np.flatnonzero(~sound):
        other, draw = (
            rng.choice(np.flatnonzero(sound)),
            rng.integers(half, window.position.shape[1]),
        )
        for part, drawn in zip(parts, (window.position, window.logdensity, window.score)):
            part[chain] = drawn[other, draw]
    return replace(state, chains=State(*parts), restarts=state.restarts + int(np.sum(~sound)))
