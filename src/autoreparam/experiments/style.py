"""How the figures look: one color and one marker per method; each saved as PNG and SVG."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl

from autoreparam.disk import replacing

mpl.use("Agg", force=False)

import matplotlib.pyplot as plt

# Okabe and Ito's palette, chosen for color-blind readers.
COLORS = {
    "CP": "#0072B2",
    "NCP": "#D55E00",
    "iHMC": "#009E73",
    "VIP": "#CC79A7",
    "dVIP": "#E69F00",
    "auto": "#000000",
}
MARKERS = {"CP": "s", "NCP": "D", "iHMC": "^", "VIP": "o", "dVIP": "v", "auto": "*"}


def styled() -> AbstractContextManager:
    """Settings for print."""
    return mpl.rc_context(
        {
            "figure.dpi": 100,
            "savefig.dpi": 200,
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            "legend.handletextpad": 0.3,
            "legend.columnspacing": 1.2,
            "figure.constrained_layout.use": True,
            "svg.hashsalt": "autoreparam",  # the same data give the same file
        }
    )


def save(figure: Any, folder: Path, name: str) -> None:
    """Writes a figure as PNG and SVG, and closes it."""
    folder.mkdir(parents=True, exist_ok=True)
    for ending in ("png", "svg"):
        date = {"Date": None} if ending == "svg" else None
        with replacing(folder / f"{name}.{ending}") as beside:
            figure.savefig(beside, format=ending, metadata=date)
    plt.close(figure)
