"""λ from draws and scores as in `score.py`, but inside a compiled program: for many data sets."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from autoreparam.learn.descent import descend
from autoreparam.learn.informed import by_data, with_tails
from autoreparam.learn.necks import depths_of, out_of_necks
from autoreparam.learn.objective import Draws, inflations
from autoreparam.learn.origins import around, has_sequences, origins_of
from autoreparam.learn.settings import DEFAULTS, ScoreSettings
from autoreparam.learn.usual import at_usual_scales, varying
from autoreparam.program.move import MOST_SITES, held_out, large_matrices
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

KEPT = 1  # the place of the current λ among the candidates


def fit_inside(
    target: Target,
    positions: Array,
    scores: Array,
    logdensity: Array,
    weights: Array,
    lam: Parameterization,
    settings: ScoreSettings = DEFAULTS,
) -> Parameterization:
    """The best, on held-out draws, of the candidates of `fit_score`; `lam` with too few draws.

    Here most draws are held out: a comparison costs a single pass, and a fit many.
    """
    log_scales = jax.vmap(target.log_scales, (0, None))(positions, lam)
    log_scales = {name: log_scales[name] for name in varying(target)}
    draws, before, old = Draws(positions, scores, logdensity, weights), weights > 0, lam
    lam = at_usual_scales(old, log_scales, before, jnp)
    draws, fitted_to = _moved(target, draws, old, lam), held_out(len(positions))
    seen, unseen = draws.where(fitted_to), draws.where(~fitted_to)
    as_written = with_tails(lam, 0.0)
    centered, whitened = as_written.map(jnp.ones_like), with_tails(lam.map(jnp.zeros_like), 1.0)
    own = by_data(target, _moved(target, seen, lam, whitened), lam)
    candidates = [
        own,
        lam,
        centered,
        as_written.map(jnp.zeros_like),
    ]
    depths = depths_of(target, log_scales, weights > 0, settings, jnp)
    if has_sequences(lam):
        origins = origins_of(target, draws, lam, partial(_positions, target), jnp)
        candidates = [around(rival, origins) for rival in candidates]
    rivals = _Rivals.of(target, unseen, lam, candidates)
    if len(lam) <= MOST_SITES and not large_matrices(target):
        start = rivals.best(settings).replace(tail=lam.tail)
        fitted = descend(target, seen, lam, start, True, settings.steps, (), settings)
        more = [fitted, *([with_tails(fitted, 0.0)] if lam.tail else [])]
        rivals = rivals.plus(_Rivals.of(target, unseen, lam, more))
    best = out_of_necks(target, rivals.best(settings), depths, own, settings, jnp)
    enough = jnp.sum(weights > 0) >= settings.fewest_learned_from
    return jax.tree.map(lambda new, old: jnp.where(enough, new, old), best, old)


def _positions(
    target: Target, positions: Array, old: Parameterization, new: Parameterization
) -> Array:
    return jax.vmap(target.translate, (0, None, None))(positions, old, new)[0]


def _moved(target: Target, draws: Draws, lam: Parameterization, new: Parameterization) -> Draws:
    carry = jax.vmap(target.carry, (0, 0, None, None))
    positions, scores, gain = carry(draws.positions, draws.scores, lam, new)
    return Draws(positions, scores, draws.logdensity + gain, draws.weights)


class _Rivals(NamedTuple):
    """Candidates, stacked, and what `objective.cost` says about them."""

    lam: Parameterization
    objective: Array
    energy: Array

    @classmethod
    def of(
        cls, target: Target, unseen: Draws, lam: Parameterization, rivals: list[Parameterization]
    ) -> _Rivals:
        """The candidates with their costs, for draws in the coordinates of `lam`."""

        def cost(rival: Parameterization) -> tuple[Array, Array]:
            there = _moved(target, unseen, lam, rival)
            share = there.weights / jnp.sum(there.weights)
            spread = share @ (there.logdensity - share @ there.logdensity) ** 2
            terms = inflations(there.positions, there.scores, there.weights)
            return jnp.sum(terms), (1 + 2 * spread / terms.size) / 2

        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rivals)
        return cls(stacked, *jax.vmap(cost)(stacked))

    def plus(self, others: _Rivals) -> _Rivals:
        """All of both."""
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), self, others)

    def best(self, settings: ScoreSettings) -> Parameterization:
        """The one with the lowest objective among those whose energy changes fast enough."""
        finite = jnp.isfinite(self.objective)
        most = settings.most_energy * jnp.min(jnp.where(finite, self.energy, jnp.inf))
        level = jnp.where(finite & (self.energy <= most), self.objective, jnp.inf)
        chosen = jnp.where(jnp.any(jnp.isfinite(level)), jnp.argmin(level), KEPT)
        return jax.tree.map(lambda leaf: leaf[chosen], self.lam)
