"""`autoreparam reproduce`: the paper's experiments, figures and claims in one command."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Event

import rich.table
from rich.console import Console
from rich.live import Live

from autoreparam.disk import check_folder
from autoreparam.errors import AutoreparamError, DataError
from autoreparam.experiments import store
from autoreparam.experiments.budget import BUDGETS, METHODS, MODELS, batches, checked
from autoreparam.experiments.evidence import Claim
from autoreparam.experiments.problem import without_data
from autoreparam.experiments.protocol import run_models, unfinished
from autoreparam.experiments.store import Results
from autoreparam.experiments.threads import in_threads
from autoreparam.experiments.words import entry, gaps_in_words
from autoreparam.render.table import Table

AT_ONCE = 2  # models, or groups of models that run together


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
    """The paper's claims with verdicts, after running what `out` does not hold yet.

    Writes results, figures and a page into `out`. Models whose data cannot be loaded are left out,
    and named with the reason. After `time_limit` seconds it stops between cells; the same call
    continues from there. Without `page` it writes results only.
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
    out, began = check_folder(out, "out"), time.monotonic()

    stopped = Event()

    def stop() -> None:
        stopped.set()
        console.print("Stopping, once what is under way is done.")

    def out_of_time() -> bool:
        late = time_limit is not None and time.monotonic() - began > time_limit
        return late or stopped.is_set()

    stored = {name: store.load_or_begin(out, name, budget_) for name in models}
    gaps = without_data(unfinished(stored, methods))
    ready = tuple(name for name in models if name not in gaps)
    if not ready:
        raise DataError("no model can be run. " + " ".join(gaps_in_words(gaps)))
    for sentence in gaps_in_words(gaps):
        console.print(f"Left out: {sentence}", markup=False, highlight=False, soft_wrap=True)

    with _Board(console, methods) as board:

        def run(names: tuple[str, ...]) -> None:
            if out_of_time():
                return
            found, done = run_models(
                names, budget_, methods, out, note=partial(board.note, out), out_of_time=out_of_time
            )
            board.rows.update(found)
            if not done:
                board.note(out, names[0], "stopped; run the same command to continue")

        try:
            in_threads(run, batches(ready), AT_ONCE, stop)
        finally:
            some = [name for name in ready if name in unfinished(stored, methods)]
            store.add_seconds(out, some, time.monotonic() - began)
    if not page:
        return []
    from autoreparam.experiments.page import write_page  # it needs matplotlib

    claims = write_page(out, gaps)
    _print_claims(console, claims)
    console.print(f"\nThe page: {out / 'paper.html'} and {out / 'paper.md'}")
    return claims


class _Board:
    """A live table of the best cells so far, or plain lines without a terminal."""

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
        """Reports what got done, and updates the model's row."""
        self.status = f"{time.monotonic() - self.began:6.1f} s  {model}: {text}"
        found = store.load(out, model)
        if found is not None:
            self.rows[model] = found
        if not self.console.is_terminal:
            self.console.print(self.status)

    def _table(self) -> rich.table.Table:
        rows = []
        for model in MODELS:  # threads add rows meanwhile
            if (results := self.rows.get(model)) is None:
                continue
            cells = [results.best(method) for method in self.methods]
            top = max((cell["ess"] for cell in cells if cell), default=0.0)
            rows.append([model, *(entry(cell, top) for cell in cells)])
        table = Table(("model", *self.methods), rows, numbers=True)
        return table.to_terminal("ESS per 1000 gradients of sampling [leapfrog steps]", self.status)


def _print_claims(console: Console, claims: Sequence[Claim]) -> None:
    rows = [(claim.claim, claim.found, claim.verdict) for claim in claims]
    console.print(Table(("claim", "here", "verdict"), rows).to_terminal("The paper's claims"))
