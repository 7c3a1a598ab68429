"""Chains in lockstep, for accelerators: one loop over gradients, in which no chain waits.

On an accelerator a pass of a loop whose end is not known beforehand takes longer than a small
model's gradient, and so does a kernel that only some chains need. Here every pass is one gradient
of every chain: trajectories have equally many steps in all chains, and where they end, the draw is
written down and the next ones begin, without a branch. There are no second tries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from autoreparam.mcmc.chains import meanwhile
from autoreparam.mcmc.delayed import choose
from autoreparam.mcmc.hmc import (
    Info,
    State,
    fresh_noise,
    jittered,
    key_of,
    kinetic_energy,
)
from autoreparam.mcmc.integrator import FIRST_KICK, LEAPFROG, IntegratorState
from autoreparam.mcmc.interleaved import Slots
from autoreparam.mcmc.step_size import Adaptation, adapt
from autoreparam.mcmc.trail import Trail, in_calls
from autoreparam.mcmc.warmup import CHUNK_TOGETHER
from autoreparam.program.compiled import often
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.spread import by_chains, is_spread
from autoreparam.program.target import Target

MOST_NUMBERS = 2**28  # in the draws and scores of a call: a gigabyte, or two
FEW = 4  # draws, for which the program of warm-up serves whether or not step sizes adapt
PASSES = 32  # of the loop without a look at whether it is done: those too many are dropped
GOLDEN = 0x9E3779B9  # 2³² over the golden ratio


@dataclass(frozen=True)
class Together:
    """Chains that take their steps together, on one accelerator or all that there are."""

    target: Target
    keys: np.ndarray  # the words of one per chain
    divergence: float  # energy error on the way
    scores: bool = True  # whether they are wanted: they take as long to fetch as the draws

    def run(
        self, start: int, count: int, states: State, slots: Slots, adaptation: Adaptation
    ) -> tuple[State, Adaptation, Trail]:
        """`count` draws of every chain, numbered from `start`, as `Chains.run` makes them."""
        adapts = bool(np.any(adaptation.active)) or count <= FEW
        # Directions that are not used would still be computed; during warm-up that costs little.
        plain = not adapts and not np.any(slots.tuning.inverse_mass.stretch != 1)
        return self._draw(adapts, plain, start, count, states, slots, adaptation)

    def compile(self, states: State, slots: Slots, adaptation: Adaptation) -> None:
        """Compiles what warm-up needs and, beside it, what sampling will most likely need."""
        one = partial(self._draw, plain=False, start=0, count=0, states=states, slots=slots,
                      adaptation=adaptation)  # fmt: skip
        if jax.process_count() > 1 or is_spread(self.target):
            one(True)  # all devices would have to begin the two in the same order
            return
        with meanwhile(partial(one, False)):
            one(True)

    def _draw(
        self,
        adapts: bool,
        plain: bool,
        start: int,
        count: int,
        states: State,
        slots: Slots,
        adaptation: Adaptation,
    ) -> tuple[State, Adaptation, Trail]:
        lam, tuning = slots.at(0)
        if plain:
            tuning = tuning._replace(inverse_mass=tuning.inverse_mass.plain())
        numbers = 2 * len(self.keys) * (self.target.size + 3)
        length = int(np.clip(MOST_NUMBERS // numbers, 1, CHUNK_TOGETHER))
        # One for all: chains that ran apart may have been stored in the middle of a window.
        chains = len(self.keys)
        adaptation = jax.tree.map(lambda x: np.repeat(x[:1], chains, axis=0), adaptation)
        apart = is_spread(self.target)

        def call(start: int, count: int, states: State, adaptation: Adaptation):
            own = self.keys, states, adaptation
            keys, states, adaptation = by_chains(own, self.target) if apart else own
            given = Given(self.target, keys, start, count, states, lam, tuning, adaptation)
            states, adaptation, trail = run_together(
                given, length, self.divergence, adapts, self._mesh()
            )
            return _fetched((states, adaptation, _first(trail, count, self.scores)))

        return in_calls(call, length, start, count, states, adaptation)

    def _mesh(self) -> Mesh | None:
        """All devices, of all processes, if there are several and each can have as many chains.

        Where the user chose a device, it is that one; where devices share the data, the compiler
        sees to it.
        """
        if is_spread(self.target):
            return None
        devices = jax.devices()
        chosen = getattr(jax.config, "jax_default_device", None) and jax.process_count() == 1
        if chosen or len(devices) == 1 or len(self.keys) % len(devices):
            return None
        return Mesh(np.array(devices), ("chains",))


def _fetched(tree: Any) -> Any:
    """Arrays of all chains in numpy, on every process."""
    if jax.process_count() == 1:
        return jax.device_get(tree)
    from jax.experimental.multihost_utils import process_allgather

    return process_allgather(tree, tiled=True)


@partial(jax.jit, static_argnames=("rows", "scores"))
def _first(trail: Trail, rows: int, scores: bool) -> Trail:
    trail = trail if scores else trail._replace(score=trail.score[..., :0])
    return jax.tree.map(lambda leaf: leaf[:, :rows], trail)


class _Moving(NamedTuple):
    """One chain in the middle of a trajectory."""

    now: IntegratorState
    force: Any  # its score, as momenta feel it
    origin: State
    origin_force: Any
    energy: Any  # at the origin
    worst: Any  # energy error so far
    luck: Any  # the logarithm of a uniform number


class _Pace(NamedTuple):
    """Trajectories, the same for all chains; with a leading axis, one per draw of a call."""

    size: Any  # of the steps
    gradients: Any


class _Learned(NamedTuple):
    """What changes from draw to draw while step sizes adapt."""

    adaptation: Adaptation
    paces: _Pace


class Given(NamedTuple):
    """What a call of the compiled program begins with."""

    target: Any
    keys: Any  # the words of one per chain
    start: Any  # the number of its first draw
    count: Any  # of draws
    states: Any
    lam: Any
    tuning: Any
    adaptation: Any


@partial(often, static_argnames=("length", "divergence", "adapts", "mesh"))
def run_together(
    given: Given, length: int, divergence: float, adapts: bool, mesh: Mesh | None = None
) -> tuple[State, Adaptation, Trail]:
    """The draws of all chains, at most `length` each, as `chains.run_chunk` makes them.

    Where it `adapts`, step sizes are those of an adaptation that all chains share, to the mean of
    their acceptance, unless that is not active. With a `mesh`, each device has its share of the
    chains, and all that they tell each other is that mean.
    """
    if mesh is None:
        return _run(length, divergence, adapts, jnp.sum, given)
    axis = mesh.axis_names[0]
    run = partial(_run, length, divergence, adapts, lambda x: jax.lax.psum(jnp.sum(x), axis))
    own, same = PartitionSpec(axis), PartitionSpec()
    places = Given(same, own, same, same, own, same, same, own)
    return jax.shard_map(run, mesh=mesh, in_specs=(places,), out_specs=own, check_vma=False)(given)


def _run(
    length: int, divergence: float, adapts: bool, total: Callable, given: Given
) -> tuple[State, Adaptation, Trail]:
    """The same for the chains of one device; `total` is the sum over all devices."""
    target, keys, start, count, states, lam, tuning, adaptation = given
    chains, dtype, stages = len(keys), states.logdensity.dtype, tuning.stages.astype(jnp.int32)
    push, pull = tuning.inverse_mass.halves()
    turn = jax.vmap(partial(_turn, target, lam, push, pull, stages), (0, None, None))

    def pace(draw: Array, size: Array) -> _Pace:
        steps, size = jittered(_spread(start + draw, dtype), tuning._replace(step_size=size))
        return _Pace(size.astype(dtype), stages * steps)

    def step_size(now: Adaptation) -> Array:
        return jnp.where(now.active, now.step_size(), tuning.step_size)[0]

    def noise(draw: Array) -> tuple[Array, Array]:
        own = jax.vmap(key_of, (0, None))(keys, start + draw)
        momentum, uniform = jax.vmap(fresh_noise)(own, states.position)
        return momentum, jnp.log(uniform[:, 1])

    def learn(known: _Learned, draw: Array, ends: Array, reached: _Reached) -> _Learned:
        mean = total(reached.rate) / total(jnp.ones(chains, dtype))
        better = adapt(known.adaptation, mean[None])
        better = choose(ends & (draw < count), better, known.adaptation)
        following = pace(draw + 1, step_size(better))
        paces = jax.tree.map(lambda all_, one: all_.at[draw + 1].set(one), known.paces, following)
        return _Learned(better, paces)

    def passes(carried: Any) -> Any:
        first = carried[1] + 1
        ahead = jax.vmap(noise)(first + jnp.arange(together))

        def one_pass(_: Any, carried: Any) -> Any:
            moving, draw, passed, rows, known = carried
            size, gradients = (part[draw] for part in (known.paces if adapts else planned))
            ends = passed + 1 >= gradients
            moving, reached, row = turn(moving, passed, size)
            rows = rows.at[draw].set(row)  # at every pass: the last one of a trajectory stays
            fresh = jax.tree.map(lambda all_: all_[draw + 1 - first], ahead)
            moving = choose(ends, jax.vmap(_begun)(reached.state, reached.force, *fresh), moving)
            known = learn(known, draw, ends, reached) if adapts else known
            draw = jnp.minimum(draw + ends, length)  # what comes after the last is dropped
            return moving, draw, jnp.where(ends, 0, passed + 1), rows, known

        return jax.lax.fori_loop(0, together, one_pass, carried)

    together = int(np.clip(MOST_NUMBERS // (8 * chains * target.size), 1, PASSES))
    shared = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], adaptation)
    size = step_size(shared) if adapts else tuning.step_size
    planned = jax.vmap(pace, (0, None))(jnp.arange(length + 2), size)
    known: Any = _Learned(shared, planned) if adapts else None
    zero = jnp.zeros((), jnp.int32)
    moving = jax.vmap(_begun)(states, jax.vmap(pull)(states.score), *noise(zero))
    rows = jnp.zeros((length + 1, chains, 2 * target.size + 4), dtype)
    carried = moving, zero, zero, rows, known
    *_, rows, known = jax.lax.while_loop(lambda now: now[1] < count, passes, carried)
    trail = _read(rows, target.size, known.paces if adapts else planned, divergence)
    last = (part[:, count - 1] for part in (trail.position, trail.logdensity, trail.score))
    states = choose(count > 0, State(*last), states)
    if adapts:
        repeat = partial(jnp.repeat, repeats=chains, axis=0)
        adaptation = jax.tree.map(lambda leaf: repeat(leaf[None]), known.adaptation)
    return states, adaptation, trail


def _begun(state: State, force: Array, momentum: Array, luck: Array) -> _Moving:
    """A chain at the beginning of a trajectory."""
    energy = kinetic_energy(momentum) - state.logdensity
    now = IntegratorState(state.position, momentum, state.logdensity, state.score)
    return _Moving(now, force, state, force, energy, jnp.zeros_like(energy), luck)


class _Reached(NamedTuple):
    """Where a trajectory leads that ends with a step."""

    state: State
    force: Any
    rate: Any  # of acceptance


def _turn(
    target: Target,
    lam: Parameterization,
    push: Callable,
    pull: Callable,
    stages: Array,
    moving: _Moving,
    passed: Array,
    size: Array,
) -> tuple[_Moving, _Reached, Array]:
    """One stage of the integrator: the chain after it, where that leads, and what to write down.

    That is the position, the score, the log density, the energy, the acceptance rate and the
    largest energy error, in one array: little ones would each take as long to write.
    """
    dtype, now, stage = moving.energy.dtype, moving.now, passed % stages
    length, last = stages * size, stage == stages - 1
    ends = (jnp.where(stages == LEAPFROG, 0.5, FIRST_KICK) * length).astype(dtype)
    momentum = now.momentum + jnp.where(stage == 0, ends, 0) * moving.force
    position = now.position + size * push(momentum)
    value, score = jax.value_and_grad(target.logdensity)(position, lam)
    force = pull(score)
    momentum = momentum + jnp.where(last, ends, length - 2 * ends).astype(dtype) * force
    error = kinetic_energy(momentum) - value - moving.energy
    error = jnp.where(jnp.isfinite(error), error, jnp.inf).astype(dtype)
    worst = jnp.where(last, jnp.maximum(moving.worst, error), moving.worst)
    accepted, rate = moving.luck < -error, jnp.exp(-jnp.maximum(error, 0))
    there, back = State(position, value, score), (moving.origin, moving.origin_force)
    state, kept_force = choose(accepted, (there, force), back)
    energy = moving.energy + jnp.where(accepted, error, 0)
    row = jnp.concatenate(
        [state.position, state.score, jnp.stack([state.logdensity, energy, rate, worst])]
    )
    now = IntegratorState(position, momentum, value, score)
    moving = moving._replace(now=now, force=force, worst=worst)
    return moving, _Reached(state, kept_force, rate), row


def _read(rows: Array, size: int, paces: _Pace, divergence: float) -> Trail:
    """What was written, (draw, chain, number), as the trail of the chains."""
    rows = jnp.swapaxes(rows[:-1], 0, 1)
    position, score, others = jnp.split(rows, [size, 2 * size], axis=-1)
    level, *statistics = jnp.moveaxis(others, -1, 0)
    energy, rate, worst = (part[..., None] for part in statistics)
    sizes, gradients = (jnp.broadcast_to(part[:-2], level.shape)[..., None] for part in paces)
    info = Info(rate, worst > divergence, energy, gradients, jnp.zeros_like(gradients))
    return Trail(position, score, level, sizes, info)


def _spread(number: Array, dtype: Any) -> Array:
    """Numbers between 0 and 1, evenly spread however many there are: a Kronecker sequence."""
    return (jnp.asarray(number, jnp.uint32) * np.uint32(GOLDEN) / 2.0**32).astype(dtype)
