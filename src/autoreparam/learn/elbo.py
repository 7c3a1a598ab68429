"""λ by the mean-field ELBO: variationally inferred parameterization (VIP).

With `q` the independent Normals `x = μ + σ ε` in working coordinates, the ELBO is

    E[log p̃(x; λ) - log q(x)] = E[log p̃(x; λ)] + Σ log σ + n/2 log 2πe

and is maximized over `(μ, σ, λ)` together. The left form is the one estimated: its noise vanishes
as `q` comes near the target, and so does that of its gradient, taken through `x` and λ alone (the
score of `q` itself has mean zero and is left out).
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
from jax.flatten_util import ravel_pytree

from autoreparam.errors import AutoreparamError, SamplingError
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

PAPER: dict[str, Any] = {
    "steps": 3000,
    "samples": 256,
    "learning_rates": (0.02, 0.05, 0.1, 0.2, 0.4),
    "early_stop": False,
}
CHUNK = 50  # steps in one call of the compiled program
DECAY = (1.0, 1 / 5, 1 / 20)  # of the learning rate, for a third of the steps each
START_SCALE = 0.1  # σ at the start, in units of the reference scale: small, so densities are finite
MARGIN = 0.02  # λ is learned from at least this far from 0 and 1, where its gradient vanishes
ADAM = optax.scale_by_adam(b2=0.99)  # the usual 0.999 remembers the first, steep gradients too long
NEGLIGIBLE = 0.01  # nats: λ next to an end, where the logit still creeps, is as good as the end
ENDS = {"noncentered": 0.0, "centered": 1.0}


@dataclass(frozen=True, eq=False)
class Fit:
    """A mean-field fit: Normals `loc`, `scale` over the flat working vector of its λ.

    `history` has the ELBO by chunk of steps (rows) and learning rate (columns), of this fit and of
    those at the ends it was held against. `converged` is false where the ELBO was still rising or
    λ fell back to an end; `note` says so in words.
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
    return _best(climbs, target)


# -- the compiled program ---------------------------------------------------------------------


class _Free(NamedTuple):
    """What Adam moves, without bounds: μ, softplus⁻¹ σ, logit λ of locations and of scales."""

    loc: Any
    scale: Any
    lam: dict[str, Any]
    lam_scale: dict[str, Any]

    @classmethod
    def like(cls, target: Target, start: Parameterization) -> _Free:
        """Values of the right shapes, for the layout of the flat vector that holds them all."""
        working = np.zeros(target.size, target.program.dtype)
        lam = {name: start[name] for name in start}
        return cls(working, working, lam, lam)


class _Mask(NamedTuple):
    """Whether λ is learned, and for each site whether its scale has a λ of its own."""

    learn: Any
    untied: dict[str, Any]


def _read(target: Target, start: Parameterization, mask: _Mask, flat: Array):
    """λ, μ and σ; the latter two are counted in units of the reference scale, as λ is."""
    free = ravel_pytree(_Free.like(target, start))[1](flat)
    loc = {name: jax.nn.sigmoid(free.lam[name]) for name in start}
    own = {name: jax.nn.sigmoid(free.lam_scale[name]) for name in start}
    scale = {name: jnp.where(mask.untied[name], own[name], loc[name]) for name in start}
    lam = Parameterization(
        {name: jnp.where(mask.learn, loc[name], start[name]) for name in start},
        {name: jnp.where(mask.learn, scale[name], start.scale[name]) for name in start},
        start.reference,
    )
    units = {
        site.name: jnp.broadcast_to(start.reference.get(site.name, 1.0), site.unconstrained_shape)
        for site in target.program.latents
    }
    unit = target.flatten(units)
    loc_ = target.translate(unit * free.loc, start, lam)[0]
    return lam, loc_, unit * jax.nn.softplus(free.scale)


def _estimate(free: Array, target: Target, start, mask: _Mask, noise: Array) -> Array:
    """The ELBO at some draws of the noise; its gradient leaves out the score of `q`."""
    lam, loc, scale = _read(target, start, mask, free)
    position = loc + scale * noise
    loc, scale = jax.lax.stop_gradient((loc, scale))
    log_q = -0.5 * jnp.sum(((position - loc) / scale) ** 2, axis=-1) - jnp.sum(jnp.log(scale))
    log_q -= 0.5 * target.size * float(np.log(2 * np.pi))
    return jnp.mean(jax.vmap(target.logdensity, (0, None))(position, lam) - log_q)


@partial(jax.jit, static_argnames="pairs")
def _advance(target, start, mask, state, rates, key, *, pairs: int):
    """A chunk of steps at every rate: the state, the mean of the iterates, the ELBO of each step.

    Noise is drawn in antithetic pairs, the same at every rate. At rate zero nothing moves, and the
    chunk is an evaluation.
    """

    def step(state, rate, noise):
        free, moments = state
        elbo, gradient = jax.value_and_grad(_estimate)(free, target, start, mask, noise)
        ascent, moments = ADAM.update(gradient, moments)
        finite = jnp.isfinite(elbo) & jnp.isfinite(gradient).all()
        # A step that cannot be computed is not taken: other noise may allow the next one.
        new = (free + rate * ascent, moments)
        return jax.tree.map(partial(jnp.where, finite), new, state), elbo

    def body(carry, key):
        state, total = carry
        noise = jax.random.normal(key, (pairs, target.size), target.program.dtype)
        noise = jnp.concatenate([noise, -noise])
        state, elbos = jax.vmap(step, (0, 0, None))(state, rates, noise)
        return (state, total + state[0]), elbos

    carry = (state, jnp.zeros_like(state[0]))
    (state, total), elbos = jax.lax.scan(body, carry, jax.random.split(key, CHUNK))
    return state, total / CHUNK, elbos


_read_compiled = jax.jit(_read)


# -- climbing ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Climb:
    """Where one ascent ended, at every learning rate; `elbos` are from fresh, common noise."""

    start: Parameterization
    mask: _Mask
    free: Array
    elbos: np.ndarray
    history: np.ndarray
    gradients: int
    rising: bool

    @property
    def lane(self) -> int | None:
        """The learning rate with the highest ELBO, if any is finite."""
        means = self.elbos.mean(axis=0)
        return int(np.nanargmax(means)) if np.isfinite(means).any() else None

    @property
    def values(self) -> np.ndarray:
        """The ELBO of the best learning rate, step by step of the evaluation."""
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
        mask = self._mask(learn, tied)
        free = self._initial(start)
        rest = jax.tree.map(
            lambda leaf: np.zeros(leaf.shape, leaf.dtype), jax.eval_shape(jax.vmap(ADAM.init), free)
        )
        advance = partial(_advance, self.target, start, pairs=self.pairs)
        history, chunks = _History(), ceil(self.steps / len(DECAY) / CHUNK)
        state, average = (free, rest), free
        for decay in DECAY:
            state = (state[0], rest)
            for _ in range(chunks):
                # μ and σ come near first: a λ that moves at once is drawn far off by a `q` that
                # does not fit yet, and is slow to return.
                held = learn and not history.means
                chunk_mask = mask._replace(learn=np.asarray(learn and not held))
                key = jax.random.fold_in(self.key, len(history.means))
                state, average, elbos = advance(chunk_mask, state, decay * self.rates, key)
                history.add(np.asarray(elbos))
                state = (state[0], rest) if held else state
                enough = len(history.means) > 2 and history.gain() <= 1
                if self.early_stop and enough:
                    break
        key = jax.random.fold_in(self.key, 2**31)
        _, _, elbos = advance(mask, (average, rest), 0 * self.rates, key)
        means = np.array(history.means)
        paid = (len(means) + 1) * CHUNK * 2 * self.pairs * self.rates.size
        return _Climb(start, mask, average, _finite(elbos), means, paid, history.gain() > 2)

    def _mask(self, learn: bool, tied: bool) -> _Mask:
        # A λ of its own needs something to move with: else it would stay where it started.
        untied = {
            site.name: np.asarray(not tied and bool(site.loc_parents and site.scale_parents))
            for site in self.target.program.candidates
        }
        return _Mask(np.asarray(learn), untied)

    def _initial(self, start: Parameterization) -> np.ndarray:
        def logit(lam: Any) -> np.ndarray:
            lam = np.clip(lam, MARGIN, 1 - MARGIN)
            return np.log(lam / (1 - lam))

        free = _Free(
            np.zeros(self.target.size),
            np.full(self.target.size, np.log(np.expm1(START_SCALE))),
            {name: logit(start[name]) for name in start},
            {name: logit(start.scale[name]) for name in start},
        )
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(free)])
        return np.tile(flat.astype(self.target.program.dtype), (self.rates.size, 1))


class _History:
    """The ELBO of each chunk and rate, and its Monte Carlo error."""

    def __init__(self) -> None:
        self.means: list[np.ndarray] = []
        self.errors: list[np.ndarray] = []

    def add(self, elbos: np.ndarray) -> None:
        known = np.ma.masked_invalid(elbos.astype(float))
        self.means.append(known.mean(axis=0).filled(np.nan))
        self.errors.append(known.std(axis=0).filled(np.nan) / CHUNK**0.5)

    def gain(self) -> float:
        """What the last chunk gained at the best rate, in units of its error; 0 if unknown."""
        if len(self.means) < 2 or np.isnan(self.means[-1]).all():
            return 0.0
        lane = np.nanargmax(self.means[-1])
        gain = self.means[-1][lane] - self.means[-2][lane]
        error = np.hypot(self.errors[-1][lane], self.errors[-2][lane])
        return float(gain / max(error, np.finfo(float).tiny)) if np.isfinite(gain) else np.inf


# -- choosing ---------------------------------------------------------------------------------


def _best(climbs: dict[str, _Climb], target: Target) -> Fit:
    """The fit of the first climb, unless one of the others is clearly better."""
    first = next(iter(climbs))
    finite = {name: climb for name, climb in climbs.items() if climb.lane is not None}
    if not finite:
        raise SamplingError(
            "the variational fit found no finite ELBO at any learning rate: the log density is not "
            "finite near the start of the search. Check that scales stay positive and that the "
            "data have no gaps, or try smaller learning_rates."
        )
    chosen = max(finite, key=lambda name: finite[name].values.mean())
    notes = []
    if first in finite:
        lead = finite[chosen].values - finite[first].values
        if lead.mean() <= 2 * _error(lead) + NEGLIGIBLE:
            chosen = first
        else:
            notes.append(
                f"the learned λ has an ELBO {lead.mean():.3g} below that of the {chosen} "
                f"model (Monte Carlo error {_error(lead):.2g}), which is used instead; more steps "
                "or samples may find a better λ"
            )
    else:
        notes.append(
            f"no learning rate found a finite ELBO with λ learned; the {chosen} model is used "
            "instead. Smaller learning_rates may help"
        )
    fallen, winner = chosen != first, finite[chosen]
    if winner.rising:
        notes.append("the ELBO was still rising when the variational fit ended: allow more steps")
    free = np.asarray(winner.free)[winner.lane]
    lam, loc, scale = _read_compiled(target, winner.start, winner.mask, free)
    return Fit(
        parameterization=jax.tree.map(np.asarray, lam),
        elbo=float(winner.values.mean()),
        elbo_error=_error(winner.values),
        history=MappingProxyType({name: climb.history for name, climb in climbs.items()}),
        gradients=sum(climb.gradients for climb in climbs.values()),
        loc=np.asarray(loc),
        scale=np.asarray(scale),
        converged=not (fallen or winner.rising),
        note=". ".join(notes),
    )


def _finite(elbos: Array) -> np.ndarray:
    """The ELBOs in double precision, with NaN at every step of a rate that met a bad one."""
    values = np.asarray(elbos, float)
    return np.where(np.isfinite(values).all(axis=0), values, np.nan)


def _error(values: np.ndarray) -> float:
    return float(values.std() / values.size**0.5)
