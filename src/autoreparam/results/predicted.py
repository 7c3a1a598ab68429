"""Predictions as a tree, in groups named as ArviZ names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autoreparam.program.foreign import AxisLabels, fitting
from autoreparam.program.predictive import NEW, Origin
from autoreparam.program.program import Program
from autoreparam.results.labels import Labels, origin, unique, versions
from autoreparam.results.origins import find_variable
from autoreparam.results.scalars import COLUMNS, estimate
from autoreparam.results.summary import Summary
from autoreparam.results.tree import RESERVED, plain

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Predicted:
    """What was simulated, and from what."""

    program: Program
    values: Mapping[str, np.ndarray]  # (chain, draw, *shape)
    data: frozenset[str]  # sites that are observed, here or in the run
    origins: Mapping[str, Origin]
    constant: Mapping[str, Any]


def to_predictions(
    found: Predicted,
    draws: xarray.DataTree | None,
    same_run: bool,
    coords: Mapping[str, Any] | None,
    dims: Mapping[str, Any] | None,
    brought: Iterable[AxisLabels] = (),
) -> xarray.DataTree:
    """`prior` and `prior_predictive`, or `posterior_predictive`, or `predictions`.

    Dimensions and labels are those of the run where nothing else is said.
    """
    from xarray import DataTree

    sites = [site for site in found.program.sites if site.kind != "factor"]
    shapes = {site.name: site.shape for site in sites}
    constant = {name: value for name, value in found.constant.items() if name not in found.data}
    keys = {name: name if name not in shapes else f"{name}_constant" for name in constant}
    shapes |= {keys[name]: np.shape(value) for name, value in constant.items()}
    names = unique(shapes, set())
    dims = _dims_of(draws, found.program) | dict(dims or {})
    theirs = fitting(brought, found.program.plates)
    coords = _coords_of(draws, found.origins, set(theirs)) | dict(coords or {})
    taken = {*(site.name for site in sites), *RESERVED}
    labels = Labels.of(found.program, shapes, names, taken, coords, dims, brought)
    values = found.values
    data = {name: value for name, value in values.items() if name in found.data}
    rest = {name: value for name, value in values.items() if name not in found.data}
    lead = ("chain", "draw")
    groups: dict[str, Any] = {}
    if draws is None:
        groups["prior"] = labels.dataset(rest, lead)
        groups["prior_predictive"] = labels.dataset(data, lead)
    elif same_run:
        groups["posterior_predictive"] = labels.dataset(data, lead)
        groups |= {"posterior": labels.dataset(rest, lead)} if rest else {}
    else:
        groups["predictions"] = labels.dataset(values, lead)
    place = "constant_data" if draws is None or same_run else "predictions_constant_data"
    groups[place] = labels.dataset(constant, sites=keys)
    tree = DataTree.from_dict(groups)
    model = getattr(found.program.structure.model, "__name__", "")
    tree.attrs = plain({**origin(), "model": model, "versions": versions()})
    return tree


def _dims_of(draws: xarray.DataTree | None, program: Program) -> dict[str, list[str | None]]:
    """The dimensions that the run's variables have, without those made up for want of a name."""
    dims = {}
    for group in ("observed_data", "posterior"):
        if draws is None or group not in draws.children:
            continue
        lead = 2 if group == "posterior" else 0
        for site in program.sites:
            variable = find_variable(draws[group], site.name)
            if variable is not None and variable.ndim - lead == len(site.shape):
                own = [str(dim) for dim in variable.dims[lead:]]
                dims[site.name] = [
                    None if dim.startswith(f"{variable.name}_dim_") else dim for dim in own
                ]
    return dims


def _coords_of(
    draws: xarray.DataTree | None, origins: Mapping[str, Origin], labeled: set[str]
) -> dict[str, Any]:
    """The labels of the run's elements, where all elements here are the run's."""
    coords: dict[str, Any] = {}
    for name, source in origins.items() if draws is not None else ():
        variable = find_variable(draws["posterior"], name)  # type: ignore[index]
        for dim, axis in zip(variable.dims[2:], source.axes):
            if dim in variable.coords and dim not in labeled and (axis != NEW).all():
                labels = variable.coords[dim].values[axis]
                if not np.array_equal(labels, np.arange(len(axis))):
                    coords[str(dim)] = labels
    return coords


# -- as a table -------------------------------------------------------------------------------

GROUPS = ("predictions", "posterior_predictive", "prior_predictive")


def predicted_group(tree: xarray.DataTree) -> xarray.DataTree | None:
    """What a tree of predictions is about; None for the tree of a run."""
    children = getattr(tree, "children", {})
    if "sample_stats" in children:
        return None
    return next((children[group] for group in GROUPS if group in children), None)


def predicted_summary(group: xarray.DataTree, names: Iterable[str]) -> Summary:
    """One row per scalar of the variables: mean, sd and the central 90%."""
    labels, columns = [], {key: [np.empty(0)] for key in COLUMNS[:4]}
    for name in names:
        found, numbers = estimate(group.dataset[name])
        labels += found
        for key, values in numbers.items():
            columns[key].append(values)
    joined = {key: np.concatenate(parts) for key, parts in columns.items()}
    return Summary(tuple(labels), joined, f"{group.name}: mean, sd and the central 90%")
