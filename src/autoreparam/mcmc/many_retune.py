"""What is learned at the end of a window, for many data sets at once: `retune.py` in short.

Everything is a function of one data set's draws inside a compiled program, and its arrays have the
same shapes for every window.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import erfinv

from autoreparam.mcmc.health import are_lost, far_up
from autoreparam.mcmc.hmc import State
from autoreparam.mcmc.interleaved import carry_state
from autoreparam.mcmc.many import Fit
from autoreparam.mcmc.settings import DEFAULTS
from autoreparam.mcmc.trail import Trail
from autoreparam.program.compiled import often, rarely
from autoreparam.program.many import Targets
from autoreparam.program.target import Target

ROWS = 256  # draws of a window, of all chains together, that λ and the metric are learned from
MOST_RATIO = 2.0  # by which an acceptance may change the step size at once
POWER_ITERATIONS = 8  # for the largest scale of some rows, which need not be exact


class Late(NamedTuple):
    """Draws of a window without its first part, evenly spread: equally many for any window."""

    trail: Trail  # (chain, row, ...)
    fresh: Any  # whether a row differs from the one before: short windows repeat theirs
    sound: Any  # by chain, whether it can be learned from
    climbing: Any

    @property
    def weights(self) -> Array:
        """1 for each draw that counts, 0 for the others."""
        return (self.sound[:, None] & self.fresh).astype(self.trail.logdensity.dtype)


def _late(trail: Trail, count: Array) -> Late:
    """The late draws, judged as `health.py` does."""
    chains, size = len(trail.position), trail.position.shape[-1]
    amount = max(2, ROWS // chains)
    first = jnp.floor(DEFAULTS.settling * count)
    rows = (first + (count - 1 - first) * jnp.arange(amount) / (amount - 1)).astype(jnp.int32)
    late = jax.tree.map(lambda leaf: leaf[:, rows], trail)
    fresh = jnp.append(True, rows[1:] != rows[:-1])
    levels, half = late.logdensity, amount // 2
    moves = jnp.any(late.position != late.position[:, -1:], axis=(1, 2))
    finite = jnp.isfinite(late.position + late.score).all(axis=(1, 2))
    usable = moves & finite & jnp.isfinite(levels).all(axis=1)
    usable = usable | ~usable.any()
    jumps = jnp.where(usable[:, None] & fresh[1:], jnp.abs(jnp.diff(levels, axis=1)), jnp.nan)
    step = 1.5 * jnp.nan_to_num(jnp.nanmedian(jumps))
    seen = State(late.position[:, half:], levels[:, half:], late.score[:, half:])
    settled = (count - first) / 2 >= DEFAULTS.settled
    sound = usable & ~are_lost(seen, usable, step, settled, xp=jnp)
    sound = sound | ~sound.any()
    rise = levels[:, half:].mean(axis=1) - levels[:, :half].mean(axis=1)
    rise = jnp.nanmedian(jnp.where(sound, rise, jnp.nan))
    return Late(late, fresh, sound, rise > far_up(size, step))


@partial(often, static_argnames="learner")
def retune(
    targets: Targets, fits: Fit, trails: Trail, count: Array, last: Array, learner: Callable | None
) -> Fit:
    """λ, metric, trajectory length and first step size for the next window.

    `learner(target, positions, scores, logdensity, weights, lam)` gives the new λ; without one it
    stays. While chains climb it stays too, unless this is the `last` window to learn from.
    """

    def one(target: Target, fit: Fit, trail: Trail) -> Fit:
        late = _late(trail, count)
        fit = _mended(fit, late, count)
        drawn = late.trail
        position, score = (x.reshape(-1, x.shape[-1]) for x in (drawn.position, drawn.score))
        counted = late.weights.reshape(-1)
        weights = counted * _usual(score, counted)
        before = _largest(score * jnp.sqrt(fit.diagonal), weights)
        lam = fit.lam
        if learner is not None:
            found = learner(target, position, score, drawn.logdensity.reshape(-1), weights, lam)
            learns = last | ~late.climbing
            found = jax.tree.map(lambda new, old: jnp.where(learns, new, old), found, lam)
            move = jax.vmap(target.carry, (0, 0, None, None))
            position, score, _ = move(position, score, lam, found)
            weights = counted * _usual(score, counted)
            # Those that do not count may be no numbers any more.
            position, score = (jnp.where(weights[:, None] > 0, x, 0) for x in (position, score))
            carry = jax.vmap(partial(carry_state, target), (0, None, None))
            fit = fit._replace(lam=found, chains=carry(fit.chains, lam, found))
        # Where units are wild, the ratio of the variances is beyond single precision.
        diagonal = jnp.sqrt(_variance(position, weights)) / jnp.sqrt(_variance(score, weights))
        usable = jnp.isfinite(diagonal) & (diagonal > 0)
        diagonal = jnp.where(usable, diagonal, 1)
        after = _largest(score * jnp.sqrt(diagonal), weights)
        change = jnp.nan_to_num(before / after, nan=1.0)
        limit = DEFAULTS.most_change
        size = fit.step_size * jnp.clip(change, 1 / limit, limit)
        # Among many directions noise alone makes one the widest.
        noise = 1 + jnp.sqrt(target.size / jnp.maximum(jnp.sum(weights), 1))
        wide = jnp.maximum(_largest(position / jnp.sqrt(diagonal), weights) / noise, 1)
        slow = wide * jnp.max(_unevenness(position, score, weights))
        length = DEFAULTS.first_length * jnp.nan_to_num(slow, nan=1.0)
        return fit._replace(diagonal=diagonal, length=length, step_size=size)

    return targets.each(one, fits, trails)


@rarely
def settle(fits: Fit, trails: Trail, count: Array) -> Fit:
    """The step size with the target acceptance, judged from a window in which it stayed the same.

    As in `step_size.py`, a step of size ε is accepted with probability `erfc(k ε²)`.
    """

    def one(fit: Fit, trail: Trail) -> Fit:
        late = _late(trail, count)
        rates, weights = jnp.nan_to_num(late.trail.info.acceptance_rate), late.weights
        number = jnp.sum(weights)
        mean = jnp.sum(weights * rates) / number
        error = jnp.sqrt(jnp.sum(weights * (rates - mean) ** 2)) / number
        fit = _mended(fit, late, count)
        depth = [erfinv(1 - jnp.clip(x, 0.05, 0.999)) for x in (fit.target_accept, mean - error)]
        change = jnp.sqrt(depth[0] / depth[1]).clip(1 / MOST_RATIO, MOST_RATIO)
        return fit._replace(step_size=fit.step_size * change)

    return jax.vmap(one)(fits, trails)


def _mended(fit: Fit, late: Late, count: Array) -> Fit:
    """The fit with lost chains moved to draws of sound ones, and a target acceptance.

    Where draws diverge, the target has half as many rejections, up to a limit.
    """
    drawn, chains = late.trail, len(late.sound)
    own = jnp.arange(chains)
    other = jnp.argsort(~late.sound, stable=True)[own % jnp.sum(late.sound)]
    row = -1 - own * (drawn.logdensity.shape[1] // 2) // chains
    there = State(*(part[other, row] for part in (drawn.position, drawn.logdensity, drawn.score)))

    def leaf(now: Array, new: Array) -> Array:
        return jnp.where(late.sound.reshape(-1, *[1] * (now.ndim - 1)), now, new)

    share = jnp.sum(late.weights * drawn.info.diverging) / jnp.sum(late.weights)
    often = (share > DEFAULTS.divergent_share) & (count >= DEFAULTS.fewest_draws)
    raised = jnp.minimum(1 - (1 - fit.target_accept) / 2, DEFAULTS.careful_accept)
    careful = jnp.where(often, jnp.maximum(raised, fit.target_accept), fit.target_accept)
    return fit._replace(chains=jax.tree.map(leaf, fit.chains, there), target_accept=careful)


def _usual(score: Array, weights: Array) -> Array:
    """1 for each draw whose score is no extreme outlier, as `late.not_outlying` has it."""
    counted = jnp.where(weights[:, None] > 0, score, jnp.nan)
    distance = jnp.abs(score - jnp.nanmedian(counted, axis=0))
    usual = jnp.nanmedian(jnp.where(weights[:, None] > 0, distance, jnp.nan), axis=0)
    worst = jnp.max(jnp.where(usual > 0, distance / usual, 0), axis=1)
    worst = jnp.nan_to_num(worst, nan=jnp.inf)
    counted = jnp.where(weights > 0, worst, jnp.nan)
    share = jnp.nanquantile(counted, 1 - DEFAULTS.most_outliers)
    return (worst <= jnp.maximum(DEFAULTS.outlying, share)).astype(weights.dtype)


def _variance(rows: Array, weights: Array) -> Array:
    share = (weights / jnp.sum(weights))[:, None]
    return jnp.sum(share * (rows - jnp.sum(share * rows, axis=0)) ** 2, axis=0)


def _unevenness(position: Array, score: Array, weights: Array) -> Array:
    """How much slower than its scale says each coordinate can be, as `metric.spread` has it."""
    share = (weights / jnp.sum(weights))[:, None]
    x, s = (rows - jnp.sum(share * rows, axis=0) for rows in (position, score))
    slope = jnp.sum(share * x * s, axis=0) / jnp.sum(share * x**2, axis=0)
    left = jnp.sqrt(_variance(s - slope * x, weights) / _variance(s, weights))
    return 1 / jnp.sqrt(1 - jnp.clip(jnp.nan_to_num(left), 0, DEFAULTS.most_uneven))


def _largest(rows: Array, weights: Array) -> Array:
    """The standard deviation along the widest direction of the rows, by power iteration."""
    share = (weights / jnp.sum(weights))[:, None]
    rows = jnp.sqrt(share) * (rows - jnp.sum(share * rows, axis=0))

    def turn(_: int, direction: Array) -> Array:
        direction = rows.T @ (rows @ direction)
        return direction / jnp.linalg.norm(direction)

    size = rows.shape[1]
    start = jnp.full(size, size**-0.5, rows.dtype) * (1 + 0.1 * jnp.cos(jnp.arange(size)))
    direction = jax.lax.fori_loop(0, POWER_ITERATIONS, turn, start.astype(rows.dtype))
    return jnp.linalg.norm(rows @ direction)
