"""Plots of a run for notebooks, with matplotlib: λ, geometry, efficiency.

The plots of `arviz_plots` take the tree too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from autoreparam.errors import AutoreparamError, known
from autoreparam.results.diagnostics import efficiency as measured_efficiency
from autoreparam.results.lam import lam_by_site
from autoreparam.results.report.content import worst_pair

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

__all__ = ["efficiency", "geometry", "parameterization"]

COLUMNS = 100  # cells per row; longer sites continue in the next row


def parameterization(tree: xarray.DataTree, *, slot: int = -1, ax: Axes | None = None) -> Axes:
    """A heat map of λ, one cell per element: 0 is non-centered, 1 centered.

    >>> ar.plots.parameterization(tree)

    Args:
        tree: A run, as `ar.sample` returns it.
        slot: Which of an interleaved run's two; the last by default.
        ax: Where to draw; None makes a figure.
    """
    sites = [site for site in lam_by_site(tree, slot) if len(site.lam)]
    if not sites:
        raise AutoreparamError("the run has no λ: no site of its model can be reparameterized")
    rows: list[np.ndarray] = []
    ticks, labels = [], []
    for site in sites:
        width = site.shape[-1] if len(site.shape) > 1 else COLUMNS
        ticks.append(len(rows))
        labels.append(f"{site.variable} [{', '.join(map(str, site.shape))}]")
        rows += [site.lam[i : i + width] for i in range(0, len(site.lam), width)]
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for line, row in zip(table, rows):
        line[: len(row)] = row
    ax = ax or _axes(figsize=(8, 1.2 + 0.25 * len(rows)))
    image = ax.imshow(table, vmin=0, vmax=1, cmap="viridis", aspect="auto", interpolation="none")
    ax.set_yticks(ticks, labels)
    ax.set_xlabel("element")
    ax.locator_params(axis="x", integer=True)
    ax.figure.colorbar(image, ax=ax, label="λ")
    return ax


def geometry(
    tree: xarray.DataTree, site: str | None = None, *, axes: Any = None
) -> tuple[Axes, Axes]:
    """Draws of the worst pair (overall, or of one site), before and after, with divergences marked.

    >>> before, after = ar.plots.geometry(tree, "theta")

    Args:
        tree: A run, as `ar.sample` returns it.
        site: The site to look at; None takes the most dependent pair.
        axes: Where to draw; None makes a figure.
    """
    pair = worst_pair(tree, site)
    if pair is None:
        there = tree["geometry"].to_dataset()["child"].values if "geometry" in tree else ()
        raise AutoreparamError(
            f"the run has no pair to show{f' for {site!r}' if site else ''}; it has {known(there)}"
        )
    before, after = axes if axes is not None else _axes(1, 2, figsize=(9, 4))
    for ax, (x, y), size, title in (
        (before, pair.before, pair.dependence[0], "as the model is written"),
        (after, pair.after, pair.dependence[1], "as the sampler saw it"),
    ):
        ax.plot(x[~pair.diverging], y[~pair.diverging], ".", alpha=0.4, markersize=4)
        ax.plot(x[pair.diverging], y[pair.diverging], "x", color="C3", label="divergence")
        ax.set(xlabel=pair.child, ylabel=pair.parent, title=f"{title} (dependence {size:.2f})")
    if pair.diverging.any():
        before.legend()
    return before, after


def efficiency(
    runs: xarray.DataTree | Mapping[str, xarray.DataTree], *, ax: Axes | None = None
) -> Axes:
    """ESS per 1000 gradients of one or more runs: for sampling alone, and with all costs.

    >>> ar.plots.efficiency({"auto": tree, "centered": other})

    Args:
        runs: A run, or runs by name.
        ax: Where to draw; None makes a figure.
    """
    # A DataTree is a mapping too: its keys are group names.
    named: Any = runs
    if hasattr(runs, "attrs"):
        named = {str(runs.attrs.get("parameterization", "run")): runs}
    if not isinstance(named, Mapping):
        raise AutoreparamError(
            f"runs: expected a run, or a dict of runs by name; found {type(runs).__name__}"
        )
    found = {name: measured_efficiency(tree, most=300) for name, tree in named.items()}
    place = np.arange(len(found))
    ax = ax or _axes(figsize=(7, 1 + 0.6 * len(found)))
    sampling = [e.ess_per_1000_sampling for e in found.values()]
    total = [e.ess_per_1000_total for e in found.values()]
    ax.barh(place - 0.2, sampling, height=0.38, label="sampling", color="C0", alpha=0.5)
    ax.barh(place + 0.2, total, height=0.38, label="all costs", color="C0")
    ax.set_yticks(place, list(found))
    ax.invert_yaxis()
    ax.set_xlabel("ESS per 1000 gradients")
    ax.legend()
    return ax


def _axes(*shape: int, figsize: tuple[float, float]) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise AutoreparamError(
            'plots need matplotlib, which is not installed. Run: pip install "autoreparam[plots]"'
        ) from error
    return plt.subplots(*shape, figsize=figsize, layout="constrained")[1]
