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
    """The starting point of a chain; `found` says whether its density and gradient are finite."""

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
    around: tuple[Array, Array],
    settings: SamplerSettings = DEFAULTS,
) -> Start:
    """Starts of all chains: at `positions` where `given`, else the best of some candidates.

    A candidate draws the noise of each reparameterizable site, and every other unconstrained value,
    uniformly within a radius: around 0, or around the prior's center in units of the prior's width,
    in turn. It is the same point whatever λ is. Radii fall, and a candidate is
    taken over a wider one only if its density is higher by more than the dimension: a typical draw
    is about half of that below the mode. So chains start spread out where that does no harm, and
    closer to the prior's center where wide starts would be far below the posterior.
    Where `rough`, the scores found give a first metric.
    """
    value_and_score = jax.value_and_grad(target.logdensity)
    origin = _untouched(lam)
    count = settings.candidates
    radii = jnp.geomspace(1.0, settings.least_radius, count // 2)

    def one_chain(key: Array, position: Array) -> tuple[Array, State, Array]:
        worth = jnp.asarray(position.size, position.dtype)

        def attempt(carried):
            tries, best, highest, found = carried
            # Where no candidate of a round could be used, the next round begins where it ended.
            radius = radii[tries % count // 2] * settings.least_radius ** (tries // count)
            radius = radius.astype(position.dtype)
            center, width = jax.tree.map(
                lambda prior, plain: jnp.where(tries % 2, prior, plain).astype(position.dtype),
                around,
                (0.0, settings.radius),
            )
            noise = center + radius * width * jax.random.uniform(
                jax.random.fold_in(key, tries), position.shape, position.dtype, -1.0, 1.0
            )
            moved, log_det = target.translate(noise, origin, lam)
            point = jnp.where(given, position, moved)
            value, score = value_and_score(point, lam)
            usable = jnp.isfinite(value) & jnp.isfinite(score).all()
            # Densities of the noise: those of other coordinates are highest in the necks of scales.
            level = value + log_det
            taken = ~found | (usable & (level > highest + worth))
            new = State(point, value, score), level
            best, highest = jax.tree.map(
                lambda new, old: jnp.where(taken, new, old), new, (best, highest)
            )
            return tries + 1, best, highest, found | usable

        def more(carried):
            tries, _, _, found = carried
            several = (tries < count) | (~found & (tries < settings.tries))
            return jnp.where(given, tries < 1, several)

        zero = jnp.zeros((), position.dtype)
        blank = State(position, zero, jnp.zeros_like(position))
        begin = jnp.array(0), blank, zero, jnp.array(False)
        tries, state, _, found = jax.lax.while_loop(more, attempt, begin)
        return tries, state, found

    tries, state, found = jax.vmap(one_chain)(keys, positions)
    metric = tuning.inverse_mass
    metric = metric._replace(diagonal=jnp.where(rough, _rough(state.score), metric.diagonal))
    tuning = tuning._replace(inverse_mass=metric)
    size = jax.vmap(_first_step_size, (0, None, 0, None, None, None))(
        keys, target, state, lam, tuning, target_accept
    )
    searched = 1 + jnp.abs(jnp.round(jnp.log2(size / FIRST_STEP))).astype(jnp.int32)
    return Start(state, size, found, tries + searched, metric)


def _untouched(lam: Parameterization) -> Parameterization:
    """Noise as it comes: non-centered, of unit reference scale, with its own tails."""
    unit = jax.tree.map(jnp.ones_like, lam).map(lambda one: one * 0)
    return unit.replace(tail=dict.fromkeys(lam.tail, 0.0))


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
