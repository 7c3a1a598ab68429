"""A run in progress: its state and the chunks it has produced, stored as it goes.

Where its draws would take much memory and the run is stored, they are read back when needed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

import jax
import numpy as np

from autoreparam.errors import CheckpointError
from autoreparam.mcmc.engine import Engine
from autoreparam.mcmc.health import found_better
from autoreparam.mcmc.retune import retune, warm_up_again
from autoreparam.mcmc.snapshot import pack, pack_trail, unpack, unpack_trail
from autoreparam.mcmc.state import RunState
from autoreparam.mcmc.trail import Trail, blank_trail, joined_draws, thinned
from autoreparam.mcmc.warmup import Step, as_warmup, first_steps, plan
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.parameterization_file import flat_entry, flat_of
from autoreparam.results.progress import Progress
from autoreparam.results.scalars import ess_of
from autoreparam.results.storage import Store
from autoreparam.run.longer import extended
from autoreparam.run.processes import check_agreement, leads
from autoreparam.run.settings import Settings

LOOK_AGAIN = 0.5  # seconds between updates of the ESS in the progress bar
MOST_NUMBERS = 2**28  # of a run's draws, or a window's draws and scores: a gigabyte, or two


class Chunk(NamedTuple):
    """Draws of one call, the step of the plan they belong to, and the λ they were drawn under."""

    step: Step
    lam: Parameterization
    trail: Trail  # its positions and scores are None where they are on disk only


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
        steps = as_warmup(_read_steps(store), state.warmup_until)
        sampled = sum(step.draws for step in steps if step.phase == "sampling")
        settings = replace(settings, draws=max(settings.draws, sampled // state.every))
        left = state.until(settings.draws * state.every - sampled)
        session = cls(settings, engine, left, store)
        for chunk in _read_chunks(store, steps, state):
            session.chunks.append(chunk)
            session._forget()
        return session

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
            drawn = self.stretches("sampling", self.state.every)
            latents = tuple(site.name for site in self.engine.target.program.latents)
            names = latents if self.large else None
            longer = extended(self.engine, self.state, drawn, self.settings.draws, names)
            if longer.plan and self._found_better():
                self._begin_again()
            else:
                self.state = longer
        if self.state.plan and self.store is not None:
            self.store.hold()
        return bool(self.state.plan)

    def _found_better(self) -> bool:
        """Whether a chain has come to a far better place since warm-up, and may warm up again.

        Then everything was learned where there is next to no probability.
        """
        state, sampling = self.state, self.of("sampling")
        warmup = [chunk.step for chunk in self.chunks[: len(self.chunks) - len(sampling)]]
        window = [*takewhile(lambda step: not step.window_ends, reversed(warmup[:-1]))]
        last = self.chunks[len(warmup) - len(window) - 1 : len(warmup)] if warmup else []
        if (
            state.every > 1
            or state.added_windows >= self.engine.settings.most_added_windows
            or not last
            or any(chunk.lam != state.lams[-1] for chunk in last)
        ):
            return False
        before, levels = (
            np.concatenate([chunk.trail.logdensity for chunk in chunks], axis=1)
            for chunks in (last, sampling)
        )
        return found_better(before, levels, self.engine.target.size)

    def _begin_again(self) -> None:
        settings, steps = self.settings, [chunk.step for chunk in self.chunks]
        again = plan(settings.warmup, settings.draws, self.engine.settings)
        self.state = warm_up_again(self.engine, self.state, again, settings.target_accept)
        steps = as_warmup(steps, self.state.warmup_until)
        self.chunks = [chunk._replace(step=step) for chunk, step in zip(self.chunks, steps)]

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
        sampling = before.plan[0].phase == "sampling"
        every = 1 if sampling else self._learned_every()
        if self.store is None and every == 1:  # no draw waits for a file
            most = self.engine.chains(before.kernel).at_once
            before = replace(before, plan=first_steps(before.plan, most))
        step = before.plan[0]
        state, trail = self.engine.chunk(before)
        if sampling:  # nothing is learned from its scores
            kept = trail._replace(score=np.empty((*trail.logdensity.shape, 0), np.float32))
        else:
            kept = thinned(trail, (step.draws - 1) % every, every)
        chunk = Chunk(step, before.lams[-1], kept)
        first = not self.chunks or self.chunks[-1].lam is not chunk.lam
        if step.window_ends:
            window = [*self.window(), kept]
            state = retune(self.engine, state, window, step.last_window)
            check_agreement(state)
        state = replace(state, seconds=before.seconds + time.perf_counter() - began)
        if self.store is not None:
            self.store.commit(_named(chunk, first), pack(state), {"step": step})
        self.state, self.chunks = state, [*self.chunks, chunk]
        self._forget()
        return trail

    def _learned_every(self) -> int:
        """Of how many draws of the present window one is kept to learn from."""
        if self.settings.save_warmup:
            return 1
        plan = self.state.plan
        ends = next(i for i, step in enumerate(plan, 1) if step.window_ends)
        draws = sum(step.draws for step in (*self._of_window(), *plan[:ends]))
        every = -(-2 * draws * self._numbers_per_draw // MOST_NUMBERS)
        return int(np.clip(every, 1, plan[0].draws))

    @property
    def _numbers_per_draw(self) -> int:
        return self.settings.chains * self.engine.target.size

    @property
    def large(self) -> bool:
        """Whether the draws are too many to have all of them in memory, if that can be avoided."""
        draws = self.settings.draws * self.state.every
        return draws * self._numbers_per_draw > MOST_NUMBERS

    def _forget(self) -> None:
        """Lets go of draws that nothing more is learned from, if they are many and on disk."""
        step = self.chunks[-1].step
        if not self.large or self.store is None or not leads():
            return
        if step.window_ends or step.phase == "sampling":
            for i, chunk in enumerate(self.chunks):
                light = chunk.trail._replace(position=None, score=None)
                self.chunks[i] = chunk._replace(trail=light)

    @property
    def has_sampled(self) -> bool:
        """Whether there are draws of a sampling phase, even if they are warm-up by now."""
        return self.state.warmup_until > 0 or bool(self.of("sampling"))

    def write_to(self, store: Store) -> None:
        """Writes everything drawn so far to a new store, as if it had been there all along."""
        before = [None, *(chunk.lam for chunk in self.chunks)]
        named = [_named(c, c.lam is not lam) for c, lam in zip(self.chunks, before)]
        infos = [{"step": chunk.step} for chunk in self.chunks]
        store.commit_all([*zip(named, infos)], pack(self.state))

    def close(self) -> None:
        """Lets other processes write to the run's store."""
        if self.store is not None:
            self.store.close()

    def window(self) -> list[Trail]:
        """The chunks since the last window ended."""
        count = len(self._of_window())
        return [chunk.trail for chunk in self.chunks[len(self.chunks) - count :]]

    def _of_window(self) -> list[Step]:
        """The steps since the last window ended."""
        steps = [chunk.step for chunk in self.chunks]
        return [*takewhile(lambda step: not step.window_ends, reversed(steps))][::-1]

    def of(self, phase: str) -> list[Chunk]:
        """The chunks of a phase."""
        return [chunk for chunk in self.chunks if chunk.step.phase == phase]

    def stretches(self, phase: str, every: int = 1) -> Iterator[tuple[Parameterization, Trail]]:
        """The draws of a phase, one of `every`, in pieces that have one λ and fit into memory.

        There is always one, if need be without draws.
        """
        lam, parts, passed, numbers = self.state.lams[-1], [self._blank()], 0, 0
        for index, chunk in enumerate(self.chunks):
            if chunk.step.phase != phase:
                continue
            trail = self._whole(index)
            changed = chunk.lam is not lam and chunk.lam != lam
            if numbers and (changed or numbers > MOST_NUMBERS):
                yield lam, joined_draws(parts)
                parts, numbers = [], 0
            parts.append(thinned(trail, (every - 1 - passed) % every, every))
            lam, passed = chunk.lam, passed + trail.position.shape[1]
            numbers += parts[-1].position.size
        yield lam, joined_draws(parts)

    def _whole(self, index: int) -> Trail:
        """The draws of a chunk, without their scores."""
        trail = self.chunks[index].trail
        if trail.position is None:
            assert self.store is not None
            trail = unpack_trail(self.store.read_chunk(index))
        return trail._replace(score=None)

    def _blank(self) -> Trail:
        shape, slots = (self.settings.chains, 0), len(self.state.lams)
        return blank_trail(shape, self.engine.target, slots)._replace(score=None)

    def _ess_so_far(self) -> float | None:
        """ESS of the log density: a single number, quick to compute and seldom flattering."""
        drawn = [chunk.trail.logdensity for chunk in self.of("sampling")]
        return ess_of(np.concatenate(drawn, axis=1))


def _named(chunk: Chunk, first: bool) -> dict[str, np.ndarray]:
    """A chunk as named arrays, with its λ if it is the first to have it."""
    arrays = pack_trail(chunk.trail)
    if first:
        leaves = jax.tree.leaves(chunk.lam.with_flat(None))
        arrays |= {f"lam/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        if chunk.lam.flat is not None:
            text = json.dumps(flat_entry(chunk.lam.flat)).encode()
            arrays["flat"] = np.frombuffer(text, np.uint8)
    return arrays


def _read_steps(store: Store) -> list[Step]:
    if any("step" not in info for info in store.infos):
        raise CheckpointError(
            f"{store.path} was written by an earlier release and cannot be continued by this "
            "one. Continue it with the release that wrote it, or sample again."
        )
    return [Step(*info["step"]) for info in store.infos]


def _read_chunks(store: Store, steps: list[Step], state: RunState) -> Iterator[Chunk]:
    lam = own = state.lams[-1]
    leaves, treedef = jax.tree.flatten(own.with_flat(None))
    before = "warmup"
    for arrays, step in zip(store.read_chunks(), steps):
        if "lam/0" in arrays:
            lam = jax.tree.unflatten(treedef, [arrays[f"lam/{i}"] for i in range(len(leaves))])
            text = arrays["flat"].tobytes() if "flat" in arrays else "null"
            lam = lam.with_flat(flat_of(json.loads(text)))
        elif before != step.phase:  # an older release wrote none with what it sampled
            lam = own
        before = step.phase
        yield Chunk(step, lam, unpack_trail(arrays))
