"""A function of one row as a function of many: side by side, or one after the other.

Some releases of jaxlib share a stack of matrices that LAPACK factorizes out among the threads of
the very pool that they are called from, and wait for them. Once every thread waits, none is left to
do the work, and the program never ends: on two cores, three stacks are enough. A single matrix is
not shared out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
from jax.lib import __version__ as jaxlib_version

from autoreparam.program.program import Program

FIRST, MENDED = (0, 10), (0, 11, 2)  # releases of jaxlib


def over_rows(program: Program, function: Callable, axes: tuple[int | None, ...]) -> Callable:
    """`jax.vmap(function, axes)`, in whichever way is safe for what the model computes."""
    if not one_by_one(program):
        return jax.vmap(function, axes)

    def in_turn(*args: Any) -> Any:
        def one(rows: tuple[Any, ...]) -> Any:
            own = iter(rows)
            return function(*(arg if axis is None else next(own) for arg, axis in zip(args, axes)))

        return jax.lax.map(one, tuple(arg for arg, axis in zip(args, axes) if axis is not None))

    return in_turn


def one_by_one(program: Program) -> bool:
    """Whether rows and chains must not be computed side by side."""
    return program.structure.factorizes and _may_wait_for_itself()


@cache
def _may_wait_for_itself() -> bool:
    release = tuple(int(part) for part in jaxlib_version.split(".")[:3] if part.isdigit())
    return FIRST <= release < MENDED and jax.default_backend() == "cpu"
