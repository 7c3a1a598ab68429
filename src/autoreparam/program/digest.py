"""What a traced model computes, as digests that are the same in every process."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

ADDRESS = re.compile(r" at 0x[0-9a-f]+|0x[0-9a-f]{6,}")


def output_digests(traced: Any, inputs: Sequence[str]) -> list[str]:
    """A digest per output of a traced function: of all operations and constants it is made of.

    `inputs` names the function's inputs. An output whose digest is the same is computed in the same
    way; names of variables, addresses and operations that do not reach it play no part.
    """
    return _outputs(traced.jaxpr, [value_digest(c) for c in traced.consts], inputs)


def value_digest(value: Any) -> str:
    """A digest of a number, an array or a text; of anything else, of its type."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if isinstance(value, str):
        return _digest("text", value)
    if value is None or not (np.isscalar(value) or hasattr(value, "__array__")):
        return _digest(type(value).__qualname__)
    array = np.asarray(value)
    if array.dtype.kind == "O":
        return _digest("objects", repr(array.tolist()))
    return _digest(str(array.dtype), str(array.shape), array.tobytes())


def _outputs(jaxpr: Any, constants: Sequence[str], inputs: Sequence[str]) -> list[str]:
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inputs]))

    def read(variable: Any) -> str:
        if isinstance(variable, Literal):
            return _digest(str(variable.aval), value_digest(variable.val))
        return known[variable]

    for equation in jaxpr.eqns:
        made = _digest(equation.primitive.name, _text(equation.params), *map(read, equation.invars))
        for index, variable in enumerate(equation.outvars):
            known[variable] = _digest(made, str(index), str(variable.aval))
    return [read(variable) for variable in jaxpr.outvars]


def _text(value: Any) -> str:
    """A parameter of an operation, without anything that differs between processes."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_text(value[name])}" for name in sorted(value))
    if isinstance(value, tuple | list):
        return f"({','.join(map(_text, value))})"
    if isinstance(value, set | frozenset):
        return f"{{{','.join(sorted(map(_text, value)))}}}"
    inner = getattr(value, "jaxpr", value)  # with its constants, or without
    if hasattr(inner, "eqns"):
        constants = [value_digest(c) for c in getattr(value, "consts", ())]
        numbered = [f"input {i}" for i in range(len(inner.invars))]
        return ",".join(_outputs(inner, constants, numbered))
    if isinstance(value, np.ndarray | jax.Array):
        return value_digest(value)
    if callable(value) or hasattr(value, "call_wrapped"):
        return getattr(value, "__qualname__", type(value).__qualname__)
    return ADDRESS.sub("", repr(value))


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()
