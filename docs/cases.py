"""Case studies: the code of each page is run by the build, and its figures become pictures."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

import matplotlib.pyplot as plt

from autoreparam.errors import DataError

PAGES = Path(__file__).parent / "cases"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def pictures(svg: Callable, style: dict) -> dict[str, str]:
    """The figures of every case by the name of their file."""
    found = {}
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        wanted = re.findall(rf"pictures/(case-{page.stem}-\d+)\.svg", text)
        try:
            figures = run("\n".join(BLOCK.findall(text)), style)
        except DataError:
            figures = [notice() for _ in wanted]
        if len(figures) != len(wanted):
            raise ValueError(f"{page} shows {len(wanted)} pictures and draws {len(figures)}")
        found |= {f"pictures/{name}.svg": svg(figure) for name, figure in zip(wanted, figures)}
    return found


def run(code: str, style: dict) -> list:
    """The figures that a page's code draws."""
    plt.close("all")
    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        plt.rc_context(style),
        warnings.catch_warnings(),
        redirect_stdout(StringIO()),
    ):
        warnings.simplefilter("ignore")
        exec(compile(code, "case", "exec"), {})
    return [plt.figure(number) for number in plt.get_fignums()]


def notice():
    """A figure that says why there is none."""
    figure, ax = plt.subplots(figsize=(7, 1.2))
    ax.text(0.5, 0.5, "Not drawn in this build: its data set is not here.", ha="center", wrap=True)
    ax.set_axis_off()
    return figure
