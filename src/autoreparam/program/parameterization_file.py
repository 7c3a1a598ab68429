"""λ by site as JSON text, and as a file with large arrays in an npz beside it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from autoreparam.disk import check_place, replacing, write_text
from autoreparam.errors import ParameterizationError
from autoreparam.program.centering import Centering
from autoreparam.program.flat import Flat
from autoreparam.program.grip import BASE
from autoreparam.program.maps.gain import GEOMETRIC

FORMAT = "autoreparam.parameterization"
VERSION = 3
READABLE = (1, 2, VERSION)  # the first knew one gain only, the second no grip
INLINE = 10_000  # larger arrays are saved beside the JSON


def to_text(sites: Mapping[str, Centering], flat: Flat | None) -> str:
    """JSON text, exact to the last bit."""
    return _dump(sites, flat, lambda key, array: array.tolist())


def from_text(text: str) -> tuple[dict[str, Centering], Flat | None]:
    """The sites in a JSON text, λ as it stands there, and flat directions."""
    try:
        document = json.loads(text)
    except (TypeError, json.JSONDecodeError) as error:
        raise ParameterizationError(f"not JSON: {error}") from None
    return _sites(document, {}), flat_of(document.get("flat"))


def write(sites: Mapping[str, Centering], flat: Flat | None, path: Path) -> None:
    """Writes the JSON file, and the npz file where there are large arrays."""
    check_place(path, "save")
    arrays: dict[str, Any] = {}

    def place(key: str, array: np.ndarray) -> Any:
        if array.size <= INLINE:
            return array.tolist()
        arrays[key] = array
        return {"npz": key}

    text = _dump(sites, flat, place)
    if arrays:
        with replacing(_beside(path)) as beside, open(beside, "wb") as file:
            np.savez_compressed(file, **arrays)
    write_text(path, text)


def read(path: Path) -> tuple[dict[str, Centering], Flat | None]:
    """The sites in a file made by `write`, λ as it stands there, and flat directions."""
    arrays = {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if _beside(path).exists():
            with np.load(_beside(path), allow_pickle=False) as stored:
                arrays = dict(stored)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ParameterizationError(f"cannot read {path}: {error}") from None
    return _sites(document, arrays), flat_of(document.get("flat"))


def _beside(path: Path) -> Path:
    return (
        path.with_suffix(".npz") if path.suffix == ".json" else path.with_name(f"{path.name}.npz")
    )


def flat_entry(flat: Flat) -> dict[str, Any]:
    """Flat directions as lists of numbers."""
    parts = {p: own for p, own in vars(flat).items() if p != "turns"}
    entry = {
        p: {name: np.asarray(x).tolist() for name, x in own.items()} for p, own in parts.items()
    }
    return {**entry, "turns": list(flat.turns)}


def flat_of(entry: Any) -> Flat | None:
    """The flat directions in such lists, if there are any."""
    if entry is None:
        return None
    dtype = jnp.result_type(float)
    try:
        parts = {p: own for p, own in entry.items() if p != "turns"}
        arrays = {p: {n: np.asarray(x, dtype) for n, x in parts[p].items()} for p in parts}
        flat = Flat(**arrays, turns=tuple(entry["turns"]))
        finite = all(np.isfinite(x).all() for part in flat.parts for x in part.values())
        positive = all((x > 0).all() for x in flat.usual.values())
        sound = finite and positive and all(type(n) is int for n in flat.turns) and flat.sound
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        sound = False
    if not sound:
        raise ParameterizationError(
            'not flat directions: expected "leads", "apart", "usual" and "borrowed", each with '
            "finite numbers by site: equally many directions, each led by one element that moves "
            'by 1 and does not follow itself, usual scales above zero, and "turns" that add up'
        )
    return flat


def _dump(
    sites: Mapping[str, Centering], flat: Flat | None, place: Callable[[str, np.ndarray], Any]
) -> str:
    entries = {}
    for name, site in sites.items():
        loc, scale = np.asarray(site.loc), np.asarray(site.scale)
        entry = {"shape": list(loc.shape), "lam": place(f"{name}/lam", loc)}
        if not np.array_equal(loc, scale):
            entry["lam_scale"] = place(f"{name}/lam_scale", scale)
        entry["reference"] = place(f"{name}/reference", np.asarray(site.reference))
        if site.tail is not None:
            entry["tail"] = place(f"{name}/tail", np.asarray(site.tail))
        if site.origin is not None:
            entry["origin"] = place(f"{name}/origin", np.asarray(site.origin))
        if site.grip is not None:
            entry["grip"] = {
                label: place(f"{name}/grip/{label}", np.asarray(own))
                for label, own in site.grip.items()
            }
        if site.gain != GEOMETRIC:
            entry["gain"] = site.gain
        entries[name] = entry
    document = {"format": FORMAT, "version": VERSION, "sites": entries}
    document |= {} if flat is None else {"flat": flat_entry(flat)}
    return json.dumps(document, indent=1)


def _sites(document: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, Centering]:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ParameterizationError(
            f'not a parameterization: expected a JSON object with "format": "{FORMAT}"'
        )
    if document.get("version") not in READABLE:
        raise ParameterizationError(
            f"unknown version {document.get('version')!r} of the format; this is version {VERSION}"
        )
    if not isinstance(document.get("sites"), dict):
        raise ParameterizationError('expected "sites", an object with one entry per site')
    return {name: _site(name, entry, arrays) for name, entry in document["sites"].items()}


def _site(name: str, entry: Any, arrays: Mapping[str, np.ndarray]) -> Centering:
    shape = _shape(name, entry)
    loc = scale = _array(name, entry["lam"], arrays, shape)
    if "lam_scale" in entry:
        scale = _array(name, entry["lam_scale"], arrays, shape)
    reference = _array(name, entry.get("reference", 1.0), arrays)
    tail, origin = (
        _array(name, entry[part], arrays, shape) if part in entry else None
        for part in ("tail", "origin")
    )
    grip = entry.get("grip")
    if grip is not None:
        if not isinstance(grip, dict) or BASE not in grip:
            raise ParameterizationError(
                f"site '{name}': expected a grip with an entry per root; found {grip!r}"
            )
        grip = {label: _array(name, own, arrays, shape) for label, own in grip.items()}
    gain = entry.get("gain", GEOMETRIC)
    return Centering(loc, scale, reference, tail, origin, grip, gain=gain)


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
                f"site '{name}': array {key!r} is missing. Large arrays are kept in an npz file "
                "beside the JSON: keep the two together, and read them with "
                "Parameterization.load."
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
