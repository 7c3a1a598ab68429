"""Where chains start: a finite density and gradient, and a first step size."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.adaptation.step_size import find_reasonable_step_size
from blackjax.mcmc import hmc
from jax import Array

from autoreparam.mcmc.hmc import State, Tuning
from autoreparam.mcmc.metric import Metric
from autoreparam.mcmc.settings import DEFAULTS, SamplerSettings
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

FIRST_STEP = 1.0  # in the search for a step size


class Start(NamedTuple):
    """Start of one chain; `found` says whether its density and gradient are finite."""

    state: State
    step_size: Any
    found: Any
    gradients: Any
    metric: Metric  # of all chains


@partial(jax.jit, static_argnames="settings")
def find_start(
    target: Target,
    keys: Array,
    positions: Array,
    given: Array,
    lam: Parameterization,
    tuning: Tuning,
    target_accept: Array,
    rough: Array,
    settings: SamplerSettings = DEFAULTS,
) -> Start:
    """Starts of all chains: at `positions` where `given`, else by random tries.

    A try draws the noise of each reparameterizable site, and every other unconstrained value,
    uniformly within the radius; it is the same point whatever λ is. Where `rough`, the scores found
    give a first metric.
    """
    radius = settings.radius
    value_and_score = jax.value_and_grad(target.logdensity)
    origin = jax.tree.map(jnp.ones_like, lam).map(lambda one: one * 0)

    def one_chain(key: Array, position: Array) -> tuple[Array, State, Array]:
        def attempt(carried):
            tries, _, _ = carried
            noise = jax.random.uniform(
                jax.random.fold_in(key, tries), position.shape, position.dtype, -radius, radius
            )
            point = jnp.where(given, position, target.translate(noise, origin, lam)[0])
            value, score = value_and_score(point, lam)
            found = jnp.isfinite(value) & jnp.isfinite(score).all()
            return tries + 1, State(point, value, score), found

        def more(carried):
            tries, _, found = carried
            return ~found & (tries < jnp.where(given, 1, settings.tries))

        blank = State(position, jnp.zeros((), position.dtype), jnp.zeros_like(position))
        return jax.lax.while_loop(more, attempt, (jnp.array(0), blank, jnp.array(False)))

    tries, state, found = jax.vmap(one_chain)(keys, positions)
    metric = tuning.inverse_mass
    metric = metric._replace(diagonal=jnp.where(rough, _rough(state.score), metric.diagonal))
    tuning = tuning._replace(inverse_mass=metric)
    size = jax.vmap(_first_step_size, (0, None, 0, None, None, None))(
        keys, target, state, lam, tuning, target_accept
    )
    searched = 1 + jnp.abs(jnp.round(jnp.log2(size / FIRST_STEP))).astype(jnp.int32)
    return Start(state, size, found, tries + searched, metric)


def _rough(scores: Array) -> Array:
    """A first diagonal: at a distance of about 1 from the mode the score is 1 / variance."""
    size = jnp.sqrt(jnp.mean(scores**2, axis=0))
    return jnp.where(jnp.isfinite(size) & (size > 1), 1 / size, 1.0)


def _first_step_size(key, target, state, lam, tuning, target_accept) -> Array:
    kernel, metric = hmc.build_kernel(), tuning.inverse_mass.build()

    def generator(step_size):
        def step(key, state):
            return kernel(
                key,
                state,
                lambda position: target.logdensity(position, lam),
                step_size,
                metric,
                1,
            )

        return step

    first = jnp.asarray(FIRST_STEP, state.position.dtype)
    return find_reasonable_step_size(key, generator, hmc.HMCState(*state), first, target_accept)
