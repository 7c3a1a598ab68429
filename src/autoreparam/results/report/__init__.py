"""A run as one self-contained page: `report`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoreparam.disk import check_place, write_text
from autoreparam.errors import AutoreparamError
from autoreparam.keywords import helpful
from autoreparam.results.lam import check_tree
from autoreparam.results.report.content import gather
from autoreparam.results.report.page import render

if TYPE_CHECKING:
    import xarray


@helpful
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
    path = check_place(path, "report")
    others = alternatives or {}
    if not isinstance(others, Mapping):
        raise AutoreparamError(
            "alternatives: expected a dict of runs by name, {'centered': tree}; found "
            f"{type(others).__name__}"
        )
    check_tree(tree)
    for name, other in others.items():
        check_tree(other, f"alternatives['{name}']")
    write_text(path, render(gather(tree, others, title)))
    return path
