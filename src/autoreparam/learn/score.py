"""λ from draws and their scores, without the likelihood or any new gradient of the model.

Draws and scores can be carried to the coordinates of any λ with only the priors' locations and
scales; `objective.py` says what it would cost to sample there. Gradient descent lowers J.

Where an element is informed only by its own data and its prior, no descent is needed, as
`informed.py` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from autoreparam.learn.descent import descends, fitted, in_turn
from autoreparam.learn.fit import Fit
from autoreparam.learn.flat import with_directions
from autoreparam.learn.grips import gripped
from autoreparam.learn.informed import informed, with_tails
from autoreparam.learn.necks import depths_of, out_of_necks
from autoreparam.learn.objective import Cost, Draws, cost, coupled, saved
from autoreparam.learn.origins import around, has_sequences, origins_of
from autoreparam.learn.seen import see
from autoreparam.learn.settings import DEFAULTS, ScoreSettings
from autoreparam.learn.usual import at_usual_scales
from autoreparam.program.held import loose, varies
from autoreparam.program.move import (
    MANY_LATENTS,
    held_out,
    large_matrices,
    move,
)
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.rows import over_rows
from autoreparam.program.target import Target

TOLD = 10_000  # elements of a site; of larger ones, λ of fewer is reported


@dataclass(frozen=True, eq=False)
class ScoreFit:
    """A parameterization learned from draws, and how it compares on draws it was not fitted to."""

    parameterization: Parameterization
    objective: float  # of the parameterization, on held-out draws
    objectives: dict[str, float]  # of every candidate; the chosen λ may be lowered afterwards
    chosen: str
    note: str
    inflation: dict[str, dict[str, float]]  # by "before" (as written) and "after", then by site

    def report(self) -> dict[str, Any]:
        """What was compared and chosen, as plain numbers and words."""
        lam, tail = (
            {n: np.ravel(values[n])[:: 1 + np.size(values[n]) // TOLD].tolist() for n in values}
            for values in (self.parameterization, self.parameterization.tail)
        )
        return {
            "chosen": self.chosen,
            "objectives": self.objectives,
            "note": self.note,
            "lam": lam,
            "tail": tail,
            "inflation": self.inflation,
        }


def fit_score(
    target: Target,
    positions: np.ndarray,
    scores: np.ndarray,
    logdensity: np.ndarray,
    lam: Parameterization,
    *,
    tied: bool = True,
    most: int | None = None,
    steps: int | None = None,
    directions: int = 0,
    settings: ScoreSettings = DEFAULTS,
) -> ScoreFit:
    """The best, on held-out draws, of estimates, the current λ, centered and non-centered.

    One estimate uses each element's own data, another what holds each element of a sequence, as
    `grips.py` says; the last descends `steps` steps from the best of the rest, if that may gain
    something. Where tails are heavy, how much lighter to make them is fitted together with λ, and
    the fitted λ with tails left alone competes too.

    `positions`, `scores` and `logdensity`, one row per draw, are in the coordinates of `lam`; at
    most `most` of them, evenly spread, are used. `directions` are those that the metric may have
    besides its diagonal.
    """
    most = most or _affordable(target, settings.learned_from)
    draws = Draws(positions, scores, logdensity, np.ones(len(positions), positions.dtype))
    finite = np.isfinite(positions).all(axis=1) & np.isfinite(scores).all(axis=1)
    draws = draws.where(finite & np.isfinite(logdensity))
    count, whole, given = len(draws.weights), draws, lam
    if len(lam) == 0 or count < settings.fewest_learned_from:
        note = f"too few draws ({count}) to learn from" if len(lam) else ""
        return ScoreFit(lam, np.nan, {}, "kept", note, {})
    take = np.linspace(0, count - 1, most).astype(int)
    # Always the same shape, so that all windows share one compiled program.
    weights = np.zeros(most, positions.dtype)
    weights[np.unique(take, return_index=True)[1]] = 1
    draws = draws.where(take)._replace(weights=weights)
    known = lam.flat
    if known is not None:  # all rivals start anew, without directions
        bare = lam.with_flat(None)
        lam, draws = bare, draws.moved(target, lam, bare)
    held, blocks = held_out(most), coupled(target, directions)

    def judge(rival: Parameterization) -> Cost:
        if not blocks:
            return cost(draws.where(held).moved(target, lam, rival))
        there = draws.moved(target, lam, rival)
        with np.errstate(all="ignore"):
            positions, scores, _, weights = (np.asarray(part, float) for part in there)
            found = saved(positions, scores, weights, blocks, np)
        return cost(there.where(held))._replace(saved=float(found))

    priors, old = see(target, draws.positions, lam, settings), lam
    used = draws.weights > 0
    with np.errstate(all="ignore"):
        lam = at_usual_scales(old, priors.log_scales, used, np)
        draws = draws.moved(target, old, lam)
    seen, as_written = draws.where(~held), loose(with_tails(lam, 0.0))
    rivals = {
        "informed": loose(informed(target, seen, lam)),
        "kept": lam,
        "centered": as_written.map(np.ones_like),
        "noncentered": as_written.map(np.zeros_like),
    }
    depths = depths_of(target, priors.log_scales, used, settings, np)
    if has_sequences(lam):
        with np.errstate(all="ignore"):
            origins = origins_of(target, draws, lam, partial(_positions, target), np)
        loosely = {name: rival for name, rival in rivals.items() if not varies(rival)}
        rivals |= {name: around(rival, origins) for name, rival in loosely.items()}
        there, seen_too = around(loose(lam), origins), whole.where(~held_out(count))
        by_draws = gripped(target, seen_too, given, there, settings)
        rivals |= {} if by_draws is None else {"gripped": by_draws}
    costs: dict[str, Cost] = {}
    chosen = _best(judge, rivals, costs, settings)
    rows = int(np.sum(draws.weights[held] > 0))
    if descends(target, steps, costs.get(chosen or ""), rows, settings):
        start = rivals[chosen or "kept"].replace(tail=lam.tail)
        rivals["fitted"] = fitted(target, seen, lam, start, tied, steps, blocks, settings)
        if lam.tail:
            rivals["tailless"] = with_tails(rivals["fitted"], 0.0)
        chosen = _best(judge, rivals, costs, settings)
    objectives = {name: found.objective for name, found in costs.items()}
    if chosen is None:
        return ScoreFit(lam, np.nan, objectives, "kept", "no objective was finite", {})
    best, after = rivals[chosen], costs[chosen]
    by_data = rivals["informed"]
    # Where the data's hold varies as fitted, the width does not shrink with the scale.
    depths = {name: depth for name, depth in depths.items() if not best.of(name).grips}
    lowered = out_of_necks(target, best, depths, by_data, settings, np)
    if lowered != best:
        best, after = lowered, judge(lowered)
    flat = {}
    if not varies(best):  # which varies with what may be part of a direction
        flat = with_directions(target, draws, priors, lam, by_data, best, known, settings)
    for name, rival in flat.items():
        rival = out_of_necks(target, rival, depths, by_data, settings, np)
        found = judge(rival)
        objectives[name] = found.objective
        usable = found.energy <= settings.most_energy * after.energy
        worth = settings.worth if known is None else 0.0  # else it has been compiled
        if usable and found.objective < after.objective - worth:
            best, after, chosen = rival, found, name
    by_site = {
        "before": _as_written(target, costs, lam.sites),
        "after": _largest(target, after.inflations, lam.sites),
    }
    return ScoreFit(best, after.objective, objectives, chosen, "", by_site)


def _positions(
    target: Target, positions: np.ndarray, old: Parameterization, new: Parameterization
) -> np.ndarray:
    """Positions in other coordinates, by the program that moves scores too."""
    return move(target, positions, np.zeros_like(positions), old, new)[0]


def _best(
    judge: Callable[[Parameterization], Cost],
    rivals: dict[str, Parameterization],
    costs: dict[str, Cost],
    settings: ScoreSettings,
) -> str | None:
    """The candidate with the lowest objective, if any is finite; records the costs of new ones.

    Those whose energy would change much more slowly than another's are out: a λ may hide a neck
    from its own draws, but not that energy cannot follow.
    """
    for name, rival in rivals.items():
        if name not in costs:
            costs[name] = judge(rival)
    finite = {name: found for name, found in costs.items() if np.isfinite(found.objective)}
    most = settings.most_energy * min((found.energy for found in finite.values()), default=0.0)
    usable = [name for name, found in finite.items() if found.energy <= most] or list(finite)
    return min(usable, key=lambda name: costs[name].objective, default=None)


def _affordable(target: Target, most: int) -> int:
    """How many draws to learn from: fewer where each costs more."""
    if large_matrices(target):
        return most // 4
    fewest = most // 8 if target.size > MANY_LATENTS else most // 4
    return int(np.clip(1_000_000 // target.size, fewest, most // (1 + in_turn(target))))


def _largest(target: Target, inflations: np.ndarray, sites: Iterable[str]) -> dict[str, float]:
    """The largest variance inflation factor among each site's coordinates."""
    latents = target.program.latents
    parts = np.split(inflations, np.cumsum([site.size for site in latents])[:-1])
    found = {site.name: part for site, part in zip(latents, parts)}
    most = np.log(np.finfo(inflations.dtype).max) - 1
    return {name: float(np.exp(min(2 * np.max(found[name]), most))) for name in sites}


def _as_written(
    target: Target, costs: Mapping[str, Cost], sites: Iterable[str]
) -> dict[str, float]:
    """The same in the model as written: centered, but for what is non-centered by hand."""
    centered, noncentered = (
        _largest(target, costs[name].inflations, sites) for name in ("centered", "noncentered")
    )
    by_hand = {site.name for site in target.program.candidates if site.implied is not None}
    return {name: (noncentered if name in by_hand else centered)[name] for name in centered}


def fit_draws(target: Target, rows: Mapping[str, np.ndarray], start: Parameterization) -> Fit:
    """λ learned from an earlier run's draws, given by site name with a leading draw axis.

    Their scores are computed here, at one gradient per draw.
    """
    axes = (None, 0, None)
    place = jax.jit(over_rows(target.program, Target.from_sites, axes))
    positions = place(target, rows, start)
    look = jax.value_and_grad(Target.logdensity, argnums=1)
    values, scores = jax.jit(over_rows(target.program, look, axes))(target, positions, start)
    usual = DEFAULTS.learned_from
    most = min(len(positions), 4 * usual**2 // max(target.size, usual // 4))
    found = fit_score(
        target,
        np.asarray(positions),
        np.asarray(scores),
        np.asarray(values),
        start,
        most=most,
        steps=DEFAULTS.steps_alone,
    )
    moved, _, _ = move(target, positions, scores, start, found.parameterization)
    return Fit(
        parameterization=found.parameterization,
        elbo=None,
        elbo_error=None,
        history={name: np.asarray([value]) for name, value in found.objectives.items()},
        gradients=len(positions),
        loc=moved.mean(axis=0),
        scale=moved.std(axis=0),
        converged=not found.note,
        note=found.note,
    )
