"""λ in a tree: the group `parameterization`, written and read back.

Each variable of the group says in its attributes whose it is, `site`, and what it is, `part`: "lam"
(of the location), "scale", "reference", "tail", "origin", or "grip" with the label of a root. Its
name is for people: that of the site, with the part behind it, and underscores where something else
is called so already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autoreparam.errors import AutoreparamError, known
from autoreparam.program.centering import Centering
from autoreparam.program.flat import Flat
from autoreparam.program.maps.gain import GEOMETRIC
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.parameterization_file import flat_entry, flat_of
from autoreparam.results.labels import Labels
from autoreparam.results.scalars import scalar_names

if TYPE_CHECKING:
    import xarray

ENDINGS = {
    "lam": "", "scale": "_scale", "reference": "_reference", "tail": "_tail", "origin": "_origin"
}  # fmt: skip
GRIP = "grip "  # the part of a root, before its label
COLUMNS = {"λ": "lam", "λ scale": "scale"}  # of a summary

Parts = dict[str, dict[str, "xarray.DataArray"]]  # by site, then by part


@dataclass(frozen=True)
class SiteLam:
    """λ of the elements of one site, each with its name."""

    variable: str
    shape: tuple[int, ...]
    labels: list[str]
    lam: np.ndarray  # flat


# -- writing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """One variable of the group: a part of λ of one site, in the shape of the site's value."""

    site: str
    part: str
    values: np.ndarray
    gain: str


def lam_variables(
    parameterizations: Sequence[Parameterization],
    shapes: Mapping[str, tuple[int, ...]],
    names: Mapping[str, str],
) -> dict[str, Written]:
    """The variables of the group by name; those of several parameterizations are stacked.

    `shapes` and `names` are those of everything in the tree, by site.
    """
    result: dict[str, Written] = {}
    for site in parameterizations[0].sites:
        lams = [p.of(site) for p in parameterizations]
        parts = {"lam": [lam.loc for lam in lams]}
        if any(not np.array_equal(lam.loc, lam.scale) for lam in lams):
            parts["scale"] = [lam.scale for lam in lams]
        parts["reference"] = [lam.reference for lam in lams]
        if lams[0].tail is not None:
            parts["tail"] = [lam.tail for lam in lams]
        if lams[0].origin is not None:
            parts["origin"] = [lam.origin for lam in lams]
        if lams[0].grip is not None:
            parts |= {f"{GRIP}{root}": [lam.grip[root] for lam in lams] for root in lams[0].grip}
        for part, given in parts.items():
            name = names[site] + _ending(part)
            while part != "lam" and (name in names.values() or name in result):
                name += "_"
            own = np.shape(lams[0].loc)
            values = [_padded(np.asarray(one), own, shapes[site]) for one in given]
            result[name] = Written(
                site, part, np.stack(values) if len(values) > 1 else values[0], lams[0].gain
            )
    return result


def _ending(part: str) -> str:
    if part.startswith(GRIP):
        label = part.removeprefix(GRIP).replace("/", ".")  # as in the names of sites
        return f"_grip_{label}" if label else "_grip"
    return ENDINGS[part]


def lam_dataset(
    written: Mapping[str, Written],
    labels: Labels,
    lead: tuple[str, ...] = (),
    flat: Flat | None = None,
) -> xarray.Dataset:
    """The group, its axes named as those of the sites; `lead` names the axes before these."""
    result = labels.dataset(
        {name: variable.values for name, variable in written.items()},
        lead,
        sites={name: variable.site for name, variable in written.items()},
    )
    for name, variable in written.items():
        result[name].attrs |= {"site": variable.site, "part": variable.part, "gain": variable.gain}
    if flat is not None:
        result.attrs["flat"] = json.dumps(flat_entry(flat))
    return result


def _padded(part: np.ndarray, own: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """λ in the shape of the value; NaN where a value has more elements than are free."""
    full = np.full(shape, np.nan, part.dtype)
    full[tuple(slice(size) for size in own)] = part
    return full


# -- reading ----------------------------------------------------------------------------------


def parameterization(tree: xarray.DataTree, slot: int = -1) -> Parameterization:
    """The final parameterization of a run, to save or reuse.

    An interleaved run has several: `slot` says which.

    >>> lam = ar.parameterization(tree)
    >>> lam.save("lam.json")
    >>> tree = ar.sample(model, args, kwargs, parameterization=lam)

    Args:
        tree: A run, as `ar.sample` returns it.
        slot: Which of an interleaved run's two; the last by default.
    """
    check_tree(tree)
    if "parameterization" not in tree:
        raise AutoreparamError(f"the tree has no group 'parameterization'; it has {known(tree)}")
    count = slot_count(tree)
    if not isinstance(slot, int) or not -count <= slot < count:
        raise AutoreparamError(
            f"slot: expected a number from {-count} to {count - 1}; found {slot!r}"
        )
    found, group = _of_slot(tree, slot), tree["parameterization"]
    flat = flat_of(json.loads(group.attrs.get("flat", "null")))
    sites = {site: _centering(parts) for site, parts in found.items()}
    return Parameterization.by_site(sites, flat)


def lam_by_site(tree: xarray.DataTree, slot: int = -1) -> list[SiteLam]:
    """λ of every reparameterized site, in the order of the model."""
    lams = [parts["lam"] for parts in _of_slot(tree, slot).values()]
    return [SiteLam(str(v.name), v.shape, scalar_names(v), v.values.ravel()) for v in lams]


def lam_columns(tree: xarray.DataTree, counts: Mapping[str, int]) -> dict[str, np.ndarray]:
    """λ of each scalar, one column per slot, and λ of the scale where any site has one of its own.

    `counts` has the number of scalars of each variable of the table.
    """
    by_variable = {str(parts["lam"].name): parts for parts in lam_parts(tree).values()}
    for entry in json.loads(tree.attrs.get("sites", "[]")):  # what a table leaves out has its site
        if entry.get("through") and entry["through"].replace("/", ".") not in counts:
            by_variable[entry["variable"]] = lam_parts(tree).get(entry["name"], {})
    slots = slot_count(tree)
    columns = {}
    for title, part in COLUMNS.items():
        blocks = [np.empty((slots, 0))]
        for name, count in counts.items():
            lam = by_variable.get(name, {}).get(part)
            values = np.full(slots * count, np.nan) if lam is None else lam.values
            blocks.append(values.reshape(slots, count))
        table = np.concatenate(blocks, axis=1)
        if np.isfinite(table).any():
            for slot, row in enumerate(table):
                columns[f"{title} [{slot}]" if slots > 1 else title] = row
    return columns


def lam_parts(tree: xarray.DataTree) -> Parts:
    """The variables of the group by site and part; none where there is no such group."""
    check_tree(tree)
    if "parameterization" not in tree:
        return {}
    group = tree["parameterization"].to_dataset()
    found: Parts = {}
    for variable in group.data_vars.values():
        if "part" in variable.attrs:
            found.setdefault(variable.attrs["site"], {})[variable.attrs["part"]] = variable
    found = {site: parts for site, parts in found.items() if "lam" in parts}
    return found or _parts_by_name(tree, group)


def check_tree(tree: Any, what: str = "tree") -> None:
    """Raises unless this is a run: the tree that `ar.sample` gives back."""
    from xarray import DataTree

    if not isinstance(tree, DataTree):
        raise AutoreparamError(
            f"{what}: expected a run, the DataTree that ar.sample gives back; found "
            f"{type(tree).__name__}"
        )
    if "datasets" in tree.attrs and "dataset" in tree["posterior"].dims:
        raise AutoreparamError(
            f"{what}: expected a single run; found {tree.attrs['datasets']} of ar.sample_many. "
            "Choose one: tree.isel(dataset=0)."
        )


def slot_count(tree: xarray.DataTree) -> int:
    """How many parameterizations the run had: more than one if it was interleaved."""
    return int(tree["parameterization"].sizes.get("slot", 1)) if "parameterization" in tree else 0


def sites(tree: xarray.DataTree) -> list[dict[str, Any]]:
    """What the run recorded about each site."""
    check_tree(tree)
    if "sites" not in tree.attrs:
        raise AutoreparamError(
            "the tree does not say what its sites are: was it made by ar.sample, and kept whole "
            f"with its attributes? It has {known(tree.attrs)}"
        )
    return json.loads(tree.attrs["sites"])


def _parts_by_name(tree: xarray.DataTree, group: xarray.Dataset) -> Parts:
    """The same in a tree whose variables do not say what they are, as earlier versions wrote it."""
    entries = json.loads(tree.attrs.get("sites", "[]"))
    own = {entry["variable"]: entry["name"] for entry in entries if entry["candidate"]}
    found: Parts = {}
    for variable, site in own.items():
        if variable not in group:
            continue
        found[site] = {"lam": group[variable]}
        for part in list(ENDINGS)[1:]:
            stem = variable + ENDINGS[part]
            for name in set(map(str, group.data_vars)) - set(own):
                if name.startswith(stem) and not name[len(stem) :].strip("_"):
                    found[site][part] = group[name]
    return found


def _of_slot(tree: xarray.DataTree, slot: int) -> Parts:
    """One parameterization, its sites in the order of the model: a file may have sorted them."""
    found = lam_parts(tree)
    order = [entry["name"] for entry in sites(tree) if entry["name"] in found] if found else []
    return {site: _own_elements(found[site], slot) for site in order}


def _own_elements(parts: Mapping[str, xarray.DataArray], slot: int) -> dict[str, xarray.DataArray]:
    """The variables of a site in one slot, without the elements of its value that have no λ."""
    here = {
        part: variable.isel(slot=slot) if "slot" in variable.dims else variable
        for part, variable in parts.items()
    }
    there = np.argwhere(np.isfinite(here["lam"].values))
    own = tuple(slice(len(np.unique(axis))) for axis in there.T)
    return {part: variable[own] for part, variable in here.items()}


def _centering(parts: Mapping[str, xarray.DataArray]) -> Centering:
    values = {part: variable.values for part, variable in parts.items()}
    loc = values["lam"]
    scale, reference = values.get("scale", loc), values.get("reference", 1.0)
    gain = parts["lam"].attrs.get("gain", GEOMETRIC)
    grip = {part.removeprefix(GRIP): own for part, own in values.items() if part.startswith(GRIP)}
    tail, origin = values.get("tail"), values.get("origin")
    return Centering(loc, scale, reference, tail, origin, grip or None, gain=gain)
