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

    `start` has a row a chain, in the working coordinates of the first λ. Targets that run together
    differ in their data alone. Coordinates whose inverse mass is zero stay where they are.
    """

    target: Target
    lams: tuple[Parameterization, ...]
    inverse_mass: tuple[np.ndarray, ...]
    start: np.ndarray


@dataclass(frozen=True)
class Job:
    """One run of a method: `slots` transitions of `num_steps` leapfrog steps a draw."""

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
        """The name of what it runs with."""
        return self.problem, self.method

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


@partial(jax.jit, static_argnames=("together", "leap", "alternating", "unroll"))
def _advance(
    target, tunings, lanes, rows, key, *, together: bool, leap: int, alternating: int, unroll: int
):
    """Blocks of `leap` leapfrog steps; the first `alternating` groups may change λ in between.

    `together`: the target is stacked, one a group.
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

    def block(lanes: _Lanes, inputs) -> tuple[_Lanes, Array]:
        row, noise, uniform = inputs
        here = tunings.at(row.slot)
        inverse_mass = here.inverse_mass[:, None]
        spread = jnp.where(inverse_mass > 0, inverse_mass, jnp.inf) ** -0.5
        pick = row.slot[:, None, None]
        step = jnp.exp(jnp.take_along_axis(lanes.log_step, pick, axis=-1))

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
        direction = SIGN_RATE * jnp.sign(acceptance - TARGET_ACCEPT)
        moved = (row.ends & row.adapts)[:, None] * direction
        slots = jnp.arange(lanes.log_step.shape[-1])
        log_step = lanes.log_step + moved[..., None] * (slots == pick)
        accepted = lanes.accepted + (row.ends & row.keeps)[:, None] * acceptance
        if alternating:
            first = jax.tree.map(lambda x: x[:alternating], (state, here.lam, row))
            then = tunings.at(row.following).lam
            then = jax.tree.map(lambda x: x[:alternating], then)
            there = carry(first_target, first[0], first[1], then)
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
    jobs: Sequence[Job],
    lanes_of: Mapping[tuple[str, str], Lane],
    finished: Callable[[Job, Drawn], None],
    *,
    key: Array,
    leap: int,
    unroll: int = 1,
    out_of_time: Callable[[], bool] = lambda: False,
) -> bool:
    """Runs all jobs, calls `finished` as they end; false if time ran out before.

    A job waits until it has a lane: `finished` may provide lanes for others. `leap` must
    divide every job's number of leapfrog steps.
    """
    board = _Board(list(jobs), lanes_of, leap)
    call = 0
    while board.assign():
        rows = board.rows()
        board.lanes, positions = _advance(
            board.targets, board.tunings, board.lanes, rows, jax.random.fold_in(key, call),
            together=board.together, leap=leap, alternating=board.alternating, unroll=unroll,
        )  # fmt: skip
        ended = board.collect(positions)
        jax.block_until_ready(board.lanes.energy)
        call += 1
        for group in ended:  # one at a time: the draws of one job may be gigabytes
            finished(*board.hand_over(group))
        if out_of_time():
            break
    return not board.waiting and not any(board.running)


class _Board:
    """Which group runs which job, and how far it is."""

    def __init__(self, jobs: list[Job], lanes_of: Mapping[tuple[str, str], Lane], leap: int):
        assert all(BLOCKS * leap % (job.slots * job.num_steps) == 0 for job in jobs)
        assert all(job.num_steps % leap == 0 for job in jobs)
        self.lanes_of, self.leap = lanes_of, leap
        self.together = len({job.problem for job in jobs}) > 1
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
        self.target: list[Any] = [None] * self.groups
        self.tuning: list[Any] = [None] * self.groups
        self.targets: Any = None
        self.tunings: Any = None
        self.lanes: Any = None
        self.buffer: Any = None
        self.longest = max((job.draws for job in jobs), default=0)

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
        ready = [job for job in self.waiting if job.lane in self.lanes_of]
        if group < self.alternating:  # only these can take the jobs that change λ
            ready.sort(key=lambda job: job.slots == 1)
        else:
            ready = [job for job in ready if job.slots == 1]
        if not ready:
            return
        job, lane = ready[0], self.lanes_of[ready[0].lane]
        self.waiting.remove(job)
        self.running[group], self.done[group] = job, 0
        self._room(lane.start)
        fill = self.slots - len(lane.lams)
        lams = [*lane.lams, *lane.lams[-1:] * fill]
        masses = [*lane.inverse_mass, *lane.inverse_mass[-1:] * fill]
        self.tuning[group] = _Tunings(stack(lams), np.stack(masses).astype(lane.start.dtype))
        self.target[group] = lane.target
        self.tunings = stack(_filled(self.tuning))
        self.targets = stack(_filled(self.target)) if self.together else lane.target
        self.lanes = _begin(lane.target, self.lanes, group, lane.start, lane.lams[0])

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
        # A draw may come with every block of a call, also of the last one and of warm-up.
        rows = self.longest + 2 * BLOCKS
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

    def collect(self, positions: Array) -> list[int]:
        """Stores the draws of a call; the groups whose jobs ended with it."""
        for group, job in enumerate(self.running):
            if job is None:
                continue
            every = self._per_draw(job)
            # Warm-up draws go to the room in front, over each other.
            first = max(self.done[group] // every - job.warmup + BLOCKS, 0)
            self.buffer = _store(self.buffer, positions, group, first, every=every)
            self.done[group] += BLOCKS
        return [
            group
            for group, job in enumerate(self.running)
            if job is not None and self.done[group] >= self._blocks(job)
        ]

    def hand_over(self, group: int) -> tuple[Job, Drawn]:
        """A job that ended and what it gave; the group is idle then."""
        job = self.running[group]
        assert job is not None
        self.running[group] = None
        accepted = np.asarray(self.lanes.accepted[group]) / (job.draws * job.slots)
        step_size = np.exp(np.asarray(self.lanes.log_step[group])[:, : job.slots])
        positions = _take(self.buffer, group, first=BLOCKS, count=job.draws)
        return job, Drawn(positions, accepted, step_size)


def _filled(some: list[Any]) -> list[Any]:
    """The list with an entry for everyone: idle groups may have anyone's."""
    spare = next(one for one in some if one is not None)
    return [spare if one is None else one for one in some]
