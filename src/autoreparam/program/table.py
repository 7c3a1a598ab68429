"""The table of sites as text for a terminal and as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from autoreparam.program.site import Site

HEADER = ("site", "kind", "distribution", "shape", "support", "depends on", "reparameterized")


def rows(sites: Iterable[Site]) -> list[tuple[str, ...]]:
    """One row of words per site, in the order of `HEADER`."""
    return [
        (
            site.name,
            site.kind,
            site.distribution,
            "x".join(map(str, site.shape)) or "scalar",
            site.support,
            ", ".join(site.parents),
            _verdict(site),
        )
        for site in sites
    ]


def _verdict(site: Site) -> str:
    if site.kind != "latent":
        return ""
    return f"{'yes' if site.candidate else 'no'}: {site.note}"


def as_text(sites: Iterable[Site]) -> str:
    """The table with aligned columns."""
    table = [HEADER, *rows(sites)]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in table]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def as_html(sites: Iterable[Site]) -> str:
    """The table as HTML; names come from users and are escaped."""
    head = "".join(f"<th>{cell}</th>" for cell in HEADER)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows(sites)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
