"""One target per data set, where a model is called on many data sets of the same shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from autoreparam.errors import ModelError, known
from autoreparam.program.arguments import named_leaves
from autoreparam.program.call import Call
from autoreparam.program.compiled import rarely
from autoreparam.program.foreign import as_arrays
from autoreparam.program.numbers import refuse_wrapped
from autoreparam.program.prior import middle_range, middle_scale, prior_draws
from autoreparam.program.program import Program
from autoreparam.program.target import Target
from autoreparam.program.trace import inspect
from autoreparam.program.unseeded import signature_of


@partial(jax.tree_util.register_dataclass, data_fields=["stacked"], meta_fields=["apart"])
@dataclass(frozen=True)
class Targets:
    """Targets of the same structure, one per data set, with their data stacked."""

    stacked: Target
    apart: tuple[bool, ...]  # which data have an axis of data sets; the others are shared

    def each(self, call: Callable, *arguments: Any) -> Any:
        """`call(target, *arguments)` for every data set; the arguments have the same axis."""
        axes = self._with([0 if apart else None for apart in self.apart])
        return jax.vmap(call, (axes, *[0] * len(arguments)))(self.stacked, *arguments)

    def take(self, rows: Any) -> Targets:
        """Some of the data sets; with a single number, `stacked` is the target of that one."""
        data = zip(self.stacked.program.data, self.apart)
        return Targets(self._with([x[rows] if apart else x for x, apart in data]), self.apart)

    def _with(self, leaves: list[Any]) -> Any:
        return jax.tree.unflatten(jax.tree.structure(self.stacked), leaves)


# -- from a call to targets -------------------------------------------------------------------


def inspect_many(
    model: Callable,
    args: tuple,
    kwargs: Mapping | None,
    shared: Iterable[str],
    sites: Any = "auto",
) -> tuple[Program, Targets, int]:
    """The program of the first data set, the targets of all, and how many there are.

    Every argument but the `shared` ones has a leading axis of data sets.
    """
    call = Call.of(model, args, kwargs)
    (args, kwargs), _ = as_arrays((call.args, call.kwargs))
    refuse_wrapped(named_leaves(call.model, args, kwargs))
    leaves, treedef = jax.tree.flatten((args, kwargs))
    names = _names(call.model, args, kwargs)
    own = _own(names, leaves, shared)
    first = [leaf[0] if apart else leaf for leaf, apart in zip(leaves, own)]
    program = inspect(call.model, *jax.tree.unflatten(treedef, first), sites=sites)
    fixed = program.structure.arguments.fixed
    for name, leaf, apart, slot in zip(names, leaves, own, fixed):
        if apart and slot is not None and not np.all(np.asarray(leaf) == slot.value):
            raise ModelError(
                f"argument '{name}' differs between data sets, and the model needs its values to "
                "know its sites and their shapes. Sample together only data sets that agree on it."
            )
    holes = [slot is None for slot in fixed]
    data = tuple(leaf for leaf, hole in zip(leaves, holes) if hole)
    count = next(len(leaf) for leaf, apart in zip(leaves, own) if apart)
    target = Target(Program(program.structure, data))
    return program, Targets(target, tuple(x for x, hole in zip(own, holes) if hole)), count


def _names(model: Callable, args: tuple, kwargs: Mapping) -> list[str]:
    """For every value in the arguments, which argument it belongs to."""
    try:
        words = list(signature_of(model).parameters)
    except (TypeError, ValueError):
        words = []
    words += [f"args[{i}]" for i in range(len(words), len(args))]
    named = [*zip(words, args), *sorted(kwargs.items())]  # JAX sorts keywords, too
    return [name for name, value in named for _ in jax.tree.leaves(value)]


def _own(names: list[str], leaves: list[Any], shared: Any) -> list[bool]:
    """For every value in the arguments, whether each data set has its own; refused if it cannot."""
    if isinstance(shared, str) or not isinstance(shared, Iterable):
        raise ModelError(f"shared: expected a list of names; found {shared!r}")
    shared, given = list(shared), list(dict.fromkeys(names))
    unknown = [name for name in shared if name not in given]
    if unknown:
        raise ModelError(
            f"shared: the call has no argument {known(unknown)}; its arguments are {known(given)}"
        )
    lengths: dict[str, int] = {}
    for name, leaf in zip(names, leaves):
        if name in shared:
            continue
        if np.ndim(leaf) == 0:
            raise ModelError(
                f"argument '{name}' has no leading axis of data sets; found {leaf!r}. Stack one "
                f"value per data set in an array, or write shared=['{name}'] if all have the same."
            )
        if lengths.setdefault(name, len(leaf)) != len(leaf):
            raise ModelError(
                f"argument '{name}': expected arrays whose first axis is that of the data sets; "
                f"found lengths {lengths[name]} and {len(leaf)}"
            )
    if not lengths:
        raise ModelError(
            "no argument has a leading axis of data sets. Stack the data sets along the first axis "
            "of their arrays, or use ar.sample for a single one."
        )
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        found = ", ".join(f"{length} in '{name}'" for name, length in lengths.items())
        raise ModelError(
            f"expected as many data sets in every argument, along its first axis; found {found}. "
            "Name in shared=[...] what all data sets have in common."
        )
    return [name not in shared for name in names]


# -- what the priors say ----------------------------------------------------------------------


class Priors(NamedTuple):
    """What the priors of each data set say about where to start."""

    scales: dict[str, np.ndarray]  # reference scale of each candidate, in the shape of its λ
    center: np.ndarray  # of each element, where noise has that of every start
    width: np.ndarray


def look_at_priors(targets: Targets, count: int, radius: float) -> Priors:
    """The priors of `count` data sets; every array has that leading axis."""
    program = targets.stacked.program
    scales, values = jax.device_get(_draw(targets))
    found = {}
    for site in program.candidates:
        scale, shape = middle_scale(scales[site.name], axis=1), site.unconstrained_shape
        own = scale.shape[1:]
        aligned = scale.reshape(count, *[1] * (len(shape) - len(own)), *own)
        found[site.name] = np.broadcast_to(aligned, (count, *shape)).astype(program.dtype)
    centers, widths = [], []
    for site in program.latents:
        shape = (count, *site.unconstrained_shape)
        center, width = np.zeros(shape), np.full(shape, radius)
        if site.name in values:
            middle, half = middle_range(values[site.name], axis=1)
            usable = np.isfinite(half) & np.isfinite(middle)
            center, width = np.where(usable, middle, 0), np.where(usable, half, radius)
        centers.append(center.reshape(count, -1))
        widths.append(width.reshape(count, -1))
    return Priors(found, *(np.concatenate(x, 1).astype(program.dtype) for x in (centers, widths)))


@rarely
def _draw(targets: Targets) -> Any:
    return targets.each(lambda target: prior_draws(target.program, target.program.prior_sites))
