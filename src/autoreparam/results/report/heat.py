"""λ of every element as colored cells, with its value on hover, with arrow keys and in a table."""

from __future__ import annotations

from html import escape
from itertools import pairwise

import numpy as np

from autoreparam.results.lam import SiteLam

CELLS = 600  # per site; with more elements, a cell stands for several
STOPS = ((0x44, 0x39, 0x83), (0x31, 0x68, 0x8E), (0x21, 0x91, 0x8C), (0x5E, 0xC9, 0x62),
         (0xFD, 0xE7, 0x25))  # viridis without its black end  # fmt: skip


def color(lam: float) -> str:
    """The color of a λ: violet for 0, yellow for 1."""
    place = float(np.clip(lam, 0, 1)) * (len(STOPS) - 1)
    low = min(int(place), len(STOPS) - 2)
    mixed = (a + (b - a) * (place - low) for a, b in zip(STOPS[low], STOPS[low + 1]))
    return "#" + "".join(f"{round(part):02x}" for part in mixed)


def heat_map(site: SiteLam) -> str:
    """The cells of one site; a matrix keeps its rows."""
    cells = _cells(site)
    if not cells:
        return ""
    columns = site.shape[-1] if len(site.shape) > 1 and len(cells) == len(site.labels) else 0
    style = f' style="grid-template-columns:repeat({columns},1.1rem)"' if columns else ""
    inside = "".join(
        f'<i style="background:{color(lam)}" data-tip="{escape(said)}"></i>' for lam, said in cells
    )
    said = f"λ of {site.variable}: {_range(site.lam)}. Arrow keys move between elements."
    return (
        f'<div class="heat{" matrix" if columns else ""}" tabindex="0" role="img" '
        f'aria-label="{escape(said)}" data-columns="{columns}"{style}>{inside}</div>'
    )


def legend() -> str:
    """The color scale."""
    shades = ",".join(color(part) for part in np.linspace(0, 1, 9))
    return (
        '<div class="legend"><span>0, non-centered</span>'
        f'<span class="bar" style="background:linear-gradient(90deg,{shades})"></span>'
        "<span>1, centered (the model as written)</span></div>"
    )


def _cells(site: SiteLam) -> list[tuple[float, str]]:
    count = len(site.lam)
    if count <= CELLS:
        return [
            (float(lam), f"{label}: λ = {lam:.2f}") for label, lam in zip(site.labels, site.lam)
        ]
    edges = np.unique(np.linspace(0, count, CELLS + 1).astype(int))
    return [
        (
            float(site.lam[a:b].mean()),
            f"{site.labels[a]} to {site.labels[b - 1]}: λ = {site.lam[a:b].mean():.2f} "
            f"({_range(site.lam[a:b])})",
        )
        for a, b in pairwise(edges)
    ]


def _range(lam: np.ndarray) -> str:
    low, high = float(lam.min()), float(lam.max())
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
