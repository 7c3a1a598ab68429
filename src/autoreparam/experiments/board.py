"""The schedule: assigns jobs to groups of chains that move in lockstep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.experiments.lockstep import (
    BLOCKS,
    Drawn,
    Job,
    Lane,
    Lanes,
    Row,
    Tunings,
    advance,
    begin,
    store,
)
from autoreparam.mcmc.hmc import State
from autoreparam.mcmc.interleaved import stack


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
    """Runs all jobs, calling `finished` as each ends; false if time ran out first.

    A job waits until it has a lane; `finished` may free lanes for others. `leap` must
    divide every job's number of leapfrog steps.
    """
    board = _Board(list(jobs), lanes_of, leap)
    call = 0
    while board.assign():
        rows = board.rows()
        board.lanes, positions = advance(
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
    """Which group runs which job, and how far it has got."""

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
        self.buffers: dict[int, Array] = {}  # of draws, one per group
        self.longest = max((job.draws for job in jobs), default=0)

    def _per_draw(self, job: Job) -> int:
        """Blocks per draw."""
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
        # Any block of a call may produce a draw, including the last one and those of warm-up.
        if group not in self.buffers:
            rows = (self.longest + 2 * BLOCKS, *lane.start.shape)
            self.buffers[group] = jnp.zeros(rows, lane.start.dtype)
        fill = self.slots - len(lane.lams)
        lams = [*lane.lams, *lane.lams[-1:] * fill]
        masses = [*lane.inverse_mass, *lane.inverse_mass[-1:] * fill]
        self.tuning[group] = Tunings(stack(lams), np.stack(masses).astype(lane.start.dtype))
        self.target[group] = lane.target
        self.tunings = stack(_filled(self.tuning))
        self.targets = stack(_filled(self.target)) if self.together else lane.target
        ends = lane.lams[0], lane.lams[-1]
        self.lanes = begin(lane.target, self.lanes, group, lane.start, *ends)

    def _room(self, start: np.ndarray) -> None:
        """Allocates buffers for all groups once the number of chains is known."""
        if self.lanes is not None:
            return
        (chains, size), dtype = start.shape, start.dtype
        blank = np.zeros((self.groups, chains, size), dtype)
        number = np.zeros((self.groups, chains), dtype)
        state = State(blank, number, blank)
        steps = np.zeros((self.groups, self.slots), dtype)
        self.lanes = Lanes(state, blank, state, number, state, steps, steps, number)

    def rows(self) -> Row:
        """What each group does in each block of the next call."""
        blank = np.zeros((BLOCKS, self.groups))
        rows = Row(*(blank.copy() for _ in Row._fields))
        for group, job in enumerate(self.running):
            if job is None:
                continue
            block = self.done[group] + np.arange(BLOCKS)
            inside = job.num_steps // self.leap  # blocks per trajectory
            draw = block // self._per_draw(job)
            rows.begins[:, group] = block % inside == 0
            rows.ends[:, group] = block % inside == inside - 1
            rows.adapts[:, group] = draw < job.adapt
            rows.keeps[:, group] = (draw >= job.warmup) & (draw < job.warmup + job.draws)
            rows.slot[:, group] = block // inside % job.slots
            rows.following[:, group] = (block + 1) // inside % job.slots
            seen = np.maximum(draw - job.adapt // 2 + 1, 0)  # in the second half of adaptation
            rows.weight[:, group] = (draw < job.adapt) * (seen > 0) / np.maximum(seen, 1)
        kinds = [*[bool] * 4, np.int32, np.int32, self.lanes.log_step.dtype]
        return Row(*(values.astype(kind) for values, kind in zip(rows, kinds)))

    def collect(self, positions: Array) -> list[int]:
        """Stores the draws of a call; returns the groups whose jobs ended with it."""
        for group, job in enumerate(self.running):
            if job is None:
                continue
            every = self._per_draw(job)
            # Warm-up draws all go to the slot in front and overwrite each other.
            first = max(self.done[group] // every - job.warmup + BLOCKS, 0)
            buffer = self.buffers.pop(group)
            self.buffers[group] = store(buffer, positions, group, first, every=every)
            self.done[group] += BLOCKS
        return [
            group
            for group, job in enumerate(self.running)
            if job is not None and self.done[group] >= self._blocks(job)
        ]

    def hand_over(self, group: int) -> tuple[Job, Drawn]:
        """A finished job and its result; leaves its group idle."""
        job = self.running[group]
        assert job is not None
        self.running[group] = None
        accepted = np.asarray(self.lanes.accepted[group]) / (job.draws * job.slots)
        step_size = np.exp(np.asarray(self.lanes.settled[group])[: job.slots])
        draws = self.buffers[group][BLOCKS : BLOCKS + job.draws]
        return job, Drawn(draws, accepted, step_size)


def _filled(some: list[Any]) -> list[Any]:
    """The list with one entry per group; what an idle group gets does not matter."""
    spare = next(one for one in some if one is not None)
    return [spare if one is None else one for one in some]
