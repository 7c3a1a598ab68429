"""Pictures of estimates and of checks as SVG text."""

from __future__ import annotations

from html import escape

import numpy as np

from autoreparam.results.report.estimates import Check, Estimates
from autoreparam.results.report.svg import frame_svg

ROW, LETTER = 18, 7.4  # pixels per row, and per letter of a label


def forest(found: Estimates) -> str:
    """One line per scalar: its central 90%, its mean as a dot, and a rule at zero."""
    low, mean, high = (found.numbers[key] for key in ("5%", "mean", "95%"))
    shown = np.isfinite(low) & np.isfinite(high)
    if not shown.any():
        return ""
    width, height = 520, ROW * len(found.labels) + 34
    left = min(240.0, 12 + LETTER * max(map(len, found.labels)))
    least, most = min(0.0, low[shown].min()), max(0.0, high[shown].max())
    span = most - least or 1.0

    def place(value: float) -> float:
        return round(left + (width - 16 - left) * (value - least) / span, 1)

    parts = [f'<path class="level" d="M{place(0.0)} 4V{height - 26}"/>']
    for row, label in enumerate(found.labels):
        y = ROW * row + 14
        short = label if len(label) <= 32 else f"{label[:15]}…{label[-16:]}"  # both ends tell
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{escape(short)}</text>')
        if shown[row]:
            parts.append(
                f'<path class="interval" d="M{place(low[row])} {y}H{place(high[row])}"/>'
                f'<circle class="dot" cx="{place(mean[row])}" cy="{y}" r="3.5"/>'
            )
    ends = [(least, "start"), (most, "end")]
    inner = 0.15 * span < -least < 0.85 * span
    for value, anchor in [*ends, (0.0, "middle")] if inner else ends:
        parts.append(
            f'<text x="{place(value)}" y="{height - 8}" text-anchor="{anchor}">{value:.3g}</text>'
        )
    return frame_svg(width, height, "Mean and central 90% of each scalar", "".join(parts))


def check_picture(check: Check) -> str:
    """The share of values up to x: a band for the simulated data, a line for the observed."""
    width, height, left = 480, 240, 40
    span = check.x[-1] - check.x[0] or 1.0
    px = np.round(left + (width - 8 - left) * (check.x - check.x[0]) / span, 1)

    def line(share: np.ndarray) -> list[str]:
        py = np.round(height - 24 - (height - 32) * share, 1)
        return [f"{a:g} {b:g}" for a, b in zip(px, py)]

    band = "L".join([*line(check.low), *line(check.high)[::-1]])
    data = "L".join(line(check.observed))
    inside = (
        f'<rect class="frame" x="{left}" y="8" width="{width - 8 - left}" height="{height - 32}"/>'
        f'<path class="band" d="M{band}Z"/><path class="data" d="M{data}"/>'
        f'<text x="{left - 4}" y="16" text-anchor="end">1</text>'
        f'<text x="{left - 4}" y="{height - 24}" text-anchor="end">0</text>'
        f'<text x="{left}" y="{height - 6}">{check.x[0]:.3g}</text>'
        f'<text x="{(left + width) / 2}" y="{height - 6}" text-anchor="middle">'
        f"{escape(check.name)}</text>"
        f'<text x="{width - 8}" y="{height - 6}" text-anchor="end">{check.x[-1]:.3g}</text>'
    )
    said = f"Share of values of {check.name} up to each number: observed and simulated"
    return frame_svg(width, height, said, inside)
