"""Draws of many data sets as one tree, and which data sets cannot be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from autoreparam.errors import AutoreparamError
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.program import Program
from autoreparam.results.advice import R_HAT_LIMIT
from autoreparam.results.labels import dataset, described, origin, versions
from autoreparam.results.lam import lam_dataset
from autoreparam.results.pooled import pooled
from autoreparam.results.scalars import TAILS, slowness
from autoreparam.results.superchains import MANY_CHAINS
from autoreparam.results.tree import labels_for, plain, selected

if TYPE_CHECKING:
    import xarray

AXIS = "dataset"
FEW = 2  # scalars of each data set that are measured
NAMED = 10  # data sets in a warning


def kept_names(
    program: Program,
    lam: Parameterization,
    coords: Mapping[str, Any] | None,
    dims: Mapping[str, Any] | None,
    var_names: Iterable[str] | None,
) -> list[str]:
    """The variables to keep; refuses names and labels that would not fit the tree."""
    if AXIS in program.structure.by_name:
        raise AutoreparamError(
            f"site '{AXIS}': draws of many data sets have an axis of this name. Call it something "
            f"else, '{AXIS}_' for example."
        )
    drawn = _drawn(program)
    observed = {s.name: np.zeros(s.shape) for s in program.sites if s.kind == "observed"}
    labels, _, _ = labels_for(program, drawn, [lam], observed, {}, coords, dims, (), (AXIS,))
    kept = selected(drawn, var_names, labels)
    return [name for name in drawn if name in kept]


def many_tree(
    program: Program,
    values: Mapping[str, np.ndarray],
    stats: Mapping[str, np.ndarray],
    lam: Parameterization,
    diagnostics: Mapping[str, np.ndarray],
    observed: Mapping[str, np.ndarray],
    attrs: Mapping[str, Any],
    coords: Mapping[str, Any] | None,
    dims: Mapping[str, Any] | None,
) -> xarray.DataTree:
    """One tree, whose variables have an axis of data sets; that of one is `tree.isel(dataset=0)`.

    `program` is that of the first data set.
    """
    from xarray import DataTree

    count = len(diagnostics["r_hat"])
    each = [jax.tree.map(lambda leaf, i=i: leaf[i], lam) for i in range(count)]
    first = {name: value[0] for name, value in observed.items()}
    labels, _, written = labels_for(
        program, _drawn(program), each, first, {}, coords, dims, (), (AXIS,)
    )
    if count == 1:
        written = {n: replace(part, values=part.values[None]) for n, part in written.items()}
    groups = {
        "posterior": labels.dataset(values, (AXIS, "chain", "draw")),
        "sample_stats": dataset(stats, (AXIS, "chain", "draw"), {}, {}),
        "diagnostics": dataset(diagnostics, (AXIS,), {}, {}),
        "parameterization": lam_dataset(written, labels, (AXIS,)),
        "observed_data": labels.dataset(observed, (AXIS,)),
    }
    tree = DataTree.from_dict(groups)
    spent = {f"all_{name}": int(x.sum()) for name, x in diagnostics.items() if "gradients" in name}
    tree.attrs = plain(
        {
            **origin(),
            **spent,
            "datasets": count,
            "latents": [labels.names[site.name] for site in program.latents if site.name in values],
            "model": getattr(program.structure.model, "__name__", ""),
            "sites": described(program, labels.names),
            "versions": versions(),
            **attrs,
        }
    )
    return tree


def _drawn(program: Program) -> dict[str, tuple[int, ...]]:
    """The shape of every variable; what depends on a discrete latent has no draws."""
    kinds = ("latent", "deterministic")
    return {s.name: s.shape for s in program.sites if s.kind in kinds and not s.discrete_parents}


def worst(values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The largest R-hat and the smallest ESS of each data set, NaN where there is none.

    The arrays have axes (dataset, chain, draw, ...). In each data set the few scalars that look
    worst are measured, in an eighth of the time that ArviZ would take.
    """
    flat = [np.moveaxis(x.reshape(*x.shape[:3], -1), 3, 1) for x in values.values()]
    scalars = np.concatenate(flat, axis=1)  # (dataset, scalar, chain, draw)
    count, number, chains, draws = scalars.shape
    slow = slowness(np.moveaxis(scalars.reshape(-1, chains, draws), 0, 2)).reshape(count, number)
    chosen = np.argsort(-slow, axis=1)[:, :FEW, None, None]
    rows = np.take_along_axis(scalars, chosen, axis=1).reshape(-1, chains, draws)
    if draws < 4:
        return np.full(count, np.nan), np.full(count, np.nan)
    with np.errstate(all="ignore"):
        found = pooled(rows.astype(float), TAILS)
        r_hat, ess = found.r_hat, np.minimum(found.bulk, found.tail)
        if chains < MANY_CHAINS:  # where each chain is a group of its own, R-hat is the usual one
            r_hat = np.sqrt(r_hat**2 - 1 / (draws // 2))
    r_hat = r_hat if chains > 1 else np.full_like(r_hat, np.nan)
    return r_hat.reshape(count, -1).max(axis=1), ess.reshape(count, -1).min(axis=1)


def warnings_about(diagnostics: Mapping[str, np.ndarray], chains: int) -> list[str]:
    """Which data sets cannot be trusted and what to do, one sentence per problem."""
    said = []
    agree = (diagnostics["r_hat"] <= R_HAT_LIMIT) | (chains == 1)
    if not agree.all():
        said.append(
            f"R-hat is above {R_HAT_LIMIT}, or unknown, in {_named(~agree)}: the chains do not "
            "agree there. Use a longer warmup and more draws, or ar.sample for these."
        )
    if diagnostics["divergences"].any():
        said.append(
            f"Transitions diverged in {_named(diagnostics['divergences'] > 0)}: a part of the "
            "posterior may be missing there. Raise target_accept (0.95, say), or use ar.sample for "
            "these."
        )
    if chains == 1:
        said.append("With a single chain there is no R-hat to check convergence. Use chains=4.")
    return said


def _named(which: np.ndarray) -> str:
    """How many data sets, and which; all of them are in the tree."""
    numbers = np.flatnonzero(which)
    shown = ", ".join(map(str, numbers[:NAMED])) + (", ..." if len(numbers) > NAMED else "")
    return f"{len(numbers)} of {len(which)} data sets ({shown})"
