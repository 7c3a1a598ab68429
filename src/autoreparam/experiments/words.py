"""Models, results and gaps in words, the same on the page and in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoreparam.render.table import Best

TITLES = {
    "german_credit": "German credit",
    "eight_schools": "Eight schools",
    "election88": "Election '88",
    "electric": "Electric",
}


def title_of(model: str) -> str:
    """The name of a model on a page."""
    return TITLES.get(model, model.replace("radon_", "Radon "))


def entry(cell: Mapping[str, Any] | None, top: float, by: str = "ess") -> str:
    """ESS with its error and the number of leapfrog steps; the top one stands out."""
    if cell is None:
        return "-"
    error = cell["error" if by == "ess" else "arviz_error"]
    text = f"{cell[by]:.3g} ± {error:.2g} [{cell['num_steps']}]"
    return Best(text) if cell[by] == top else text


def gaps_in_words(gaps: Mapping[str, str]) -> list[str]:
    """A sentence per reason for which models were left out, with all their names."""
    return [
        f"{', '.join(title_of(model) for model in gaps if gaps[model] == why)}: {why}"
        for why in dict.fromkeys(gaps.values())
    ]
