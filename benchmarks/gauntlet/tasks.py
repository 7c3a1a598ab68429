"""What there is to run: every model by every method, in an order that tells most first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.gauntlet.generator import COUNT

NINE = ("poisson_glmm", "mcycle_splines", "surgical", "seeds", "pilots", "rats", "dogs",
        "gp_poisson", "sleep_study")  # fmt: skip
SIMPLE = ("random_walk", "opaque_funnel", "eight_schools", "pumps", "batting")
KNOWN = NINE + SIMPLE
ENGINE = ("auto", "centered", "noncentered")
NUMPYRO = ("numpyro_centered", "numpyro_noncentered")
METHODS = ENGINE + NUMPYRO
COMPARED = 8  # of so many generated models of a half, one is run by every method
PREFIX = "generated_"


@dataclass(frozen=True)
class Task:
    """One run: a model, a method, the sampler's seed, the precision, and which code it is."""

    model: str
    method: str
    seed: int
    x64: bool
    label: str

    def to_dict(self) -> dict[str, Any]:
        """The fields that name the run in the file of results."""
        return asdict(self)


def list_tasks(
    models: str, half: str, seeds: int, methods: tuple[str, ...], x64: bool, label: str,
    count: int = COUNT,
) -> list[Task]:  # fmt: skip
    """All tasks asked for, seed by seed, so that a run broken off has seen every model.

    The halves split the generated models by their seed and the known ones by the sampler's.
    """
    offered = {"tune": range(0, 2 * seeds, 2), "report": range(1, 2 * seeds, 2)}
    tasks = []
    for turn, seed in enumerate(offered.get(half, range(seeds))):
        if models in ("nine", "all"):
            tasks += [
                Task(model, method, seed, x64, label) for model in KNOWN for method in methods
            ]
        if models in ("generated", "all"):
            for number in _numbers(half, count):
                tasks += [
                    Task(f"{PREFIX}{number:04d}", method, number + 1000 * turn, x64, label)
                    for method in methods
                    if method in ("auto", "reference") or is_compared(number)
                ]
    return tasks


def is_compared(number: int) -> bool:
    """Whether a generated model is run by every method."""
    return number // 2 % COMPARED == 0


def model_seed(name: str) -> int | None:
    """The seed of a generated model; None for a known one."""
    return int(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None


def _numbers(half: str, count: int) -> range:
    first, step = {"tune": (0, 2), "report": (1, 2)}.get(half, (0, 1))
    return range(first, count, step)
