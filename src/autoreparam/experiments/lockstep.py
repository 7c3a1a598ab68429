"""HMC for many methods and numbers of leapfrog steps at once, in lockstep.

At the size of these models an accelerator waits for launches, not for arithmetic. So all chains of
all methods take their leapfrog steps together, one group of chains per method. Which group starts
or ends a trajectory at each step is known in advance and passed to the one compiled program as
data, like λ, metrics and step sizes. A group that finishes its run takes the next one.

The step size follows the paper's rule, `log s += 0.02 sign(α - 0.75)`, with α the mean acceptance
probability of the group's chains: then 0.75 is what they accept on average. A chain adapting alone
would settle where its *median* acceptance is 0.75, which in posteriors with sharp corners means a
mean of 0.5, and get stuck. Sampling uses the mean of `log s` over the second half of adaptation,
not its last value. Around it each chain has its own step size, spread as widely as if chains
adapted alone: trajectories of a fixed length resonate, a change of two percent in the step size can
halve the ESS, and otherwise luck would decide between methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.mcmc.hmc import State
from autoreparam.mcmc.interleaved import carry_state
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

BLOCKS = 256  # blocks of leapfrog steps per call of the compiled program
TARGET_ACCEPT = 0.75
SIGN_RATE = 0.02  # of the log step sizes per draw, the paper's rule
SPREAD = 0.1  # of the log step sizes, in both directions


@dataclass(frozen=True, eq=False)
class Lane:
    """What a method runs with: one λ, or two to alternate between, each with a diagonal metric.

    `start` has one row per chain, in the working coordinates of the first λ. Targets that run
    together differ only in their data. Coordinates with zero inverse mass do not move.
    """

    target: Target
    lams: tuple[Parameterization, ...]
    inverse_mass: tuple[np.ndarray, ...]
    start: np.ndarray


@dataclass(frozen=True)
class Job:
    """One run of a method: each draw is `slots` transitions of `num_steps` leapfrog steps."""

    problem: str
    method: str
    num_steps: int
    slots: int
    warmup: int
    adapt: int
    draws: int
    urgent: bool = False  # others wait for it

    @property
    def lane(self) -> tuple[str, str]:
        """The name of the lane it runs with."""
        return self.problem, self.method

    @property
    def leapfrogs(self) -> int:
        """Leapfrog steps of one chain."""
        return (self.warmup + self.draws) * self.slots * self.num_steps


class Drawn(NamedTuple):
    """The result of a job: positions under its first λ, acceptance by chain, step size by λ."""

    positions: Array  # (draw, chain, dim)
    acceptance: np.ndarray
    step_size: np.ndarray


class Lanes(NamedTuple):
    """Every chain of every group (the two leading axes), in the middle of a trajectory."""

    state: State
    momentum: Any
    origin: State  # where the trajectory started
    energy: Any  # there
    previous: State  # the point before λ last changed, in the coordinates it had then
    log_step: Any  # one per slot, for all chains of the group
    settled: Any  # its mean so far, used once adaptation is over
    accepted: Any  # sum of the acceptance rates so far


class Tunings(NamedTuple):
    """λ and metric of every group and slot (the two leading axes)."""

    lam: Parameterization
    inverse_mass: Any

    def at(self, slot: Array) -> Tunings:
        """λ and metric of one slot per group."""
        return jax.vmap(lambda tree, index: jax.tree.map(lambda x: x[index], tree))(self, slot)


class Row(NamedTuple):
    """What each group does in a block of leapfrog steps."""

    begins: Any  # a trajectory
    ends: Any
    adapts: Any
    keeps: Any  # the draw
    slot: Any
    following: Any  # the slot of the next block
    weight: Any  # weight of the current step size in the final mean


@partial(jax.jit, static_argnames=("together", "leap", "alternating", "unroll"))
def advance(
    target, tunings, lanes, rows, key, *, together: bool, leap: int, alternating: int, unroll: int
):
    """Blocks of `leap` leapfrog steps; the first `alternating` groups may change λ in between.

    `together`: the target is stacked, one per group.
    """
    each = 0 if together else None
    noise_key, uniform_key = jax.random.split(key)
    blocks = rows.begins.shape[0]
    position = lanes.state.position
    noise = jax.random.normal(noise_key, (blocks, *position.shape), position.dtype)
    uniform = jax.random.uniform(uniform_key, (blocks, *position.shape[:2]), position.dtype)
    evaluate = jax.vmap(
        jax.vmap(jax.value_and_grad(Target.logdensity, argnums=1), (None, 0, None)), (each, 0, 0)
    )
    carry = jax.vmap(jax.vmap(carry_state, (None, 0, None, None)), (each, 0, 0, 0))
    first_target = jax.tree.map(lambda x: x[:alternating], target) if together else target

    scatter = SPREAD * jnp.linspace(-1, 1, position.shape[1], dtype=position.dtype)

    def block(lanes: Lanes, inputs) -> tuple[Lanes, Array]:
        row, noise, uniform = inputs
        here = tunings.at(row.slot)
        inverse_mass = here.inverse_mass[:, None]
        spread = jnp.where(inverse_mass > 0, inverse_mass, jnp.inf) ** -0.5
        pick = row.slot[:, None]
        present = jnp.where(row.adapts[:, None], lanes.log_step, lanes.settled)
        step = jnp.exp(jnp.take_along_axis(present, pick, axis=-1) + scatter)[:, :, None]

        def energy(state: State, momentum: Array) -> Array:
            return 0.5 * jnp.sum(momentum**2 * inverse_mass, axis=-1) - state.logdensity

        begins = partial(_choose, row.begins[:, None])
        momentum = begins(noise * spread, lanes.momentum)
        origin = begins(lanes.state, lanes.origin)
        before = begins(energy(lanes.state, momentum), lanes.energy)

        def leapfrog(_, carried):
            state, momentum = carried
            momentum = momentum + 0.5 * step * state.score
            position = state.position + step * inverse_mass * momentum
            state = State(position, *evaluate(target, position, here.lam))
            return state, momentum + 0.5 * step * state.score

        state, momentum = jax.lax.fori_loop(
            0, leap, leapfrog, (lanes.state, momentum), unroll=unroll
        )
        gain = before - energy(state, momentum)
        gain = jnp.where(jnp.isnan(gain), -jnp.inf, gain)
        acceptance = jnp.exp(jnp.minimum(gain, 0))
        back = row.ends[:, None] & (jnp.log(uniform) >= gain)
        state = _choose(back, origin, state)
        direction = SIGN_RATE * jnp.sign(jnp.mean(acceptance, axis=1) - TARGET_ACCEPT)
        mine = row.ends[:, None] & (jnp.arange(lanes.log_step.shape[-1]) == pick)
        log_step = lanes.log_step + mine * (row.adapts * direction)[:, None]
        settled = lanes.settled + mine * row.weight[:, None] * (log_step - lanes.settled)
        accepted = lanes.accepted + (row.ends & row.keeps)[:, None] * acceptance
        previous = lanes.previous
        if alternating:
            then = tunings.at(row.following).lam
            those = (state, previous, back, here.lam, then, row.slot != row.following)
            some, known, stays, lam, new, changes = jax.tree.map(lambda x: x[:alternating], those)
            there = carry(first_target, some, lam, new)
            # A point that stays keeps the coordinates it came with. Single precision could not
            # map it back: near the tip of a funnel `(z - m) / s` is all rounding error.
            there = _choose(stays, known, there)
            kept = _choose(changes[:, None], (there, some), (some, known))
            state, previous = jax.tree.map(
                lambda x, y: x.at[:alternating].set(y), (state, previous), kept
            )
        lanes = Lanes(state, momentum, origin, before, previous, log_step, settled, accepted)
        return lanes, state.position

    return jax.lax.scan(block, lanes, (rows, noise, uniform))


def _choose(which: Array, yes: Any, no: Any) -> Any:
    """`jnp.where` over pytrees whose leaves may have more trailing axes than `which`."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(which.reshape(which.shape + (1,) * (a.ndim - which.ndim)), a, b)

    return jax.tree.map(choose, yes, no)


@jax.jit
def begin(
    target: Target,
    lanes: Lanes,
    group,
    start: Array,
    lam: Parameterization,
    other: Parameterization,
) -> Lanes:
    """The lanes with one group put at the start of a run under `lam`; `other` is its second λ."""
    score = jax.vmap(jax.value_and_grad(Target.logdensity, argnums=1), (None, 0, None))
    state = State(start, *score(target, start, lam))
    previous = jax.vmap(carry_state, (None, 0, None, None))(target, state, lam, other)
    log_step = jnp.full(lanes.log_step.shape[1:], -0.25 * np.log(start.shape[1]), start.dtype)
    blank = jnp.zeros(start.shape[0], start.dtype)
    fresh = Lanes(state, jnp.zeros_like(start), state, blank, previous, log_step, log_step, blank)
    return jax.tree.map(lambda all_, one: all_.at[group].set(one), lanes, fresh)


@partial(jax.jit, static_argnames="every", donate_argnums=0)
def store(buffer: Array, positions: Array, group, first, *, every: int) -> Array:
    """A group's buffer with this call's draws written in, one per `every` blocks."""
    mine = jax.lax.dynamic_index_in_dim(positions, group, axis=1, keepdims=False)
    return jax.lax.dynamic_update_slice(buffer, mine[every - 1 :: every], (first, 0, 0))
