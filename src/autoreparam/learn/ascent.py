"""The mean-field ELBO over `(μ, σ, λ)`: its estimate, and a chunk of its ascent, compiled.

With `q` the independent Normals `x = μ + σ ε` in working coordinates, the ELBO is

    E[log p̃(x; λ) - log q(x)] = E[log p̃(x; λ)] + Σ log σ + n/2 log 2πe

The left form is the one estimated: its noise vanishes as `q` comes near the target, and so does
that of its gradient, taken along the paths of the draws in the model's own space, where μ, σ and λ
all move them. There `q` depends on all three too; its score has mean zero and is left out. (In
working coordinates λ would move the target instead, and its gradient stay noisy at the optimum.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from autoreparam.program.parameterization import Parameterization
from autoreparam.program.rows import over_rows
from autoreparam.program.target import Target


class Free(NamedTuple):
    """What Adam moves, as one flat vector: μ, softplus⁻¹ σ, logit λ of locations and of scales."""

    loc: Any
    scale: Any
    lam: dict[str, Any]
    lam_scale: dict[str, Any]


class Mask(NamedTuple):
    """Whether λ is learned, and for each site whether its scale has its own λ."""

    learn: Any
    untied: dict[str, Any]


def read(target: Target, start: Parameterization, mask: Mask, free: Array, pull: Any = 0.0):
    """λ, μ and σ; free values are in units of the reference scale, and μ moves with λ by `pull`."""
    blank, like = np.zeros(target.size, free.dtype), {name: start[name] for name in start}
    part = ravel_pytree(Free(blank, blank, like, like))[1](free)
    found = {}
    for name in start:
        held, loc = start.of(name), jax.nn.sigmoid(part.lam[name])
        scale = jnp.where(mask.untied[name], jax.nn.sigmoid(part.lam_scale[name]), loc)
        loc = jnp.where(mask.learn, loc, held.loc)
        scale = jnp.where(mask.learn, scale, held.scale)
        found[name] = replace(held, loc=loc, scale=scale)
    lam = Parameterization.by_site(found)
    unit = _spread(target, start.reference, 1.0)
    center = unit * part.loc + pull * _spread(target, {name: lam[name] for name in lam}, 0.0)
    return lam, center, unit * jax.nn.softplus(part.scale)


read_compiled = jax.jit(read)


def _spread(target: Target, values: Mapping[str, Any], other: float) -> Array:
    """A flat vector of the candidates' `values`, with `other` for the remaining latents."""
    parts = {
        site.name: jnp.broadcast_to(values.get(site.name, other), site.unconstrained_shape)
        for site in target.program.latents
    }
    return target.flatten(parts)


def _pull(target: Target, start: Parameterization, mask: Mask, free: Array) -> Array:
    """`m` of each element at the center of `q`: what a unit of λ adds to its working coordinate."""
    lam, center, _ = read(target, start, mask, free)
    more = Parameterization.by_site(
        {name: replace(lam.of(name), loc=lam[name] + 1) for name in lam}
    )
    return target.translate(center, lam, more)[0] - center


def estimate(free: Array, target: Target, start, mask: Mask, pull: Array, noise: Array) -> Array:
    """The ELBO at given noise draws; its gradient leaves out the score of `q`."""
    lam, loc, scale = read(target, start, mask, free, pull)
    position = loc + scale * noise
    lam_now, loc, scale = jax.lax.stop_gradient((lam, loc, scale))
    # The same numbers, but they vary with λ as the model's own values do.
    translate = over_rows(target.program, target.translate, (0, None, None))
    position, _ = translate(position, lam, lam_now)
    log_q = -0.5 * jnp.sum(((position - loc) / scale) ** 2, axis=-1) - jnp.sum(jnp.log(scale))
    log_q -= 0.5 * target.size * float(np.log(2 * np.pi))
    density = over_rows(target.program, target.logdensity, (0, None))
    return jnp.mean(density(position, lam_now) - log_q)


def adam(memory: float) -> Any:
    """Adam's direction of ascent, with the decay of its squared gradients."""
    import optax  # most runs do without

    return optax.scale_by_adam(b2=memory)


@partial(jax.jit, static_argnames=("pairs", "chunk", "memory"))
def advance(target, start, mask, state, rates, key, *, pairs: int, chunk: int, memory: float):
    """A chunk of steps at every rate: the state, the mean of the iterates, the ELBO of each step.

    Noise comes in antithetic pairs, the same at every rate. At rate zero nothing moves, so the
    chunk is a plain evaluation.
    """
    # The working coordinate contains `λ m`, so μ would have to follow every move of λ. Instead,
    # within a chunk the free location is that of `x - λ m`, with `m` fixed at its starting value.
    pull = jax.vmap(partial(_pull, target, start, mask))(state[0])

    @jax.vmap
    def pulled(free, pull):
        loc = read(target, start, mask, free, pull)[1] / _spread(target, start.reference, 1.0)
        return jnp.append(loc, free[target.size :])

    @partial(jax.vmap, in_axes=(0, 0, 0, None))
    def step(state, rate, pull, noise):
        free, moments = state
        elbo, gradient = jax.value_and_grad(estimate)(free, target, start, mask, pull, noise)
        ascent, moments = adam(memory).update(gradient, moments)
        finite = jnp.isfinite(elbo) & jnp.isfinite(gradient).all()
        # A step that is not finite is skipped; the next one has different noise and may be fine.
        new = (free + rate * ascent, moments)
        return jax.tree.map(partial(jnp.where, finite), new, state), elbo

    def body(carry, key):
        state, total = carry
        noise = jax.random.normal(key, (pairs, target.size), target.program.dtype)
        state, elbos = step(state, rates, pull, jnp.concatenate([noise, -noise]))
        return (state, total + state[0]), elbos

    carry = ((pulled(state[0], -pull), state[1]), jnp.zeros_like(state[0]))
    (state, total), elbos = jax.lax.scan(body, carry, jax.random.split(key, chunk))
    return (pulled(state[0], pull), state[1]), pulled(total / chunk, pull), elbos
