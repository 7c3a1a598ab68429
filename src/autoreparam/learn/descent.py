"""The descent: Adam on the logits of λ, down the objective of draws and scores.

It takes longer to compile than all else that learning needs, so models that gain nothing by it go
without.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from autoreparam.learn.objective import Cost, Draws, inflations, saved
from autoreparam.learn.settings import ScoreSettings
from autoreparam.program.centering import Centering
from autoreparam.program.compiled import often, rarely
from autoreparam.program.move import MOST_SITES, large_matrices
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.rows import over_rows
from autoreparam.program.target import Target

MANY = 1_000_000  # numbers in draws; from there, a slow descent may cost more than compiling


def descends(
    target: Target, steps: int | None, best: Cost | None, rows: int, settings: ScoreSettings
) -> bool:
    """Whether there is a descent.

    Where each element is informed only by its own data and its prior, "informed" is as good, unless
    some coordinate is clearly more inflated than by chance. The logarithm of each variance of n
    draws has an error of about `sqrt(2 / n)`, the largest of d of them one `sqrt(2 log d)` times as
    large.
    """
    if len(target.program.candidates) > MOST_SITES or large_matrices(target):
        return False
    if steps is not None or best is None or not _on_their_own(target):
        return True
    chance = 2 * np.sqrt(np.log(max(target.size, 2)) / max(rows, 1))
    return bool(np.max(best.inflations) > settings.worth_fitting + chance)


def _on_their_own(target: Target) -> bool:
    """Whether the elements of all sites with a λ tell nothing of each other, and are light-tailed.

    That is how it looks from the priors; the data may still tell of several at once.
    """
    sites = target.program.candidates
    names = {site.name for site in sites}
    return all(site.alone and not site.heavy and names.isdisjoint(site.parents) for site in sites)


def in_turn(target: Target) -> bool:
    """Whether elements within a site depend on each other, which takes longer to compute."""
    return not all(site.alone for site in target.program.candidates)


def fitted(
    target: Target,
    draws: Draws,
    lam: Parameterization,
    start: Parameterization,
    tied: bool,
    steps: int | None,
    blocks: tuple[np.ndarray, ...],
    settings: ScoreSettings,
) -> Parameterization:
    """λ after the descent from `start`; without `steps`, as many as a window is worth."""
    usual = settings.steps_in_turn if in_turn(target) else settings.steps
    program = _few if draws.positions.size < MANY else _many  # quickly compiled, or quickly run
    found = program(target, draws, lam, start, tied, steps or usual, blocks, settings)
    return jax.device_get(found)


def descend(target, draws, lam, start, tied, steps, blocks, settings) -> Parameterization:
    """λ after Adam on its logits, starting at `start`; draws are in the coordinates of `lam`.

    The logits of all sites are one vector, since each operation takes time to compile.
    """
    import optax  # many runs do without

    ridge = settings.ridge / jnp.sum(draws.weights)
    edge, carry = settings.edge, over_rows(target.program, target.carry, (0, 0, None, None))
    free = {name: _free(start.of(name), tied) for name in lam.sites}
    first, by_site = ravel_pytree(jax.tree.map(jax.scipy.special.logit, free))

    def bound(logits: Array) -> Parameterization:
        found, bounded = {}, by_site(jax.nn.sigmoid(logits))
        for name in lam.sites:  # in this order: programs are compiled for it
            known, one = start.of(name), bounded[name]
            scale = one.loc if tied else one.scale
            found[name] = replace(known, loc=one.loc, scale=scale, tail=one.tail)
        return Parameterization.by_site(found, start.flat)

    def loss(logits: Array) -> Array:
        penalty = sum(map(_unlikely, jax.tree.leaves(by_site(logits))))
        moved, carried, _ = carry(draws.positions, draws.scores, lam, bound(logits))
        less = saved(moved, carried, draws.weights, blocks)
        return jnp.sum(inflations(moved, carried, draws.weights)) + less + ridge * penalty

    # The step shrinks to zero, so the last iterate can be used as it is.
    optimizer = optax.adam(optax.cosine_decay_schedule(settings.rate, steps))

    def step(_, carried):
        logits, state = carried
        update, state = optimizer.update(jnp.nan_to_num(jax.grad(loss)(logits)), state)
        return optax.apply_updates(logits, update), state

    first = jnp.clip(first, -edge, edge)
    logits, _ = jax.lax.fori_loop(0, steps, step, (first, optimizer.init(first)))
    return bound(logits)


def _free(one: Centering, tied: bool) -> Centering:
    """What is fitted of a site's λ."""
    scale = None if tied else one.scale
    return replace(one, scale=scale, reference=None, origin=None, grip=None)


def _unlikely(logits: Array) -> Array:
    """A penalty on how far a site's elements are from each other, and all of them from λ = 1/2."""
    mean = jnp.mean(logits)
    return jnp.sum((logits - mean) ** 2) + mean**2


_STATIC = ("tied", "steps", "settings")
_few, _many = (kind(descend, static_argnames=_STATIC) for kind in (rarely, often))
