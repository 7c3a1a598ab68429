"""Which inputs each output of a traced function depends on.

NumPyro has something similar, but it assumes that every output of a `scan` depends on every input.
"""

from collections.abc import Sequence
from typing import Any

from jax.extend.core import Literal

Names = frozenset[str]
NONE: Names = frozenset()


def depends_on(jaxpr: Any, inputs: Sequence[Names]) -> list[Names]:
    """The names that reach each output, given those at each input."""
    known: dict[Any, Names] = dict(zip(jaxpr.invars, inputs))

    def read(variable: Any) -> Names:
        return NONE if isinstance(variable, Literal) else known.get(variable, NONE)

    for equation in jaxpr.eqns:
        found = outputs_depend_on(equation, [read(variable) for variable in equation.invars])
        known.update(zip(equation.outvars, found))
    return [read(variable) for variable in jaxpr.outvars]


def outputs_depend_on(equation: Any, inputs: list[Names]) -> list[Names]:
    """The names that reach each output of one operation."""
    name, params = equation.primitive.name, equation.params
    if name == "scan":
        return _scan(equation, inputs)
    if name == "cond":
        index, *rest = inputs
        branches = [depends_on(branch.jaxpr, rest) for branch in params["branches"]]
        return [index.union(*found) for found in zip(*branches)]
    inner = params.get("jaxpr", params.get("call_jaxpr"))
    inner = getattr(inner, "jaxpr", inner)  # with its constants, or without
    if inner is not None and len(getattr(inner, "invars", ())) == len(inputs):
        return depends_on(inner, inputs)
    return [NONE.union(*inputs)] * len(equation.outvars)


def _scan(equation: Any, inputs: list[Names]) -> list[Names]:
    body, (fixed, carried) = equation.params["jaxpr"].jaxpr, scan_inputs(equation)
    constants, carry = inputs[:fixed], inputs[fixed : fixed + carried]
    slices = inputs[fixed + carried :]
    while True:  # the carry gathers names from step to step, until none are added
        outputs = depends_on(body, [*constants, *carry, *slices])
        grown = [old | new for old, new in zip(carry, outputs)]
        if grown == carry:
            return outputs
        carry = grown


def scan_inputs(equation: Any) -> tuple[int, int]:
    """How many inputs of a `scan` are the same at every step, and how many are carried.

    Told by their shapes, since JAX has changed what a `scan` says about itself.
    """
    body = equation.params["jaxpr"].jaxpr
    # The body sees one step of the stacked inputs and all of the others.
    stacked = _stacked(equation.invars, body.invars)
    carried = len(body.outvars) - _stacked(equation.outvars, body.outvars)
    return len(body.invars) - carried - stacked, carried


def _stacked(outside: Any, inside: Any) -> int:
    return sum(a.aval.ndim != b.aval.ndim for a, b in zip(outside, inside))
