"""What each method needs before it runs: variational fits, and λ from scores for "auto"."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import numpy as np

from autoreparam.experiments.budget import Budget
from autoreparam.experiments.problem import Problem, values_and_scores
from autoreparam.experiments.queue import Drawn, Lane
from autoreparam.learn.elbo import fit_elbo
from autoreparam.learn.score import fit_score
from autoreparam.learn.settings import DEFAULTS
from autoreparam.program.parameterization import Parameterization

PILOT = "pilot"  # the run that "auto" learns from
NEEDS: dict[str, tuple[str, ...]] = {"iHMC": ("CP", "NCP")}  # the fits of other methods


@dataclass(frozen=True, eq=False)
class Prepared:
    """λ of a method, and the independent Normals that start its chains and set its metric."""

    lam: dict[str, list]
    loc: list[float]
    scale: list[float]
    gradients: int
    elbo: float | None = None
    elbo_error: float | None = None
    note: str = ""
    history: list[float] = field(default_factory=list)  # ELBO at the best rate, or objectives

    def to_dict(self) -> dict[str, Any]:
        """The fit, ready for JSON."""
        return asdict(self)

    def parameterization(self, problem: Problem) -> Parameterization:
        """λ as a value."""
        return problem.constant(0.5).replace({k: np.asarray(v) for k, v in self.lam.items()})


def needed(methods: tuple[str, ...]) -> tuple[str, ...]:
    """The fits that these methods build on."""
    fits = [fit for method in methods for fit in NEEDS.get(method, (method,))]
    return tuple(dict.fromkeys(fits))


def pilots(budget: Budget) -> tuple[str, ...]:
    """The names of the runs that "auto" learns from, in order."""
    return (PILOT, *(f"{PILOT} {number}" for number in range(2, budget.pilot_rounds + 1)))


def prepare(problem: Problem, method: str, known: dict[str, Prepared], budget: Budget) -> Prepared:
    """The variational fit of a method; for "auto", the one its pilot run starts from."""
    target, key = problem.target, jax.random.key(budget.seed)
    if method == "VIP":
        start, learn = problem.constant(0.5), True
    elif method == "dVIP":
        start, learn = known["VIP"].parameterization(problem).round(), False
    else:
        start, learn = problem.constant({"CP": 1.0, "NCP": 0.0, PILOT: 0.5}[method]), False
    fit = fit_elbo(target, start, key=key, learn=learn, **budget.fit)
    paid = fit.gradients + (known["VIP"].gradients if method == "dVIP" else 0)
    history = next(iter(fit.history.values()))
    best = history[:, int(np.nanargmax(history[-1]))]
    return Prepared(
        lam=_lists(fit.parameterization),
        loc=_rounded(fit.loc),
        scale=_rounded(fit.scale),
        gradients=paid,
        elbo=round(float(fit.elbo or np.nan) + problem.left_out, 4),
        elbo_error=round(float(fit.elbo_error or np.nan), 4),
        note=fit.note,
        history=_rounded(best + problem.left_out),
    )


def learn_from_pilot(
    problem: Problem, before: Prepared, drawn: Drawn, paid: int, budget: Budget
) -> Prepared:
    """λ learned from the draws of a pilot run by the score objective, and the matching metric."""
    target, lam = problem.target, before.parameterization(problem)
    positions = np.asarray(drawn.positions)[..., problem.real].reshape(-1, target.size)
    take = np.linspace(0, len(positions) - 1, min(budget.score_draws, len(positions))).astype(int)
    positions = positions[take]
    values, gradients = map(np.asarray, values_and_scores(target, positions, lam))
    most, steps = len(positions), DEFAULTS.steps_alone
    found = fit_score(target, positions, gradients, values, lam, most=most, steps=steps)
    move = jax.jit(jax.vmap(target.carry, (0, 0, None, None)))
    moved, carried, _ = map(np.asarray, move(positions, gradients, lam, found.parameterization))
    spread = np.std(moved, axis=0) / np.std(carried, axis=0)
    return Prepared(
        lam=_lists(found.parameterization),
        loc=_rounded(np.mean(moved, axis=0)),
        scale=_rounded(np.sqrt(spread)),
        gradients=before.gradients + paid + len(positions),
        note=found.note,
        history=_rounded(list(found.objectives.values())),
    )


def lane(problem: Problem, method: str, known: dict[str, Prepared], budget: Budget) -> Lane:
    """What the sampler needs to run a method."""
    parts = [known[name] for name in NEEDS.get(method, (method,))]
    noise = np.random.default_rng([budget.seed, *method.encode()]).normal(
        size=(budget.chains, problem.target.size)
    )
    start = np.asarray(parts[-1].loc) + np.asarray(parts[-1].scale) * noise
    lams = [part.parameterization(problem) for part in parts]
    return Lane(
        target=problem.wide,
        lams=tuple(map(problem.widen_lam, lams)),
        inverse_mass=tuple(problem.widen(np.square(part.scale)) for part in parts),
        start=problem.widen(start),
    )


def _lists(lam: Parameterization) -> dict[str, list]:
    return {name: np.round(np.asarray(lam[name], float), 5).tolist() for name in lam.sites}


def _rounded(numbers: Any) -> list[float]:
    """Rounded to six digits: enough to start from, and the files stay small."""
    return [float(f"{number:.6g}") for number in np.asarray(numbers, float)]
