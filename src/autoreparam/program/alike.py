"""A function with equal expressions computed only once, and alike ones side by side.

A model that samples in a loop over its groups is traced to as many copies of the same few scalar
operations as there are groups, and the time XLA takes grows faster than their number. Here
operations that do the same to different inputs become one operation on a stack of them: the loop is
written as arrays, as its author could have done.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from itertools import groupby
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from autoreparam.program.compiled import may_wait_for_itself
from autoreparam.program.effort import FACTORIZATIONS
from autoreparam.program.graph import Graph, Node

FEWEST = 8  # operations: below, the stack costs the compiler as much as it saves
LARGEST = 4096  # elements of one result: above, copying costs more than compiling
ON_THEIR_OWN = ("while", "cond", "scan", "custom_vjp_call")  # side by side they would do more work


P = ParamSpec("P")
T = TypeVar("T")


def computed_once(function: Callable[P, T]) -> Callable[P, T]:
    """A function with equal expressions computed, and differentiated, only once.

    XLA does the same, but only after differentiation: a matrix that is factorized twice then has
    two derivatives to be carried back. The function is traced once for all programs that use it.
    """

    def once(*args: P.args, **kwargs: P.kwargs) -> T:
        traced, shape, leaves = _traced(function, *args, **kwargs)
        if traced.effects:  # no output needs what is printed, so that it would be left out
            return function(*args, **kwargs)
        outputs, values = _evaluate(traced, leaves)
        structure = jax.tree.structure(shape)
        return jax.tree.unflatten(structure, [values.alone(node) for node in outputs])

    return jax.jit(wraps(function)(once), inline=True)


def sum_computed_once(function: Callable[P, list[Array]]) -> Callable[P, Array]:
    """The same for the sum of the scalars that a function returns."""

    def once(*args: P.args, **kwargs: P.kwargs) -> Array:
        traced, _, leaves = _traced(function, *args, **kwargs)
        if traced.effects:
            return jnp.sum(jnp.stack(function(*args, **kwargs)))
        outputs, values = _evaluate(traced, leaves)
        return values.sum(outputs)

    return jax.jit(wraps(function)(once), inline=True)


def _traced(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, Any, list[Any]]:
    leaves, structure = jax.tree.flatten((args, kwargs))

    def flat(*leaves: Any) -> Any:
        args, kwargs = jax.tree.unflatten(structure, leaves)
        return function(*args, **kwargs)

    return *jax.make_jaxpr(flat, return_shape=True)(*leaves), leaves


def _evaluate(traced: Any, leaves: Sequence[Any]) -> tuple[list[Node], _Values]:
    graph, values = Graph(), _Values()
    sources = [graph.source("data", i, v.aval) for i, v in enumerate(traced.jaxpr.invars)]
    outputs = graph.read(traced.jaxpr, traced.consts, sources)
    values.found.update((node.number, leaf) for node, leaf in zip(sources, leaves))
    for nodes in _in_order(outputs):
        values.compute(nodes)
    return outputs, values


def _in_order(outputs: Iterable[Node]) -> list[list[Node]]:
    """The operations that outputs need, those of a kind together that do not need each other.

    An operation is done as soon as it can be where many of its kind can be done by then; otherwise
    as late as it can be: where a model goes through time, the terms of all steps wait for the last.
    """
    needed: dict[int, Node] = {}
    waiting = list(outputs)
    while waiting:
        node = waiting.pop()
        if node.number not in needed:
            needed[node.number] = node
            waiting += node.inputs
    nodes = [needed[number] for number in sorted(needed)]
    users: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        for i in node.inputs:
            users[i.number].append(node)
    kinds = {node.number: _kind(node, users) for node in nodes}
    soon: dict[int, int] = {}
    for node in nodes:
        soon[node.number] = 1 + max((soon[i.number] for i in node.inputs), default=0)
    many = Counter((soon[number], kind) for number, kind in kinds.items())
    late, time = dict[int, int](), dict[int, int]()
    for node in reversed(nodes):
        number, after = node.number, users[node.number]
        late[number] = min((late[user.number] for user in after), default=1 + len(nodes)) - 1
        wait = many[soon[number], kinds[number]] < FEWEST
        wait = wait and all(time[user.number] > late[number] for user in after)
        time[number] = late[number] if wait else soon[number]
    groups: dict[Any, list[Node]] = defaultdict(list)
    for node in nodes:
        groups[time[node.number], kinds[node.number]].append(node)
    return [groups[place] for place in sorted(groups, key=lambda place: place[0])]


def _kind(node: Node, users: Mapping[int, list[Node]]) -> Any:
    """What operations that can be done side by side have in common; their number if nothing."""
    if node.op == "slice" and (cut := _one_along(node)) is not None:
        whole = node.inputs[0].number
        if sum(user.op == "slice" for user in users[whole]) >= FEWEST:
            return node.op, whole, cut[0]
    if node.op == "part" and node.inputs[0].op == "split":
        return node.op, node.inputs[0].number, node.shape
    if node.op == "part":
        return node.op, node.value, _kind(node.inputs[0], users)
    alone = node.compute is None or node.op in ON_THEIR_OWN or "callback" in node.op
    alone = alone or (node.op in FACTORIZATIONS and may_wait_for_itself())
    if alone or node.size > LARGEST or any(map(_extended, (node, *node.inputs))):
        return node.number
    return node.op, node.key, tuple((i.shape, str(i.dtype)) for i in node.inputs)


def _extended(node: Node) -> bool:
    return node.dtype is not None and jnp.issubdtype(node.dtype, jax.dtypes.extended)


def _one_along(node: Node) -> tuple[int, int] | None:
    """The axis along which a slice takes a single element and all of the others, and which one."""
    starts, limits, whole = (
        node.params["start_indices"],
        node.params["limit_indices"],
        node.inputs[0].shape,
    )
    cut = [i for i, size in enumerate(whole) if (starts[i], limits[i]) != (0, size)]
    if node.params["strides"] is not None or len(cut) != 1:
        return None
    axis = cut[0]
    return (axis, starts[axis]) if limits[axis] == starts[axis] + 1 else None


class _Stack(NamedTuple):
    """Results of alike operations along a first axis; a list of them for several results."""

    value: Any
    length: int

    def take(self, rows: Sequence[int]) -> Any:
        """The results of some of them."""
        first, length = rows[0], len(rows)
        if list(rows) != list(range(first, first + length)):
            return jax.tree.map(lambda x: x[np.array(rows)], self.value)
        if length == self.length:
            return self.value
        return jax.tree.map(lambda x: lax.slice_in_dim(x, first, first + length), self.value)


class _Values:
    """Values of nodes: on their own, or as rows of stacks."""

    def __init__(self) -> None:
        self.found: dict[int, Any] = {}
        self.rows: dict[int, tuple[_Stack, int]] = {}

    # -- what is known ------------------------------------------------------------------------

    def alone(self, node: Node) -> Any:
        """The value of one node."""
        if node.number not in self.found:
            stack, row = self.rows[node.number]
            self.found[node.number] = jax.tree.map(lambda x: x[row], stack.value)
        return self.found[node.number]

    def stacked(self, nodes: Sequence[Node]) -> Array:
        """The values of nodes along a first axis."""
        pieces = []
        for stack, run in self._runs(nodes):
            if stack is not None:
                pieces.append(stack.take([self.rows[node.number][1] for node in run]))
            elif all(node.op == "constant" for node in run):
                pieces.append(np.stack([np.asarray(node.value, node.dtype) for node in run]))
            else:
                pieces.append(self._put(run, jnp.stack([self.alone(node) for node in run])))
        return pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces)

    def sum(self, nodes: Sequence[Node]) -> Array:
        """The sum of scalars."""
        by_stack: dict[int, list[Node]] = defaultdict(list)  # in the same order in every process
        for node in nodes:
            by_stack[id(self._stack(node))].append(node)
        return jnp.sum(jnp.stack([jnp.sum(self.stacked(own)) for own in by_stack.values()]))

    def _runs(self, nodes: Sequence[Node]) -> list[tuple[_Stack | None, list[Node]]]:
        """Nodes next to each other that are in the same stack, or in none."""
        groups = (list(run) for _, run in groupby(nodes, lambda node: id(self._stack(node))))
        return [(self._stack(run[0]), run) for run in groups]

    # -- what is added ------------------------------------------------------------------------

    def compute(self, nodes: list[Node]) -> None:
        """Adds the values of operations whose inputs are known: side by side, if many are alike."""
        for alike in self._alike(nodes):
            value = self._side_by_side(alike) if len(alike) >= FEWEST else None
            if value is not None:
                self._put(alike, value)
                continue
            for node in alike:
                if node.number not in self.found:
                    self.found[node.number] = self._alone(node)

    def _alike(self, nodes: list[Node]) -> list[list[Node]]:
        """Operations of one kind by the stacks of their inputs, and by constants shared by many."""

        def by(key: Callable[[Node], Any], nodes: list[Node]) -> list[list[Node]]:
            groups: dict[Any, list[Node]] = defaultdict(list)
            for node in nodes:
                groups[tuple(map(key, node.inputs))].append(node)
            return list(groups.values())

        def constant(node: Node) -> int | None:
            return node.number if node.op == "constant" else None

        found = []
        for group in by(lambda node: id(self._stack(node)), nodes):
            parts = by(constant, group)
            found += [part for part in parts if len(part) >= FEWEST]
            found.append([node for part in parts if len(part) < FEWEST for node in part])
        return found

    def _put(self, nodes: Sequence[Node], value: Any) -> Any:
        stack = _Stack(value, len(nodes))
        self.rows.update((node.number, (stack, row)) for row, node in enumerate(nodes))
        return value

    def _stack(self, node: Node) -> _Stack | None:
        return self.rows[node.number][0] if node.number in self.rows else None

    def _alone(self, node: Node) -> Any:
        if node.op == "constant":
            return node.value
        if node.op == "part":
            return self.alone(node.inputs[0])[node.value]
        if node.op == "concatenate":
            return self._concatenated(node)
        assert node.compute is not None  # inputs are known from the start
        return node.compute(*map(self.alone, node.inputs))

    def _side_by_side(self, nodes: list[Node]) -> Any:
        """The stacked values of alike operations; None where they are better done one by one."""
        first = nodes[0]
        cuts = [cut for node in nodes if node.op == "slice" and (cut := _one_along(node))]
        if cuts and all(node.inputs == first.inputs for node in nodes):
            axis = cuts[0][0]
            rows = jnp.moveaxis(self.alone(first.inputs[0]), axis, 0)
            taken = _Stack(rows, len(rows)).take([start for _, start in cuts])
            return jnp.expand_dims(taken, 1 + axis)
        if first.op == "part":
            whole = first.inputs[0]
            if whole.op == "split":
                return self._split(whole, [node.value for node in nodes])
            wholes = [node.inputs[0] for node in nodes]
            ((stack, _), *others) = self._runs(wholes)
            if stack is None or others:
                return None
            return stack.take([self.rows[node.number][1] for node in wholes])[first.value]
        inputs, axes = [], []
        for column in zip(*(node.inputs for node in nodes)):
            shared = all(node is column[0] for node in column)
            if not shared and column[0].size > LARGEST:
                return None
            inputs.append(self.alone(column[0]) if shared else self.stacked(column))
            axes.append(None if shared else 0)
        assert first.compute is not None  # inputs are never alike
        return jax.vmap(first.compute, axes)(*inputs)

    def _split(self, whole: Node, parts: list[int]) -> Any:
        """Parts of equal size of an array, from one slice of it where they follow each other."""
        axis, sizes = whole.params["axis"], whole.params["sizes"]
        if parts != list(range(parts[0], parts[0] + len(parts))):
            return None
        start, size = sum(sizes[: parts[0]]), sizes[parts[0]]
        array = lax.slice_in_dim(
            self.alone(whole.inputs[0]), start, start + size * len(parts), axis=axis
        )
        shape = (*array.shape[:axis], len(parts), size, *array.shape[axis + 1 :])
        return jnp.moveaxis(array.reshape(shape), axis, 0)

    def _concatenated(self, node: Node) -> Array:
        axis: int = node.params["dimension"]
        pieces: list[Any] = []
        for stack, run in self._runs(node.inputs):
            if stack is None:
                pieces += map(self.alone, run)
                continue
            rows = jnp.moveaxis(self.stacked(run), 0, axis)
            shape = (*rows.shape[:axis], -1, *rows.shape[axis + 2 :])
            pieces.append(rows.reshape(shape))
        return lax.concatenate(pieces, axis)
