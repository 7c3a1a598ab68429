"""`autoreparam reproduce`: the paper's experiments, figures and claims by one command."""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from autoreparam.errors import AutoreparamError
from autoreparam.experiments import store
from autoreparam.experiments.budget import BUDGETS, METHODS, MODELS, batches, checked
from autoreparam.experiments.evidence import Claim
from autoreparam.experiments.protocol import run_models
from autoreparam.experiments.store import Results


def reproduce(
    budget: str = "quick",
    models: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    out: str | Path = "paper",
    *,
    time_limit: float | None = None,
    page: bool = True,
    console: Console | None = None,
) -> list[Claim]:
    """The paper's claims as judged, after running what `out` does not hold yet.

    Writes results, figures and a page into `out`. After `time_limit` seconds it stops between
    cells; the same call goes on from there. Without `page` it only runs.
    """
    console = console or Console()
    budget_ = BUDGETS[checked((budget,), BUDGETS, "budget")[0]]
    models = checked(tuple(models or ()), MODELS, "model")
    methods = checked(tuple(methods or ()), METHODS, "method")
    if page and importlib.util.find_spec("matplotlib") is None:
        raise AutoreparamError(
            "The figures of the page need the package 'matplotlib', which is not installed. "
            'Run: pip install "autoreparam[plots]"; or run without a page.'
        )
    out, began = Path(out), time.monotonic()

    def out_of_time() -> bool:
        return time_limit is not None and time.monotonic() - began > time_limit

    with _Board(console, methods) as board:
        for names in batches(models):
            if out_of_time():
                break
            found, done = run_models(
                names, budget_, methods, out, note=partial(board.note, out), out_of_time=out_of_time
            )
            board.rows.update(found)
            if not done:
                board.note(out, names[0], "out of time; the same command goes on from here")
    if not page:
        return []
    from autoreparam.experiments.page import write_page  # it needs matplotlib

    claims = write_page(out)
    _print_claims(console, claims)
    console.print(f"\nThe page: {out / 'paper.html'} and {out / 'paper.md'}")
    return claims


class _Board:
    """A live table of the best cell so far; plain lines where there is no terminal."""

    def __init__(self, console: Console, methods: Sequence[str]):
        self.console, self.methods = console, methods
        self.rows: dict[str, Results] = {}
        self.began = time.monotonic()
        self.status = ""
        self.live = Live(console=console, refresh_per_second=4, get_renderable=self._table)

    def __enter__(self) -> _Board:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.console.is_terminal:
            self.live.stop()
        elif self.rows:
            self.console.print(self._table())

    def note(self, out: Path, model: str, text: str) -> None:
        """Says what got done, and brings the model's row up to date."""
        self.status = f"{time.monotonic() - self.began:6.1f} s  {model}: {text}"
        found = store.load(out, model)
        if found is not None:
            self.rows[model] = found
        if not self.console.is_terminal:
            self.console.print(self.status)

    def _table(self) -> Table:
        table = Table(title="ESS per 1000 gradients of sampling [leapfrog steps]")
        table.caption = self.status
        table.add_column("model", no_wrap=True)
        for method in self.methods:
            table.add_column(method, justify="right")
        for model, results in self.rows.items():
            cells = [results.best(method) for method in self.methods]
            top = max((cell["ess"] for cell in cells if cell), default=0.0)
            table.add_row(model, *(_entry(cell, top) for cell in cells))
        return table


def _entry(cell: dict | None, top: float) -> str:
    if cell is None:
        return ""
    text = f"{cell['ess']:.3g} ± {cell['error']:.2g} \\[{cell['num_steps']}]"
    return f"[bold green]{text}[/]" if cell["ess"] == top else text


def _print_claims(console: Console, claims: Sequence[Claim]) -> None:
    table = Table(title="The paper's claims")
    for column in ("claim", "here", "verdict"):
        table.add_column(column, overflow="fold")
    for claim in claims:
        table.add_row(claim.claim, claim.found, claim.verdict)
    console.print(table)


def main() -> None:
    """The same as `autoreparam reproduce`, with argparse: `python -m` needs no typer."""
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    for name in BUDGETS:
        size.add_argument(f"--{name}", dest="budget", action="store_const", const=name)
    parser.add_argument("--model", action="append", choices=list(MODELS))
    parser.add_argument("--method", action="append", choices=METHODS)
    parser.add_argument("--out", default="paper")
    parser.add_argument("--time-limit", type=float, help="seconds, after which it stops cleanly")
    parser.add_argument("--no-page", dest="page", action="store_false", help="run, write no page")
    given = parser.parse_args()
    reproduce(
        given.budget or "quick", given.model, given.method, given.out,
        time_limit=given.time_limit, page=given.page, console=Console(width=120),
    )  # fmt: skip


if __name__ == "__main__":
    main()
