"""Many data sets at once: their starts and draws as compiled programs, vectorized over data sets.

Each data set has its own λ, metric, step size and trajectory length, which `many_retune.py` learns.
What a single run can afford and a batch cannot is left out: second tries, for which all would have
to wait, directions of the metric, other integrators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.mcmc.hmc import Kernel, State, Tuning, blank_info, jittered
from autoreparam.mcmc.integrator import LEAPFROG
from autoreparam.mcmc.metric import Metric
from autoreparam.mcmc.settings import DEFAULTS
from autoreparam.mcmc.start import FIRST_STEP, look
from autoreparam.mcmc.step_size import REASONABLE
from autoreparam.mcmc.trail import Trail
from autoreparam.program.compiled import often, rarely
from autoreparam.program.many import Targets
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

KERNEL = Kernel("hmc", again=None)
JITTER = 0.5  # what `best_length` mostly finds
MOST_STEPS = 32  # of a trajectory, on average
ENOUGH = 0.75  # share of the data sets of a batch whose trajectories get as long as they should


class Fit(NamedTuple):
    """What is known about one data set; that of many has a leading axis."""

    chains: State  # with a chain axis
    lam: Parameterization
    diagonal: Any  # of the metric
    length: Any  # of trajectories, in units of the metric
    step_size: Any
    target_accept: Any

    def tuning(self, size: Any) -> Tuning:
        """The tuning of a transition with steps of this size, however many."""
        return tuning_of(self.diagonal, size, 0)


def tuning_of(diagonal: Any, size: Any, steps: Any) -> Tuning:
    """A tuning with so many steps on average. Constants are not traced, and cost nothing."""
    dtype = diagonal.dtype
    metric = Metric(diagonal, np.zeros((len(diagonal), 0), dtype), np.ones(0, dtype))
    length, jitter, stages = (np.asarray(x, dtype) for x in (0, JITTER, LEAPFROG))
    return Tuning(size, metric, steps, length, jitter, stages)


# -- starts -----------------------------------------------------------------------------------


class Start(NamedTuple):
    """Where the chains of one data set begin."""

    fit: Fit
    found: Any  # whether any chain has a finite density and gradient
    gradients: Any


@rarely
def begin(
    targets: Targets,
    keys: Array,
    lams: Parameterization,
    centers: Array,
    widths: Array,
    untouched: Parameterization,
    target_accept: Array,
) -> Start:
    """The best of candidates around the prior for each chain, as `start.py` chooses them.

    `keys` has one key per data set and chain. A chain without a candidate of finite density begins
    where another does.
    """
    settings = DEFAULTS
    count = settings.candidates
    radii = np.geomspace(1.0, settings.least_radius, count // 2).repeat(2)

    def choose(target: Target, key: Array, lam: Parameterization, center: Array, width: Array):
        size, dtype = target.size, target.program.dtype
        rounds = np.ceil(np.log(np.finfo(dtype).eps) / np.log(settings.least_radius))

        def level_at(point: Array) -> Array:
            position, log_det = target.translate(point, untouched, lam)
            return target.logdensity(position, lam) + log_det

        middles = jax.vmap(level_at)(jnp.stack([jnp.zeros_like(center), center]))
        enough = jnp.max(middles, where=jnp.isfinite(middles), initial=-jnp.inf) - size

        def searching(carried: tuple[Any, Array]) -> Array:
            (_, found, highest), number = carried
            again = (~found | (highest < enough)) & (number < rounds * count)
            return (number % count != 0) | (number == 0) | again

        def candidate(carried: tuple[Any, Array]) -> tuple[Any, Array]:
            best, number = carried
            _, found, highest = best
            radius = jnp.asarray(radii, dtype)[number % count]
            radius *= jnp.asarray(settings.least_radius, dtype) ** (number // count)
            noise = jax.random.uniform(jax.random.fold_in(key, number), (size,), dtype, -1.0, 1.0)
            around = jnp.where(number % 2, center, 0), jnp.where(number % 2, width, settings.radius)
            point = around[0] + radius * around[1] * noise
            position, log_det = target.translate(point, untouched, lam)
            state, usable = look(target, position, lam)
            level = state.logdensity + log_det
            taken = usable & (~found | (level > highest + size))
            best = jax.tree.map(partial(jnp.where, taken), (state, True, level), best)
            return best, number + 1

        zero = jnp.zeros((), dtype)
        blank = State(jnp.zeros(size, dtype), zero, jnp.zeros(size, dtype)), False, zero
        first = jax.tree.map(jnp.asarray, blank), jnp.asarray(0)
        (state, found, _), looks = jax.lax.while_loop(searching, candidate, first)
        return state, found, looks + len(middles)

    def one(target: Target, keys: Array, lam: Parameterization, center: Array, width: Array):
        keys, others = jax.vmap(jax.random.split, out_axes=1)(keys)
        pick = jax.vmap(choose, (None, 0, None, None, None))
        states, found, looks = pick(target, keys, lam, center, width)
        other = jnp.where(found, jnp.arange(len(keys)), jnp.argmax(found))
        states = jax.tree.map(lambda leaf: leaf[other], states)
        fit, paid = _at(target, others, states, lam, target_accept)
        return Start(fit, jnp.any(found), jnp.sum(looks) + paid)

    return targets.each(one, keys, lams, centers, widths)


@rarely
def begin_again(targets: Targets, keys: Array, fits: Fit, target_accept: Array) -> Start:
    """A warm-up from where chains are, with the λ they have; the rest is to be learned anew."""

    def one(target: Target, keys: Array, fit: Fit) -> Start:
        states = jax.vmap(KERNEL.init, (None, 0, None))(target, fit.chains.position, fit.lam)
        begun, paid = _at(target, keys, states, fit.lam, target_accept)
        return Start(begun, jnp.asarray(True), len(keys) + paid)

    return targets.each(one, keys, fits)


def _at(
    target: Target, keys: Array, states: State, lam: Parameterization, target_accept: Array
) -> tuple[Fit, Array]:
    """A first metric from the scores, a first step size, and the gradients that it took."""
    steep = jnp.sqrt(jnp.mean(states.score**2, axis=0))
    diagonal = 1 / jnp.where(jnp.isfinite(steep), jnp.maximum(steep, 1), 1)
    length = jnp.asarray(DEFAULTS.first_length, diagonal.dtype)
    first = jnp.asarray(FIRST_STEP, diagonal.dtype)
    fit = Fit(states, lam, diagonal, length, first, target_accept)
    one_step = jnp.ones((), jnp.int32)

    def search(key: Array, state: State) -> Array:
        def with_size(size: Array) -> Callable:
            tuning = fit.tuning(size)
            return lambda key, state: KERNEL.travel(key, target, state, lam, tuning, one_step)

        from blackjax.adaptation.step_size import find_reasonable_step_size

        return find_reasonable_step_size(key, with_size, state, first, target_accept)

    sizes = jax.vmap(search)(keys, states).clip(*REASONABLE)  # where gradients are zero
    paid = jnp.sum(1 + jnp.abs(jnp.log2(sizes / first)))
    return fit._replace(step_size=jnp.exp(jnp.median(jnp.log(sizes)))), paid


# -- draws ------------------------------------------------------------------------------------


@partial(often, static_argnames="length")
def run_window(
    targets: Targets,
    keys: Array,
    shared: Array,
    start: Array,
    count: Array,
    adapts: Array,
    fits: Fit,
    length: int,
) -> tuple[Fit, Trail]:
    """`count` draws of every chain, at most `length`, numbered from `start`.

    All trajectories of a draw have equally many steps, so that none waits for another: as many as
    most data sets need, jittered by the key `shared`. Where that is more than a data set needs, its
    steps are shorter. Where it `adapts`, they follow the mean acceptance of the data set's chains.
    """
    dtype = fits.diagonal.dtype
    each = jnp.nan_to_num(fits.length / fits.step_size, nan=1.0)
    needed = jnp.clip(jnp.quantile(each, ENOUGH, method="higher"), 1, MOST_STEPS).astype(dtype)
    fitting = jnp.minimum(fits.step_size, fits.length / needed)
    fits = fits._replace(step_size=jnp.where(adapts, fits.step_size, fitting))

    def one(target: Target, keys: Array, fit: Fit) -> tuple[Fit, Trail]:
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        first, update, final = dual_averaging_adaptation(fit.target_accept)
        move = jax.vmap(KERNEL.travel, (0, None, 0, None, None, None))

        def step(i: Array, carried):
            chains, average, trail = carried
            uniform = jax.random.uniform(jax.random.fold_in(shared, start + i), (), dtype)
            steps, varied = jittered(uniform, tuning_of(np.ones(0, dtype), 1, needed))
            size = jnp.where(adapts, jnp.exp(average.log_step_size), fit.step_size)
            size = (varied * size).astype(dtype)
            own = jax.vmap(jax.random.fold_in, (0, None))(keys, start + i)
            chains, info = move(own, target, chains, fit.lam, fit.tuning(size), steps)
            average = update(average, jnp.mean(jnp.nan_to_num(info.acceptance_rate)))
            sizes = jnp.full(len(keys), size)
            entry = Trail(chains.position, chains.score, chains.logdensity, sizes, info)
            trail = jax.tree.map(lambda all_, now: all_.at[:, i].set(now), trail, entry)
            return chains, average, trail

        shape = len(keys), length
        flat, vector = jnp.zeros(shape, dtype), jnp.zeros((*shape, target.size), dtype)
        trail = Trail(vector, vector, flat, flat, blank_info(shape, dtype))
        begun = fit.chains, first(fit.step_size), jax.tree.map(jnp.asarray, trail)
        chains, average, trail = jax.lax.fori_loop(0, count, step, begun)
        size = jnp.where(adapts, final(average), fit.step_size).astype(dtype)
        return fit._replace(chains=chains, step_size=size), trail

    return targets.each(one, keys, fits)
