"""What a λ would cost, judged from draws and their scores carried to its coordinates.

With `ũ` a coordinate and `g̃` its score over the draws, the objective is

    J(λ) = Σ_i ½ log(Var ũ_i · Var g̃_i)

For a Gaussian posterior each product is the variance inflation factor of a coordinate: what
correlations cost after the best diagonal metric.

Elements of a sequence, or of a correlated vector, are correlated with each other, and λ decides how
much. Where the metric can have all directions of such a site, that costs nothing. With `R` and `S`
the correlation matrices of `ũ` and of `g̃` within a vector, J then also has

    ½ log det R + ½ log det S

for each vector, so that its part of J is 0 for any Gaussian, and what is left is how far it is from
one. For all vectors of a site together, or for all coordinates, that would be too much: in a funnel
no metric removes correlations everywhere, and a few hundred draws tell little of so many.

Variances hardly see the narrow end of a funnel, and draws that never went there do not see it at
all. Energy does. A fresh momentum changes it by a variance of `d / 2`, with `d` coordinates, while
the posterior spreads it by `Var V + d / 2`, with `V` minus the log density. Half their ratio, 1 for
a Gaussian, is how many draws it takes to get from one end to the other: the inverse of E-BFMI.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from autoreparam.program.move import move
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target
from autoreparam.program.traits import Coupling


class Draws(NamedTuple):
    """Draws of shape (n, dim) in the coordinates of some λ, with what was found there."""

    positions: Any
    scores: Any
    logdensity: Any  # (n,)
    weights: Any  # (n,)

    def where(self, rows: np.ndarray) -> Draws:
        """Some of the draws."""
        return Draws(*(part[rows] for part in self))

    def moved(self, target: Target, lam: Parameterization, new: Parameterization) -> Draws:
        """The draws in the coordinates of `new`."""
        positions, scores, gain = move(target, self.positions, self.scores, lam, new)
        return Draws(positions, scores, self.logdensity + gain, self.weights)


class Cost(NamedTuple):
    """What sampling in some coordinates would cost."""

    inflations: Any  # ½ log(Var ũ_i · Var g̃_i), one per coordinate
    energy: Any  # the draws it takes to change the energy
    saved: float = 0.0  # by the directions of the metric, at most 0

    @property
    def objective(self) -> float:
        """J."""
        return float(self.inflations.sum()) + self.saved


def cost(draws: Draws) -> Cost:
    """The cost in the coordinates that the draws are in."""
    share = draws.weights / draws.weights.sum()
    with np.errstate(all="ignore"):
        terms = inflations(draws.positions, draws.scores, draws.weights, np)
        centered = draws.logdensity - share @ draws.logdensity
        spread = share @ np.square(centered, dtype=float)
    return Cost(terms, (1 + 2 * spread / terms.size) / 2)


def coupled(target: Target, directions: int) -> tuple[np.ndarray, ...]:
    """Which coordinates are coupled, of each site whose directions the metric can all have.

    One row per vector or sequence.
    """
    latents = target.program.latents
    first = np.cumsum([0, *(site.size for site in latents)])
    return tuple(
        start + site.vectors
        for site, start in zip(latents, first)
        if site.coupling is not Coupling.NONE and 1 < site.size <= directions
    )


def saved(positions: Any, scores: Any, weights: Any, blocks: tuple[Any, ...], xp: Any = jnp) -> Any:
    """What a metric with all directions of these blocks of coordinates saves.

    Nothing where draws are too few to tell.
    """
    rows, found = xp.sum(weights), xp.zeros((), positions.dtype)
    for places in blocks:
        length = places.shape[-1]
        for part in (positions[:, places], scores[:, places]):
            centered = part - xp.tensordot(weights, part, 1) / rows
            spread = xp.sqrt(xp.tensordot(weights, centered**2, 1) / rows)
            unit = centered / xp.where(spread > 0, spread, 1) * xp.sqrt(weights)[:, None, None]
            products = xp.einsum("nvi,nvj->vij", unit, unit)
            # As if one more draw had no correlation: a determinant of zero would outweigh all else.
            mixed = (products + xp.eye(length, dtype=part.dtype)) / (rows + 1)
            log_det = xp.linalg.slogdet(xp.where(xp.isfinite(mixed), mixed, 0))[1]
            found += xp.sum(xp.where((rows > length) & xp.isfinite(log_det), log_det / 2, 0.0))
    return found


def inflations(positions: Any, scores: Any, weights: Any, xp: Any = jnp) -> Any:
    """The terms of J, one per coordinate; by numpy as `xp` nothing has to be compiled."""
    return 0.5 * (_log_variance(positions, weights, xp) + _log_variance(scores, weights, xp))


def _log_variance(x: Any, weights: Any, xp: Any) -> Any:
    """The log of each column's weighted variance; scaled first, so that squares stay finite."""
    share = weights / xp.sum(weights)
    centered = x - xp.sum(share[:, None] * x, axis=0)
    size = xp.max(xp.abs(centered) * (weights > 0)[:, None], axis=0)
    size = xp.where(size > 0, size, xp.ones_like(size))
    if xp is jnp:
        size = jax.lax.stop_gradient(size)
    variance = xp.sum(share[:, None] * (centered / size) ** 2, axis=0)
    return xp.log(variance + xp.finfo(x.dtype).tiny) + 2 * xp.log(size)
