"""Indices in a model's data that point beyond what they index, which JAX does not tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, jaxpr_as_fun
from jax.lax import GatherScatterMode
from numpyro.handlers import seed

from autoreparam.program.program import Program
from autoreparam.program.record import Record
from autoreparam.program.site import ONE_AT_A_TIME


class _Known(NamedTuple):
    """A value that the data determine, and the argument that it comes from: "" for a constant."""

    value: Any
    name: str = ""


class _Anything(Record):
    anything = True


def about_indices(program: Program) -> tuple[str, ...]:
    """A sentence for each argument that holds an index beyond the axis it is used on.

    `theta[group]` promises JAX that every group is there; for a group that is not, it silently
    takes the nearest one.
    """
    structure = program.structure

    def run(data: tuple) -> tuple:
        args, kwargs = structure.arguments.fill(data)
        with ONE_AT_A_TIME, _Anything():
            seed(structure.model, 0)(*args, **kwargs)
        return ()

    if any(isinstance(leaf, jax.core.Tracer) for leaf in program.data):
        return ()
    traced = jax.make_jaxpr(run)(program.data)
    names = structure.arguments.names(structure.model)
    quoted = {number: f"'{name}'" for number, name in names.items()}
    given = [
        _Known(np.asarray(leaf), quoted.get(number, "")) if _counts(leaf) else None
        for number, leaf in enumerate(program.data)
    ]
    found: dict[str, str] = {}
    for name, index, length in _strays(traced.jaxpr, [_Known(c) for c in traced.consts], given):
        found.setdefault(
            name,
            f"{f'{name} holds' if name else 'The model uses'} the index {index} on an axis of "
            f"{length} elements, 0 to {length - 1}: JAX takes another one instead, without a "
            "word. Indices count from 0; a new group needs an element of its own.",
        )
    return tuple(found.values())


def _counts(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.integer)


def _strays(jaxpr: Any, consts: list, given: list) -> Iterator[tuple[str, int, int]]:
    """The argument, the index and the length of the axis, of each index that is out of range.

    Only integers are computed, and only where the data determine them.
    """
    known: dict[Any, _Known] = {}
    known |= {v: x for v, x in zip(jaxpr.constvars, consts) if x is not None}
    known |= {v: x for v, x in zip(jaxpr.invars, given) if x is not None}

    def read(atom: Any) -> _Known | None:
        return _Known(atom.val) if isinstance(atom, Literal) else known.get(atom)

    for eqn in jaxpr.eqns:
        inputs = [read(atom) for atom in eqn.invars]
        inner = eqn.params.get("jaxpr") if eqn.primitive.name in ("jit", "pjit") else None
        if inner is not None:
            outputs: list = []
            yield from _inside(inner, inputs, outputs)
            known |= {v: x for v, x in zip(eqn.outvars, outputs) if x is not None}
        elif eqn.primitive is jax.lax.gather_p and inputs[1] is not None:
            yield from _beyond(eqn, inputs[1])
        elif all(x is not None for x in inputs) and known.keys() & _variables(eqn) and _whole(eqn):
            values = _computed(eqn, [x.value for x in inputs if x])
            known |= {v: _Known(x, _origin(inputs)) for v, x in zip(eqn.outvars, values)}


def _inside(closed: Any, inputs: list, outputs: list) -> Iterator[tuple[str, int, int]]:
    """The same inside a compiled function, whose results are added to `outputs`."""
    yield from _strays(closed.jaxpr, [_Known(c) for c in closed.consts], inputs)
    alone = dict(zip(closed.jaxpr.invars, inputs))
    if all(x is not None for x in inputs) and all(_integer(v) for v in closed.jaxpr.outvars):
        values = jaxpr_as_fun(closed)(*(jnp.asarray(x.value) for x in inputs))
        outputs += [_Known(value, _origin(inputs)) for value in values]
    else:
        free = [None if isinstance(v, Literal) else v for v in closed.jaxpr.outvars]
        outputs += [alone.get(v) for v in free]


def _origin(inputs: list) -> str:
    return " or ".join(dict.fromkeys(x.name for x in inputs if x and x.name))


# Without compiling: what indexing is made of.
BY_NUMPY: dict[str, Callable] = {
    "lt": np.less, "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum,
    "select_n": lambda which, no, yes: np.where(which, yes, no),
}  # fmt: skip


def _computed(eqn: Any, values: list) -> list:
    name, params = eqn.primitive.name, eqn.params
    if name in BY_NUMPY and len(values) <= 3:
        return [BY_NUMPY[name](*values)]
    if name == "convert_element_type":
        return [np.asarray(values[0]).astype(params["new_dtype"])]
    if name == "broadcast_in_dim":
        shape = [1] * len(params["shape"])
        for axis, length in zip(params["broadcast_dimensions"], np.shape(values[0])):
            shape[axis] = length
        return [np.broadcast_to(np.reshape(values[0], shape), params["shape"])]
    if name == "concatenate":
        return [np.concatenate([np.asarray(value) for value in values], params["dimension"])]
    found = eqn.primitive.bind(*map(jnp.asarray, values), **params)
    return found if eqn.primitive.multiple_results else [found]


def _integer(atom: Any) -> bool:
    return jnp.issubdtype(atom.aval.dtype, jnp.integer) or atom.aval.dtype == bool


def _variables(eqn: Any) -> set:
    """What an operation computes with besides literals: random keys begin with these alone."""
    return {atom for atom in eqn.invars if not isinstance(atom, Literal)}


def _whole(eqn: Any) -> bool:
    """Whether an operation gives whole numbers, and is not a loop or branch."""
    parts = [p for v in eqn.params.values() for p in (v if isinstance(v, tuple | list) else (v,))]
    plain = not any(hasattr(part, "jaxpr") or hasattr(part, "eqns") for part in parts)
    return plain and all(map(_integer, eqn.outvars))


def _beyond(eqn: Any, index: _Known) -> Iterator[tuple[str, int, int]]:
    if eqn.params["mode"] not in (GatherScatterMode.PROMISE_IN_BOUNDS, GatherScatterMode.CLIP):
        return
    places, shape = np.asarray(index.value), eqn.invars[0].aval.shape
    for column, axis in enumerate(eqn.params["dimension_numbers"].start_index_map):
        last = shape[axis] - eqn.params["slice_sizes"][axis]
        own = places[..., column]
        wrong = own[(own < 0) | (own > last)]
        if wrong.size:
            first = int(wrong[0])  # a negative one has the length added already
            yield index.name, first if first >= 0 else first - shape[axis], shape[axis]
