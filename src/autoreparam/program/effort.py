"""How much a traced function computes."""

from __future__ import annotations

from math import prod
from typing import Any

import jax


def numbers_given(jaxpr: Any) -> int:
    """How many numbers the operations of a traced function give, those inside of others included.

    A loop counts as often as it is known to run, and of alternatives each one counts.
    """
    total = 0
    for equation in jaxpr.eqns:
        leaves = jax.tree.leaves(equation.params, is_leaf=_has_operations)
        inner = [getattr(leaf, "jaxpr", leaf) for leaf in leaves if _has_operations(leaf)]
        if inner:
            total += equation.params.get("length", 1) * sum(map(numbers_given, inner))
        else:
            total += sum(prod(v.aval.shape) for v in equation.outvars)
    return total


def _has_operations(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")
