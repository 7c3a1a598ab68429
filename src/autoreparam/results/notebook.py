"""Progress in a notebook: one small table that is redrawn in place and stays as it ended."""

from __future__ import annotations

import time
from typing import Any

from autoreparam.render.table import Html, Table

REDRAW = 0.25  # seconds


class NotebookLines:
    """Rich's progress, drawn by IPython: in a notebook, rich leaves empty output behind."""

    def __init__(self) -> None:
        self._tasks: list[dict[str, Any]] = []
        self._shown: Any = None
        self._drawn = 0.0

    def start(self) -> None:
        """Nothing is shown before there is a task."""

    def stop(self) -> None:
        """Draws the last state, which stays."""
        if self._tasks:
            self._draw()

    def add_task(self, name: str, total: int | None, said: str) -> int:
        """Opens a line; one without a total has nothing to count."""
        now = time.monotonic()
        self._tasks.append({"name": name, "total": total, "done": 0, "said": said, "began": now})
        self._draw()
        return len(self._tasks) - 1

    def stop_task(self, task: int) -> None:
        """Stops the clock of a line."""
        self._tasks[task]["seconds"] = time.monotonic() - self._tasks[task]["began"]
        self._draw()

    def remove_task(self, task: int) -> None:
        """Leaves a line out."""
        self._tasks[task]["name"] = None
        self._draw()

    def update(self, task: int, completed: int, said: str) -> None:
        """Advances a line; it is redrawn a few times per second at most."""
        self._tasks[task] |= {"done": completed, "said": said}
        if time.monotonic() - self._drawn > REDRAW:
            self._draw()

    def to_html(self) -> str:
        """The lines as a table."""
        rows = []
        for task in self._tasks:
            if task["name"] is None:
                continue
            seconds = task.get("seconds", time.monotonic() - task["began"])
            bar, count = Html(""), ""
            if task["total"] is not None:
                bar = Html(f'<progress value="{task["done"]}" max="{task["total"]}"></progress>')
                count = f"{task['done']:,}/{task['total']:,}"
            rows.append((task["name"], bar, count, task["said"], f"{seconds:.0f} s"))
        return Table(("", "", "draws", "", "time"), rows).to_html()

    def _draw(self) -> None:
        from IPython.display import HTML, display

        self._drawn = time.monotonic()
        page = HTML(self.to_html())
        if self._shown is None:
            self._shown = display(page, display_id=True)
        else:
            self._shown.update(page)
