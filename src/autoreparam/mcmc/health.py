"""Which chains of a window can be learned from, and where the others go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from autoreparam.mcmc.hmc import State
from autoreparam.mcmc.settings import DEFAULTS, SamplerSettings
from autoreparam.mcmc.state import RunState
from autoreparam.mcmc.trail import Trail

ENOUGH_CHAINS = 64  # to know whether they are apart
ENOUGH_NUMBERS = 2**24  # in all draws, to know how wide they are
NOT_AT_ALL = 1e-30  # of the square of a place's width: a chain that has not moved through it


class Health(NamedTuple):
    """What the log densities and positions of a window say."""

    sound: np.ndarray  # for each chain, whether it can be learned from; the others are moved
    climbing: bool  # whether sound chains are still on their way to the posterior
    apart: bool = False  # whether each of them has seen another part of it


def judge(window: Trail, settings: SamplerSettings = DEFAULTS) -> Health:
    """The health of a window's chains.

    A chain is lost if it does not move; if it is far below the others, by more than the dimension
    and ten times what chains move by, and its place is not that much wider; or, once draws tell, if
    there is next to no probability where it is, compared to where the best of the others is. Chains
    climb if the second half of a window is above the first by half the dimension and more. They are
    apart if R-hat says that their means differ by more than their standard deviations.
    """
    levels, size = np.asarray(window.logdensity, float), window.position.shape[-1]
    chains, draws = levels.shape
    if draws < 2:
        return Health(np.ones(chains, bool), False)
    half = draws // 2
    late = levels[:, half:]
    moves = np.any(window.position[:, half:] != window.position[:, -1:], axis=(1, 2))
    enough = max(1, settings.settled, ENOUGH_NUMBERS // (chains * size))
    rows = slice(half, None, max(1, (draws - half) // enough))
    seen = State(window.position[:, rows], late, window.score[:, rows])
    finite = np.isfinite(late).all(axis=1) & np.isfinite(seen.position + seen.score).all((1, 2))
    usable = finite & moves if (finite & moves).any() else finite
    if not usable.any():
        return Health(np.ones(chains, bool), False)
    step = 1.5 * np.median(np.abs(np.diff(late[usable], axis=1))) if draws > 3 else 0.0
    with np.errstate(all="ignore"):
        lost = are_lost(seen, usable, step, draws - half >= settings.settled, settings)
    sound = usable & ~lost
    rises = late[sound].mean(axis=1) - levels[sound, :half].mean(axis=1)
    positions = window.position[sound, half:]
    apart = _r_hat(positions[:: max(1, len(positions) // ENOUGH_CHAINS)]) > settings.apart
    return Health(sound, bool(np.median(rises) > far_up(size, step)), apart)


def far_up(size: int, step: Any) -> Any:
    """The rise of a chain's level that shows that it came from somewhere else."""
    return size / 2 + 3 * step


def found_better(before: np.ndarray, levels: np.ndarray, size: int) -> bool:
    """Whether the best of the chains is far above where any of them was `before`."""
    step = 1.5 * float(np.median(np.abs(np.diff(levels, axis=1))))
    late = levels[:, levels.shape[1] // 2 :].mean(axis=1)
    return bool(late.max() - before.mean(axis=1).max() > far_up(size, step))


def are_lost(
    seen: State,
    usable: Any,
    step: Any,
    settled: Any,
    settings: SamplerSettings = DEFAULTS,
    xp: Any = np,
) -> Any:
    """Which usable chains are far below the others, or, once `settled`, in negligible places.

    `seen` are their late draws, `step` what levels move by. `xp` is NumPy or JAX's.
    """
    level = xp.where(usable, xp.median(seen.logdensity, axis=1), -xp.inf)
    vary = xp.nanmedian(xp.where(usable, seen.logdensity.std(axis=1), xp.nan))
    least, most = _places(level, seen.position, seen.score, usable, xp)

    def good(values: Any) -> Any:
        # The second best of four: by a few draws a single chain's place may look far too good.
        return xp.sort(values)[-1 - (usable.sum() + 1) // 4]

    far = seen.position.shape[-1] + 10 * step
    far_below = (level < good(level) - far) & (least < good(least) - far)
    below = settings.beyond_chance * vary - np.log(settings.negligible)
    negligible = most < xp.max(least) - below
    return far_below | (negligible & settled)


def _places(level: Any, draws: Any, scores: Any, usable: Any, xp: Any = np) -> tuple[Any, Any]:
    """Bounds for the logarithm of how probable the place is that each chain has seen.

    Level plus entropy, up to what is the same for all chains. Whatever the shape of a place, its
    entropy is at most that of a Gaussian with the same standard deviations, and at least that of
    one whose precisions are the mean squares of the scores. Along a coordinate in which a chain has
    hardly moved, its scores may all be small by chance, and the lower bound is lowered: minus the
    product of scores and centered draws has a mean of one after many draws, and of less before.
    Coordinates in which a chain has no width are left out.
    """
    peak = xp.max(xp.abs(scores), axis=1)  # its square may be too large for a number
    share = scores / xp.where(peak > 0, peak, 1.0)[:, None]
    narrow = -xp.log(peak) - xp.log(xp.mean(share**2, axis=1)) / 2
    wide = xp.fmax(xp.log(xp.std(draws, axis=1)), narrow)
    known = (xp.isfinite(narrow) & xp.isfinite(wide)) | ~usable[:, None]
    known = known.all(axis=0)
    moved = -xp.mean((draws - draws.mean(axis=1, keepdims=True)) * scores, axis=1)
    moved = xp.log(xp.clip(moved, NOT_AT_ALL, 1.0)) / 2  # noise may make it zero or negative
    least = xp.sum(xp.where(known, narrow + moved, 0), axis=-1)
    most = xp.sum(xp.where(known, wide, 0), axis=-1)
    return xp.where(usable, level + least, -xp.inf), xp.where(usable, level + most, -xp.inf)


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
