"""A parameterization as JSON text, and as a file with large arrays in an npz beside it.

The maps of a parameterization are λ of locations, λ of scales, reference scales and tails, by site.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autoreparam.errors import ParameterizationError

if TYPE_CHECKING:
    from autoreparam.program.parameterization import Parameterization

FORMAT = "autoreparam.parameterization"
VERSION = 1
INLINE = 10_000  # larger arrays are saved beside the JSON

Maps = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]


def to_text(parameterization: Parameterization) -> str:
    """JSON text, exact to the last bit."""
    return _dump(parameterization, lambda key, array: array.tolist())


def from_text(text: str) -> Maps:
    """The maps in a JSON text."""
    try:
        document = json.loads(text)
    except (TypeError, json.JSONDecodeError) as error:
        raise ParameterizationError(f"not JSON: {error}") from None
    return _maps(document, {})


def write(parameterization: Parameterization, path: Path) -> None:
    """Writes the JSON file, and the npz file where there are large arrays."""
    arrays: dict[str, Any] = {}

    def place(key: str, array: np.ndarray) -> Any:
        if array.size <= INLINE:
            return array.tolist()
        arrays[key] = array
        return {"npz": key}

    text = _dump(parameterization, place)
    if arrays:
        np.savez_compressed(_beside(path), **arrays)
    path.write_text(text, encoding="utf-8")


def read(path: Path) -> Maps:
    """The maps in a file made by `write`."""
    arrays = {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if _beside(path).exists():
            with np.load(_beside(path), allow_pickle=False) as stored:
                arrays = dict(stored)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ParameterizationError(f"cannot read {path}: {error}") from None
    return _maps(document, arrays)


def _beside(path: Path) -> Path:
    return (
        path.with_suffix(".npz") if path.suffix == ".json" else path.with_name(f"{path.name}.npz")
    )


def _dump(p: Parameterization, place: Callable[[str, np.ndarray], Any]) -> str:
    sites = {}
    for name in p.sites:
        loc, scale = np.asarray(p[name]), np.asarray(p.scale[name])
        entry = {"shape": list(loc.shape), "lam": place(f"{name}/lam", loc)}
        if not np.array_equal(loc, scale):
            entry["lam_scale"] = place(f"{name}/lam_scale", scale)
        entry["reference"] = place(f"{name}/reference", np.asarray(p.reference[name]))
        if name in p.tail:
            entry["tail"] = place(f"{name}/tail", np.asarray(p.tail[name]))
        sites[name] = entry
    return json.dumps({"format": FORMAT, "version": VERSION, "sites": sites}, indent=1)


def _maps(document: Any, arrays: Mapping[str, np.ndarray]) -> Maps:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ParameterizationError(
            f'not a parameterization: expected a JSON object with "format": "{FORMAT}"'
        )
    if document.get("version") != VERSION:
        raise ParameterizationError(
            f"unknown version {document.get('version')!r} of the format; this is version {VERSION}"
        )
    if not isinstance(document.get("sites"), dict):
        raise ParameterizationError('expected "sites", an object with one entry per site')
    maps: Maps = ({}, {}, {}, {})
    loc, scale, reference, tail = maps
    for name, entry in document["sites"].items():
        shape = _shape(name, entry)
        loc[name] = _array(name, entry["lam"], arrays, shape)
        if "lam_scale" in entry:
            scale[name] = _array(name, entry["lam_scale"], arrays, shape)
        reference[name] = _array(name, entry.get("reference", 1.0), arrays)
        if "tail" in entry:
            tail[name] = _array(name, entry["tail"], arrays, shape)
    return maps


def _shape(name: str, entry: Any) -> tuple[int, ...]:
    if not isinstance(entry, dict) or not {"shape", "lam"} <= entry.keys():
        raise ParameterizationError(f"site '{name}': expected 'shape' and 'lam'")
    shape = entry["shape"]
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ParameterizationError(
            f"site '{name}': expected a list of sizes, found shape {shape!r}"
        )
    return tuple(shape)


def _array(name: str, value: Any, arrays: Mapping, shape: tuple[int, ...] | None = None) -> Any:
    if isinstance(value, dict):
        key = value.get("npz")
        if key not in arrays:
            raise ParameterizationError(
                f"site '{name}': array {key!r} is not there. Large arrays are kept in an npz file "
                "beside the JSON: move both together, and read them with Parameterization.load."
            )
        value = arrays[key]
    try:
        array = np.asarray(value)
    except ValueError:
        raise ParameterizationError(f"site '{name}': expected an array, found {value!r}") from None
    if shape is None or array.shape == shape:
        return array
    if array.size == 0 and np.prod(shape) == 0:  # a list cannot tell (0, 3) from (0,)
        return array.reshape(shape)
    raise ParameterizationError(
        f"site '{name}': expected values of shape {shape}, found shape {array.shape}"
    )
