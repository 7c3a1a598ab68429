"""A traced model as a graph in which equal expressions are one node, and the value of a node.

Calls that only name a part of a computation are opened; those with derivatives of their own stay
whole, so that a value computed from the graph has the gradient that the model's would have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.extend.core import Literal

from autoreparam.program.dependence import Names, outputs_depend_on, scan_inputs

OPENED = ("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "remat2")
LIBRARIES = [str(Path(file).parent) for file in (__file__, jax.__file__, numpyro.__file__)]
LARGEST_COMPARED = 1 << 22  # bytes; larger constants are equal only if they are the same array


@dataclass(frozen=True, eq=False)
class Node:
    """One array of a computation: an operation and what it is applied to."""

    number: int  # inputs have lower ones
    op: str  # the name of JAX's operation; "latent", "data", "constant", "part"
    inputs: tuple[Node, ...]
    shape: tuple[int, ...]
    dtype: Any
    names: Names  # of the latents it depends on
    params: Mapping[str, Any] = field(default_factory=dict)
    key: Any = None  # two nodes with the same operation and key do the same to their inputs
    compute: Callable[..., Any] | None = None  # from the inputs' values
    value: Any = None  # of a constant; which one it is, of the other inputs

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=int))


class Graph:
    """All nodes of a computation; asking for a node that is there already gives that one."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._known: dict[Any, Node] = {}

    # -- nodes --------------------------------------------------------------------------------

    def make(
        self,
        op: str,
        inputs: Sequence[Node],
        aval: Any,
        compute: Callable[..., Any] | None,
        params: Mapping[str, Any] | None = None,
        *,
        names: Names | None = None,
        key: Any = None,
        value: Any = None,
    ) -> Node:
        """The node of an operation on nodes; `key` tells operations of the same name apart."""
        known = (op, tuple(node.number for node in inputs), key)
        if known not in self._known:
            if names is None:
                names = frozenset().union(*(node.names for node in inputs))
            shape, dtype = tuple(getattr(aval, "shape", ())), getattr(aval, "dtype", None)
            number = len(self.nodes)
            node = Node(
                number, op, tuple(inputs), shape, dtype, names, params or {}, key, compute, value
            )
            self.nodes.append(node)
            self._known[known] = node
        return self._known[known]

    def source(self, op: str, which: Any, aval: Any) -> Node:
        """The node of a latent, by its name, or of another input."""
        names = frozenset({which}) if op == "latent" else frozenset[str]()
        return self.make(op, (), aval, None, names=names, key=which, value=which)

    def constant(self, value: Any, aval: Any = None) -> Node:
        """The node of a known array."""
        aval = jax.typeof(value) if aval is None else aval
        key: Any = id(value)
        known = not isinstance(value, jax.core.Tracer)
        if known and not jnp.issubdtype(aval.dtype, jax.dtypes.extended):
            array = np.asarray(value)
            if array.nbytes <= LARGEST_COMPARED:
                key = (str(array.dtype), array.shape, array.tobytes())
        return self.make("constant", (), aval, None, key=key, value=value)

    def call(self, function: Callable[..., Any], *inputs: Node, op: str, **params: Any) -> Node:
        """The node of a function of arrays; its operation and parameters say which one it is."""
        shapes = [jax.ShapeDtypeStruct(node.shape, node.dtype) for node in inputs]
        aval, key = jax.eval_shape(function, *shapes), ("call", str(params))
        return self.make(op, inputs, aval, function, params, key=key)

    # -- a traced function --------------------------------------------------------------------

    def read(self, jaxpr: Any, constants: Iterable[Any], inputs: Sequence[Node]) -> list[Node]:
        """The outputs of a traced function at the given inputs."""
        found: dict[Any, Node] = dict(zip(jaxpr.constvars, map(self.constant, constants)))
        found.update(zip(jaxpr.invars, inputs))

        def node(variable: Any) -> Node:
            if isinstance(variable, Literal):
                return self.constant(variable.val, variable.aval)
            return found[variable]

        for equation in jaxpr.eqns:
            outputs = self._outputs(equation, [node(variable) for variable in equation.invars])
            found.update(zip(equation.outvars, outputs))
        return [node(variable) for variable in jaxpr.outvars]

    def _outputs(self, equation: Any, inputs: list[Node]) -> list[Node]:
        op, params = equation.primitive.name, equation.params
        if op in OPENED:
            inner = params.get("jaxpr", params.get("call_jaxpr"))
            return self.read(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), inputs)
        avals = [variable.aval for variable in equation.outvars]
        if op in ("convert_element_type", "copy") and inputs[0].dtype == avals[0].dtype:
            return inputs  # a change of "weak" type
        if op == "pad" and not any(map(any, params["padding_config"])):
            return inputs[:1]

        if (same := _unchanged(op, inputs, params)) and same.shape == avals[0].shape:
            return [same]

        def compute(*values: Any) -> Any:
            found = equation.primitive.get_bind_params(params)
            functions, bound = found if isinstance(found, tuple) else ((), found)  # newer JAX
            return equation.primitive.bind(*functions, *values, **bound)

        if op == "custom_vjp_call":  # it may index inputs with what is traced: no constants then
            compute = jax.jit(compute)
        key = _key(op, params)
        if not equation.primitive.multiple_results:
            return [self.make(op, inputs, avals[0], compute, params, key=key)]
        names = outputs_depend_on(equation, [node.names for node in inputs])
        whole = self.make(op, inputs, None, compute, {**params, "equation": equation}, key=key)
        parts = [
            self.make("part", (whole,), aval, None, names=own, key=i, value=i)
            for i, (aval, own) in enumerate(zip(avals, names))
        ]
        if op == "scan":  # what a loop gives out unchanged at every step needs no loop
            carried = scan_inputs(equation)[1]
            for i, variable in enumerate(params["jaxpr"].jaxpr.outvars):
                if isinstance(variable, Literal) and i >= carried:
                    parts[i] = self.constant(np.broadcast_to(variable.val, avals[i].shape))
        return parts


def _unchanged(op: str, inputs: Sequence[Node], params: Mapping[str, Any]) -> Node | None:
    """The input that an operation gives back as it is, if it does."""
    if op in ("add", "sub") and uniform(inputs[1]) == 0:
        return inputs[0]
    if op == "add" and uniform(inputs[0]) == 0:
        return inputs[1]
    if op in ("mul", "div", "pow") and uniform(inputs[1]) == 1:
        return inputs[0]
    if op == "mul" and uniform(inputs[0]) == 1:
        return inputs[1]
    return inputs[0] if op == "integer_pow" and params["y"] == 1 else None


def uniform(node: Node) -> float | None:
    """The number that all elements of a node are known to be."""
    while node.op in ("broadcast_in_dim", "reshape", "convert_element_type", "squeeze"):
        node = node.inputs[0]
    if node.op == "mul" and any(i.op == "constant" and uniform(i) == 0 for i in node.inputs):
        return 0.0
    if node.op != "constant" or not jnp.issubdtype(node.dtype, jnp.number) or not node.size:
        return None
    values = np.asarray(node.value)
    return float(values.flat[0]) if (values == values.flat[0]).all() else None


def _key(op: str, params: Mapping[str, Any]) -> Any:
    """What tells an operation from others of its name."""
    if op == "custom_jvp_call" and (rule := _library_rule(params)):
        return rule, str(params["call_jaxpr"]), params["symbolic_zeros"]
    return tuple((name, _frozen(value)) for name, value in sorted(params.items()))


def _library_rule(params: Mapping[str, Any]) -> str | None:
    """The place of a derivative's code, where that and the function's own text say all.

    In a model's own code it may use anything, so there each call is on its own.
    """
    if getattr(params["call_jaxpr"], "consts", ()):
        return None
    debug = getattr(params.get("jvp_jaxpr_fun"), "debug_info", None)
    place = str(getattr(debug, "func_src_info", ""))
    return place if any(f" at {folder}" in place for folder in LIBRARIES) else None


def _frozen(value: Any) -> Any:
    """A value to compare by: equal only where it is certain that the values are."""
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), _frozen(inner)) for key, inner in value.items()))
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def evaluate(
    nodes: Sequence[Node],
    given: Mapping[tuple[str, Any], Any],
    known: dict[int, Any] | None = None,
) -> list[Any]:
    """The values of nodes; `given` has those of inputs, by operation and which one they are.

    `known` are values of nodes by number; those found here are added.
    """
    values = {} if known is None else known
    needed: dict[int, Node] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.number not in needed and node.number not in values:
            needed[node.number] = node
            waiting += node.inputs
    for number in sorted(needed):
        node = needed[number]
        if node.op == "constant":
            values[number] = node.value
        elif node.op == "part":
            values[number] = values[node.inputs[0].number][node.value]
        elif node.compute is None:
            values[number] = jnp.asarray(given[node.op, node.value], node.dtype)
        else:
            values[number] = node.compute(*(values[i.number] for i in node.inputs))
    return [values[node.number] for node in nodes]
