"""Where chains start: a finite density and gradient, and a first step size."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from autoreparam.mcmc.hmc import State
from autoreparam.mcmc.settings import DEFAULTS, SamplerSettings
from autoreparam.mcmc.step_size import REASONABLE
from autoreparam.program.compiled import rarely
from autoreparam.program.held import loose
from autoreparam.program.move import move
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.rows import over_rows
from autoreparam.program.target import Target

FIRST_STEP = 1.0  # in the search for a step size


class Look(NamedTuple):
    """Points of all chains, carried to other coordinates, and what is found there."""

    state: State
    usable: Any  # whether density and gradient are finite
    log_det: Any  # of the change of coordinates


class Start(NamedTuple):
    """The starting points of all chains; `found` says whether density and gradient are finite."""

    state: State
    found: np.ndarray
    step_size: float
    diagonal: np.ndarray  # of the first metric
    gradients: int


def find_start(
    target: Target,
    rng: np.random.Generator,
    positions: np.ndarray,
    lam: Parameterization,
    target_accept: float,
    *,
    around: tuple[np.ndarray, np.ndarray] | None = None,
    diagonal: np.ndarray | None = None,
    settings: SamplerSettings = DEFAULTS,
) -> Start:
    """Starts of all chains: at `positions`, or the best of candidates around the prior.

    `around` is the prior's center and width; without a `diagonal` the scores found give the first
    metric. One small compiled program looks at points, another moves them; the rest is numpy.
    """
    if around is None:
        first = _look(target, positions, lam, lam)
        state, found, looks = first.state, first.usable, 1
    else:
        state, found, looks = _choose(target, rng, positions, lam, around, settings)
    if diagonal is None:
        diagonal = _rough(state.score)
    sizes, more = _step_sizes(target, rng, state, lam, diagonal, target_accept)
    size = float(np.exp(np.median(np.log(sizes))))
    return Start(state, found, size, diagonal, len(positions) * (looks + more))


def _choose(
    target: Target,
    rng: np.random.Generator,
    positions: np.ndarray,
    lam: Parameterization,
    around: tuple[np.ndarray, np.ndarray],
    settings: SamplerSettings,
) -> tuple[State, np.ndarray, int]:
    """The best of each chain's candidates, which chains found one, and the looks taken.

    A candidate draws the noise of each reparameterizable site, and every other unconstrained value,
    uniformly within a radius: around 0, or around the prior's center in units of the prior's width,
    in turn. It is the same point whatever λ is. Radii fall, and a candidate is taken over a wider
    one only if its density is higher by more than the dimension: a typical draw is about half of
    that below the mode. So chains start spread out where that does no harm, and closer to the
    prior's center where wide starts would be far below the posterior. As long as a chain is further
    below the better center than that, or none could be used, there is a round of still narrower
    ones.
    """
    chains, size = positions.shape
    count, origin = settings.candidates, untouched(lam)
    radii = np.geomspace(1.0, settings.least_radius, count // 2)
    centers = (np.zeros(size), np.full(size, settings.radius)), around

    def at(noise: np.ndarray) -> tuple[Look, np.ndarray]:
        here = _look(target, noise.astype(positions.dtype), origin, lam)
        # Densities of the noise: those of other coordinates are highest in the necks of scales.
        return here, here.state.logdensity + here.log_det

    in_the_middle = [at(np.tile(center, (chains, 1)))[1][0] for center, _ in centers]
    enough = np.max(in_the_middle, where=np.isfinite(in_the_middle), initial=-np.inf) - size
    found, highest, best, looks = np.zeros(chains, bool), np.zeros(chains), None, 0
    while looks % count or not found.all() or np.any(highest < enough):
        # A round begins where the one before it ended.
        radius = radii[looks % count // 2] * settings.least_radius ** (looks // count)
        if radius < np.finfo(positions.dtype).eps:
            break
        center, width = centers[looks % 2]
        here, level = at(center + radius * width * rng.uniform(-1.0, 1.0, positions.shape))
        taken = ~found | (here.usable & (level > highest + size))
        best = here.state if best is None else _where(taken, here.state, best)
        highest, found = np.where(taken, level, highest), found | here.usable
        looks += 1
    assert best is not None  # there is at least one candidate
    return best, found, looks + len(centers)


def _step_sizes(
    target: Target,
    rng: np.random.Generator,
    state: State,
    lam: Parameterization,
    diagonal: np.ndarray,
    target_accept: float,
) -> tuple[np.ndarray, int]:
    """Each chain's first step size whose acceptance crosses the target, and the looks taken.

    One leapfrog step at a time, twice or half as long as the one before.
    """
    dtype, shape = state.position.dtype, state.position.shape
    sizes, direction = np.full(shape[0], FIRST_STEP), np.zeros(shape[0])
    searching, looks = np.ones(shape[0], bool), 0
    while searching.any():
        sizes = np.where(searching, sizes * 2.0**direction, sizes)
        step = sizes[:, None]
        momentum = rng.normal(size=shape) / np.sqrt(diagonal)
        with np.errstate(over="ignore", invalid="ignore"):  # steps may be far too long
            kicked = momentum + step / 2 * state.score
            drifted = (state.position + step * diagonal * kicked).astype(dtype)
            there = _look(target, drifted, lam, lam)
            end = kicked + step / 2 * there.state.score
            gain = there.state.logdensity - state.logdensity
            gain = gain + np.sum(diagonal * (momentum**2 - end**2), axis=1) / 2
        accepted = np.log(target_accept) < np.where(there.usable, gain, -np.inf)
        turned = np.where(accepted, 1.0, -1.0)
        extreme = np.where(accepted, sizes > REASONABLE[1], sizes < REASONABLE[0])
        searching &= ~extreme & ((direction == 0) | (turned == direction))
        direction = np.where(searching, turned, direction)
        looks += 1
    return sizes, looks


def _look(
    target: Target, positions: np.ndarray, lam: Parameterization, new: Parameterization
) -> Look:
    gain: Any = 0.0
    if lam is not new:  # by the program that learning λ needs too
        positions, _, gain = move(target, positions, np.zeros_like(positions), lam, new)
    state, usable = jax.device_get(_looking(target, positions, new))
    return Look(state, usable, -gain)


@rarely
def _looking(target: Target, positions: Array, lam: Parameterization) -> tuple[State, Array]:
    return over_rows(target.program, look, (None, 0, None))(target, positions, lam)


def look(target: Target, position: Array, lam: Parameterization) -> tuple[State, Array]:
    """What is found at a position, and whether density and gradient are finite."""
    value, score = jax.value_and_grad(target.logdensity)(position, lam)
    usable = jax.numpy.isfinite(value) & jax.numpy.isfinite(score).all()
    return State(position, value, score), usable


def _where(taken: np.ndarray, new: State, old: State) -> State:
    def leaf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(taken.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return State(*map(leaf, new, old))


def untouched(lam: Parameterization) -> Parameterization:
    """Noise as it comes: non-centered, of unit reference scale, with its own tails."""
    unit = jax.tree.map(np.ones_like, lam.with_flat(None)).map(lambda one: one * 0)
    return loose(unit.replace(tail=dict.fromkeys(lam.tail, 0.0)))


def _rough(scores: np.ndarray) -> np.ndarray:
    """A first diagonal: at a distance of about 1 from the mode the score is 1 / variance."""
    size = np.sqrt(np.mean(np.square(scores, dtype=float), axis=0))
    return np.where(np.isfinite(size) & (size > 1), 1 / np.maximum(size, 1), 1.0)
