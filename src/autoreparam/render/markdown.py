"""Markdown as a page for a browser."""

from __future__ import annotations

from html import escape

from markdown_it import MarkdownIt

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; }
table { display: block; overflow-x: auto; border-collapse: collapse; margin: 1rem 0;
  font-size: 0.9rem; }
th, td { border-bottom: 1px solid #ddd; padding: 0.3rem 0.6rem; text-align: left;
  vertical-align: top; }
th { border-bottom: 2px solid #888; }
img { max-width: 100%; }
p:has(> img) + p { font-size: 0.9rem; color: #444; }
code { background: #f3f3f3; padding: 0 0.2em; }
"""


def to_page(title: str, markdown: str) -> str:
    """The Markdown as one HTML document; HTML inside of it is shown, not obeyed."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}</body>\n</html>\n"
    )
