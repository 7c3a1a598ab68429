"""What can be proved about a node: that its elements have one sign, that it is lower triangular."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autoreparam.program.graph import Graph, Node

POSITIVE, NEGATIVE, NONNEGATIVE, UNKNOWN = "+", "-", "0+", "?"
FLIPPED = {POSITIVE: NEGATIVE, NEGATIVE: POSITIVE}
POSITIVE_SUPPORTS = ("positive", "softplus positive", "unit interval", "simplex")
TRIANGULAR_SUPPORTS = ("lower cholesky", "corr cholesky", "scaled unit lower cholesky",
                       "softplus lower cholesky")  # fmt: skip

ALWAYS_POSITIVE = ("exp", "exp2", "logistic", "erfc", "cosh")
# Positive elements become positive ones, and none of another sign come in.
KEEPING = ("cbrt", "log1p", "expm1", "sinh", "asinh", "tanh", "erf",
           "broadcast_in_dim", "reshape", "squeeze", "transpose", "rev", "concatenate", "stack",
           "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "cumsum", "cumprod", "cummax",
           "copy", "convert_element_type", "stop_gradient", "add", "dot_general",
           "square")  # fmt: skip


class Facts:
    """Signs and triangles of a graph's nodes, given the supports of its latents."""

    def __init__(self, supports: Mapping[str, str], signs: Mapping[int, str] | None = None):
        self.supports = supports
        self._signs: dict[int, str] = dict(signs or {})

    # -- signs --------------------------------------------------------------------------------

    def sign(self, node: Node) -> str:
        """The sign that all elements of a node are known to have."""
        waiting = [node]
        while waiting:
            last = waiting[-1]
            missing = [i for i in last.inputs if i.number not in self._signs]
            if last.number in self._signs or not missing:
                self._signs.setdefault(waiting.pop().number, self._sign(last))
            else:
                waiting += missing
        return self._signs[node.number]

    def _sign(self, node: Node) -> str:
        op, signs = node.op, [self._signs.get(i.number, UNKNOWN) for i in node.inputs]
        if op == "latent":
            return POSITIVE if self.supports.get(node.value) in POSITIVE_SUPPORTS else UNKNOWN
        if op == "constant":
            return sign_of(node.value)
        if op in ALWAYS_POSITIVE:
            return POSITIVE
        if op in ("mul", "div"):
            return _product(signs)
        if op == "neg":
            return FLIPPED.get(signs[0], UNKNOWN)
        if op == "sub":
            return POSITIVE if signs == [POSITIVE, NEGATIVE] else UNKNOWN
        if op == "pow":
            return POSITIVE if signs[0] == POSITIVE else UNKNOWN
        if op in ("sqrt", "rsqrt"):
            # Where it is a number, it can be zero only at an edge of what it is computed from.
            return NONNEGATIVE if signs[0] == NONNEGATIVE else POSITIVE
        if op == "max":
            return next((s for s in (POSITIVE, NONNEGATIVE) if s in signs), UNKNOWN)
        if op == "abs" or (op == "square" and signs[0] == UNKNOWN):
            return POSITIVE if signs[0] in (POSITIVE, NEGATIVE) else NONNEGATIVE
        if op == "select_n":
            return _same(signs[1:] if not _is_nan(node.inputs[0]) else signs[1:2])
        if op == "clamp":
            return POSITIVE if signs[0] == POSITIVE else UNKNOWN
        if op == "custom_jvp_call":
            return self._inside(node, signs)
        if op in ("gather", "slice", "dynamic_slice", "part", "integer_pow"):
            return signs[0] if signs[0] in (POSITIVE, NONNEGATIVE) else UNKNOWN
        if op == "add" and sorted(signs) == [POSITIVE, NONNEGATIVE]:
            return POSITIVE
        if op in KEEPING:
            same = _same(signs)
            return same if same in (POSITIVE, NONNEGATIVE) else UNKNOWN
        return UNKNOWN

    def _inside(self, node: Node, signs: list[str]) -> str:
        graph, call = Graph(), node.params["call_jaxpr"]
        sources = [graph.source("data", i, v.aval) for i, v in enumerate(call.jaxpr.invars)]
        seeds = {source.number: sign for source, sign in zip(sources, signs)}
        outputs = graph.read(call.jaxpr, call.consts, sources)
        return _same([Facts({}, seeds).sign(output) for output in outputs])

    # -- triangles ----------------------------------------------------------------------------

    def lower(self, node: Node, row: int, column: int) -> bool:
        """Whether a node is zero where `row < column`, and positive where they are equal."""
        return self._triangle(node, row, column) and self._diagonal(node, row, column)

    def _triangle(self, node: Node, row: int, column: int) -> bool:
        op, inputs, ndim = node.op, node.inputs, len(node.shape)
        if op == "latent":
            last = (row, column) == (ndim - 2, ndim - 1)
            return last and self.supports.get(node.value) in TRIANGULAR_SUPPORTS
        if op == "cholesky":
            return (row, column) == (ndim - 2, ndim - 1)
        if op == "transpose":
            order = node.params["permutation"]
            return self._triangle(inputs[0], order[row], order[column])
        if op == "broadcast_in_dim":
            kept = node.params["broadcast_dimensions"]
            if row not in kept or column not in kept:
                return False
            return self._triangle(inputs[0], kept.index(row), kept.index(column))
        if op in ("mul", "div"):
            able = inputs if op == "mul" else inputs[:1]
            return any(i.shape == node.shape and self._triangle(i, row, column) for i in able)
        if op == "select_n":
            if _is_diagonal(inputs[0], row, column) and len(inputs) == 3:
                return _is_zero(inputs[1])
            return all(_is_zero(i) or self._triangle(i, row, column) for i in inputs[1:])
        if op == "dot_general":
            factors = _factors(node, row, column)
            return bool(factors) and all(self._triangle(*factor) for factor in factors)
        return False

    def _diagonal(self, node: Node, row: int, column: int) -> bool:
        """Whether the diagonal of a triangular node is positive."""
        op, inputs = node.op, node.inputs
        if op in ("latent", "cholesky"):
            return True
        if op == "transpose":
            order = node.params["permutation"]
            return self._diagonal(inputs[0], order[row], order[column])
        if op == "broadcast_in_dim":
            kept = node.params["broadcast_dimensions"]
            return self._diagonal(inputs[0], kept.index(row), kept.index(column))
        if op in ("mul", "div"):
            return all(
                self.sign(i) == POSITIVE or (i.shape == node.shape and self.lower(i, row, column))
                for i in inputs
            )
        if op == "select_n":
            if _is_diagonal(inputs[0], row, column):
                return self.sign(inputs[2]) == POSITIVE
            return self.lower(inputs[-1], row, column)
        factors = _factors(node, row, column)
        others = [i for i in inputs if all(i is not factor for factor, *_ in factors)]
        return all(self._diagonal(*factor) for factor in factors) and all(
            self.sign(other) == POSITIVE for other in others
        )


def _factors(node: Node, row: int, column: int) -> list[tuple[Node, int, int]]:
    """The matrices that make a product lower triangular if they are: two, or one scaled by rows."""
    left, right = node.inputs
    (sum_left, sum_right), (batch_left, batch_right) = node.params["dimension_numbers"]
    shapes = len(left.shape), len(right.shape)
    if len(sum_left) == 1 and not batch_left and shapes == (2, 2) and (row, column) == (0, 1):
        return [(left, 1 - sum_left[0], sum_left[0]), (right, sum_right[0], 1 - sum_right[0])]
    if not sum_left and shapes == (1, 2) and tuple(batch_right) == (0,) and (row, column) == (0, 1):
        return [(right, 0, 1)]
    return []


def _product(signs: list[str]) -> str:
    if all(s in FLIPPED for s in signs):
        return POSITIVE if signs.count(NEGATIVE) % 2 == 0 else NEGATIVE
    return NONNEGATIVE if set(signs) <= {POSITIVE, NONNEGATIVE} else UNKNOWN


def _same(signs: list[str]) -> str:
    found = set(signs)
    if len(found) == 1:
        return signs[0]
    return NONNEGATIVE if found and found <= {POSITIVE, NONNEGATIVE} else UNKNOWN


def sign_of(value: Any) -> str:
    """The sign that all elements of an array have."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub" or array.size == 0:
            return UNKNOWN
    except TypeError:
        return UNKNOWN
    if (array > 0).all():
        return POSITIVE
    if (array < 0).all():
        return NEGATIVE
    return NONNEGATIVE if (array >= 0).all() else UNKNOWN


def _is_nan(node: Node) -> bool:
    return node.op == "ne" and node.inputs[0] is node.inputs[1]


def _is_zero(node: Node) -> bool:
    while node.op == "broadcast_in_dim":
        node = node.inputs[0]
    return node.op == "constant" and not np.any(np.asarray(node.value))


def _is_diagonal(node: Node, row: int, column: int) -> bool:
    """Whether a mask is true on the diagonal of two axes only."""
    if node.op != "eq":
        return False
    axes = [_counted(i) for i in node.inputs]
    return sorted(axes, key=str) == sorted([row, column], key=str)


def _counted(node: Node) -> int | None:
    """The axis along which a node counts up from zero."""
    if node.op == "add" and any(_is_zero(i) for i in node.inputs):
        node = next(i for i in node.inputs if not _is_zero(i))
    return node.params["dimension"] if node.op == "iota" else None
