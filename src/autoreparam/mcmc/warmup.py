"""The plan of a run: warm-up in windows that double, then sampling, in chunks of draws."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from autoreparam.mcmc.settings import DEFAULTS, SamplerSettings
from autoreparam.program.compiled import accelerated

CHUNK = 25  # draws per call of the compiled program, and between two checkpoints
CHUNK_OF_LITTLE = 100  # the same where draws take microseconds, unless they are stored
CHUNK_TOGETHER = 250  # the same on an accelerator, where each call is a wait
LAST_WINDOWS = 2  # for the step size only: the second checks the first


class Step(NamedTuple):
    """One call of the compiled chunk in the plan of a run."""

    phase: str  # "warmup" or "sampling"
    draws: int
    window_ends: bool = False  # retune after it
    last_window: bool = False  # the step size only


def first_steps(plan: Sequence[Step], draws: int) -> tuple[Step, ...]:
    """The plan with its first steps as one, as far as they belong together and have few draws."""
    first, *rest = plan
    while rest and not first.window_ends and rest[0].phase == first.phase:
        if first.draws + rest[0].draws > draws:
            break
        first = rest[0]._replace(draws=first.draws + rest[0].draws)
        rest = rest[1:]
    return (first, *rest)


def windows(warmup: int, settings: SamplerSettings = DEFAULTS) -> list[int]:
    """Window lengths that add up to the warm-up; the last two are for the step size only."""
    last = int(warmup * settings.last_window)
    left, size, lengths = warmup - LAST_WINDOWS * last, settings.first_window, []
    while left > 0:
        # A window too short to double joins the one before it.
        size = left if left < 3 * size else size
        lengths.append(size)
        left, size = left - size, 2 * size
    return lengths + [last] * LAST_WINDOWS if last else lengths


def plan(warmup: int, draws: int, settings: SamplerSettings = DEFAULTS) -> tuple[Step, ...]:
    """Every chunk of a run, in order."""
    steps: list[Step] = []
    lengths = windows(warmup, settings)
    for number, length in enumerate(lengths):
        last = number >= len(lengths) - LAST_WINDOWS
        steps += [step._replace(last_window=last) for step in window_of(length)]
    return (*steps, *chunks_of("sampling", draws))


def as_warmup(steps: Sequence[Step], until: int) -> list[Step]:
    """The steps, where those up to the draw `until` are warm-up, whatever they were meant to be."""
    ends = accumulate(step.draws for step in steps)
    return [
        step._replace(phase="warmup", window_ends=True)
        if end <= until and step.phase == "sampling"
        else step
        for step, end in zip(steps, ends)
    ]


def window_of(draws: int) -> list[Step]:
    """A window of warm-up."""
    chunks = chunks_of("warmup", draws)
    return [*chunks[:-1], chunks[-1]._replace(window_ends=True)]


def chunks_of(phase: str, draws: int) -> list[Step]:
    """The given number of draws of a phase, as calls of the compiled chunk."""
    most = CHUNK_TOGETHER if accelerated() else CHUNK
    return [Step(phase, min(most, draws - done)) for done in range(0, draws, most)]
