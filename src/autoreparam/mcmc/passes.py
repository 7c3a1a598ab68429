"""Trajectories as one loop over gradients, in which no chain waits.

On an accelerator a pass of a loop whose end is not known beforehand takes longer than a small
model's gradient, and so does a kernel that only some chains need. Here every pass is one gradient
of every chain: trajectories have equally many steps in all chains, and where they end, the next
ones begin without a branch. A draw is written down while the next one is on its way, since what
waits for nothing takes no time. There are no second tries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import fori_loop, while_loop

from autoreparam.mcmc.delayed import choose
from autoreparam.mcmc.hmc import (
    Info,
    State,
    fresh_noise,
    jittered,
    key_of,
    kinetic_energy,
)
from autoreparam.mcmc.interleaved import carry_state
from autoreparam.mcmc.stage import Coordinates, Point, Seen, one_stage
from autoreparam.mcmc.step_size import Adaptation, adapt
from autoreparam.mcmc.trail import Trail

MOST_NUMBERS = 2**28  # in the draws and scores of a call: a gigabyte, or two
PASSES = 32  # of the loop without a look at whether it is done: those too many are dropped
UNROLLED = 5  # passes in a row whose energy nobody looks at: a turn of a loop takes its own time
GOLDEN = 0x9E3779B9  # 2³² over the golden ratio


class Given(NamedTuple):
    """What a call of the compiled program begins with.

    A draw is one trajectory in each of the slots that are visited; between draws, chains are in the
    coordinates of the last of these.
    """

    target: Any
    keys: Any  # the words of one per chain
    factors: Any  # of the step size, one per chain
    start: Any  # the number of its first draw
    count: Any  # of draws
    states: Any
    slots: Any
    visited: Any  # so many slots, from the first on
    adaptation: Any


class _Noise(NamedTuple):
    """What a trajectory begins with."""

    momentum: Any
    kinetic: Any  # its energy
    luck: Any  # the logarithm of a uniform number


class _Moving(NamedTuple):
    """One chain in the middle of a trajectory."""

    point: Point
    origin: State
    origin_force: Any
    energy: Any  # at the origin
    luck: Any


class _Ended(NamedTuple):
    """What is known of the trajectory before, apart from where it led."""

    energy: Any  # of that place
    rate: Any  # of acceptance
    worst: Any  # energy error on the way


class _Home(NamedTuple):
    """One chain as it was when its draw began, in the coordinates that draws end in."""

    state: State
    moved: Any


class _Pace(NamedTuple):
    """Trajectories, the same for all chains; with a leading axis, one per trajectory of a call."""

    size: Any  # of the steps
    gradients: Any


class _Learned(NamedTuple):
    """What changes from draw to draw while step sizes adapt."""

    adaptation: Adaptation
    paces: _Pace


class _Reached(NamedTuple):
    """Where a trajectory leads that ends with a step."""

    state: State
    force: Any
    accepted: Any
    ended: _Ended


def run_passes(
    given: Given,
    length: int,
    divergence: float,
    adapts: bool,
    total: Callable = jnp.sum,
    passes: int | None = None,
    least: int = 1,
    rule: Callable = adapt,
) -> tuple[State, Adaptation, Trail]:
    """The draws of each chain, with at most `length` trajectories.

    The trail has an entry for each of these, without an axis for slots: see `by_draws`. Where there
    are several slots, the place of an entry in the middle of a draw is that of the draw before.

    Where it `adapts`, step sizes are those of an adaptation that all chains share, by a `rule` for
    the mean of their acceptance, unless that is not active. `total` is the sum over the chains of
    all devices. `passes`: at least so many, and no look at whether all draws are made. `least`: a
    number that divides the gradients of every trajectory; only after so many is its energy looked
    at.
    """
    target, keys, factors, start, count, states, slots, visited, adaptation = given
    chains, dtype, several = len(keys), states.logdensity.dtype, len(slots.tuning.step_size) > 1
    visited = visited if several else 1
    start, count = start * visited, count * visited  # of trajectories
    first_slot = Coordinates.of(*slots.at(0))

    def slot_of(number: Array) -> Any:
        return number % visited if several else 0

    def coordinates(slot: Any) -> Coordinates:
        return Coordinates.of(*slots.at(slot)) if several else first_slot

    def pace(number: Array, sizes: Array) -> _Pace:
        slot = slot_of(number)
        _, tuning = slots.at(slot)
        uniform = _spread(start + number, dtype)
        steps, size = jittered(uniform, tuning._replace(step_size=sizes[slot]))
        return _Pace(size.astype(dtype), tuning.stages.astype(jnp.int32) * steps)

    def step_sizes(now: Adaptation) -> Array:
        return jnp.where(now.active, now.step_size(), slots.tuning.step_size)

    def noise(number: Array) -> _Noise:
        own = jax.vmap(key_of, (0, None))(keys, start + number)
        momentum, uniform = jax.vmap(fresh_noise)(own, states.position)
        return _Noise(momentum, jax.vmap(kinetic_energy)(momentum), jnp.log(uniform[:, 1]))

    def learn(known: _Learned, number: Array, ends: Array, rate: Array) -> _Learned:
        mean = total(rate) / total(jnp.ones(chains, dtype))
        better = rule(known.adaptation, mean[None])
        mine = jnp.arange(len(slots.tuning.step_size)) == slot_of(number)
        better = choose(mine & ends & (number < count), better, known.adaptation)
        following = pace(number + 1, step_sizes(better))
        paces = jax.tree.map(lambda all_, one: all_.at[number + 1].set(one), known.paces, following)
        return _Learned(better, paces)

    def into_next(number: Array, reached: _Reached, home: Any) -> tuple[_Reached, Any]:
        """What a trajectory reached, in the coordinates of the next one's slot."""
        if not several:
            return reached, home
        here, there = slot_of(number), slot_of(number + 1)
        now, then, last = coordinates(here), coordinates(there), visited - 1
        moved = home.moved | reached.accepted
        carry = jax.vmap(carry_state, (None, 0, None, None))
        state = carry(target, reached.state, now.lam, then.lam)
        # A point that no slot moved keeps the coordinates it came with, as in `interleaved.draw`.
        state = jax.vmap(choose)((there == last) & ~moved, home.state, state)
        state = choose(here == there, reached.state, state)
        home = choose(here == last, _Home(reached.state, jnp.zeros_like(moved)),
                      _Home(home.state, moved))  # fmt: skip
        return reached._replace(state=state, force=jax.vmap(then.pull)(state.score)), home

    def written(carried: Any) -> Array:
        """The rows with what the trajectory before led to."""
        moving, home, ended, number, _, rows, _ = carried
        return rows.at[number].set(jax.vmap(_row)(home.state if several else moving.origin, ended))

    def one_block(carried: Any, first: Array, ahead: _Noise) -> Any:
        moving, home, ended, number, passed, rows, known = carried
        rows = written(carried)  # in every pass of a trajectory, beside the gradient
        size, gradients = (part[number] for part in (known.paces if adapts else planned))
        turn = jax.vmap(partial(one_stage, target, coordinates(slot_of(number))), (0, 0, None, 0))
        sizes = size * factors

        def one_pass(more: Any, point: Point) -> Point:
            there, _ = turn(moving.energy, point, passed + more, sizes)
            return there._replace(worst=point.worst)

        point = moving.point
        if least > 1:
            point = fori_loop(0, least - 1, one_pass, point, unroll=min(UNROLLED, least - 1))
        passed = passed + least
        point, seen = turn(moving.energy, point, passed - 1, sizes)
        moving, reached = jax.vmap(_looked)(moving, point, seen)
        ends = passed >= gradients
        known = learn(known, number, ends, reached.ended.rate) if adapts else known
        reached, begins = into_next(number, reached, home)
        fresh = jax.tree.map(lambda all_: all_[number + 1 - first], ahead)
        following = jax.vmap(_begun)(reached.state, reached.force, fresh), begins, reached.ended
        moving, home, ended = choose(ends, following, (moving, home, ended))
        number = jnp.minimum(number + ends, length + 1)  # what comes after the last is dropped
        return moving, home, ended, number, jnp.where(ends, 0, passed), rows, known

    def some_passes(carried: Any) -> Any:
        first = carried[3] + 1
        ahead = jax.vmap(noise)(first + jnp.arange(blocks))
        return fori_loop(0, blocks, lambda _, now: one_block(now, first, ahead), carried)

    together = int(np.clip(MOST_NUMBERS // (8 * chains * target.size), 1, PASSES))
    blocks = max(1, together // least)
    shared = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], adaptation)
    sizes = step_sizes(shared) if adapts else slots.tuning.step_size
    planned = jax.vmap(pace, (0, None))(jnp.arange(length + 3), sizes)
    known: Any = _Learned(shared, planned) if adapts else None
    zero, nothing = jnp.zeros((), jnp.int32), jnp.zeros(chains, bool)
    home = _Home(states, nothing) if several else None
    none = _Ended(*[jnp.zeros(chains, dtype)] * 3)
    before = _Reached(states, jax.vmap(first_slot.pull)(states.score), nothing, none)
    before, home = into_next(zero - 1, before, home)
    moving = jax.vmap(_begun)(before.state, before.force, noise(zero))
    rows = jnp.zeros((length + 2, chains, 2 * target.size + 4), dtype)
    carried = moving, home, none, zero, zero, rows, known
    if passes is None:
        carried = while_loop(lambda now: now[3] < count, some_passes, carried)
    else:
        rounds = -(-passes // (blocks * least))
        carried = fori_loop(0, rounds, lambda _, now: some_passes(now), carried)
    known = carried[-1]
    trail = _read(
        written(carried), target.size, known.paces if adapts else planned, factors, divergence
    )
    end = (part[:, count - 1] for part in (trail.position, trail.logdensity, trail.score))
    states = choose(count > 0, State(*end), states)
    if adapts:
        repeat = partial(jnp.repeat, repeats=chains, axis=0)
        adaptation = jax.tree.map(lambda leaf: repeat(leaf[None]), known.adaptation)
    return states, adaptation, trail


def _begun(state: State, force: Array, noise: _Noise) -> _Moving:
    """A chain at the beginning of a trajectory."""
    energy = noise.kinetic - state.logdensity
    point = Point(state.position, noise.momentum, force, jnp.zeros_like(energy))
    return _Moving(point, state, force, energy, noise.luck)


def _looked(moving: _Moving, point: Point, seen: Seen) -> tuple[_Moving, _Reached]:
    """The chain at a point of its trajectory, and where that leads if it ends."""
    accepted, rate = moving.luck < -seen.error, jnp.exp(-jnp.maximum(seen.error, 0))
    there = State(point.position, seen.logdensity, seen.score), point.force
    state, force = choose(accepted, there, (moving.origin, moving.origin_force))
    energy = moving.energy + jnp.where(accepted, seen.error, 0)
    ended = _Ended(energy, rate, point.worst)
    return moving._replace(point=point), _Reached(state, force, accepted, ended)


def _row(state: State, ended: _Ended) -> Array:
    """What is written down, in one array: little ones would each take as long to write."""
    position, logdensity, score = state
    return jnp.concatenate([position, score, jnp.stack([logdensity, *ended])])


def _read(rows: Array, size: int, paces: _Pace, factors: Array, divergence: float) -> Trail:
    """What was written, (trajectory, chain, number), as the trail of the chains."""
    rows = jnp.swapaxes(rows[1:-1], 0, 1)
    position, score, others = jnp.split(rows, [size, 2 * size], axis=-1)
    level, energy, rate, worst = jnp.moveaxis(others, -1, 0)
    sizes = factors[:, None] * paces.size[:-3]
    gradients = jnp.broadcast_to(paces.gradients[:-3], level.shape)
    info = Info(rate, worst > divergence, energy, gradients, jnp.zeros_like(gradients))
    return Trail(position, score, level, sizes, info)


def by_draws(trail: Trail, slots: int) -> Trail:
    """The trail of draws, from that of trajectories in so many slots."""

    def apart(leaf: Array) -> Array:
        return leaf.reshape(leaf.shape[0], -1, slots)

    last = (part[:, slots - 1 :: slots] for part in trail[:3])
    return Trail(*last, *jax.tree.map(apart, trail[3:]))


def _spread(number: Array, dtype: Any) -> Array:
    """Numbers between 0 and 1, evenly spread however many there are: a Kronecker sequence."""
    return (jnp.asarray(number, jnp.uint32) * np.uint32(GOLDEN) / 2.0**32).astype(dtype)
