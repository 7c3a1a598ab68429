"""λ by the mean-field ELBO: variationally inferred parameterization (VIP).

With `q` the independent Normals `x = μ + σ ε` in working coordinates, the ELBO is

    E[log p̃(x; λ) - log q(x)] = E[log p̃(x; λ)] + Σ log σ + n/2 log 2πe

and is maximized over `(μ, σ, λ)` together. The left form is the one estimated: its noise vanishes
as `q` comes near the target, and so does that of its gradient, taken along the paths of the draws
in the model's own space, where μ, σ and λ all move them. There `q` depends on all three too; its
score has mean zero and is left out. (In working coordinates λ would move the target instead, and
its gradient stay noisy at the optimum.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from autoreparam.errors import AutoreparamError, SamplingError
from autoreparam.learn.fit import Fit
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

RATES = (0.02, 0.05, 0.1, 0.2, 0.4)
PAPER: dict = {"steps": 3000, "samples": 256, "learning_rates": RATES, "early_stop": False}
CHUNK = 50  # steps in one call of the compiled program
DECAY = (1.0, 1 / 5, 1 / 20)  # of the learning rate, for a third of the steps each
START_SCALE = 0.1  # σ at the start, in units of the reference scale: small, so densities are finite
MARGIN = 0.02  # λ is learned from at least this far from 0 and 1, where its gradient vanishes
ADAM = optax.scale_by_adam(b2=0.99)  # the usual 0.999 remembers the first, steep gradients too long
NEGLIGIBLE = 0.01  # nats: λ next to an end, where the logit still creeps, is as good as the end
ENDS = {"noncentered": 0.0, "centered": 1.0}


def fit_elbo(
    target: Target,
    start: Parameterization,
    *,
    key: Array,
    learn: bool = True,
    tied: bool = True,
    steps: int = 900,
    samples: int = 8,
    learning_rates: Sequence[float] = (0.1, 0.3),
    early_stop: bool = True,
) -> Fit:
    """The mean-field fit with the highest ELBO over `(μ, σ, λ)`, or over `(μ, σ)` at λ = `start`.

    Every learning rate is tried; each third of the steps, in whole chunks, ends early once the ELBO
    has stopped rising. A learned λ is held against plain fits at λ=0 and λ=1: where one of these
    is clearly better, it is the result. `**PAPER` gives the settings of the paper.

    >>> fit = fit_elbo(target, Parameterization.constant(target.program, 0.5), key=key)
    >>> fit.parameterization, fit.elbo, fit.gradients
    """
    if steps < 1 or samples < 1 or not learning_rates or min(learning_rates) <= 0:
        raise AutoreparamError(
            "expected at least one step, one sample and one positive learning rate; found "
            f"steps={steps}, samples={samples}, learning_rates={tuple(learning_rates)}"
        )
    dtype = target.program.dtype
    start = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), start.check(target.program))
    rates = np.asarray(learning_rates, dtype)
    climber = _Climber(target, key, rates, steps, ceil(samples / 2), early_stop)
    learn = learn and len(start) > 0
    climbs = {"learned" if learn else "fixed": climber.climb(start, learn, tied)}
    if learn:
        for name, end in ENDS.items():
            at_end = start.map(partial(np.full_like, fill_value=end))
            climbs[name] = climber.climb(at_end, False, tied)
    return _best(climbs)


# -- the compiled program ---------------------------------------------------------------------


class _Free(NamedTuple):
    """What Adam moves, as one flat vector: μ, softplus⁻¹ σ, logit λ of locations and of scales."""

    loc: Any
    scale: Any
    lam: dict[str, Any]
    lam_scale: dict[str, Any]


class _Mask(NamedTuple):
    """Whether λ is learned, and for each site whether its scale has a λ of its own."""

    learn: Any
    untied: dict[str, Any]


def _read(target: Target, start: Parameterization, mask: _Mask, free: Array, pull: Any = 0.0):
    """λ, μ and σ; free values count in units of the reference scale, and μ gains `pull` with λ."""
    blank, like = np.zeros(target.size, free.dtype), {name: start[name] for name in start}
    part = ravel_pytree(_Free(blank, blank, like, like))[1](free)
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


_read_compiled = jax.jit(_read)


def _spread(target: Target, values: Mapping[str, Any], other: float) -> Array:
    """A flat vector of the candidates' `values`, with `other` for the latents that have none."""
    parts = {
        site.name: jnp.broadcast_to(values.get(site.name, other), site.unconstrained_shape)
        for site in target.program.latents
    }
    return target.flatten(parts)


def _pull(target: Target, start: Parameterization, mask: _Mask, free: Array) -> Array:
    """`m` of each element at the center of `q`: what a unit of λ adds to its working coordinate."""
    lam, center, _ = _read(target, start, mask, free)
    more = Parameterization.by_site(
        {name: replace(lam.of(name), loc=lam[name] + 1) for name in lam}
    )
    return target.translate(center, lam, more)[0] - center


def _estimate(free: Array, target: Target, start, mask: _Mask, pull: Array, noise: Array) -> Array:
    """The ELBO at some draws of the noise; its gradient leaves out the score of `q`."""
    lam, loc, scale = _read(target, start, mask, free, pull)
    position = loc + scale * noise
    lam_now, loc, scale = jax.lax.stop_gradient((lam, loc, scale))
    # The same numbers, but they move with λ as the model's own values do.
    position = jax.vmap(target.translate, (0, None, None))(position, lam, lam_now)[0]
    log_q = -0.5 * jnp.sum(((position - loc) / scale) ** 2, axis=-1) - jnp.sum(jnp.log(scale))
    log_q -= 0.5 * target.size * float(np.log(2 * np.pi))
    return jnp.mean(jax.vmap(target.logdensity, (0, None))(position, lam_now) - log_q)


@partial(jax.jit, static_argnames="pairs")
def _advance(target, start, mask, state, rates, key, *, pairs: int):
    """A chunk of steps at every rate: the state, the mean of the iterates, the ELBO of each step.

    Noise is drawn in antithetic pairs, the same at every rate. At rate zero nothing moves, and the
    chunk is an evaluation.
    """
    # The working coordinate has `λ m` in it. Left alone, μ would have to follow every move of λ; so
    # within the chunk the free location is that of `x - λ m`, with `m` as it is at the start.
    pull = jax.vmap(partial(_pull, target, start, mask))(state[0])

    @jax.vmap
    def pulled(free, pull):
        loc = _read(target, start, mask, free, pull)[1] / _spread(target, start.reference, 1.0)
        return jnp.append(loc, free[target.size :])

    @partial(jax.vmap, in_axes=(0, 0, 0, None))
    def step(state, rate, pull, noise):
        free, moments = state
        elbo, gradient = jax.value_and_grad(_estimate)(free, target, start, mask, pull, noise)
        ascent, moments = ADAM.update(gradient, moments)
        finite = jnp.isfinite(elbo) & jnp.isfinite(gradient).all()
        # A step that cannot be computed is not taken: other noise may allow the next one.
        new = (free + rate * ascent, moments)
        return jax.tree.map(partial(jnp.where, finite), new, state), elbo

    def body(carry, key):
        state, total = carry
        noise = jax.random.normal(key, (pairs, target.size), target.program.dtype)
        state, elbos = step(state, rates, pull, jnp.concatenate([noise, -noise]))
        return (state, total + state[0]), elbos

    carry = ((pulled(state[0], -pull), state[1]), jnp.zeros_like(state[0]))
    (state, total), elbos = jax.lax.scan(body, carry, jax.random.split(key, CHUNK))
    return (pulled(state[0], pull), state[1]), pulled(total / CHUNK, pull), elbos


# -- climbing ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Climb:
    """Where one ascent ended, at every learning rate; `elbos` are from fresh, common noise."""

    read: Callable[[Any], Any]
    free: np.ndarray
    elbos: np.ndarray
    history: np.ndarray
    gradients: int
    rising: bool

    @property
    def lane(self) -> int:
        """The learning rate with the highest ELBO."""
        return int(np.nanargmax(self.elbos.mean(axis=0)))

    @property
    def values(self) -> np.ndarray:
        """Its ELBO, step by step of the evaluation."""
        return self.elbos[:, self.lane]


@dataclass(frozen=True, eq=False)
class _Climber:
    """Runs ascents that differ in λ alone, all by the same compiled program."""

    target: Target
    key: Array
    rates: np.ndarray
    steps: int
    pairs: int
    early_stop: bool

    def climb(self, start: Parameterization, learn: bool, tied: bool) -> _Climb:
        """The ascent from `start`, with λ learned or held."""
        advance = partial(_advance, self.target, start, pairs=self.pairs)
        mask, free = self._mask(learn, tied), self._initial(start)
        rest = jax.vmap(ADAM.init)(free)
        state, average = (free, rest), free
        chunks: list[np.ndarray] = []
        for decay in DECAY:
            state = (state[0], rest)
            for _ in range(ceil(self.steps / len(DECAY) / CHUNK)):
                # μ and σ come near first: a λ that moves at once is drawn far off by a `q` that
                # does not fit yet, and is slow to return.
                held = not chunks
                now = mask._replace(learn=np.asarray(learn and not held))
                key = jax.random.fold_in(self.key, len(chunks))
                state, average, elbos = advance(now, state, decay * self.rates, key)
                state = (state[0], rest) if held else state
                chunks.append(np.asarray(elbos, float))
                if self.early_stop and len(chunks) > 2 and _gain(chunks) <= 1:
                    break
        key = jax.random.fold_in(self.key, 2**31)
        elbos = np.asarray(advance(mask, (average, rest), 0 * self.rates, key)[2], float)
        elbos = np.where(np.isfinite(elbos).all(axis=0), elbos, np.nan)  # or out of the race
        draws = CHUNK * 2 * self.pairs
        paid = (len(chunks) + 1) * draws * self.rates.size
        # Far from the target the noise hides any gain; where `q` fits, its variance is below n.
        clear = (_mean_and_error(elbos)[1] < 3 * (self.target.size / draws) ** 0.5).any()
        rising = not clear or _gain(chunks) > 2
        history = np.array([_mean_and_error(chunk)[0] for chunk in chunks])
        read = partial(_read_compiled, self.target, start, mask)
        return _Climb(read, np.asarray(average), elbos, history, paid, rising)

    def _mask(self, learn: bool, tied: bool) -> _Mask:
        sites = self.target.program.candidates
        # A λ of its own needs something to move with: else it would stay where it started.
        own = {s.name: not tied and bool(s.loc_parents and s.scale_parents) for s in sites}
        return jax.tree.map(np.asarray, _Mask(learn, own))

    def _initial(self, start: Parameterization) -> np.ndarray:
        inside = start.map(lambda lam: np.clip(lam, MARGIN, 1 - MARGIN))
        free = _Free(
            np.zeros(self.target.size),
            np.full(self.target.size, np.log(np.expm1(START_SCALE))),
            {name: -np.log(1 / inside[name] - 1) for name in start},
            {name: -np.log(1 / inside.scale[name] - 1) for name in start},
        )
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(free)])
        return np.tile(flat.astype(self.target.program.dtype), (self.rates.size, 1))


def _gain(chunks: list[np.ndarray]) -> float:
    """What the last chunk gained at its best learning rate, in units of its Monte Carlo error."""
    (before, error_before), (now, error_now) = map(_mean_and_error, chunks[-2:])
    if np.isnan(now).all():
        return 0.0
    lane = np.nanargmax(now)
    error = np.hypot(error_before[lane], error_now[lane])
    return float(np.nan_to_num((now - before)[lane] / max(error, 1e-300), nan=np.inf))


def _mean_and_error(elbos: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and Monte Carlo error of the ELBO at each rate, over the steps with a finite one."""
    finite = np.ma.masked_invalid(elbos)
    error = finite.std(axis=0) / len(elbos) ** 0.5
    return finite.mean(axis=0).filled(np.nan), error.filled(np.nan)


# -- choosing ---------------------------------------------------------------------------------


def _best(climbs: dict[str, _Climb]) -> Fit:
    """The fit of the first climb, unless one of the others is clearly better."""
    first, notes = next(iter(climbs)), []
    finite = {name: climb for name, climb in climbs.items() if np.isfinite(climb.elbos).any()}
    if not finite:
        raise SamplingError(
            "the variational fit found no finite ELBO at any learning rate: the log density is not "
            "finite near the start of the search. Check that scales stay positive and that the "
            "data have no gaps, or try smaller learning_rates."
        )
    chosen = max(finite, key=lambda name: finite[name].values.mean())
    if first not in finite:
        notes.append(f"no finite ELBO was found with λ learned; the {chosen} model is used instead")
    else:
        lead = finite[chosen].values - finite[first].values
        if lead.mean() > 2 * _error(lead) + NEGLIGIBLE:
            notes.append(
                f"the learned λ has an ELBO {lead.mean():.3g} below that of the {chosen} model "
                f"(Monte Carlo error {_error(lead):.2g}), which is used instead"
            )
        else:
            chosen = first
    winner = finite[chosen]
    if winner.rising:
        notes.append("the ELBO was still rising, or too noisy to tell: allow more steps or samples")
    lam, loc, scale = jax.tree.map(np.asarray, winner.read(winner.free[winner.lane]))
    return Fit(
        parameterization=lam,
        elbo=float(winner.values.mean()),
        elbo_error=_error(winner.values),
        history=MappingProxyType({name: climb.history for name, climb in climbs.items()}),
        gradients=sum(climb.gradients for climb in climbs.values()),
        loc=loc,
        scale=scale,
        converged=not notes,
        note=". ".join(notes),
    )


def _error(values: np.ndarray) -> float:
    return float(values.std() / values.size**0.5)
