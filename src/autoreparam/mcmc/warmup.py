"""Warm-up in windows: step size, metric and (when a learner is handed in) λ, pooled over chains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autoreparam.mcmc.chains import CHUNK


class Step(NamedTuple):
    """One call of the compiled chunk in the plan of a run."""

    phase: str  # "warmup" or "sampling"
    draws: int
    window_ends: bool  # retune after it
    last_window: bool  # the step size alone


@dataclass(frozen=True)
class Schedule:
    """Lengths of warm-up windows: they double, and the last is for the step size alone."""

    warmup: int
    first: int = CHUNK
    last: int = 50

    def windows(self) -> list[int]:
        """Window lengths that add up to the warm-up."""
        last = min(self.last, max(self.warmup // 4, 1)) if self.warmup else 0
        left, size, windows = self.warmup - last, self.first, []
        while left > 0:
            # A window too short to double joins the one before it.
            size = left if left < 3 * size else size
            windows.append(size)
            left, size = left - size, 2 * size
        return [*windows, last] if last else []


def plan(warmup: int, draws: int) -> list[Step]:
    """Every chunk of a run, in order."""
    steps = []
    windows = Schedule(warmup).windows()
    for number, window in enumerate(windows):
        counts = _chunks(window)
        last = number == len(windows) - 1
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


def diagonal_metric(position: np.ndarray, score: np.ndarray | None) -> np.ndarray:
    """Diagonal of the inverse mass matrix from draws (and scores) of shape (n, dim).

    With scores it is `sqrt(Var u / Var g)`, exact for a Gaussian whatever the number of draws
    (the Fisher-divergence optimum); without, a variance shrunk towards small values as in Stan.
    """
    n = len(position)
    variance = position.var(axis=0, ddof=1) if n > 1 else np.ones(position.shape[1])
    if score is None:
        shrunk = (n / (n + 5.0)) * variance + 1e-3 * (5.0 / (n + 5.0))
        return _sound(shrunk, np.ones_like(variance))
    spread = score.var(axis=0, ddof=1) if n > 1 else np.ones_like(variance)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return _sound(np.sqrt(variance / spread), np.ones_like(variance))


def _sound(metric: np.ndarray, instead: np.ndarray) -> np.ndarray:
    """The metric with entries that are not finite and positive replaced."""
    info = np.finfo(metric.dtype)
    usable = np.isfinite(metric) & (metric > info.tiny**0.5) & (metric < info.max**0.5)
    return np.where(usable, metric, instead)
