"""Names for the variables of a tree and for their axes."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from autoreparam.errors import AutoreparamError, known
from autoreparam.program.foreign import AxisLabels, fitting
from autoreparam.program.program import Program

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Labels:
    """Names for every variable and each of its axes, the same in all groups."""

    names: dict[str, str]  # site -> variable: the same name unless a tree cannot hold it
    dims: dict[str, list[str]]  # site -> dimensions of its own axes
    coords: dict[str, np.ndarray]

    @classmethod
    def of(
        cls,
        program: Program,
        shapes,
        names,
        taken: set[str],
        coords,
        dims,
        brought: Iterable[AxisLabels] = (),
    ) -> Labels:
        """Plates name the axes of sites; what the user asks for takes precedence.

        Axes of constants are those of the only plate of their length. Labels that the arguments
        have brought are taken where they fit and nothing else is said.
        """
        plates, sizes = _plates(program, shapes)
        renamed = unique(sorted(sizes), taken)
        asked = by_site(dims, names, "dims")
        constants = set(shapes) - {site.name for site in program.sites}
        plates |= {name: _plates_by_length(shapes[name], sizes) for name in constants}
        chosen = {
            name: _axes(
                name,
                shape,
                [plate and renamed[plate] for plate in plates.get(name, [None] * len(shape))],
                asked.get(name) or (),
                taken | constants if name in constants else taken,
            )
            for name, shape in shapes.items()
        }
        lengths = _sizes(shapes, chosen)
        offered = {renamed[plate]: own for plate, own in fitting(brought, sizes).items()}
        asked_coords = {renamed.get(dim, dim): values for dim, values in coords.items()}
        taken_over = {dim: own for dim, own in offered.items() if lengths.get(dim) == len(own)}
        return cls(names, chosen, _coords(taken_over | asked_coords, lengths))

    def dataset(self, values, lead: tuple[str, ...] = (), sites=None) -> xarray.Dataset:
        """Variables of sites as a dataset; `lead` names the axes before the site's own."""
        variables = {name: self.names.get(name, name) for name in values}
        dims = {
            # In its own group a constant may have the name of a plate.
            variable: [
                f"{variable}_dim_{axis}" if dim in variables.values() else dim
                for axis, dim in enumerate(self.dims[sites[name] if sites else name])
            ]
            for name, variable in variables.items()
        }
        arrays = {variable: values[name] for name, variable in variables.items()}
        result = dataset(arrays, lead, dims, self.coords)
        for name, variable in variables.items():
            if variable != name:
                result[variable].attrs["site"] = name
        return result


def unique(names: Iterable[str], taken: set[str]) -> dict[str, str]:
    """A unique name for each that a tree can hold."""
    names, result = list(names), dict[str, str]()
    for name in names:
        free = name.replace("/", ".")
        if free in taken:
            free += "_dim"
        while free in taken or free in result.values() or (free != name and free in names):
            free += "_"
        result[name] = free
    return result


def _plates(program: Program, shapes) -> tuple[dict[str, list[str | None]], dict[str, int]]:
    """For each site, the plate of each axis where its values vary along it; lengths of plates."""
    sizes: dict[str, int] = {}
    # A deterministic keeps whatever shape it was given, so it does not decide how long a plate is
    # if a sampled site does.
    for site in sorted(program.sites, key=lambda site: site.kind == "deterministic"):
        for plate, axis in site.plates:
            if -axis <= len(site.shape):
                sizes.setdefault(plate, site.shape[axis])
    plates = {}
    for site in program.sites:
        if site.name not in shapes:
            continue
        axes: list[str | None] = [None] * len(shapes[site.name])
        for plate, axis in site.plates:
            if -axis <= len(axes) and shapes[site.name][axis] == sizes[plate]:
                axes[axis] = plate
        plates[site.name] = axes
    return plates, sizes


def _plates_by_length(shape: tuple[int, ...], sizes: Mapping[str, int]) -> list[str | None]:
    """The only plate of the length of each axis, unless two axes would share it."""
    fitting = [[plate for plate in sizes if sizes[plate] == length] for length in shape]
    names = [plates[0] if len(plates) == 1 else None for plates in fitting]
    return [name if names.count(name) == 1 else None for name in names]


def _axes(name, shape, plates, asked, taken) -> list[str]:
    if isinstance(asked, str) or not isinstance(asked, Sequence) or len(asked) > len(shape):
        raise AutoreparamError(
            f"dims: '{name}' has {len(shape)} axes of its own (shape {shape}); found {asked!r}"
        )
    asked = [*asked, *[None] * (len(shape) - len(asked))]
    for dim in asked:
        if not isinstance(dim, str | None):
            raise AutoreparamError(f"dims: '{name}' expects names of dimensions; found {dim!r}")
        if dim is not None and (dim in taken or "/" in dim):
            raise AutoreparamError(
                f"dims: '{name}' cannot have a dimension '{dim}': that is the name of a variable, "
                "has a special meaning, or contains '/'. Choose another."
            )
    stem = name.replace("/", ".")
    return [
        own or (None if plate in asked else plate) or f"{stem}_dim_{axis}"
        for axis, (own, plate) in enumerate(zip(asked, plates))
    ]


def _sizes(shapes, dims: Mapping[str, list[str]]) -> dict[str, int]:
    """Length of each dimension; an error where two variables disagree."""
    sizes: dict[str, int] = {}
    owner: dict[str, str] = {}
    for name, axes in dims.items():
        if len(set(axes)) < len(axes):
            raise AutoreparamError(f"dims: '{name}' has the same dimension twice: {axes}")
        for dim, length in zip(axes, shapes[name]):
            if sizes.setdefault(dim, length) != length:
                raise AutoreparamError(
                    f"dims: dimension '{dim}' has {sizes[dim]} elements in '{owner[dim]}' and "
                    f"{length} in '{name}'. Give one of them another name."
                )
            owner.setdefault(dim, name)
    return sizes


def _coords(given: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    coords = {}
    for dim, labels in given.items():
        if dim not in sizes:
            raise AutoreparamError(
                f"coords: no variable has a dimension '{dim}'; the dimensions are {known(sizes)}. "
                "Name dimensions with dims={variable: [...]}."
            )
        labels = np.asarray(labels)
        if labels.shape != (sizes[dim],):
            raise AutoreparamError(
                f"coords: dimension '{dim}' has {sizes[dim]} elements; found labels of shape "
                f"{labels.shape}"
            )
        # The zarr format has no fixed-length strings; objects are stored as text.
        coords[dim] = labels.astype(object) if labels.dtype.kind == "U" else labels
    return coords


def as_names(given: Any) -> list[str]:
    """The names that `var_names` lists, one or several."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable):
        raise AutoreparamError(f"var_names: expected a list of names; found {type(given).__name__}")
    return list(given)


def by_site(given: Mapping[str, Any], names: Mapping[str, str], keyword: str) -> dict[str, Any]:
    """The mapping keyed by site, where the user may have used either of its names."""
    sites = {variable: site for site, variable in names.items()} | {site: site for site in names}
    for name in given:
        if name not in sites:
            raise AutoreparamError(f"{keyword}: no variable '{name}'; there are {known(names)}")
    return {sites[name]: value for name, value in given.items()}


def dataset(values, lead: tuple[str, ...], dims, coords) -> xarray.Dataset:
    """Arrays as a dataset of the ArviZ schema."""
    import xarray

    variables, labels = {}, {}
    for name, value in values.items():
        array = np.asarray(value)
        own = dims.get(name) or [f"{name}_dim_{i}" for i in range(array.ndim - len(lead))]
        variables[name] = [*lead, *own], array
        for dim, length in zip(variables[name][0], array.shape):
            labels[dim] = coords[dim] if dim in coords else np.arange(length)
    created = datetime.now(UTC).isoformat()
    return xarray.Dataset(variables, labels, {"created_at": created, **origin()})


@cache
def _version() -> str:
    try:
        return metadata.version("autoreparam")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "source"


def origin() -> dict[str, str]:
    """Who made the draws, in ArviZ's words."""
    return {
        "inference_library": "autoreparam",
        "inference_library_version": _version(),
    }


@cache
def versions() -> str:
    """The versions that made the draws, as JSON."""
    libraries = ("jax", "numpyro", "blackjax", "optax", "numpy", "xarray", "arviz-stats")
    found = {"autoreparam": _version(), "python": platform.python_version()}
    return json.dumps({**found, **{name: metadata.version(name) for name in libraries}})


def described(program: Program, names: Mapping[str, str]) -> str:
    """What each latent and observed site is, as JSON, for reports."""
    return json.dumps(
        [
            {
                "name": site.name,
                "variable": names.get(site.name, site.name),
                "kind": site.kind,
                "distribution": site.distribution,
                "shape_parameters": site.shape_parameters,
                "shape": list(site.shape),
                "parents": list(site.parents),
                "candidate": site.candidate,
                "by_hand": site.implied is not None,
                "through": site.implied.through if site.implied else "",
                "statement": site.statement,
                "note": site.note,
            }
            for site in program.sites
            if site.kind in ("latent", "observed")
        ]
    )
