"""One stage of the integrator for one chain: a gradient, for the loop over gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.mcmc.hmc import Tuning, kinetic_energy
from autoreparam.mcmc.integrator import FIRST_KICK, LEAPFROG
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target


class Coordinates(NamedTuple):
    """Where trajectories of a slot run, and how."""

    lam: Parameterization
    push: Callable
    pull: Callable
    stages: Array

    @classmethod
    def of(cls, lam: Parameterization, tuning: Tuning) -> Coordinates:
        """Those of a λ, with the integrator and the metric of a tuning."""
        return cls(lam, *tuning.inverse_mass.halves(), tuning.stages.astype(jnp.int32))


class Point(NamedTuple):
    """One chain on its way."""

    position: Any
    momentum: Any
    force: Any  # the score, as momenta feel it
    worst: Any  # energy error so far


class Seen(NamedTuple):
    """What is known of a point and not needed to go on from it."""

    logdensity: Any
    score: Any
    error: Any  # of the energy


def one_stage(
    target: Target, through: Coordinates, energy: Array, point: Point, passed: Array, size: Array
) -> tuple[Point, Seen]:
    """One stage of the integrator."""
    lam, push, pull, stages = through
    dtype, stage = energy.dtype, passed % stages
    length, last = stages * size, stage == stages - 1
    ends = (jnp.where(stages == LEAPFROG, 0.5, FIRST_KICK) * length).astype(dtype)
    momentum = point.momentum + jnp.where(stage == 0, ends, 0) * point.force
    position = point.position + size * push(momentum)
    value, score = _value_and_score(target, position, lam)
    force = pull(score)
    momentum = momentum + jnp.where(last, ends, length - 2 * ends).astype(dtype) * force
    error = kinetic_energy(momentum) - value - energy
    error = jnp.where(jnp.isfinite(error), error, jnp.inf).astype(dtype)
    worst = jnp.where(last, jnp.maximum(point.worst, error), point.worst)
    return Point(position, momentum, force, worst), Seen(value, score, error)


def _value_and_score(target: Target, position: Array, lam: Parameterization) -> tuple[Array, Array]:
    """The log density and its gradient, whose parts are done before they are joined.

    Otherwise XLA sums over a site's elements while it joins the parts, in a single thread.
    """
    cuts = np.cumsum([site.size for site in target.program.latents])[:-1]

    def of_parts(parts: list[Array]) -> Array:
        return target.logdensity(jnp.concatenate(parts), lam)

    value, scores = jax.value_and_grad(of_parts)(jnp.split(position, cuts))
    return value, jnp.concatenate(jax.lax.optimization_barrier(scores))
