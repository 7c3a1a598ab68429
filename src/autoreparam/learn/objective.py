"""What a λ would cost, judged from draws and their scores carried to its coordinates.

With `ũ` a coordinate, `g̃` its score and `V` minus the log density over the draws, and `d`
coordinates,

    J(λ) = Σ_i ½ log(Var ũ_i · Var g̃_i)  +  d log ½(1 + 2 Var V / d)

For a Gaussian posterior each product is the variance inflation factor of a coordinate: what
correlations cost after the best diagonal metric. The rest is what energy costs. A fresh momentum
changes the energy by a variance of `d / 2`, the whole posterior spreads it by `Var V + d / 2`; the
ratio, 1 for a Gaussian, is how many draws it takes to get from one end of a funnel to the other.
So `J / d` is the logarithm of the gradients that a draw needs, up to a constant.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.program.move import move
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target


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
    """The parts of the objective."""

    inflations: Any  # ½ log(Var ũ_i · Var g̃_i), one per coordinate
    energy: Any  # the logarithm of how many draws energy needs

    @property
    def total(self) -> Any:
        """The objective."""
        return self.inflations.sum() + self.inflations.size * self.energy


def cost(draws: Draws) -> Cost:
    """The objective of the coordinates that the draws are in."""
    return jax.device_get(_cost(*draws))


def traced_cost(positions: Array, scores: Array, logdensity: Array, weights: Array) -> Cost:
    """The same inside a compiled program."""
    inflations = 0.5 * (_log_variance(positions, weights) + _log_variance(scores, weights))
    spread = _log_variance(logdensity[:, None], weights)[0] - np.log(inflations.size / 2)
    return Cost(inflations, jnp.logaddexp(0.0, spread) - np.log(2))


_cost = jax.jit(traced_cost)


def _log_variance(x: Array, weights: Array) -> Array:
    """The log of each column's weighted variance; scaled first, so that squares stay finite."""
    share = weights / jnp.sum(weights)
    centered = x - jnp.sum(share[:, None] * x, axis=0)
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(centered) * (weights > 0)[:, None], axis=0))
    size = jnp.where(size > 0, size, 1)
    variance = jnp.sum(share[:, None] * (centered / size) ** 2, axis=0)
    return jnp.log(variance + jnp.finfo(x.dtype).tiny) + 2 * jnp.log(size)
