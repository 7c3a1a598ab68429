"""Data from files for a model's arguments: JSON (Stan's too), npz, csv columns, `name=value`."""

from __future__ import annotations

import csv
import inspect
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoreparam.errors import DataError, known
from autoreparam.program.foreign import words

# Stan's JSON spells numbers that JSON lacks as words.
WORDS = {"nan": np.nan, "inf": np.inf, "+inf": np.inf, "-inf": -np.inf, "infinity": np.inf,
         "+infinity": np.inf, "-infinity": -np.inf}  # fmt: skip


def read_data(paths: Sequence[Path]) -> tuple[dict[str, Any], set[str]]:
    """All values by name, and the names of csv columns, which the model may ignore."""
    values: dict[str, Any] = {}
    loose: set[str] = set()
    for path in paths:
        found = read_file(path)
        twice = [name for name in found if name in values]
        if twice:
            raise DataError(f"{path}: {known(twice)} is also in an earlier file")
        values |= found
        if path.suffix == ".csv":
            loose |= set(found)
    return values, loose


def read_file(path: Path) -> dict[str, Any]:
    """The named values in a .json, .npz or .csv file."""
    readers: dict[str, Callable[[Path], dict[str, Any]]] = {
        ".json": _read_json,
        ".npz": _read_npz,
        ".csv": _read_csv,
    }
    if path.suffix not in readers:
        raise DataError(f"{path}: expected a file ending in {known(readers)}")
    if not path.is_file():
        raise DataError(f"{path}: there is no such file. Check --data.")
    try:
        return readers[path.suffix](path)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read: {error}") from error


def bind(
    model: Callable, where: str, values: Mapping[str, Any], loose: set[str]
) -> tuple[dict[str, Any], list[str]]:
    """The values as keyword arguments of the model, and notes for the user.

    Those in `loose` are dropped where the model has no such argument.
    """
    parameters = inspect.signature(model).parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    kept = {}
    for name, value in values.items():
        if name in named or (takes_all and name not in loose):
            kept[name] = _numbers(name, value)
        elif name not in loose:
            raise DataError(
                f"the data hold '{name}', which is not an argument of {where}; its arguments are "
                f"{known(named)}. Rename it, or pass --ignore-extra."
            )
    missing = [n for n, p in named.items() if p.default is p.empty and n not in kept]
    if missing:
        raise DataError(
            f"{where} needs {known(missing)}; the data hold {known(values)}. Give it with --data "
            "FILE or --set NAME=VALUE."
        )
    unset = [n for n, p in named.items() if p.default is None and n not in kept]
    notes = [f"no data for {known(unset)}: left at None"] if unset else []
    for name, value in kept.items():
        if hasattr(value, "cat"):
            listed = ", ".join(
                f"{word} = {code}" for code, word in enumerate(value.cat.categories[:3])
            )
            notes.append(f"'{name}' holds text, numbered in its order: {listed}, ...")
    return kept, notes


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """`name=value` pairs; the value is JSON or a plain word."""
    found = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise DataError(f"--set: expected NAME=VALUE; found '{setting}'")
        try:
            found[name] = _arrays(name, json.loads(text))
        except json.JSONDecodeError:
            found[name] = text
    return found


def _read_json(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise DataError(
            f"{path}: expected an object with one value per argument, found a "
            f"{type(content).__name__}"
        )
    return {name: _arrays(f"{path}: '{name}'", value) for name, value in content.items()}


def _arrays(name: str, value: Any) -> Any:
    """Lists become arrays of integers or floats; Stan's words for numbers become numbers."""
    if isinstance(value, str) and value.lower() in WORDS:
        return WORDS[value.lower()]
    if isinstance(value, dict):
        return {key: _arrays(f"{name}.{key}", inner) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    try:
        array = np.asarray(_words_to_numbers(value))
    except ValueError:
        raise DataError(f"{name} has rows of different lengths; expected an array") from None
    return array.astype(float) if array.size == 0 else array


def _words_to_numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_words_to_numbers(entry) for entry in value]
    if value is None:
        return np.nan
    return WORDS.get(value.lower(), value) if isinstance(value, str) else value


def _read_npz(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] if stored[name].ndim else stored[name].item() for name in stored}


def _read_csv(path: Path) -> dict[str, Any]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    if len(rows) < 2:
        raise DataError(f"{path}: expected a header line and at least one line of values")
    names = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            raise DataError(f"{path}: line {number} has {len(row)} values, the first {len(names)}")
    return {name: _column([row[i].strip() for row in rows[1:]]) for i, name in enumerate(names)}


def _column(words: list[str]) -> np.ndarray:
    for kind in (int, float):
        try:
            return np.asarray([kind(word) if word or kind is int else np.nan for word in words])
        except ValueError:
            continue
    return np.asarray(words)


def _numbers(name: str, value: Any) -> Any:
    """The value, with a column of text as categories: numbers from 0 for its words in order."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in "fiub":
        return value
    if value.dtype.kind == "O" and all(isinstance(x, int) for x in value.ravel()):
        raise DataError(
            f"'{name}' holds an integer of more than 64 bits "
            f"({max(map(abs, value.ravel())):,}). Write it as a float: 1e20."
        )
    if value.ndim != 1 or value.dtype.kind != "U":
        raise DataError(f"'{name}' holds {value.dtype}; a model needs numbers, or a column of text")
    import pandas

    return pandas.Series(pandas.Categorical(value, words(value.tolist(), name)), name=name)


def plain(content: Any) -> Any:
    """The content in JSON's terms: lists for arrays, None for numbers that are not finite."""
    if isinstance(content, Mapping):
        return {str(key): plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [plain(value) for value in content]
    if isinstance(content, np.ndarray | np.generic):
        return plain(content.tolist())
    if isinstance(content, float) and not np.isfinite(content):
        return None
    return str(content) if isinstance(content, Path) else content
