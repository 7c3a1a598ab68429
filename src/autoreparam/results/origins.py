"""Which elements of a model's latents a run has drawn, and which are new."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from autoreparam.errors import AutoreparamError, ModelError, known
from autoreparam.program.foreign import AxisLabels
from autoreparam.program.predictive import NEW, Origin
from autoreparam.program.program import Program
from autoreparam.program.site import Site

if TYPE_CHECKING:
    import xarray


def find_variable(group: Any, site: str) -> Any:
    """The draws of a site, whose name a tree may not have been able to hold; None if not there.

    Chains and draws come first, in whatever order a tree has them.
    """
    for name, variable in group.data_vars.items():
        if variable.attrs.get("site", name) == site:
            return variable.transpose("chain", "draw", ..., missing_dims="ignore")
    return None


def is_same_run(tree: xarray.DataTree, given: Mapping[str, Any]) -> bool:
    """Whether the arguments are those of the run, but for data that are left out."""
    seen: dict[Any, Any] = {}
    for group in ("constant_data", "observed_data"):
        seen |= tree[group].data_vars if group in tree.children else {}
    constants = set(tree["constant_data"].data_vars) if "constant_data" in tree.children else set()
    return constants <= set(given) and all(
        _alike(value, seen[name])
        if name in constants
        else any(_alike(value, other) for other in seen.values())
        for name, value in given.items()
    )


def _alike(value: Any, stored: Any) -> bool:
    value, stored = np.asarray(value), np.asarray(stored)
    return value.shape == stored.shape and np.allclose(value, stored, rtol=1e-6, equal_nan=True)


def find_origins(
    program: Program,
    tree: xarray.DataTree,
    data: Collection[str],
    coords: Mapping[str, Any],
    new: Collection[str] | None,
    same_run: bool,
) -> dict[str, Origin]:
    """For each latent that the run has drawn, where its elements come from."""
    posterior, sampled = tree["posterior"], _sampled_by(tree)
    rows = {plate for name in data for plate, _ in program[name].plates}
    choose = _Choice(coords, new, same_run, rows)
    origins = {}
    for site in program.sites:
        if site.kind not in ("latent", "discrete") or site.name in data:
            continue
        variable = find_variable(posterior, site.name)
        if variable is not None:
            origins[site.name] = choose.origin(site, variable)
        elif site.name in sampled:
            raise AutoreparamError(
                f"the run sampled '{site.name}', but its draws were not kept: predictions need "
                "every latent. Sample without var_names."
            )
    choose.refuse_unknown()
    _refuse_another_model(program, posterior, {*origins, *data})
    return origins


def _refuse_another_model(program: Program, posterior: Any, found: set[str]) -> None:
    """Raises if latents of the model have no draws, and draws have no site of the model."""
    lost = [s.name for s in program.sites if s.kind == "latent" and s.name not in found]
    sites = {site.name for site in program.sites}
    own = {name: v.attrs.get("site", name) for name, v in posterior.data_vars.items()}
    left = [name for name, site in own.items() if site not in sites]
    if lost and left:
        raise ModelError(
            f"the draws are of another model: they have no {known(lost)}, and this model has no "
            f"{known(left)}"
        )


def refuse_unplaced(
    brought: Iterable[AxisLabels],
    placed: Mapping[str, np.ndarray],
    chosen: Collection[str],
    tree: xarray.DataTree,
    plates: Mapping[str, int],
) -> None:
    """Raises if words of a column, numbered by themselves, would be taken for other elements.

    They name elements of the run, but do not label their plate: their number is another, or fits
    several plates. Where labels were `chosen`, these count.
    """
    for labels in brought:
        words = labels.values.tolist()
        for dim, coord in tree["posterior"].coords.items():
            there = {word for word in coord.values.tolist() if isinstance(word, str)}
            if not there or (labels.name != dim and not there & set(words)):
                continue
            if dim in chosen or set(placed.get(str(dim), ())) == set(words):
                continue
            size = plates.get(str(dim))
            remedy = f"Give the plate {len(words)}, or list the words of all elements: " + (
                "pandas.Categorical(column, all_words)"
            )
            if size == len(words):
                remedy = f"Name the column '{dim}', or pass coords={{'{dim}': words}}"
            raise ModelError(
                f"'{labels.name or 'a column'}' holds the words {known(words[:3])}"
                f"{', ...' if len(words) > 3 else ''} ({len(words)} in all), and plate '{dim}' has "
                f"{size} here: it is not clear which elements they are. {remedy}."
            )


def _sampled_by(tree: xarray.DataTree) -> set[str]:
    """Every latent of the run, kept or not, if it was made here."""
    sites = json.loads(tree.attrs.get("sites", "[]"))
    return {site["name"] for site in sites if site["kind"] == "latent"}


class _Choice:
    """Decides axis by axis which elements are those of the run."""

    def __init__(self, coords, new, same_run: bool, rows: set[str]):
        self.coords, self.new, self.same_run, self.rows = coords, new, same_run, rows
        self.dims: set[str] = set()

    def origin(self, site: Site, variable: Any) -> Origin:
        dims, lengths = variable.dims[2:], variable.shape[2:]
        self.dims |= {str(dim) for dim in dims}
        if len(lengths) != len(site.shape):
            raise ModelError(
                f"site '{site.name}' has shape {site.shape} here and {lengths} in the draws: is it "
                "another model?"
            )
        plates = {len(site.shape) + axis: plate for plate, axis in site.plates}
        return Origin(
            tuple(
                self._axis(site, variable, axis, str(dim), plates.get(axis))
                for axis, dim in enumerate(dims)
            )
        )

    def _axis(self, site: Site, variable: Any, axis: int, dim: str, plate: str | None) -> Any:
        here, there = site.shape[axis], variable.shape[2 + axis]
        independent = axis < len(site.shape) - site.event_dim
        if self.new is not None and (dim in self.new or plate in self.new):
            return np.full(here, NEW)
        labels = self.coords.get(dim, self.coords.get(plate))
        if labels is not None and dim in variable.coords and independent:
            found = _by_label(labels, variable.coords[dim].values, here, dim)
            if found is not None:
                return found
        if self.same_run and here == there:
            return np.arange(here)
        time = site.loop is not None and axis == 0
        if not time and plate is None and here != there:
            raise ModelError(
                f"site '{site.name}' has shape {site.shape} here, and {variable.shape[2:]} in the "
                "draws. Only elements of a plate, or steps of a scan, can be added or left out: "
                f"put it in a numpyro.plate, or pass new=['{dim}'] to draw all of it anew."
            )
        if plate in self.rows and self.new is None:
            raise ModelError(
                f"are the {here} elements of plate '{plate}' those of the run, which had {there}? "
                f"'{site.name}' has a value for each. Pass new=['{plate}'] (--new {plate}) if "
                "they are new, new=[] (--same) if they are the same in the same order, or label "
                f"them: coords={{'{dim}': ...}} in ar.sample and here."
            )
        return np.where(np.arange(here) < there, np.arange(here), NEW)

    def refuse_unknown(self) -> None:
        for name in self.new or ():
            if name not in self.dims:
                raise AutoreparamError(
                    f"new: '{name}' is not a plate or dimension of the draws; those are "
                    f"{known(sorted(self.dims))}"
                )


def _by_label(labels: Any, drawn: np.ndarray, length: int, dim: str) -> np.ndarray | None:
    """The places of labels among those of the draws; None where the draws have only numbers."""
    if np.shape(labels) != (length,):
        raise AutoreparamError(
            f"coords: dimension '{dim}' has {length} elements; found labels of shape "
            f"{np.shape(labels)}"
        )
    here, there = list(np.asarray(labels).tolist()), drawn.tolist()
    if here and there and not isinstance(here[0], type(there[0])):
        if there == list(range(len(there))):
            return None
        raise AutoreparamError(
            f"coords: dimension '{dim}' has labels like {there[0]!r} in the draws and {here[0]!r} "
            "here, so that no element would be the same. Use labels of the same type; "
            f"new=['{dim}'] if all are new."
        )
    place = {label: number for number, label in enumerate(there)}
    return np.asarray([place.get(label, NEW) for label in here])
