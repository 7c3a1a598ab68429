"""λ by the mean-field ELBO: variationally inferred parameterization (VIP).

With working coordinates `x = μ + σ ε`, `ε` standard Normal, the ELBO of the Gaussian `q(μ, σ)` is

    E[log p̃(x; λ)] + Σ log σ + n/2 log 2πe

and is maximized over `(μ, σ, λ)` together. The expectation is estimated with `½(|ε|² - n)` as its
control variate: that leaves every gradient as it is, and takes most of the noise out of the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from autoreparam.errors import SamplingError
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

CHUNK = 50  # steps of one call of the compiled program
DECAY = (1.0, 1 / 5, 1 / 20)  # of the learning rate, a third of the steps each
START_SCALE = 0.1  # σ at the start, in units of the reference scale: small, so densities are finite
MARGIN = 0.02  # λ starts to learn this far from 0 and 1, where its gradient vanishes
PAPER: dict[str, Any] = {
    "steps": 3000,
    "samples": 256,
    "learning_rates": (0.02, 0.05, 0.1, 0.2, 0.4),
    "early_stop": False,
}


@dataclass(frozen=True, eq=False)
class Fit:
    """A mean-field fit in working coordinates and the parameterization they belong to.

    `history` holds the ELBO of each chunk of steps (rows) at each learning rate (columns), for the
    fit itself and for those at the two ends it is held against; `note` says what went otherwise
    than asked.
    """

    parameterization: Parameterization
    elbo: float
    elbo_error: float
    history: Mapping[str, np.ndarray]
    gradients: int
    loc: np.ndarray
    scale: np.ndarray
    converged: bool
    note: str


def fit_elbo(
    target: Target,
    start: Parameterization,
    *,
    key: Array,
    learn: bool = True,
    tied: bool = True,
    steps: int = 600,
    samples: int = 8,
    learning_rates: Sequence[float] = (0.05, 0.2),
    early_stop: bool = True,
) -> Fit:
    """The mean-field fit with the highest ELBO over `(μ, σ, λ)`; at λ = `start` if not `learn`.

    Each learning rate is run, in steps rounded up to whole chunks; each third of the steps ends
    early once the ELBO has stopped rising. What was learned is held against the fits at λ=0 and
    λ=1, and the better of these is returned, with a note, where it is clearly above.

    >>> fit = fit_elbo(target, Parameterization.constant(target.program, 0.5), key=key)
    >>> fit.parameterization, fit.elbo, fit.gradients
    """
    start = start.check(target.program)
    plan = _Plan(target, key, tuple(learning_rates), steps, samples, early_stop)
    learn = learn and len(start) > 0
    main = plan.climb(start, learn=learn, tied=tied)
    climbs = {"learned" if learn else "fixed": main}
    if learn:
        for name, end in (("noncentered", 0.0), ("centered", 1.0)):
            climbs[name] = plan.climb(start.map(partial(np.full_like, fill_value=end)))
    best, note = _choose(climbs, plan)
    winner = climbs[best]
    lane = winner.best
    free = jax.tree.map(lambda leaf: leaf[lane], winner.free)
    lam, loc, scale = _parts(target, winner.start, winner.mask, free)
    return Fit(
        parameterization=jax.tree.map(np.asarray, lam),
        elbo=float(winner.elbos[:, lane].mean()),
        elbo_error=_error(winner.elbos[:, lane]),
        history=MappingProxyType({name: climb.history for name, climb in climbs.items()}),
        gradients=sum(climb.gradients for climb in climbs.values()),
        loc=np.asarray(loc),
        scale=np.asarray(scale),
        converged=winner.converged,
        note=note,
    )


# -- the compiled program ---------------------------------------------------------------------


class _Free(NamedTuple):
    """What Adam moves, without bounds: μ, softplus⁻¹ σ, logit λ of locations and of scales."""

    loc: Any
    scale: Any
    lam: dict[str, Any]
    lam_scale: dict[str, Any]


class _Mask(NamedTuple):
    """Whether λ is learned, and per site whether its scale has a λ of its own."""

    learn: Any
    untied: dict[str, Any]


STL = True
B2 = 0.999
LAMX = 1.0


def _parts(target: Target, start: Parameterization, mask: _Mask, free: _Free):
    """λ, μ and σ; μ and σ are counted in units of the reference scale, like λ itself."""
    loc = {name: jax.nn.sigmoid(free.lam[name]) for name in start}
    scale = {
        name: jnp.where(mask.untied[name], jax.nn.sigmoid(free.lam_scale[name]), loc[name])
        for name in start
    }
    lam = Parameterization(
        {name: jnp.where(mask.learn, loc[name], start[name]) for name in start},
        {name: jnp.where(mask.learn, scale[name], start.scale[name]) for name in start},
        start.reference,
    )
    units = {
        site.name: jnp.broadcast_to(
            start.reference[site.name] if site.name in start else 1.0, site.unconstrained_shape
        )
        for site in target.program.latents
    }
    unit = target.flatten(units)
    return lam, unit * free.loc, unit * jax.nn.softplus(free.scale)


def _estimate(free: _Free, target: Target, start, mask: _Mask, noise: Array) -> Array:
    lam, loc, scale = _parts(target, start, mask, free)
    position = loc + scale * noise
    log_density = jax.vmap(target.logdensity, (0, None))(position, lam)
    if STL:
        stop = jax.lax.stop_gradient
        cv = 0.5 * jnp.sum(((position - stop(loc)) / stop(scale)) ** 2, axis=-1)
        return jnp.mean(log_density + cv) + jnp.sum(jnp.log(stop(scale))) + 0.5 * target.size * np.log(2 * np.pi)
    control = 0.5 * jnp.sum(noise**2, axis=-1)
    return jnp.mean(log_density + control) + jnp.sum(jnp.log(scale)) + 0.5 * target.size * np.log(2 * np.pi)


@partial(jax.jit, static_argnames="pairs")
def _advance(target, start, mask, state, rates, key, *, pairs: int):
    """One chunk of Adam in every lane: the new state, the mean of its iterates, ELBO per step."""
    adam = optax.scale_by_adam(b2=B2)

    def step(state, rate, noise):
        free, moments = state
        elbo, gradient = jax.value_and_grad(_estimate)(free, target, start, mask, noise)
        ascent, moved = adam.update(gradient, moments)
        ascent = ascent._replace(lam=jax.tree.map(lambda a: LAMX * a, ascent.lam))
        new = jax.tree.map(lambda value, slope: value + rate * slope, free, ascent)
        finite = jnp.isfinite(elbo)
        for leaf in jax.tree.leaves(gradient):
            finite &= jnp.isfinite(leaf).all()
        # A step into nowhere is not taken: the next noise may well be kinder.
        keep = partial(jnp.where, finite)
        return jax.tree.map(keep, (new, moved), state), elbo

    def body(carry, key):
        state, total = carry
        half = jax.random.normal(key, (pairs, target.size), target.program.dtype)
        noise = jnp.concatenate([half, -half])
        state, elbo = jax.vmap(step, (0, 0, None))(state, rates, noise)
        return (state, jax.tree.map(jnp.add, total, state[0])), elbo

    zero = jax.tree.map(jnp.zeros_like, state[0])
    (state, total), elbos = jax.lax.scan(body, (state, zero), jax.random.split(key, CHUNK))
    return state, jax.tree.map(lambda leaf: leaf / CHUNK, total), elbos
