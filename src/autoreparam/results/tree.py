"""Draws as an `xarray.DataTree` in the ArviZ schema, with λ and the gradient ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autoreparam.program.foreign import AxisLabels
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.program import Program
from autoreparam.results.geometry import worst_pairs
from autoreparam.results.labels import (
    Labels,
    as_names,
    by_site,
    dataset,
    described,
    origin,
    unique,
    versions,
)
from autoreparam.results.lam import Written, lam_dataset, lam_variables

if TYPE_CHECKING:
    import xarray

RESERVED = ("chain", "draw", "slot", "element")


@dataclass(frozen=True)
class Draws:
    """What a phase of a run produced, finished or interrupted."""

    values: Mapping[str, np.ndarray]  # (chain, draw, *shape): latents and deterministics
    stats: Mapping[str, np.ndarray]  # (chain, draw) or, interleaved, (chain, draw, slot)
    working: np.ndarray | None = None  # (chain, draw, element): kept if asked for
    position: np.ndarray | None = None  # the same, for the geometry of a few pairs


def to_tree(
    program: Program,
    sampling: Draws,
    *,
    warmup: Draws | None = None,
    parameterizations: Sequence[Parameterization],
    ledger: Mapping[str, int],
    observed: Mapping[str, Any],
    constant: Mapping[str, Any],
    attrs: Mapping[str, Any],
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str | None]] | None = None,
    brought: Iterable[AxisLabels] = (),
    var_names: Iterable[str] | None = None,
    log_likelihood: Mapping[str, np.ndarray] | None = None,
    posterior_predictive: Mapping[str, np.ndarray] | None = None,
) -> xarray.DataTree:
    """The run as a tree that ArviZ reads and that survives NetCDF and zarr.

    Sites keep their names (a "/" becomes a "."), plates name the dimensions; `dims`, `coords` and
    `var_names` mean what they mean in ArviZ. The root's attributes hold the ledger, the names of
    the latents and `attrs`.
    """
    from xarray import DataTree

    drawn = _shapes(program) | {n: np.shape(value)[2:] for n, value in sampling.values.items()}
    labels, keys, lam = labels_for(
        program, drawn, parameterizations, observed, constant, coords, dims, brought
    )
    kept = selected(drawn, var_names, labels)

    groups: dict[str, Any] = {}
    for prefix, phase in (("", sampling), ("warmup_", warmup)):
        if phase is None:
            continue
        values = {name: value for name, value in phase.values.items() if name in kept}
        groups[f"{prefix}posterior"] = labels.dataset(values, ("chain", "draw"))
        groups[f"{prefix}sample_stats"] = _sampled(phase.stats, "slot")
        if phase.working is not None:
            groups[f"{prefix}working"] = _sampled({"position": phase.working}, "element")
    if log_likelihood is not None:
        groups["log_likelihood"] = _likelihood(log_likelihood, observed, labels)
    if posterior_predictive is not None:
        groups["posterior_predictive"] = labels.dataset(posterior_predictive, ("chain", "draw"))
    groups["observed_data"] = labels.dataset(observed)
    groups["constant_data"] = labels.dataset(constant, sites=keys)
    several = len(parameterizations) > 1
    groups["parameterization"] = lam_dataset(
        lam, labels, ("slot",) if several else (), None if several else parameterizations[0].flat
    )
    tree = DataTree.from_dict(groups)
    latents = [labels.names[site.name] for site in program.latents if site.name in kept]
    tree.attrs = plain(
        {
            **origin(),
            **{f"gradients_{purpose}": int(count) for purpose, count in ledger.items()},
            "latents": latents,
            "model": getattr(program.structure.model, "__name__", ""),
            "sites": described(program, labels.names),
            "versions": versions(),
            **attrs,
        }
    )
    return tree


def add_geometry(tree: xarray.DataTree, program: Program, sampling: Draws) -> None:
    """Adds draws of the pairs that depend on each other most."""
    from xarray import DataTree

    if sampling.position is not None:
        hits = sampling.stats["diverging"]
        pairs = worst_pairs(program, sampling.values, sampling.position, hits)
        if pairs is not None:
            tree["geometry"] = DataTree(pairs)


def check_labels(
    program: Program,
    parameterizations: Sequence[Parameterization],
    observed: Mapping[str, Any],
    constant: Mapping[str, Any],
    coords: Mapping[str, Any] | None,
    dims: Mapping[str, Sequence[str | None]] | None,
    var_names: Iterable[str] | None,
    brought: Iterable[AxisLabels] = (),
) -> set[str]:
    """The variables to keep; rejects names and labels that would not fit the tree of this model."""
    drawn = _shapes(program)
    labels, _, _ = labels_for(
        program, drawn, parameterizations, observed, constant, coords, dims, brought
    )
    return selected(drawn, var_names, labels)


def _shapes(program: Program) -> dict[str, tuple[int, ...]]:
    """The shape of every variable of a model."""
    kinds = ("latent", "deterministic")
    return {site.name: site.shape for site in program.sites if site.kind in kinds}


def labels_for(
    program: Program,
    drawn: Mapping[str, tuple[int, ...]],
    parameterizations: Sequence[Parameterization],
    observed: Mapping[str, Any],
    constant: Mapping[str, Any],
    coords: Mapping[str, Any] | None,
    dims: Mapping[str, Sequence[str | None]] | None,
    brought: Iterable[AxisLabels],
    lead: Iterable[str] = (),
) -> tuple[Labels, dict[str, str], dict[str, Written]]:
    """Names of everything and of its axes, those of constants, and the variables of λ.

    `lead` names axes besides those of every run.
    """
    shapes = {site.name: site.shape for site in program.latents} | dict(drawn)
    shapes |= {name: np.shape(value) for name, value in observed.items()}
    # An argument of the model may share its name with a site and yet be something else.
    keys = {
        name: name if shapes.get(name, np.shape(value)) == np.shape(value) else f"{name}_constant"
        for name, value in constant.items()
    }
    shapes |= {keys[name]: np.shape(value) for name, value in constant.items()}
    names = unique(shapes, set())
    through = {
        site.name: names.get(site.implied.through, names[site.name])
        for site in program.candidates
        if site.implied is not None
    }
    lam = lam_variables(parameterizations, shapes, {**names, **through})
    taken = {*drawn, *observed, *lam, *RESERVED, *lead}
    return Labels.of(program, shapes, names, taken, coords or {}, dims or {}, brought), keys, lam


def _likelihood(found: Mapping[str, np.ndarray], observed: Mapping[str, Any], labels: Any) -> Any:
    """One value per observation, which for vectors means fewer axes than the observations have."""
    whole = {k: v for k, v in found.items() if np.shape(v)[2:] == np.shape(observed[k])}
    dataset = labels.dataset(whole, ("chain", "draw"))
    for name in found.keys() - whole.keys():
        axes = [f"{name}_log_likelihood_{i}" for i in range(np.ndim(found[name]) - 2)]
        dataset[name] = (("chain", "draw", *axes), found[name])
    return dataset


def plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as NetCDF and zarr keep them: strings, numbers and lists; None is left out."""
    return {name: _plain(value) for name, value in attrs.items() if value is not None}


def texts(value: Any) -> list[str]:
    """A list of names from the attributes, in whatever form a file format returned it."""
    return [str(name) for name in np.atleast_1d(np.asarray(value, dtype=object))]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if isinstance(value, str | float):
        return value
    if isinstance(value, tuple | list) and not any(isinstance(v, tuple | list) for v in value):
        return [_plain(entry) for entry in value]
    return json.dumps(value, default=str)


def selected(values, var_names: Iterable[str] | None, labels: Labels) -> set[str]:
    """The names among those drawn that `var_names` asks for; all where it is None."""
    if var_names is None:
        return set(values)
    asked = as_names(var_names)
    drawn = {name: labels.names[name] for name in values}
    return set(by_site(dict.fromkeys(asked), drawn, "var_names"))


def _sampled(values: Mapping[str, np.ndarray], third: str) -> xarray.Dataset:
    """Statistics per chain and draw; `third` names the axis after these, if there is one."""
    dims = {name: [third] for name, value in values.items() if np.ndim(value) == 3}
    return dataset(values, ("chain", "draw"), dims, {})
