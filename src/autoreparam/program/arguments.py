"""A model's arguments, split into data (arrays that may change) and structure (everything else)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autoreparam.program.foreign import as_arrays


class Fixed:
    """A value that is part of the structure, compared by content where possible."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any):
        if isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            # Under a trace, operations on a JAX array are staged: there are no values to look at.
            value = np.asarray(value)
        if isinstance(value, np.ndarray):
            value = value.copy()  # JAX would not see that it was changed in place
        self.value = value
        if isinstance(value, np.ndarray):
            self.key: Any = (value.shape, str(value.dtype), value.tobytes())
        else:
            try:
                hash(value)
                self.key = (type(value), value)
            except TypeError:
                self.key = (type(value), id(value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True)
class Arguments:
    """How to call the model: the shape of its arguments, with holes where the data go."""

    treedef: Any
    fixed: tuple[Fixed | None, ...]  # None marks a hole

    def fill(self, data: Iterable[Any]) -> tuple[tuple, dict]:
        """`(args, kwargs)` with the data put into the holes."""
        data = iter(data)
        leaves = [next(data) if slot is None else slot.value for slot in self.fixed]
        return jax.tree.unflatten(self.treedef, leaves)

    def names(self, model: Callable) -> dict[int, str]:
        """What the model calls each of its data, by their number."""
        try:
            words = list(inspect.signature(model).parameters)
        except (TypeError, ValueError):
            words = []
        numbered = jax.tree.unflatten(self.treedef, range(len(self.fixed)))
        data = [i for i, slot in enumerate(self.fixed) if slot is None]
        found = {}
        for (kind, *path), leaf in jax.tree_util.tree_flatten_with_path(numbered)[0]:
            first, rest = path[0], jax.tree_util.keystr(tuple(path[1:]))
            word = getattr(first, "key", None)
            if kind.idx == 0:
                word = words[first.idx] if first.idx < len(words) else f"args[{first.idx}]"
            if leaf in data:
                found[data.index(leaf)] = f"{word}{rest}"
        return found

    def named(self, model: Callable, data: Iterable[Any]) -> dict[str, Any]:
        """The data by what the model calls them, in their order."""
        names = self.names(model)
        return {names[i]: value for i, value in enumerate(data)}

    def given(self, model: Callable, data: Iterable[Any]) -> dict[str, Any]:
        """The arguments of the call by name."""
        args, kwargs = self.fill(data)
        return {**_by_name(model, args), **kwargs}


def split(
    args: tuple, kwargs: dict | None, traceable: Callable[[Arguments, tuple], bool]
) -> tuple[Arguments, tuple]:
    """Arguments and data of a call: arrays and floats are data unless the model needs their values.

    `traceable(arguments, data)` says whether the model can be traced with these data unknown.
    Integers, strings and flags are always part of the structure: they set plate sizes and choose
    branches. Tables and labeled arrays become plain arrays, if the model can do with these.
    """
    given = tuple(args), dict(kwargs or {})
    converted, _ = as_arrays(given)
    found = _split(converted, traceable)
    if found is None and not _alike(given, converted):
        found = _split(given, traceable)
    return found or _all_fixed(converted)


def _alike(one: Any, other: Any) -> bool:
    """Whether nothing was converted."""
    first, second = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(first) == len(second) and all(a is b for a, b in zip(first, second))


def _all_fixed(given: Any) -> tuple[Arguments, tuple]:
    leaves, treedef = jax.tree.flatten(given)
    return Arguments(treedef, tuple(map(Fixed, leaves))), ()


def _split(
    given: Any, traceable: Callable[[Arguments, tuple], bool]
) -> tuple[Arguments, tuple] | None:
    """Arguments and data; None if the model cannot be traced with them."""
    leaves, treedef = jax.tree.flatten(given)
    free = [_is_data(leaf) for leaf in leaves]

    def build(free: list[bool]) -> tuple[Arguments, tuple]:
        fixed = tuple(None if ok else Fixed(leaf) for leaf, ok in zip(leaves, free))
        return Arguments(treedef, fixed), tuple(leaf for leaf, ok in zip(leaves, free) if ok)

    if traceable(*build(free)):
        return build(free)
    alone = [ok and traceable(*build([i == j for j in range(len(free))]))
             for i, ok in enumerate(free)]  # fmt: skip
    if traceable(*build(alone)):
        return build(alone)
    nothing = build([False] * len(free))
    return nothing if traceable(*nothing) else None


def named_leaves(model: Callable, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Every value in the arguments of a call, by the name of its argument and place in it."""
    given = {**_by_name(model, args), **kwargs}
    found = {}
    for name, value in given.items():
        for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
            found[f"{name}{jax.tree_util.keystr(path)}"] = leaf
    return found


def _by_name(model: Callable, args: tuple) -> dict[str, Any]:
    try:
        names = list(inspect.signature(model).parameters)
    except (TypeError, ValueError):
        names = []
    names += [f"argument {i + 1}" for i in range(len(names), len(args))]
    return dict(zip(names, args))


def _is_data(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind in "fiucb"
    return isinstance(leaf, jax.Array | float)
