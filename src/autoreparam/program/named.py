"""The array arguments of a model by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import jax
import numpy as np

from autoreparam.program.program import Program
from autoreparam.program.unseeded import signature_of


def constants(program: Program, observed: Mapping[str, Any]) -> dict[str, Any]:
    """The model's array arguments by name, without the observed ones.

    What is inside a dict, a dataclass or a named tuple is called `argument.entry`.
    """
    args, kwargs = program.structure.arguments.fill(program.data)
    try:
        names = list(signature_of(program.structure.model).parameters)
    except (TypeError, ValueError):
        names = []
    named = {**dict(zip(names, args)), **kwargs}
    found = {name: leaf for key, value in named.items() for name, leaf in _leaves(key, value)}
    return {
        name: np.asarray(value)
        for name, value in found.items()
        if not any(_same(value, seen) for seen in observed.values())
    }


def _same(value: Any, observed: Any) -> bool:
    """Whether an argument is what a site observes, perhaps in another precision."""
    value, observed = np.asarray(value), np.asarray(observed)
    return value.shape == observed.shape and np.array_equal(
        value.astype(observed.dtype), observed, equal_nan=observed.dtype.kind == "f"
    )


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The numbers and arrays in a value, each under its own name."""
    if isinstance(value, np.ndarray | jax.Array | float | int) and not isinstance(value, bool):
        if np.asarray(value).dtype.kind in "fiub":
            yield name, value
        return
    entries: Mapping[str, Any] = {}
    if isinstance(value, Mapping):
        entries = value
    elif is_dataclass(value) and not isinstance(value, type):
        entries = {field.name: getattr(value, field.name) for field in fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        entries = value._asdict()
    for key, entry in entries.items():
        yield from _leaves(f"{name}.{key}", entry)
