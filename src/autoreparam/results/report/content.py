"""What a report says, as plain values: all of the computing, none of the drawing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autoreparam.results.advice import warnings_for
from autoreparam.results.diagnostics import (
    Efficiency,
    affordable,
    efficiency,
    efficiency_of,
)
from autoreparam.results.lam import (
    SiteLam,
    check_tree,
    lam_by_site,
    lam_parts,
    sites,
    slot_count,
)
from autoreparam.results.report.estimates import (
    Check,
    Estimates,
    gather_checks,
    gather_estimates,
)
from autoreparam.results.scalars import Measured, measure, slowest
from autoreparam.results.superchains import superchains
from autoreparam.results.tree import texts

if TYPE_CHECKING:
    import xarray

WORST_SHOWN = 4
SETTINGS = ("parameterization", "kernel", "integrator", "chains", "superchains", "warmup",
            "restarts", "draws", "kept_every", "seed", "num_steps", "target_accept",
            "max_tree_depth")  # fmt: skip

TIMES = {
    "in all": "total_time",
    "to begin": "setup_time",
    "of warm-up and sampling": "sampling_time",
    "to finish": "finishing_time",
}


@dataclass(frozen=True)
class SiteRow:
    """One latent site: what it is, how it was reparameterized, how well it was estimated."""

    name: str
    distribution: str
    shape: tuple[int, ...]
    parents: tuple[str, ...]
    moved: bool
    note: str
    lam: tuple[float, float] | None  # the smallest and the largest
    tail: tuple[float, float] | None  # the same, where tails are heavy
    inflation_before: float
    inflation_after: float
    ess: float
    r_hat: float
    suggestion: str  # the statement that a person would write now, if not the one there is


@dataclass(frozen=True)
class Series:
    """The draws of one scalar, (chain, draw), of one chain per superchain; how good all are."""

    name: str
    draws: np.ndarray
    ess: float
    r_hat: float


@dataclass(frozen=True)
class Pair:
    """Draws of a child and its parent, in two sets of coordinates."""

    child: str
    parent: str
    before: tuple[np.ndarray, np.ndarray]
    after: tuple[np.ndarray, np.ndarray]
    dependence: tuple[float, float]
    diverging: np.ndarray


@dataclass(frozen=True)
class Content:
    """Everything that a report shows."""

    title: str
    good: bool
    verdict: str
    warnings: list[str]
    notes: list[str]
    estimates: Estimates
    checks: list[Check]
    found: Efficiency
    compared: dict[str, Efficiency]  # this run first
    sites: list[SiteRow]
    lams: dict[str, list[SiteLam]]  # by the name of the slot
    pair: Pair | None
    ledger: dict[str, int]
    worst: list[Series]
    settings: dict[str, str]
    versions: dict[str, str]


def gather(
    tree: xarray.DataTree, alternatives: Mapping[str, xarray.DataTree], title: str | None = None
) -> Content:
    """What the page says about a run and the runs it is compared with."""
    posterior = tree["posterior"].to_dataset()
    latents = [name for name in texts(tree.attrs["latents"]) if name in posterior]
    variables = [posterior[name] for name in latents]
    measured: dict[str, Measured] = {}
    if variables:
        asked = slowest(variables, affordable(tree))
        measured = dict(zip(latents, map(measure, variables, asked)))
    found = efficiency_of(tree, list(measured.values()))
    said = warnings_for(tree, found)
    own = str(tree.attrs.get("parameterization", "this run"))
    others = {name: efficiency(other, most=300) for name, other in alternatives.items()}
    slots, parts = slot_count(tree), lam_parts(tree)
    return Content(
        title=title or str(tree.attrs.get("model") or "A run of autoreparam"),
        good=not said,
        verdict=verdict(found, said),
        warnings=said,
        notes=[note for note in texts(tree.attrs.get("notes", [])) if note],
        estimates=gather_estimates(posterior, latents),
        checks=gather_checks(tree),
        found=found,
        compared={_free_name(f"this run ({own})", others): found, **others},
        sites=[
            _row(entry, tree, measured, parts.get(entry["name"], {}))
            for entry in sites(tree)
            if entry["kind"] == "latent"
        ],
        lams={_slot_name(tree, slot, slots): lam_by_site(tree, slot) for slot in range(slots)},
        pair=worst_pair(tree),
        ledger={
            purpose: int(tree.attrs.get(f"gradients_{purpose}", 0))
            for purpose in ("learning", "warmup", "sampling")
        },
        worst=_worst(measured),
        settings={key: str(tree.attrs[key]) for key in SETTINGS if key in tree.attrs}
        | {
            f"seconds {what}": f"{float(tree.attrs[key]):.1f}"
            for what, key in TIMES.items()
            if key in tree.attrs
        },
        versions=json.loads(tree.attrs.get("versions", "{}")),
    )


def verdict(found: Efficiency, said: list[str]) -> str:
    """Whether the draws can be used and why, in one sentence."""
    if not found.draws:
        return "There are no draws yet."
    count = found.chains * found.draws
    numbers = [
        f"the smallest effective sample size is {found.ess:,.0f} of {count:,} draws",
        f"{found.r_hat_name} is at most {found.r_hat:.3f}" if np.isfinite(found.r_hat) else "",
        _diverged(found.divergences),
    ]
    listed = [number for number in numbers if number]
    reasons = f"{', '.join(listed[:-1])} and {listed[-1]}"
    if not said:
        return f"These draws can be used: {reasons}."
    things = "one thing is" if len(said) == 1 else f"{len(said)} things are"
    return f"Check these draws before you use them, {things} wrong: {reasons}."


def _diverged(count: int) -> str:
    if not count:
        return "none diverged"
    return "one transition diverged" if count == 1 else f"{count:,} transitions diverged"


def worst_pair(tree: xarray.DataTree, site: str | None = None) -> Pair | None:
    """The most dependent pair in the model as written; of one site if named."""
    check_tree(tree)
    if "geometry" not in tree:
        return None
    pairs = tree["geometry"].to_dataset()
    names = [str(name) for name in pairs["child"].values]
    own = [i for i, name in enumerate(names) if site is None or name.partition("[")[0] == site]
    if not own:
        return None
    row = pairs.isel(pair=own[0])
    return Pair(
        child=str(row["child_coordinate"].values),
        parent=str(row["parent_coordinate"].values),
        before=(row["before_x"].values, row["before_y"].values),
        after=(row["after_x"].values, row["after_y"].values),
        dependence=(float(row["dependence_before"]), float(row["dependence_after"])),
        diverging=row["diverging"].values.astype(bool),
    )


def _row(
    entry: Mapping[str, Any],
    tree: xarray.DataTree,
    measured: Mapping[str, Measured],
    parts: Mapping[str, xarray.DataArray],
) -> SiteRow:
    name = entry["variable"]
    here = measured.get(name)
    ess = r_hat = np.nan
    if here is not None and here.varies.any():
        ess = float(np.minimum(here.bulk, here.tail)[here.varies].min())
        r_hat = float(here.r_hat[here.varies].max())
    lam, tail = (_range(parts[part]) if part in parts else None for part in ("lam", "tail"))
    before, after = (_inflation(tree, name, when) for when in ("before", "after"))
    through = entry.get("through", "")
    return SiteRow(
        name=f"{through} (from {entry['name']})" if through else entry["name"],
        distribution=entry["distribution"],
        shape=tuple(entry["shape"]),
        parents=tuple(entry["parents"]),
        moved=lam is not None,
        note=entry["note"],
        lam=lam,
        tail=tail,
        inflation_before=before,
        inflation_after=after,
        ess=ess,
        r_hat=r_hat,
        suggestion=entry.get("statement", "") if _on_the_other_side(entry, parts) else "",
    )


def _on_the_other_side(entry: Mapping[str, Any], parts: Mapping[str, xarray.DataArray]) -> bool:
    """Whether most elements are sampled nearer to the form that the site is not written in."""
    if "lam" not in parts:
        return False
    centered = np.nanmean(parts["lam"].values) > 0.5
    return bool(centered == entry.get("by_hand", False))


def _range(variable: xarray.DataArray) -> tuple[float, float] | None:
    values = variable.values[np.isfinite(variable.values)]
    return (float(values.min()), float(values.max())) if values.size else None


def _inflation(tree: xarray.DataTree, name: str, when: str) -> float:
    """The largest variance inflation of a site's elements, if the run measured it."""
    key = f"inflation_{when}"
    if "learning" not in tree or key not in tree["learning"]:
        return np.nan
    group = tree["learning"].to_dataset()
    sites = [site.replace("/", ".") for site in json.loads(group.attrs["sites"])]
    return float(group[key].values[sites.index(name)]) if name in sites else np.nan


def _worst(measured: Mapping[str, Measured]) -> list[Series]:
    """The scalars with the smallest ESS, and the one with the largest R-hat."""
    series = [
        Series(m.labels[i], _shown(m.draws[i]), float(min(m.bulk[i], m.tail[i])), float(m.r_hat[i]))
        for m in measured.values()
        for i in np.flatnonzero(m.varies)
    ]
    by_ess = sorted(series, key=lambda s: -np.inf if np.isnan(s.ess) else s.ess)
    by_r_hat = max(series, key=lambda s: -np.inf if np.isnan(s.r_hat) else s.r_hat, default=None)
    shown = by_ess[:WORST_SHOWN]
    if by_r_hat is not None and all(by_r_hat is not one for one in shown):
        shown = [*shown[: WORST_SHOWN - 1], by_r_hat]
    return shown


def _shown(draws: np.ndarray) -> np.ndarray:
    """The first chain of each superchain."""
    return draws[np.unique(superchains(len(draws)), return_index=True)[1]]


def _slot_name(tree: xarray.DataTree, slot: int, slots: int) -> str:
    if slots == 1:
        return "λ"
    lams = {float(lam) for site in lam_by_site(tree, slot) for lam in site.lam}
    kind = " (centered)" if lams == {1.0} else " (non-centered)" if lams == {0.0} else ""
    return f"slot {slot}{kind}"


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    while name in taken:
        name += "'"
    return name
