"""Numbers and arrays that a model reads besides its arguments, by name."""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any

import jax
import numpy as np

from autoreparam.errors import AutoreparamError
from autoreparam.program.foreign import LIBRARIES, as_arrays

DEPTH = 4  # of objects inside each other that are looked into
MOST = 200  # entries of each
NUMBERS = (np.ndarray, np.generic, jax.Array, int, float)


def captured(model: Callable) -> dict[str, Any]:
    """The globals and enclosing variables that the model, or a function it uses, may read.

    Only numbers and arrays, and only functions of the model's own module.
    """
    found: dict[str, Any] = {}
    waiting, seen = [_function(model)], set()
    while waiting:
        function = waiting.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        for name, value in _variables(function):
            if isinstance(value, NUMBERS):
                found.setdefault(name, value)
            elif isinstance(value, FunctionType) and value.__module__ == function.__module__:
                waiting.append(value)
    return found


def held_arrays(model: Callable, *given: Any) -> dict[str, np.ndarray]:
    """Arrays inside the dicts, lists and objects that the model may read, by how to get at them.

    `given` are dicts of its arguments. Partials, bound objects and defaults are looked into too.
    """
    found: dict[str, np.ndarray] = {}
    function = _function(model)
    if function is not None:
        given = (*given, dict(_variables(function)), _defaults(function))
    bound = getattr(model, "__self__", None if isinstance(model, FunctionType) else model)
    for name, value in [*(item for part in given for item in part.items()), ("self", bound)]:
        _look(name, value, found, DEPTH)
    return found


def _look(name: str, value: Any, found: dict[str, np.ndarray], depth: int) -> None:
    if isinstance(value, np.ndarray):
        found.setdefault(name, value)
    elif depth == 0 or isinstance(value, type | ModuleType | FunctionType | str):
        return
    elif isinstance(value, Mapping):
        for key in list(value)[:MOST]:
            _look(f"{name}[{key!r}]", value[key], found, depth - 1)
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value[:MOST]):
            _look(f"{name}[{index}]", entry, found, depth - 1)
    elif isinstance(value, functools.partial):
        _look(name, {**dict(enumerate(value.args)), **value.keywords}, found, depth)
    elif type(value).__module__.partition(".")[0] in LIBRARIES:
        with suppress(AutoreparamError):  # not all that a table holds are numbers
            _look(name, as_arrays(value)[0], found, depth - 1)
    else:
        for key, entry in list(getattr(value, "__dict__", {}).items())[:MOST]:
            _look(f"{name}.{key}", entry, found, depth - 1)


def _defaults(function: FunctionType) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _function(model: Any) -> FunctionType | None:
    """The plain function behind partials, methods, jit and NumPyro's handlers."""
    for _ in range(100):  # a wrapper may wrap itself
        if isinstance(model, functools.partial):
            model = model.func
        elif hasattr(model, "__wrapped__"):
            model = model.__wrapped__
        elif inspect.ismethod(model):
            model = model.__func__
        elif isinstance(model, FunctionType):
            return model
        elif getattr(model, "fn", None) is not None:
            model = model.fn
        else:
            model = type(model).__call__
    return None


def _variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _names(code: CodeType) -> Iterator[str]:
    """Globals that the code, or a function defined in it, reads."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
