"""Ways to rearrange and repeat the elements of an array, and how to undo them in an expression.

`theta[group]` and `mu[group]` were rearranged alike, so what happens to both can be said of `theta`
and `mu`. Pulling an expression back through a move gives the one that the move was applied to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from autoreparam.program.graph import Graph, Node

RESHAPING = ("reshape", "squeeze", "expand_dims")
ELEMENTWISE = ("add", "sub", "mul", "div", "neg", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt",
               "pow", "integer_pow", "square", "abs", "logistic", "tanh", "max", "min", "exp2",
               "convert_element_type", "sign", "sin", "cos")  # fmt: skip
# Of arrays whose shapes broadcast, which JAX's own operations do not accept.
BINARY: dict[str, Callable[..., Any]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "pow": jnp.power,
    "max": jnp.maximum,
    "min": jnp.minimum,
}
Steps = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, eq=False)
class Move:
    """One step that rearranges elements, as the node that it made of another."""

    node: Node
    before: Node
    order: tuple[int, ...] | None = None  # of the axes, where they are only reordered

    @property
    def step(self) -> tuple[str, tuple[int, ...]]:
        """An exact move, in words that `rearrange` understands."""
        if self.order is not None:
            return "transpose", self.order
        return "reshape", self.node.shape

    @property
    def exact(self) -> bool:
        """Whether every element comes out exactly once."""
        return self.node.op != "gather" and self.node.size == self.before.size

    def pull(self, graph: Graph, node: Node) -> Node | None:
        """The expression that the same move makes into `node`; None where there is none."""
        if not node.shape or node.size == 1:
            return reshaped(graph, node, ())
        if node.shape != self.node.shape:
            node = _filled(graph, node, self.node.shape)
        if self.exact:
            return self._undo(graph, node)
        return self._structural(graph, node)

    def _undo(self, graph: Graph, node: Node) -> Node:
        if self.order is not None:
            return transposed(graph, node, tuple(int(i) for i in np.argsort(self.order)))
        return reshaped(graph, node, self.before.shape)

    def _structural(self, graph: Graph, node: Node) -> Node | None:
        mine = self.node
        if node.op == mine.op and node.inputs[1:] == mine.inputs[1:]:
            same = node.inputs[0].shape == self.before.shape
            if same and str(node.params) == str(mine.params):
                return node.inputs[0]
        if node.op == "broadcast_in_dim":
            return self._repeated(graph, node)
        if node.op in ELEMENTWISE:
            pulled = [self.pull(graph, i) for i in node.inputs]
            if any(part is None for part in pulled):
                return None
            parts = [part for part in pulled if part is not None]
            compute = BINARY.get(node.op, node.compute)
            assert compute is not None
            return graph.call(compute, *parts, op=node.op, **node.params)
        return None

    def _repeated(self, graph: Graph, node: Node) -> Node | None:
        """Pulls back what is repeated along every axis that the move made."""
        kept = self._kept_axes()
        inner, axes = node.inputs[0], node.params["broadcast_dimensions"]
        used = [(axis, i) for i, axis in enumerate(axes) if inner.shape[i] > 1]
        if any(axis not in kept for axis, _ in used):
            return None
        target = [1] * len(self.before.shape)
        for axis, i in used:
            target[kept[axis]] = inner.shape[i]
        order = [kept[axis] for axis, _ in used]
        if order != sorted(order):
            return None
        return reshaped(graph, inner, tuple(target))

    def _kept_axes(self) -> dict[int, int]:
        """Axes of the result that are whole axes of the array before."""
        params = self.node.params
        if self.node.op == "broadcast_in_dim":
            axes = params["broadcast_dimensions"]
            return {axis: i for i, axis in enumerate(axes) if self.before.shape[i] > 1}
        numbers = params["dimension_numbers"]
        gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
        left = [i for i in range(len(self.before.shape)) if i not in gone]
        whole = params["slice_sizes"]
        return {
            axis: i
            for axis, i in zip(numbers.offset_dims, left)
            if whole[i] == self.before.shape[i] and i not in numbers.start_index_map
        }


def move_of(node: Node, before: Node) -> Move | None:
    """The move that `node` makes of `before`, if it is one."""
    if node.inputs[0] is not before or before in node.inputs[1:]:
        return None
    if node.op in (*RESHAPING, "transpose", "broadcast_in_dim", "gather"):
        return Move(node, before, node.params.get("permutation"))
    return None


def pull(graph: Graph, node: Node, moves: tuple[Move, ...]) -> Node | None:
    """The expression that the moves, one after another, make into `node`."""
    found: Node | None = node
    for move in reversed(moves):
        if found is None:
            return None
        found = move.pull(graph, found)
    return found


def reshaped(graph: Graph, node: Node, shape: tuple[int, ...]) -> Node:
    """The node in another shape."""
    while node.op in RESHAPING and node.shape != shape:
        node = node.inputs[0]
    if node.shape == shape:
        return node
    return graph.call(partial(jnp.reshape, shape=shape), node, op="reshape", new_sizes=shape)


def transposed(graph: Graph, node: Node, order: tuple[int, ...]) -> Node:
    """The node with its axes in another order."""
    if order == tuple(range(len(order))):
        return node
    if node.op == "transpose":
        inner = node.params["permutation"]
        if tuple(inner[i] for i in order) == tuple(range(len(order))):
            return node.inputs[0]
    return graph.call(partial(jnp.transpose, axes=order), node, op="transpose", permutation=order)


def _filled(graph: Graph, node: Node, shape: tuple[int, ...]) -> Node:
    """The node with axes of length 1 repeated, as JAX's operations do where shapes differ."""
    fill = partial(jnp.broadcast_to, shape=shape)
    axes = tuple(range(len(shape)))
    return graph.call(fill, node, op="broadcast_in_dim", shape=shape, broadcast_dimensions=axes)


def rearrange(value: Any, steps: Steps, inverse_of: tuple[int, ...] | None = None) -> Any:
    """An array after exact moves; with the shape they started from, before them."""
    if inverse_of is None:
        for kind, how in steps:
            value = jnp.transpose(value, how) if kind == "transpose" else jnp.reshape(value, how)
        return value
    shapes = [inverse_of]
    for kind, how in steps[:-1]:
        shapes.append(tuple(shapes[-1][i] for i in how) if kind == "transpose" else how)
    for (kind, how), shape in zip(reversed(steps), reversed(shapes)):
        undo = (
            jnp.transpose(value, [int(i) for i in np.argsort(how)])
            if kind == "transpose"
            else value
        )
        value = jnp.reshape(undo, shape)
    return value
