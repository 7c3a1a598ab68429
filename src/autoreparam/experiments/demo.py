"""`autoreparam demo`: every parameterization side by side on two small models, and a report."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from autoreparam import zoo
from autoreparam.experiments.compare import compare, table
from autoreparam.results.report import report

REPORTED = "unequal_groups"
STORIES = {
    "unequal_groups": (
        "Twenty groups: half with one observation, half with two thousand",
        "A group with little data is best non-centered, one with plenty of data centered. No "
        "single choice for the whole model suits both; one λ per group does.",
    ),
    "eight_schools": (
        "Eight schools",
        "Little data about each school: centered, the posterior is a funnel that is hard to "
        "sample, as the divergences show. For so small a model non-centered is already "
        "close to the best: learning λ costs little there, but gains nothing.",
    ),
}


def show(draws: int = 1000, seed: int = 0, path: Path = Path("autoreparam-demo.html")) -> None:
    """Samples both models in every parameterization, prints a table for each, writes a report."""
    console = Console(width=max(100, Console().width))
    for name, (title, story) in STORIES.items():
        problem = zoo.load(name)
        console.print(f"\n[bold]{title}[/bold]  ({name}, 4 chains, 500 + {draws} draws)")
        runs = compare(
            problem.model, problem.args, problem.kwargs,
            console=console, draws=draws, seed=seed,
        )  # fmt: skip
        console.print(table(runs).to_terminal())
        console.print(story)
        if name == REPORTED:
            others = {other: run.tree for other, run in runs.items() if other != "auto"}
            report(runs["auto"].tree, path, alternatives=others, title=title)
    console.print(
        "\nESS is the smallest effective sample size over all variables (bulk and tail); more is "
        "better. 'With all costs' includes the gradients of warm-up and learning.\n"
        "The first run of a model includes compiling it; the others share the compiled program."
    )
    console.print(f"\nThe twenty groups in pictures, λ group by group: open {path}", soft_wrap=True)
