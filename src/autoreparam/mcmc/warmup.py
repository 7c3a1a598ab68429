"""Warm-up in windows: step size, metric and (when a learner is handed in) λ, pooled over chains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from autoreparam.mcmc.chains import CHUNK

LAST_WINDOWS = 2


class Step(NamedTuple):
    """One call of the compiled chunk in the plan of a run."""

    phase: str  # "warmup" or "sampling"
    draws: int
    window_ends: bool  # retune after it
    last_window: bool  # the step size alone


@dataclass(frozen=True)
class Schedule:
    """Lengths of warm-up windows: they double, and the last two are for the step size alone."""

    warmup: int
    first: int = 10
    last: int = 50

    def windows(self) -> list[int]:
        """Window lengths that add up to the warm-up."""
        last = min(self.last, self.warmup // 10)
        left, size, windows = self.warmup - LAST_WINDOWS * last, self.first, []
        while left > 0:
            # A window too short to double joins the one before it.
            size = left if left < 3 * size else size
            windows.append(size)
            left, size = left - size, 2 * size
        return windows + [last] * LAST_WINDOWS if last else windows


def plan(warmup: int, draws: int) -> list[Step]:
    """Every chunk of a run, in order."""
    steps = []
    windows = Schedule(warmup).windows()
    for number, window in enumerate(windows):
        counts = _chunks(window)
        last = number >= len(windows) - LAST_WINDOWS
        steps += [
            Step("warmup", count, i == len(counts) - 1, last) for i, count in enumerate(counts)
        ]
    return steps + [Step("sampling", count, False, False) for count in _chunks(draws)]


def remaining(steps: list[Step], drawn: int) -> list[Step]:
    """What is left of a plan after so many draws; a chunk may have been cut."""
    left = []
    for step in steps:
        cut = min(drawn, step.draws)
        drawn -= cut
        if cut < step.draws:
            left.append(step._replace(draws=step.draws - cut))
    return left


def _chunks(total: int) -> list[int]:
    return [min(CHUNK, total - done) for done in range(0, total, CHUNK)]
