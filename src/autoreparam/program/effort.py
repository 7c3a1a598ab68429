"""How much a traced function computes, and whether it factorizes matrices."""

from __future__ import annotations

from math import prod
from typing import Any

import jax

# What LAPACK does on a CPU.
FACTORIZATIONS = {
    "cholesky", "eig", "eigh", "geqp3", "geqrf", "hessenberg", "householder_product", "lu", "ormqr",
    "qr", "schur", "svd", "triangular_solve", "tridiagonal", "tridiagonal_solve",
}  # fmt: skip


def numbers_given(jaxpr: Any) -> int:
    """How many numbers the operations of a traced function give, those inside of others included.

    A loop counts as often as it is known to run, and of alternatives each one counts.
    """
    total = 0
    for equation in jaxpr.eqns:
        if inner := _inner(equation):
            total += equation.params.get("length", 1) * sum(map(numbers_given, inner))
        else:
            total += sum(prod(v.aval.shape) for v in equation.outvars)
    return total


def factorizes(jaxpr: Any) -> bool:
    """Whether any operation factorizes a matrix, or solves with one."""
    return any(
        equation.primitive.name in FACTORIZATIONS or any(map(factorizes, _inner(equation)))
        for equation in jaxpr.eqns
    )


def _inner(equation: Any) -> list[Any]:
    """The functions that an operation calls."""
    leaves = jax.tree.leaves(equation.params, is_leaf=_has_operations)
    return [getattr(leaf, "jaxpr", leaf) for leaf in leaves if _has_operations(leaf)]


def _has_operations(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")
