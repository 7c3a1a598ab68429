"""Numbers and arrays that a model reads besides its arguments, by name."""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import jax
import numpy as np

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
