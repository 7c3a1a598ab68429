"""Refuses numbers that JAX would change without a word."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autoreparam.errors import ModelError

NARROW = {"i": np.int32, "u": np.uint32}  # the widest integers of single precision


class WideIntegerError(ModelError):
    """Integers that single precision cannot hold, and double precision can."""


def refuse_wrapped(named: Mapping[str, Any]) -> None:
    """Raises if JAX, in single precision, would wrap one of these integers around."""
    if jnp.result_type(float) == jnp.float64:
        return
    for name, value in named.items():
        if not isinstance(value, jax.Array):
            _refuse_wide(f"'{name}'", value)


def refuse_wrapped_inside(
    traced: Any, data: Mapping[str, Any], held: Mapping[str, np.ndarray]
) -> None:
    """Raises if JAX, in single precision, wrapped an array around that the traced model uses.

    `data` are the first inputs of the trace and `held` other arrays that the model could read, both
    by name; one that it does not use, such as a column of a table, does no harm.
    """
    if jnp.result_type(float) == jnp.float64:
        return
    read = {id(x) for equation in traced.jaxpr.eqns for x in equation.invars}
    read |= {id(x) for x in traced.jaxpr.outvars}
    used = zip(data.items(), traced.jaxpr.invars)
    refuse_wrapped(dict(item for item, variable in used if id(variable) in read))
    constants = [np.asarray(constant) for constant in _constants(traced) if _kind(constant)]
    for name, value in held.items():
        if _widest(value) is not None:
            wrapped = value.astype(NARROW[_kind(value)])
            if any(np.array_equal(constant, wrapped) for constant in constants):
                _refuse_wide(f"'{name}'", value)


def _constants(traced: Any) -> Iterator[Any]:
    """The constants of a traced function and of all that it calls."""
    yield from getattr(traced, "consts", ())
    for equation in getattr(traced, "jaxpr", traced).eqns:
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(inner, "eqns"):
                yield from _constants(inner)


def _refuse_wide(what: str, value: Any) -> None:
    widest = _widest(value)
    if widest is not None:
        limits = np.iinfo(NARROW[_kind(value)])
        raise WideIntegerError(
            f"{what} holds the integer {widest:,}, which does not fit into single precision "
            f"({limits.min:,} to {limits.max:,}): JAX would wrap it around without a word. Pass it "
            "as a float, numpy.asarray(..., float), or compute in double precision: "
            "precision='double' of ar.sample, or jax.config.update('jax_enable_x64', True)."
        )


def _widest(value: Any) -> int | None:
    """An integer in it that single precision cannot hold, if there is one."""
    if _kind(value) not in NARROW or np.size(value) == 0:
        return None
    limits = np.iinfo(NARROW[_kind(value)])
    ends = (int(np.min(value)), int(np.max(value)))
    return next((end for end in ends if not limits.min <= end <= limits.max), None)


def _kind(value: Any) -> str:
    return getattr(getattr(value, "dtype", None), "kind", "i" if type(value) is int else "")


def refuse_stale(named: Mapping[str, Any]) -> None:
    """Raises if JAX still sees earlier numbers of an array, or those of another precision.

    It converts arrays of 64 bits once, and keeps the result for as long as anything compiled holds
    it, also after a change in place, and after a change of precision.
    """
    for name, value in named.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu":
            continue
        if value.dtype.itemsize < 8:
            continue
        expected = jax.dtypes.canonicalize_dtype(value.dtype)
        if _seen(value).dtype != expected:
            jax.clear_caches()
            gc.collect()
        seen = _seen(value)
        remedy = f"Pass it to the model as an argument, or replace it: {name} = {name}.copy()."
        if seen.dtype != expected and value.dtype.kind != "f":  # operations refuse mixed integers
            raise ModelError(
                f"the array '{name}', which the model captures, was used in another precision "
                f"before, and JAX still sees it so. {remedy}"
            )
        if not np.array_equal(seen, value.astype(seen.dtype, copy=False), equal_nan=True):
            raise ModelError(
                f"the array '{name}', which the model captures, was changed in place, and JAX "
                f"still sees its earlier numbers. {remedy}"
            )


def _seen(value: np.ndarray) -> np.ndarray:
    """What JAX takes for the numbers of an array."""
    consts = jax.make_jaxpr(lambda: jax.lax.neg(value))().consts
    if not consts:  # a single number, of which nothing is kept
        return value.astype(jax.dtypes.canonicalize_dtype(value.dtype))
    return np.asarray(consts[0])
