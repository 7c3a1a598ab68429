"""Small plots as SVG text: scatter, traces, ranks. Colors come from the page's style."""

from __future__ import annotations

from html import escape

import numpy as np

TRACE_POINTS = 300
RANK_BINS = 20


def scatter(
    x: np.ndarray, y: np.ndarray, marked: np.ndarray, labels: tuple[str, str], said: str
) -> str:
    """Points as dots, the marked ones as crosses; axes with their extreme values."""
    width, height = 320, 280
    pad = _margin(y)
    px, py = _to(x, pad, width - 8), _to(y, height - pad, 8)
    dots = "".join(f"M{a} {b}h0" for a, b in zip(px[~marked], py[~marked]))
    crosses = "".join(f"M{a - 3} {b - 3}l6 6m0 -6l-6 6" for a, b in zip(px[marked], py[marked]))
    return frame_svg(
        width,
        height,
        said,
        f'<rect class="frame" x="{pad}" y="8" width="{width - 8 - pad}" '
        f'height="{height - pad - 8}"/>'
        f'<path class="dots" d="{dots}"/><path class="hits" d="{crosses}"/>'
        + _x_axis(x, labels[0], pad, width - 8, height)
        + _y_axis(y, labels[1], pad, height - pad, 8),
    )


def traces(draws: np.ndarray, said: str) -> str:
    """One line per chain over the draws, (chain, draw)."""
    width, height = 480, 180
    pad = _margin(draws)
    take = np.unique(np.linspace(0, draws.shape[1] - 1, TRACE_POINTS).astype(int))
    shown = draws[:, take]
    px = _to(take.astype(float), pad, width - 8)
    py = _to(shown, height - 20, 6)
    lines = "".join(
        f'<path class="line chain{chain % 4}" d="M{_joined(px, row)}"/>'
        for chain, row in enumerate(py)
    )
    frame = (
        f'<rect class="frame" x="{pad}" y="6" width="{width - 8 - pad}" height="{height - 26}"/>'
    )
    return frame_svg(
        width,
        height,
        said,
        frame
        + lines
        + _x_axis(take.astype(float), "draw", pad, width - 8, height)
        + _y_axis(shown, "", pad, height - 20, 6),
    )


def ranks(draws: np.ndarray, said: str) -> str:
    """The distribution of the ranks of each chain's draws: level where chains agree."""
    chains, count = draws.shape
    order = np.argsort(np.argsort(draws.ravel())).reshape(chains, count)
    bins = min(RANK_BINS, max(2, count // 5))
    heights = np.stack(
        [np.histogram(row, bins, range=(0, chains * count))[0] / (count / bins) for row in order]
    )
    width, height, pad = 480, 180, 12
    top = max(2.0, float(heights.max()))
    edges = np.round(np.linspace(pad, width - 8, bins + 1), 1)
    level = round(height - 20 - (height - 26) / top, 1)
    parts = []
    for chain, row in enumerate(heights):
        y = np.round(height - 20 - (height - 26) * row / top, 1)
        steps = "".join(f"H{a:g}V{b:g}" for a, b in zip(edges[1:-1], y[1:]))
        parts.append(
            f'<path class="line chain{chain % 4}" d="M{edges[0]:g} {y[0]:g}{steps}H{edges[-1]:g}"/>'
        )
    return frame_svg(
        width,
        height,
        said,
        f'<rect class="frame" x="{pad}" y="6" width="{width - 8 - pad}" height="{height - 26}"/>'
        f'<path class="level" d="M{pad} {level}H{width - 8}"/>'
        + "".join(parts)
        + f'<text x="{width / 2}" y="{height - 5}" text-anchor="middle">rank</text>',
    )


def frame_svg(width: int, height: int, said: str, inside: str) -> str:
    """A picture that says what it shows to those who cannot see it."""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(said)}">{inside}</svg>'
    )


def _to(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Values mapped to pixels, to a tenth."""
    least, most = _span(values)
    part = (np.nan_to_num(np.asarray(values, float), nan=least) - least) / (most - least)
    return np.round(low + np.clip(part, 0, 1) * (high - low), 1)


def _span(values: np.ndarray) -> tuple[float, float]:
    finite = np.asarray(values, float)[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    least, most = float(finite.min()), float(finite.max())
    return (least, most) if most > least else (least - 0.5, most + 0.5)


def _margin(values: np.ndarray) -> int:
    """Room for the numbers beside an axis."""
    return max(40, 12 + 7 * max(len(f"{end:.2g}") for end in _span(values)))


def _joined(px: np.ndarray, py: np.ndarray) -> str:
    return "L".join(f"{a:g} {b:g}" for a, b in zip(px, py))


def _x_axis(values: np.ndarray, label: str, low: float, high: float, height: int) -> str:
    least, most = _span(values)
    y = height - 5
    return (
        f'<text x="{low}" y="{y}">{least:.3g}</text>'
        f'<text x="{(low + high) / 2}" y="{y}" text-anchor="middle">{escape(label)}</text>'
        f'<text x="{high}" y="{y}" text-anchor="end">{most:.3g}</text>'
    )


def _y_axis(values: np.ndarray, label: str, left: float, low: float, high: float) -> str:
    least, most = _span(values)
    x, middle = left - 4, (low + high) / 2
    turned = (
        f'<text transform="translate({x - 6} {middle}) rotate(-90)" text-anchor="middle">'
        f"{escape(label)}</text>"
    )
    return (
        f'<text x="{x}" y="{low}" text-anchor="end">{least:.2g}</text>'
        f'<text x="{x}" y="{high + 8}" text-anchor="end">{most:.2g}</text>'
    ) + (turned if label else "")
