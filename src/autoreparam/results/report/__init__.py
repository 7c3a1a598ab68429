"""A run as one self-contained page: `report`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoreparam.results.report.content import gather
from autoreparam.results.report.page import render

if TYPE_CHECKING:
    import xarray


def report(
    tree: xarray.DataTree,
    path: Any = "report.html",
    *,
    alternatives: Mapping[str, xarray.DataTree] | None = None,
    title: str | None = None,
) -> Path:
    """Writes one self-contained page about a run, and returns its path.

    It has a verdict, estimates, simulated data beside the observed (where the tree has a
    `posterior_predictive`), what to do about problems, the table of sites, λ element by element,
    the geometry before and after, the cost, and traces of the worst variables.

    >>> ar.report(tree, "report.html", alternatives={"centered": other})

    Args:
        tree: A run, as `ar.sample` returns it.
        path: Where to write the page.
        alternatives: Other runs of the model by name, whose efficiency is shown beside it; None for
            none.
        title: The heading; None takes the name of the model.
    """
    path = Path(path)
    path.write_text(render(gather(tree, alternatives or {}, title)), encoding="utf-8")
    return path
