"""Draws of the pairs that depend on each other most, in the model's and the sampler's coordinates.

`before` are unconstrained coordinates of the model as written, `after` the working coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from autoreparam.program.program import Program
from autoreparam.program.site import Site

if TYPE_CHECKING:
    import xarray

POINTS = 1000  # kept of each pair
SHOWN = 1e38  # single precision is enough for pictures, and has no larger numbers
RANKED = 400  # draws that decide which pair is the worst
SCALARS = 200  # of a site that are considered
PAIRS = 8  # at most one per site


def worst_pairs(
    program: Program,
    values: Mapping[str, np.ndarray],
    working: np.ndarray,
    diverging: np.ndarray,
) -> xarray.Dataset | None:
    """For each reparameterized site, the element and the parent that depend on each other most.

    `values` are the draws of each latent, (chain, draw, *shape), `working` the flat positions of
    the same draws. The worst pair comes first; None if there is nothing to show.
    """
    rows = working.shape[0] * working.shape[1]
    if rows < 8:
        return None
    hit: np.ndarray = np.asarray(diverging, bool).reshape(rows, -1).max(axis=1)
    looked, shown = _spread(rows, RANKED), _with_hits(rows, hit)
    used = np.union1d(looked, shown)
    columns = {site.name: _spread(site.size, SCALARS) for site in program.latents if site.size}
    before, after = {}, {}
    for site, moved in zip(program.latents, _split(program, working.reshape(rows, -1))):
        if site.name in values and site.name in columns:
            draws = np.asarray(values[site.name]).reshape(rows, -1)
            free = _free(site, draws, used, columns[site.name])
            if free is not None:
                before[site.name] = free
                after[site.name] = moved[np.ix_(used, columns[site.name])]
    hit, looked, shown = hit[used], np.searchsorted(used, looked), np.searchsorted(used, shown)
    found = []
    for site in program.candidates:
        parents = [name for name in site.parents if name in before and name != site.name]
        if site.name not in before or not parents:
            continue
        here = {name: before[name][looked] for name in (site.name, *parents)}
        parent, i, j = _worst(here, site.name, parents)
        pair: dict[str, Any] = {}
        for role, which, element in (("child", site.name, i), ("parent", parent, j)):
            label = _label(program[which], columns[which][element])
            coordinate = program[which].coordinate
            pair[role] = label
            pair[f"{role}_coordinate"] = coordinate.name(label) if coordinate else label
        for title, coordinates in (("before", before), ("after", after)):
            x, y = coordinates[site.name][:, i], coordinates[parent][:, j]
            given = _given({name: coordinates[name][looked] for name in parents}, len(looked))
            sizes = dependence(x[looked, None], y[looked, None], given)
            pair[f"dependence_{title}"] = float(np.max(sizes))
            pair[f"{title}_x"], pair[f"{title}_y"] = x[shown], y[shown]
        found.append(pair)
    found = sorted(found, key=lambda pair: -pair["dependence_before"])[:PAIRS]
    return _dataset(found, hit[shown]) if found else None


def _worst(here: Mapping[str, np.ndarray], child: str, parents: list[str]) -> tuple[str, int, int]:
    """The parent, and the elements of child and parent, that depend on each other most."""
    given = _given({name: here[name] for name in parents}, len(here[child]))
    best, worst = -1.0, (parents[0], 0, 0)
    for name in parents:
        linear, funnel = dependence(here[child], here[name], given)
        table = np.maximum(linear / 2, funnel)  # a metric can undo a line, never a funnel
        i, j = np.unravel_index(np.argmax(table), table.shape)
        if table[i, j] > best:
            best, worst = float(table[i, j]), (name, int(i), int(j))
    return worst


def _given(parents: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
    """A constant and the parents that are scalars, as columns to regress on."""
    return np.hstack([np.ones((rows, 1)), *(x for x in parents.values() if x.shape[1] == 1)])


def dependence(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Absolute rank correlations of the columns of `x` and `y`: of the values, and of the spread.

    The spread of a value is its distance from what the columns of `given` predict; where it follows
    `y` there is a funnel.
    """
    spread = np.abs(x - given @ np.linalg.lstsq(given, x, rcond=None)[0])
    others = _ranks(y)
    linear, funnel = (np.abs(_ranks(part).T @ others) / len(x) for part in (x, spread))
    return linear, funnel


def _ranks(x: np.ndarray) -> np.ndarray:
    """Ranks of each column, standardized; zero for a column that does not vary."""
    ranks = np.argsort(np.argsort(x, axis=0), axis=0) - (len(x) - 1) / 2
    return np.where(np.ptp(x, axis=0) > 0, ranks / ranks.std(axis=0), 0.0)


def _free(
    site: Site, draws: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray | None:
    """Unconstrained draws of some elements of a site; None where that is not simple."""
    if site.coordinate is None or draws.shape[1] != site.size:
        return None
    with np.errstate(all="ignore"):
        free = site.coordinate.free(draws[np.ix_(rows, columns)].astype(float))
    return free if np.isfinite(free).all() else None


def _split(program: Program, working: np.ndarray) -> list[np.ndarray]:
    """The columns of the working vector that belong to each latent."""
    ends = np.cumsum([site.size for site in program.latents])
    return np.split(working, ends[:-1], axis=1)


def _spread(count: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def _with_hits(rows: int, hit: np.ndarray) -> np.ndarray:
    """Rows to keep: evenly spread ones, of which up to half are divergent."""
    hits = np.flatnonzero(hit)
    hits = hits[_spread(len(hits), POINTS // 2)] if len(hits) else hits
    return np.union1d(_spread(rows, POINTS - len(hits)), hits)


def _label(site: Site, element: Any) -> str:
    if not site.shape:
        return site.name
    index = np.unravel_index(element, site.shape)
    return f"{site.name}[{', '.join(str(int(i)) for i in index)}]"


def _dataset(found: list[dict[str, Any]], diverging: np.ndarray) -> xarray.Dataset:
    import xarray

    data: dict[str, Any] = {}
    for name, first in found[0].items():
        column = [pair[name] for pair in found]
        if isinstance(first, str):
            data[name] = ("pair", np.asarray(column, dtype=object))
        elif np.ndim(first):
            shown = np.clip(column, -SHOWN, SHOWN).astype(np.float32)
            data[name] = (("pair", "point"), shown)
        else:
            data[name] = ("pair", np.asarray(column))
    data["diverging"] = ("point", diverging)
    return xarray.Dataset(data)
