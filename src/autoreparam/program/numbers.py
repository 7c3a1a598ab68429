"""Refuses numbers that JAX would change without a word."""

from __future__ import annotations

from collections.abc import Mapping
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
        kind = getattr(getattr(value, "dtype", None), "kind", "i" if type(value) is int else "")
        if kind not in NARROW or isinstance(value, jax.Array) or np.size(value) == 0:
            continue
        limits = np.iinfo(NARROW[kind])
        worst = next((x for x in (np.min(value), np.max(value)) if not _fits(x, limits)), None)
        if worst is not None:
            raise WideIntegerError(
                f"'{name}' holds the integer {int(worst):,}, which does not fit into single "
                f"precision ({limits.min:,} to {limits.max:,}): JAX would wrap it around without a "
                "word. Pass it as a float, numpy.asarray(..., float), or compute in double "
                "precision: precision='double' of ar.sample, or "
                "jax.config.update('jax_enable_x64', True)."
            )


def _fits(value: Any, limits: Any) -> bool:
    return bool(limits.min <= value <= limits.max)


def refuse_stale(named: Mapping[str, Any]) -> None:
    """Raises if JAX still sees earlier numbers of an array that was changed in place.

    It converts arrays of 64 bits once, and keeps the result for as long as the array lives.
    """
    for name, value in named.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu":
            continue
        if value.dtype == jax.dtypes.canonicalize_dtype(value.dtype):
            continue
        consts = jax.make_jaxpr(lambda value=value: jax.lax.neg(value))().consts
        if consts and not np.array_equal(
            np.asarray(consts[0]), value.astype(consts[0].dtype), equal_nan=True
        ):
            raise ModelError(
                f"the array '{name}', which the model captures, was changed in place, and JAX "
                "still sees its earlier numbers. Pass it to the model as an argument, or replace "
                f"it: {name} = {name}.copy()."
            )
