"""Follows noise through a model, as long as all that becomes of it is `a + b * noise`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from autoreparam.program.dependence import Names
from autoreparam.program.graph import Graph, Node
from autoreparam.program.implicit.facts import NEGATIVE, POSITIVE, Facts
from autoreparam.program.implicit.moves import (
    BINARY,
    Move,
    Steps,
    move_of,
    pull,
    rearrange,
    reshaped,
    transposed,
)

DIFFERS = "it is combined with something that differs between uses of one element"


@dataclass(frozen=True, eq=False)
class Matrix:
    """Elements are mixed along the last axis by a lower triangular factor."""

    factor: Node


@dataclass(frozen=True, eq=False)
class Cumulative:
    """Elements are added up along an axis."""

    axis: int


@dataclass(frozen=True, eq=False)
class Form:
    """What has become of the noise at a node: `offset + gain * noise`, rearranged by moves.

    Gain and offset are None where they are 1 and 0. They broadcast against the noise or, where its
    elements are coupled, against the noise after `layout`.
    """

    node: Node
    noise: Node
    gain: Node | None = None
    offset: Node | None = None
    negative: bool = False  # the sign of the gain
    moves: tuple[Move, ...] = ()
    layout: Steps = ()
    coupling: Any = None  # None, Matrix, Cumulative or a Loop

    @property
    def names(self) -> Names:
        """The latents that location and scale depend on."""
        parts = [self.gain, self.offset, getattr(self.coupling, "factor", None)]
        found = frozenset().union(*(part.names for part in parts if part is not None))
        return found | getattr(self.coupling, "names", frozenset())

    @property
    def at_home(self) -> bool:
        """Whether the node has one element per element of the noise, in the same place."""
        return (
            not self.layout
            and all(move.exact for move in self.moves)
            and (self.node.shape == self.noise.shape)
        )


class Stop(Exception):  # noqa: N818 - the end of a walk, in words
    """Says why the walk ends here."""


def _refuse_loops(walk: Walk, form: Form, node: Node) -> Any:
    raise Stop("it is used in a loop inside a loop")


@dataclass(eq=False)
class Walk:
    """A walk through one graph; `free` are the latents that a form may depend on."""

    graph: Graph
    facts: Facts
    users: dict[int, list[Node]]
    ends: frozenset[int]  # nodes that are parameters of distributions
    positive: bool = False  # the noise is, so it can be scaled but not shifted
    coupled: bool = False  # elements of the noise are, so nothing else may couple them
    normal: bool = True
    free: Names = frozenset()
    enter: Callable[[Walk, Form, Node], Any] = _refuse_loops
    forms: list[Form] = field(default_factory=list)

    def follow(self, noise: Node) -> str:
        """Gathers the forms, each a step after the one before; the reason why the walk ended."""
        form = Form(noise, noise)
        self.forms = [form]
        try:
            while True:
                form = self._step(form)
                self.forms.append(form)
        except Stop as reason:
            return str(reason)

    def _step(self, form: Form) -> Form:
        here, users = form.node, self.users.get(form.node.number, [])
        if here.number in self.ends:
            raise Stop("" if not users else _places(len(users) + 1))
        if len(users) != 1:
            raise Stop(_places(len(users)) if users else "nothing depends on it")
        node = users[0]
        if node.inputs.count(here) > 1:
            raise Stop("it is combined with itself")
        if node.op in BINARY and node.shape != here.shape:
            raise Stop(DIFFERS)
        if move := move_of(node, here):
            return replace(form, node=node, moves=(*form.moves, move))
        if node.op in ("add", "sub", "add_any"):
            return self._shift(form, node)
        if node.op in ("mul", "div"):
            return self._scale(form, node)
        if node.op == "neg":
            return self._times(replace(form, node=node), None, NEGATIVE)
        if node.op == "dot_general":
            return self._mix(form, node)
        if node.op == "cumsum":
            return self._add_up(form, node)
        if node.op == "scan":
            self._may_couple(form, None)
            form = self._laid_out(form, ())
            loop = self.enter(self, form, node)
            return replace(form, node=node, moves=(), coupling=loop, negative=loop.form.negative)
        raise Stop(f"it is used in a way that is not affine ({node.op})")

    # -- a + b * noise ------------------------------------------------------------------------

    def _shift(self, form: Form, node: Node) -> Form:
        if self.positive:
            raise Stop("it is positive, and shifted")
        first = node.inputs[0] is form.node
        other = self._other(form, node.inputs[1] if first else node.inputs[0])
        if node.op == "sub" and not first:
            form = self._times(form, None, NEGATIVE)
        op = "sub" if node.op == "sub" and first else "add"
        offset = other
        if form.offset is not None:
            offset = self._call(op, form.offset, other)
        elif op == "sub":
            offset = self.graph.call(jnp.negative, other, op="neg")
        return replace(form, node=node, offset=offset)

    def _scale(self, form: Form, node: Node) -> Form:
        if node.op == "div" and node.inputs[1] is form.node:
            raise Stop("it is used in a way that is not affine (it divides)")
        other = self._other(form, node.inputs[1 - node.inputs.index(form.node)])
        return self._times(replace(form, node=node), other, self.facts.sign(other), node.op)

    def _times(self, form: Form, by: Node | None, sign: str, op: str = "mul") -> Form:
        """The form multiplied (or divided) by a node of known sign, or by -1."""
        if sign not in (POSITIVE, NEGATIVE):
            raise Stop("what it is multiplied by may be zero or change its sign")
        if self.positive and sign == NEGATIVE:
            raise Stop("it is positive, and its sign is changed")
        if by is None:
            by = self.graph.constant(np.asarray(-1, form.noise.dtype))
        if isinstance(form.coupling, Cumulative) and by.shape:
            raise Stop("a sum along an axis is multiplied by different numbers along it")
        gain = self._call(op, form.gain, by) if form.gain or op == "div" else by
        offset = self._call(op, form.offset, by) if form.offset else None
        return replace(form, gain=gain, offset=offset, negative=form.negative != (sign == NEGATIVE))

    def _call(self, op: str, left: Node | None, right: Node) -> Node:
        if left is None:
            left = self.graph.constant(np.asarray(1, right.dtype))
        return self.graph.call(BINARY[op], left, right, op=op)

    def _other(self, form: Form, node: Node) -> Node:
        """What the form is combined with, as it was before the form's moves."""
        later = sorted(node.names - self.free)
        if later:
            raise Stop(f"it is combined with {', '.join(later)}, which cannot come before it")
        found = pull(self.graph, node, form.moves)
        if found is None:
            raise Stop(DIFFERS)
        return found

    # -- coupled elements ---------------------------------------------------------------------

    def _mix(self, form: Form, node: Node) -> Form:
        numbers, sides = node.params["dimension_numbers"], node.inputs
        mine = 0 if sides[0] is form.node else 1
        noise, matrix = sides[mine], sides[1 - mine]
        summed, batch = (part[mine] for part in numbers)
        summed_matrix, batch_matrix = (part[1 - mine] for part in numbers)
        rows = [i for i in range(len(matrix.shape)) if i not in (*summed_matrix, *batch_matrix)]
        if len(summed) != 1 or len(rows) != 1 or noise.shape[summed[0]] != matrix.shape[rows[0]]:
            raise Stop("it is multiplied by a matrix that is not square")
        self._may_couple(form, matrix)
        if not self.facts.lower(matrix, rows[0], summed_matrix[0]):
            raise Stop("it is multiplied by a matrix that is not known to be lower triangular")
        others = [i for i in range(len(noise.shape)) if i not in (*summed, *batch)]
        order = (*batch, *others, *summed)
        form = self._laid_out(form, (("transpose", order),))
        factor = transposed(self.graph, matrix, (*batch_matrix, *rows, *summed_matrix))
        ones = (1,) * len(others)
        shape = (*factor.shape[:-2], *ones, *factor.shape[-2:])
        factor = reshaped(self.graph, factor, shape)
        if form.gain is not None:  # of the columns
            factor = self.graph.call(_by_columns, factor, form.gain, op="columns")
        offset = None
        if form.offset is not None:
            offset = self.graph.call(_mixed, factor, form.offset, op="mixed")
        count, ndim = len(batch), len(order)
        if mine == 1:  # the matrix's rows come before the other axes
            back = (*range(count), ndim - 1, *range(count, ndim - 1))
        else:
            back = tuple(range(ndim))
        before = transposed(self.graph, node, tuple(sorted(range(ndim), key=back.__getitem__)))
        moves = (Move(node, before, back),)
        return replace(
            form, node=node, gain=None, offset=offset, moves=moves, coupling=Matrix(factor)
        )

    def _add_up(self, form: Form, node: Node) -> Form:
        self._may_couple(form, None)
        if node.params["reverse"]:
            raise Stop("it is added up from the end")
        form = self._laid_out(form, ())
        offset = None
        if form.offset is not None:
            add = partial(_added_up, axis=node.params["axis"], shape=node.shape)
            offset = self.graph.call(add, form.offset, op="cumsum", axis=node.params["axis"])
        axis = node.params["axis"] - len(node.shape)
        return replace(form, node=node, offset=offset, moves=(), coupling=Cumulative(axis))

    def _may_couple(self, form: Form, by: Node | None) -> None:
        if by is None and not self.normal:
            raise Stop("it is added up, but not Normal")
        if form.coupling is not None or self.coupled:
            raise Stop("its elements are coupled in two ways")
        if self.positive:
            raise Stop("it is positive, and its elements are coupled")
        if form.negative or not all(move.exact for move in form.moves):
            raise Stop("its elements are repeated or change sign before they are coupled")
        later = sorted(by.names - self.free) if by else []
        if later:
            raise Stop(f"it is combined with {', '.join(later)}, which cannot come before it")

    def _laid_out(self, form: Form, more: Steps) -> Form:
        """The form with its location and scale where its node is, after further steps."""
        steps = (*(move.step for move in form.moves), *more)
        if not steps:
            return form
        place = partial(_placed, steps=steps, shape=form.noise.shape)

        def placed(node: Node | None) -> Node | None:
            if node is None or not node.shape:
                return node
            return self.graph.call(place, node, op="placed", steps=steps)

        return replace(
            form, gain=placed(form.gain), offset=placed(form.offset), layout=steps, moves=()
        )


def _places(count: int) -> str:
    return f"it is used in {count} different expressions"


def _placed(value: Any, steps: Steps, shape: tuple[int, ...]) -> Any:
    return rearrange(jnp.broadcast_to(value, shape), steps)


def _by_columns(factor: Any, gain: Any) -> Any:
    return factor * (gain if jnp.ndim(gain) == 0 else gain[..., None, :])


def _mixed(factor: Any, offset: Any) -> Any:
    offset = jnp.broadcast_to(offset, (*jnp.shape(offset)[:-1], factor.shape[-1]))
    return jnp.sum(factor * offset[..., None, :], axis=-1)


def _added_up(value: Any, axis: int, shape: tuple[int, ...]) -> Any:
    return jnp.cumsum(jnp.broadcast_to(value, shape), axis)
