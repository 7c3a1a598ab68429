"""Every parameterization side by side on one model: the runs, and a table of results and costs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from autoreparam.errors import AutoreparamError, SamplingWarning, known
from autoreparam.render.table import Best, Table
from autoreparam.results.diagnostics import Efficiency, efficiency
from autoreparam.sampling import sample

if TYPE_CHECKING:
    import xarray

METHODS = ("centered", "noncentered", "interleaved", "vip", "auto")
COLUMNS = ("parameterization", "ESS / 1000 gradients", "with all costs", "divergences", "R-hat",
           "seconds")  # fmt: skip
MEASURED = 300  # the slowest scalars; ArviZ takes milliseconds for each


@dataclass(frozen=True)
class Run:
    """One parameterization: its draws, how good they are, how long they took."""

    tree: xarray.DataTree
    found: Efficiency
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The measures by name."""
        return {**self.found.to_dict(), "seconds": self.seconds}


def compare(
    model: Callable,
    args: tuple = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    methods: Iterable[str] = METHODS,
    console: Console | None = None,
    **settings: Any,
) -> dict[str, Run]:
    """A run of the model for each parameterization, with the same settings."""
    console = console or Console(stderr=True)
    methods = tuple(methods)
    for method in methods:  # all of them, before the first one runs
        if method not in METHODS:
            raise AutoreparamError(f"methods: expected one of {known(METHODS)}; found {method!r}")
    runs = {}
    for method in methods:
        with console.status(f"sampling, {method} ..."), warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplingWarning)  # the table shows the same
            began = time.perf_counter()
            tree = sample(model, args, dict(kwargs or {}), parameterization=method,
                          progress=False, **settings)  # fmt: skip
            seconds = time.perf_counter() - began
        runs[method] = Run(tree, efficiency(tree, most=MEASURED), seconds)
    return runs


def best(runs: Mapping[str, Run]) -> str:
    """The run with the most effective draws per gradient, all costs included."""
    return max(runs, key=lambda name: _or_zero(runs[name].found.ess_per_1000_total))


def table(runs: Mapping[str, Run]) -> Table:
    """One row per run, the best of them marked."""
    winner = best(runs)
    rows = []
    for name, run in runs.items():
        found = run.found
        row = (
            name,
            f"{found.ess_per_1000_sampling:.3g}",
            f"{found.ess_per_1000_total:.3g}",
            str(found.divergences),
            f"{found.r_hat:.3f}",
            f"{run.seconds:.1f}",
        )
        rows.append(tuple(map(Best, row)) if name == winner else row)
    return Table(COLUMNS, rows, numbers=True)


def _or_zero(value: float) -> float:
    return value if value == value else 0.0
