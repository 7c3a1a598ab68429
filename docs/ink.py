"""How figures of the documentation look, and how they become files."""

from __future__ import annotations

import io

import matplotlib.pyplot as plt

INK = {"axes.edgecolor": "#888", "text.color": "#777", "axes.labelcolor": "#777",
       "xtick.color": "#888", "ytick.color": "#888", "svg.hashsalt": "autoreparam",
       "font.size": 10}  # readable on white and on black  # fmt: skip


def svg(figure) -> str:
    """A figure as SVG text, transparent and the same at every build."""
    with io.StringIO() as text:
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)
        return text.getvalue()
