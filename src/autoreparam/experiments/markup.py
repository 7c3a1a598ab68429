"""A page as a list of blocks, written as Markdown and as HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem; }
th, td { border-bottom: 1px solid #ddd; padding: 0.3rem 0.6rem; text-align: left;
  vertical-align: top; }
th { border-bottom: 2px solid #888; }
img { max-width: 100%; }
figcaption { font-size: 0.9rem; color: #444; }
code { background: #f3f3f3; padding: 0 0.2em; }
.wide { overflow-x: auto; }
"""


@dataclass(frozen=True)
class Heading:
    """A title; level 1 is the page's."""

    level: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    """Some text; `code` and **bold** are marked as in Markdown."""

    text: str


@dataclass(frozen=True)
class Code:
    """Lines to be copied."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows under a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """A picture in the folder of figures, by name, and what it shows."""

    name: str
    caption: str


def to_markdown(blocks: Sequence[Any]) -> str:
    """The page as Markdown."""
    return "\n\n".join(map(_markdown, blocks)) + "\n"


def to_html(blocks: Sequence[Any]) -> str:
    """The page as one HTML document beside its folder of figures."""
    title = next(block.text for block in blocks if isinstance(block, Heading))
    body = "\n".join(map(_html, blocks))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _markdown(block: Any) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {text}"
        case Paragraph(text):
            return text
        case Code(text):
            return f"```console\n{text}\n```"
        case Bullets(items):
            return "\n".join(f"- {item}" for item in items)
        case Table(header, rows):
            lines = [header, ["---"] * len(header), *rows]
            return "\n".join("| " + " | ".join(_cell(c) for c in line) + " |" for line in lines)
        case Figure(name, caption):
            return f"![{caption}](figures/{name}.svg)\n\n*{caption}*"
    raise TypeError(f"no block of a page: {block!r}")


def _html(block: Any) -> str:
    match block:
        case Heading(level, text):
            return f"<h{level}>{_inline(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{_inline(text)}</p>"
        case Code(text):
            return f"<pre><code>{escape(text)}</code></pre>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
        case Table(header, rows):
            head = "".join(f"<th>{_inline(cell)}</th>" for cell in header)
            body = "".join(
                "<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>\n"
                for row in rows
            )
            return f'<div class="wide"><table><tr>{head}</tr>\n{body}</table></div>'
        case Figure(name, caption):
            return (
                f'<figure><img src="figures/{name}.svg" alt="{escape(caption)}">'
                f"<figcaption>{_inline(caption)}</figcaption></figure>"
            )
    raise TypeError(f"no block of a page: {block!r}")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _inline(text: str) -> str:
    text = escape(text, quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", text)
    return re.sub(r"\[([^\]]+)\]\(([^)]+)\)", r'<a href="\2">\1</a>', text)
