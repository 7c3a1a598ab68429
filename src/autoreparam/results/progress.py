"""One line of progress per phase: draws, divergences, step size, ESS so far, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from autoreparam.results.notebook import NotebookLines

if TYPE_CHECKING:
    from rich.console import Console

NOTICED = 0.5  # seconds; what takes less leaves no line behind


class Progress:
    """Progress lines in a terminal or a notebook; nothing in a log, or when switched off.

    >>> with Progress() as bar, bar.phase("sampling", 1000):
    ...     bar.update(100, divergences=0, step_size=0.3)
    """

    def __init__(self, enabled: bool = True, console: Console | None = None):
        self._lines = _lines(console) if enabled else None
        self._task: Any = None

    @property
    def visible(self) -> bool:
        """Whether the lines are shown."""
        return self._lines is not None

    def __enter__(self) -> Progress:
        if self._lines is not None:
            self._lines.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        # On Ctrl-C too, so that the cursor comes back and the drawing thread ends.
        if self._lines is not None:
            self._lines.stop()

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[None]:
        """Opens a progress line that `update` advances until the phase ends."""
        if self._lines is None:
            yield
            return
        before, self._task = self._task, self._lines.add_task(name, total=total, said="")
        try:
            yield
        finally:
            self._lines.stop_task(self._task)
            self._task = before

    @contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """Opens a line for what has no steps to count: its name and the seconds so far."""
        if self._lines is None:
            yield
            return
        began, task = time.monotonic(), self._lines.add_task(name, total=None, said="")
        try:
            yield
        finally:
            self._lines.stop_task(task)
            if time.monotonic() - began < NOTICED:
                self._lines.remove_task(task)

    def update(
        self,
        done: int,
        divergences: int | None = None,
        step_size: float | None = None,
        ess: float | None = None,
    ) -> None:
        """Shows how many draws of the phase are done, and what else is known."""
        if self._lines is None or self._task is None:
            return
        said = []
        if divergences is not None:
            said.append(f"divergences {divergences}")
        if step_size is not None:
            said.append(f"step size {step_size:.2g}")
        if ess is not None:
            said.append(f"ESS {ess:.0f}")
        self._lines.update(self._task, completed=done, said="  ".join(said))


def _lines(console: Console | None) -> Any:
    """The live display, or None where it would not be seen."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Task, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Lines
    from rich.text import Text

    class Amount(MofNCompleteColumn):
        """Draws done of all; or, where there is nothing to count, seconds."""

        def render(self, task: Task) -> Text:
            """The text of one line."""
            return super().render(task) if task.total else Text(f"{task.elapsed or 0:.0f} s")

    # Variables such as FORCE_COLOR make rich mistake a log for a terminal.
    seen = console is not None or sys.stderr.isatty()
    console = console or Console(stderr=True)
    if console.is_jupyter:
        return NotebookLines()
    if not (seen and console.is_interactive):
        return None
    return Lines(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        Amount(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        refresh_per_second=4,
        speed_estimate_period=600,  # chunks may be minutes apart
    )
