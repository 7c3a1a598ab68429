"""λ read back from a tree: as a parameterization, and element by element for pictures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autoreparam.errors import AutoreparamError, known
from autoreparam.program.parameterization import Parameterization
from autoreparam.results.scalars import scalar_names

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class SiteLam:
    """λ of the elements of one site, each with its name."""

    variable: str
    shape: tuple[int, ...]
    labels: list[str]
    lam: np.ndarray  # flat


def parameterization(tree: xarray.DataTree, slot: int = -1) -> Parameterization:
    """The parameterization that a run ended with, to keep or to use again.

    An interleaved run has several: `slot` says which.

    >>> lam = ar.parameterization(tree)
    >>> lam.save("lam.json")
    >>> tree = ar.sample(model, args, kwargs, parameterization=lam)
    """
    group = _one_slot(tree, slot)
    taken = {str(name) for part in tree.children.values() for name in part.data_vars}
    taken -= set(map(str, group.data_vars))
    taken |= {entry["variable"] for entry in sites(tree)}
    maps: tuple[dict[str, Any], ...] = ({}, {}, {}, {})
    for entry in sites(tree):
        if entry["kind"] != "latent" or not entry["candidate"]:
            continue
        for found, ending in zip(maps, ("", "_scale", "_reference", "_tail")):
            name = entry["variable"] + ending
            while ending and name in taken:
                name += "_"
            if name in group:
                found[entry["name"]] = group[name].values
    return Parameterization(*maps)


def lam_by_site(tree: xarray.DataTree, slot: int = -1) -> list[SiteLam]:
    """λ of every reparameterized site, in the order of the model."""
    if "parameterization" not in tree:
        return []
    group = _one_slot(tree, slot)
    moved = [entry["variable"] for entry in sites(tree) if entry["candidate"]]
    return [
        SiteLam(name, group[name].shape, scalar_names(group[name]), group[name].values.ravel())
        for name in moved
        if name in group
    ]


def sites(tree: xarray.DataTree) -> list[dict[str, Any]]:
    """What the run has written down about each site."""
    if "sites" not in tree.attrs:
        raise AutoreparamError(
            "the tree does not say what its sites are: was it made by ar.sample, and kept whole "
            f"with its attributes? It has {known(tree.attrs)}"
        )
    return json.loads(tree.attrs["sites"])


def _one_slot(tree: xarray.DataTree, slot: int) -> xarray.Dataset:
    if "parameterization" not in tree:
        raise AutoreparamError(f"the tree has no group 'parameterization'; it has {known(tree)}")
    group = tree["parameterization"].to_dataset()
    return group.isel(slot=slot) if "slot" in group.dims else group
