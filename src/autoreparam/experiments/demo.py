"""`autoreparam demo`: every parameterization side by side on two small models."""

from __future__ import annotations

import time
import warnings
from typing import Any

from rich.console import Console
from rich.table import Table

from autoreparam import zoo
from autoreparam.errors import SamplingWarning
from autoreparam.results.diagnostics import efficiency
from autoreparam.sampling import sample

METHODS = ("centered", "noncentered", "interleaved", "vip", "auto")
STORIES = {
    "unequal_groups": (
        "Twenty groups: half with one observation, half with two thousand",
        "A group with little data wants to be non-centered, one with much data centered. "
        "No single choice for the whole model can serve both; λ per group can.",
    ),
    "eight_schools": (
        "Eight schools",
        "Few data about each school: the funnel that centering leaves is hard to sample, and "
        "R-hat and divergences show it.",
    ),
}


def show(draws: int = 1000, seed: int = 0) -> None:
    """Samples both models in each parameterization and prints a table for each."""
    console = Console(width=max(100, Console().width))
    for name, (title, story) in STORIES.items():
        problem = zoo.load(name)
        console.print(f"\n[bold]{title}[/bold]  ({name}, 4 chains, NUTS, 500 + {draws} draws)")
        table = Table()
        table.add_column("parameterization", no_wrap=True)
        for column in ("ESS / 1000 gradients", "with all costs", "divergences", "R-hat", "seconds"):
            table.add_column(column, justify="right")
        rows = []
        for method in METHODS:
            with console.status(f"sampling, {method} ..."):
                rows.append(_row(problem, method, draws, seed))
        best = max(rows, key=lambda row: row["total"])
        for row in rows:
            style = "bold green" if row is best else None
            table.add_row(*_cells(row), style=style)
        console.print(table)
        console.print(story)
    console.print(
        "\nESS is the smallest effective sample size over all variables (bulk and tail); more is "
        "better. 'With all costs' counts the gradients of warm-up and learning too.\n"
        "The first run of a model includes compiling it; the others share the compiled program."
    )


def _row(problem: Any, method: str, draws: int, seed: int) -> dict[str, Any]:
    began = time.perf_counter()
    with warnings.catch_warnings():  # the table says it all
        warnings.simplefilter("ignore", SamplingWarning)
        tree = sample(
            problem.model,
            problem.args,
            problem.kwargs,
            parameterization=method,
            kernel="nuts",
            draws=draws,
            seed=seed,
            progress=False,
        )
    seconds = time.perf_counter() - began
    found = efficiency(tree)
    return {
        "method": method,
        "sampling": found.ess_per_1000_sampling,
        "total": found.ess_per_1000_total,
        "divergences": found.divergences,
        "r_hat": found.r_hat,
        "seconds": seconds,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["method"],
        f"{row['sampling']:.1f}",
        f"{row['total']:.1f}",
        str(row["divergences"]),
        f"{row['r_hat']:.3f}",
        f"{row['seconds']:.1f}",
    ]
