"""A run in progress: its state and the chunks it has produced, stored as it goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import numpy as np

from autoreparam.errors import CheckpointError
from autoreparam.mcmc.engine import Engine
from autoreparam.mcmc.retune import retune
from autoreparam.mcmc.snapshot import pack, pack_trail, unpack, unpack_trail
from autoreparam.mcmc.state import RunState
from autoreparam.mcmc.trail import Trail
from autoreparam.mcmc.warmup import Step
from autoreparam.program.parameterization import Parameterization
from autoreparam.results.progress import Progress
from autoreparam.results.scalars import ess_of
from autoreparam.results.storage import Store
from autoreparam.run.longer import extended
from autoreparam.run.processes import check_agreement
from autoreparam.run.settings import Settings

LOOK_AGAIN = 0.5  # seconds between updates of the ESS in the progress bar


class Chunk(NamedTuple):
    """Draws of one call, the step of the plan they belong to, and the λ they were drawn under."""

    step: Step
    lam: Parameterization
    trail: Trail


@dataclass
class Session:
    """A run and how far it has got; `go` takes it to the end of its plan."""

    settings: Settings
    engine: Engine
    state: RunState
    store: Store | None = None
    chunks: list[Chunk] = field(default_factory=list)
    interrupted: bool = False

    @classmethod
    def reload(cls, settings: Settings, engine: Engine, blank: RunState, store: Store) -> Session:
        """The session that a store holds."""
        state = unpack(store.state, blank)
        chunks = list(_read_chunks(store, state))
        sampled = sum(chunk.step.draws for chunk in chunks if chunk.step.phase == "sampling")
        settings = replace(settings, draws=max(settings.draws, sampled // state.every))
        state = state.until(settings.draws * state.every - sampled)
        return cls(settings, engine, state, store, chunks)

    def go(self, bar: Progress) -> None:
        """Advances to the end of the plan, or until the user interrupts."""
        try:
            while self._goes_on():
                phase = self.state.plan[0].phase
                total = sum(step.draws for step in self.state.plan if step.phase == phase)
                with bar.phase("more draws" if self.state.every > 1 else phase, total):
                    self._phase(phase, bar)
        except KeyboardInterrupt:
            self.interrupted = True

    def _goes_on(self) -> bool:
        """Whether something is left to do, or more has to be; then the store is held."""
        if not self.state.plan:
            drawn = [chunk.trail for chunk in self.of("sampling")]
            self.state = extended(self.engine, self.state, drawn, self.settings.draws)
        if self.state.plan and self.store is not None:
            self.store.hold()
        return bool(self.state.plan)

    def _phase(self, phase: str, bar: Progress) -> None:
        done, diverging, ess, looked = 0, 0, None, 0.0
        while self.state.plan and self.state.plan[0].phase == phase:
            trail = self._advance()
            done += trail.position.shape[1]
            diverging += int(trail.info.diverging.sum())
            size = float(self.state.tunings[-1].step_size)
            if phase == "sampling" and bar.visible and time.perf_counter() - looked > LOOK_AGAIN:
                looked, ess = time.perf_counter(), self._ess_so_far()
            bar.update(done, divergences=diverging, step_size=size, ess=ess)

    def _advance(self) -> Trail:
        """One more chunk: drawn, learned from and stored, all or nothing."""
        began, before = time.perf_counter(), self.state
        step = before.plan[0]
        state, trail = self.engine.chunk(before)
        kept = trail
        if step.phase == "sampling":  # nothing is learned from its scores
            kept = trail._replace(score=np.empty((*trail.logdensity.shape, 0), np.float32))
        chunk = Chunk(step, before.lams[-1], kept)
        if step.window_ends:
            window = [*self.window(), trail]
            state = retune(self.engine, state, window, step.last_window)
            check_agreement(state)
        state = replace(state, seconds=before.seconds + time.perf_counter() - began)
        if self.store is not None:
            self.store.commit(_named(chunk), pack(state), {"step": step})
        self.state, self.chunks = state, [*self.chunks, chunk]
        return trail

    def write_to(self, store: Store) -> None:
        """Writes everything drawn so far to a new store, as if it had been there all along."""
        store.commit_all([(_named(c), {"step": c.step}) for c in self.chunks], pack(self.state))

    def close(self) -> None:
        """Lets other processes write to the run's store."""
        if self.store is not None:
            self.store.close()

    def window(self) -> list[Trail]:
        """The chunks since the last window ended."""
        trails: list[Trail] = []
        for chunk in reversed(self.chunks):
            if chunk.step.window_ends:
                break
            trails.insert(0, chunk.trail)
        return trails

    def of(self, phase: str) -> list[Chunk]:
        """The chunks of a phase."""
        return [chunk for chunk in self.chunks if chunk.step.phase == phase]

    def _ess_so_far(self) -> float | None:
        """ESS of the log density: a single number, quick to compute and seldom flattering."""
        drawn = [chunk.trail.logdensity for chunk in self.of("sampling")]
        return ess_of(np.concatenate(drawn, axis=1))


def _named(chunk: Chunk) -> dict[str, np.ndarray]:
    """A chunk as named arrays; sampling has one λ, which the state holds."""
    arrays = pack_trail(chunk.trail)
    if chunk.step.phase == "warmup":
        leaves = jax.tree.leaves(chunk.lam)
        arrays |= {f"lam/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    return arrays


def _read_chunks(store: Store, state: RunState) -> Iterator[Chunk]:
    own = state.lams[-1]
    leaves, treedef = jax.tree.flatten(own)
    for arrays, info in zip(store.read_chunks(), store.infos):
        if "step" not in info:
            raise CheckpointError(
                f"{store.path} was written by an earlier release and cannot be continued by this "
                "one. Continue it with the release that wrote it, or sample again."
            )
        step, lam = Step(*info["step"]), own
        if step.phase == "warmup":
            lam = jax.tree.unflatten(treedef, [arrays[f"lam/{i}"] for i in range(len(leaves))])
        yield Chunk(step, lam, unpack_trail(arrays))
