"""A function of one row as a function of many: side by side, or one after the other.

Rows of a model that factorizes matrices would make stacks of them, and with those a program may
never end (`compiled.may_wait_for_itself`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from autoreparam.program.compiled import may_wait_for_itself
from autoreparam.program.program import Program


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
    return program.structure.factorizes and may_wait_for_itself()
