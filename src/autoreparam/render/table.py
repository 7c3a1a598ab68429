"""A table as text, as HTML, as Markdown and for a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import rich.markup
import rich.table
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

WIDEST = 100_000  # columns: text is never wrapped


class Html(str):
    """A cell that is HTML already; every other cell is escaped."""


class Best(str):
    """A cell that stands out in a terminal and in Markdown."""


@dataclass(frozen=True)
class Table:
    """Rows of words under a header; the first cell of a row is its heading."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: bool = False  # in all columns but the first, which are then aligned to the right

    def to_text(self) -> str:
        """Aligned columns, as wide as they need to be, with a line under the header."""
        table = rich.table.Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        self._add_columns(table, no_wrap=True)
        table.add_row(*(Rule(characters="-", style="none") for _ in self.header))
        for row in self.rows:
            table.add_row(*map(Text, row))
        with io.StringIO() as text:
            Console(file=text, width=WIDEST, color_system=None, force_jupyter=False).print(table)
            return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def to_html(self, caption: str = "", kind: str = "") -> str:
        """A table for a notebook; with a caption, inside a region of a page that can scroll."""
        head = "".join(f'<th scope="col">{_html(cell)}</th>' for cell in self.header)
        body = "".join(
            f'<tr><th scope="row">{_html(first)}</th>'
            + "".join(f"<td>{_html(cell)}</td>" for cell in rest)
            + "</tr>"
            for first, *rest in self.rows
        )
        inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        if not caption:
            return f"<table>{inside}</table>"
        said = escape(caption)
        return (
            f'<div class="wide" tabindex="0" role="region" aria-label="{said}">'
            f'<table class="{kind}"><caption>{said}</caption>{inside}</table></div>'
        )

    def to_markdown(self) -> str:
        """A table of Markdown; so may be its cells."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        return "\n".join("| " + " | ".join(map(_markdown, line)) + " |" for line in lines)

    def to_terminal(self, title: str = "", caption: str = "") -> rich.table.Table:
        """A table with lines around it, for a console of rich."""
        table = rich.table.Table(
            title=rich.markup.escape(title) or None, caption=rich.markup.escape(caption) or None
        )
        self._add_columns(table, no_wrap=False)
        for row in self.rows:
            table.add_row(*(Text(cell, _style(cell)) for cell in row))
        return table

    def _add_columns(self, table: rich.table.Table, no_wrap: bool) -> None:
        for place, cell in enumerate(self.header):
            number = self.numbers and place > 0
            table.add_column(
                Text(cell),
                justify="right" if number else "left",
                no_wrap=no_wrap or (self.numbers and place == 0),
                overflow="fold",
            )


def _style(cell: str) -> str:
    return "bold green" if isinstance(cell, Best) else ""


def _html(cell: str) -> str:
    return cell if isinstance(cell, Html) else escape(cell)


def _markdown(cell: str) -> str:
    text = cell.replace("|", "\\|").replace("\n", " ")
    return f"**{text}**" if isinstance(cell, Best) else text
