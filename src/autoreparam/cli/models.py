"""A model named on the command line: `file.py:function`, `module:function` or `zoo:name`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoreparam import zoo
from autoreparam.cli.values import bind, parse_settings, read_data
from autoreparam.errors import AutoreparamError, ModelError, known
from autoreparam.program.failure import at_line, failed


@dataclass(frozen=True)
class Call:
    """A model, its arguments, and where it was found."""

    model: Callable
    kwargs: dict[str, Any]
    where: str
    notes: tuple[str, ...] = ()


def find_call(
    spec: str, data: Sequence[Path], settings: Sequence[str], ignore_extra: bool = False
) -> Call:
    """The model that `spec` names, with data from files and from `name=value` settings."""
    given = parse_settings(settings)
    if spec.startswith("zoo:"):
        if data:
            raise AutoreparamError(f"--data: '{spec}' brings its own data. Leave --data out.")
        entry = zoo.load(spec.removeprefix("zoo:"), **given)
        return Call(entry.model, entry.kwargs, spec)
    model = find_model(spec)
    values, loose = read_data(data)
    loose |= set(values) if ignore_extra else set()
    kwargs, notes = bind(model, spec, values | given, loose)
    return Call(model, kwargs, spec, tuple(notes))


def find_model(spec: str) -> Callable:
    """The function that `path/to/model.py:function` or `package.module:function` names."""
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise ModelError(
            f"MODEL: expected path/to/model.py:function, package.module:function or zoo:name; "
            f"found '{spec}'"
        )
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    model = getattr(module, name, None)
    if model is None:
        there = [
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        raise ModelError(f"{place} has no function '{name}'; its functions are {known(there)}")
    if not callable(model):
        raise ModelError(
            f"'{name}' in {place} is not a function but of type {type(model).__name__}"
        )
    return model


def _load_file(path: Path) -> Any:
    if not path.is_file():
        found = "it is a folder" if path.is_dir() else "there is no such file"
        raise ModelError(f"{path}: {found}. Name the file that holds the model.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.absolute()))  # it may import its neighbors
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ModelError(f"{path} could not be loaded: {at_line(error, path)}") from error
    finally:
        sys.path.pop(0)
    return module


def _load_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(
            f"the module '{name}' could not be imported: {error}. Is it installed? For a file, "
            "include the extension: path/to/model.py:function"
        ) from error


@contextmanager
def in_words(call: Call) -> Iterator[None]:
    """Turns an error that the model raises on its data into a sentence with the data's shapes."""
    try:
        yield
    except (AutoreparamError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise failed(call.model, error, call.kwargs) from error
