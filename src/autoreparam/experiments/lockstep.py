"""HMC for many methods and numbers of leapfrog steps at once, in lock step.

At the size of these models an accelerator waits for launches, not for arithmetic. So all chains of
all methods take their leapfrog steps together, a group of chains a method; who starts a trajectory
and who ends one at each step is known beforehand, and reaches the one compiled program as data,
like λ, metric and step sizes. A group that ends its run takes the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.mcmc.hmc import State
from autoreparam.mcmc.interleaved import carry_state, stack
from autoreparam.mcmc.step_size import SIGN_RATE
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

BLOCKS = 256  # of leapfrog steps in one call of the compiled program
TARGET_ACCEPT = 0.75


@dataclass(frozen=True, eq=False)
class Lane:
    """What a method runs with: one λ, or several to alternate between, and a diagonal metric each.

    `start` has a row a chain, in the working coordinates of the first λ.
    """

    lams: tuple[Parameterization, ...]
    inverse_mass: tuple[np.ndarray, ...]
    start: np.ndarray


@dataclass(frozen=True)
class Job:
    """One run of a method: `slots` transitions of `num_steps` leapfrog steps a draw."""

    method: str
    num_steps: int
    slots: int
    warmup: int
    adapt: int
    draws: int
    urgent: bool = False  # others wait for it

    @property
    def leapfrogs(self) -> int:
        """Leapfrog steps of one chain."""
        return (self.warmup + self.draws) * self.slots * self.num_steps


class Drawn(NamedTuple):
    """What a job gave: positions (draw, chain, dim) under its first λ; acceptance, step sizes."""

    positions: Array
    acceptance: np.ndarray
    step_size: np.ndarray


class _Lanes(NamedTuple):
    """Every chain of every group (the two leading axes), in the middle of a trajectory."""

    state: State
    momentum: Any
    origin: State  # where the trajectory started
    energy: Any  # there
    log_step: Any  # one a slot
    accepted: Any  # acceptance rates of the draws so far, added up


class _Tunings(NamedTuple):
    """λ and metric of every group and slot (the two leading axes)."""

    lam: Parameterization
    inverse_mass: Any

    def at(self, slot: Array) -> _Tunings:
        """Those of one slot a group."""
        return jax.vmap(lambda tree, index: jax.tree.map(lambda x: x[index], tree))(self, slot)


class _Row(NamedTuple):
    """What a block of leapfrog steps is to each group."""

    begins: Any  # a trajectory
    ends: Any
    adapts: Any
    keeps: Any  # the draw
    slot: Any
    following: Any  # the slot of the next block


@partial(jax.jit, static_argnames=("leap", "alternating", "unroll"))
def _advance(target, tunings, lanes, rows, key, *, leap: int, alternating: int, unroll: int):
    """Blocks of `leap` leapfrog steps; the first `alternating` groups may change λ in between."""
    noise_key, uniform_key = jax.random.split(key)
    blocks = rows.begins.shape[0]
    position = lanes.state.position
    noise = jax.random.normal(noise_key, (blocks, *position.shape), position.dtype)
    uniform = jax.random.uniform(uniform_key, (blocks, *position.shape[:2]), position.dtype)
    evaluate = jax.vmap(
        jax.vmap(jax.value_and_grad(Target.logdensity, argnums=1), (None, 0, None)), (None, 0, 0)
    )
    carry = jax.vmap(jax.vmap(carry_state, (None, 0, None, None)), (None, 0, 0, 0))

    def block(lanes: _Lanes, inputs) -> tuple[_Lanes, Array]:
        row, noise, uniform = inputs
        here = tunings.at(row.slot)
        inverse_mass = here.inverse_mass[:, None]
        pick = row.slot[:, None, None]
        step = jnp.exp(jnp.take_along_axis(lanes.log_step, pick, axis=-1))

        def energy(state: State, momentum: Array) -> Array:
            return 0.5 * jnp.sum(momentum**2 * inverse_mass, axis=-1) - state.logdensity

        begins = partial(_choose, row.begins[:, None])
        momentum = begins(noise * inverse_mass**-0.5, lanes.momentum)
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
        direction = SIGN_RATE * jnp.sign(acceptance - TARGET_ACCEPT)
        moved = (row.ends & row.adapts)[:, None] * direction
        slots = jnp.arange(lanes.log_step.shape[-1])
        log_step = lanes.log_step + moved[..., None] * (slots == pick)
        accepted = lanes.accepted + (row.ends & row.keeps)[:, None] * acceptance
        if alternating:
            first = jax.tree.map(lambda x: x[:alternating], (state, here.lam, row))
            then = tunings.at(row.following).lam
            there = carry(target, first[0], first[1], jax.tree.map(lambda x: x[:alternating], then))
            changes = first[2].slot != first[2].following
            carried = _choose(changes[:, None], there, first[0])
            state = jax.tree.map(lambda x, new: x.at[:alternating].set(new), state, carried)
        return _Lanes(state, momentum, origin, before, log_step, accepted), state.position

    return jax.lax.scan(block, lanes, (rows, noise, uniform))


def _choose(which: Array, yes: Any, no: Any) -> Any:
    """`jnp.where` over pytrees whose leaves may have trailing axes more than `which`."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(which.reshape(which.shape + (1,) * (a.ndim - which.ndim)), a, b)

    return jax.tree.map(choose, yes, no)


@jax.jit
def _begin(target: Target, lanes: _Lanes, group, start: Array, lam: Parameterization) -> _Lanes:
    """The lanes with one group at the start of a run."""
    score = jax.vmap(jax.value_and_grad(Target.logdensity, argnums=1), (None, 0, None))
    state = State(start, *score(target, start, lam))
    log_step = jnp.full(lanes.log_step.shape[1:], -0.25 * np.log(start.shape[1]), start.dtype)
    blank = jnp.zeros(start.shape[0], start.dtype)
    fresh = _Lanes(state, jnp.zeros_like(start), state, blank, log_step, blank)
    return jax.tree.map(lambda all_, one: all_.at[group].set(one), lanes, fresh)


@partial(jax.jit, static_argnames="every", donate_argnums=0)
def _store(buffer: Array, positions: Array, group, first, *, every: int) -> Array:
    """The buffer with one group's draws of this call, one in `every` blocks, put in place."""
    mine = jax.lax.dynamic_index_in_dim(positions, group, axis=1)[every - 1 :: every]
    return jax.lax.dynamic_update_slice(buffer, jnp.swapaxes(mine, 0, 1), (group, first, 0, 0))


@partial(jax.jit, static_argnames=("first", "count"))
def _take(buffer: Array, group, *, first: int, count: int) -> Array:
    return jax.lax.dynamic_index_in_dim(buffer, group, keepdims=False)[first : first + count]


def run_jobs(
    target: Target,
    jobs: Sequence[Job],
    lanes_of: Mapping[str, Lane],
    finished: Callable[[Job, Drawn], None],
    *,
    key: Array,
    leap: int,
    unroll: int = 1,
    out_of_time: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda leapfrogs: None,
) -> bool:
    """Runs all jobs, calls `finished` as they end; false if time ran out before.

    A job waits until its method has a lane: `finished` may provide lanes for others. `leap` must
    divide every job's number of leapfrog steps.
    """
    board = _Board(target, list(jobs), lanes_of, leap)
    call = 0
    while board.assign():
        rows = board.rows()
        board.lanes, positions = _advance(
            target, board.tunings, board.lanes, rows, jax.random.fold_in(key, call),
            leap=leap, alternating=board.alternating, unroll=unroll,
        )  # fmt: skip
        ended = board.collect(positions)
        jax.block_until_ready(board.lanes.energy)
        call += 1
        progress(call * BLOCKS * leap)
        for job, drawn in ended:
            finished(job, drawn)
        if out_of_time():
            break
    return not board.waiting and not any(board.running)


class _Board:
    """Which group runs which job, and how far it is."""

    def __init__(self, target: Target, jobs: list[Job], lanes_of: Mapping[str, Lane], leap: int):
        assert all(BLOCKS * leap % (job.slots * job.num_steps) == 0 for job in jobs)
        assert all(job.num_steps % leap == 0 for job in jobs)
        self.target, self.lanes_of, self.leap = target, lanes_of, leap
        # The longest first, so that all groups end together.
        self.waiting = sorted(jobs, key=lambda job: (not job.urgent, -job.leapfrogs))
        longest = max((job.leapfrogs for job in jobs), default=1)
        alternating = [job.leapfrogs for job in jobs if job.slots > 1]
        self.alternating = min(len(alternating), -(-sum(alternating) // longest))
        groups = -(-sum(job.leapfrogs for job in jobs) // longest)
        self.groups = max(1, self.alternating, min(groups, len(jobs)))
        self.slots = max((job.slots for job in jobs), default=1)
        self.running: list[Job | None] = [None] * self.groups
        self.done = [0] * self.groups  # blocks
        self.tuning: list[Any] = [None] * self.groups
        self.tunings: Any = None
        self.lanes: Any = None
        self.buffer: Any = None
        self.longest = max((job.warmup + job.draws for job in jobs), default=0)

    def _per_draw(self, job: Job) -> int:
        """Blocks a draw."""
        return job.slots * job.num_steps // self.leap

    def _blocks(self, job: Job) -> int:
        return (job.warmup + job.draws) * self._per_draw(job)

    def assign(self) -> bool:
        """Gives idle groups the next jobs; false when nothing is left to do."""
        for group, job in enumerate(self.running):
            if job is None:
                self._next(group)
        return any(self.running)

    def _next(self, group: int) -> None:
        ready = [job for job in self.waiting if job.method in self.lanes_of]
        if group < self.alternating:  # only these can take the jobs that change λ
            ready.sort(key=lambda job: job.slots == 1)
        else:
            ready = [job for job in ready if job.slots == 1]
        if not ready:
            return
        job, lane = ready[0], self.lanes_of[ready[0].method]
        self.waiting.remove(job)
        self.running[group], self.done[group] = job, 0
        self._room(lane.start)
        fill = self.slots - len(lane.lams)
        lams = [*lane.lams, *lane.lams[-1:] * fill]
        masses = [*lane.inverse_mass, *lane.inverse_mass[-1:] * fill]
        self.tuning[group] = _Tunings(stack(lams), np.stack(masses).astype(lane.start.dtype))
        some = self.tuning[group]  # idle groups may have anyone's
        self.tunings = stack([some if tuning is None else tuning for tuning in self.tuning])
        self.lanes = _begin(self.target, self.lanes, group, lane.start, lane.lams[0])

    def _room(self, start: np.ndarray) -> None:
        """Makes room for all groups once the number of chains is known."""
        if self.lanes is not None:
            return
        (chains, size), dtype = start.shape, start.dtype
        blank = np.zeros((self.groups, chains, size), dtype)
        number = np.zeros((self.groups, chains), dtype)
        state = State(blank, number, blank)
        steps = np.zeros((self.groups, chains, self.slots), dtype)
        self.lanes = _Lanes(state, blank, state, number, steps, number)
        # A draw may come with every block of a call, also of the last.
        rows = self.longest + BLOCKS
        self.buffer = jnp.zeros((self.groups, rows, chains, size), dtype)

    def rows(self) -> _Row:
        """What each block of the next call is to each group."""
        blank = np.zeros((BLOCKS, self.groups), np.int32)
        rows = _Row(*(blank.copy() for _ in _Row._fields))
        for group, job in enumerate(self.running):
            if job is None:
                continue
            block = self.done[group] + np.arange(BLOCKS)
            inside = job.num_steps // self.leap  # blocks a trajectory
            draw = block // self._per_draw(job)
            rows.begins[:, group] = block % inside == 0
            rows.ends[:, group] = block % inside == inside - 1
            rows.adapts[:, group] = draw < job.adapt
            rows.keeps[:, group] = (draw >= job.warmup) & (draw < job.warmup + job.draws)
            rows.slot[:, group] = block // inside % job.slots
            rows.following[:, group] = (block + 1) // inside % job.slots
        flags = {name: getattr(rows, name).astype(bool) for name in _Row._fields[:4]}
        return rows._replace(**flags)

    def collect(self, positions: Array) -> list[tuple[Job, Drawn]]:
        """Stores the draws of a call; the jobs that ended with it, and what they gave."""
        ended = []
        for group, job in enumerate(self.running):
            if job is None:
                continue
            every = self._per_draw(job)
            first = self.done[group] // every
            self.buffer = _store(self.buffer, positions, group, first, every=every)
            self.done[group] += BLOCKS
            if self.done[group] >= self._blocks(job):
                ended.append((job, self._drawn(group, job)))
                self.running[group] = None
        return ended

    def _drawn(self, group: int, job: Job) -> Drawn:
        accepted = np.asarray(self.lanes.accepted[group]) / (job.draws * job.slots)
        step_size = np.exp(np.asarray(self.lanes.log_step[group])[:, : job.slots])
        positions = _take(self.buffer, group, first=job.warmup, count=job.draws)
        return Drawn(positions, accepted, step_size)
