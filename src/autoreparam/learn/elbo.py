"""λ by the mean-field ELBO: variationally inferred parameterization (VIP)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from math import ceil
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jax import Array

from autoreparam.errors import SamplingError
from autoreparam.learn.ascent import Free, Mask, adam, advance, read_compiled
from autoreparam.learn.fit import Fit
from autoreparam.learn.settings import ELBO_DEFAULTS, ElboSettings
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

ENDS = {"noncentered": 0.0, "centered": 1.0}
OPTIONS = ["learn", "tied", "settings", *(field.name for field in fields(ElboSettings))]
PAPER: dict = {
    "steps": 3000,
    "samples": 256,
    "learning_rates": (0.02, 0.05, 0.1, 0.2, 0.4),
    "early_stop": False,
}


def fit_elbo(
    target: Target,
    start: Parameterization,
    *,
    key: Array,
    learn: bool = True,
    tied: bool = True,
    settings: ElboSettings = ELBO_DEFAULTS,
    **changes: Any,
) -> Fit:
    """The mean-field fit with the highest ELBO over `(μ, σ, λ)`, or over `(μ, σ)` at λ = `start`.

    Every learning rate is tried; each third of the steps, in whole chunks, ends early once the ELBO
    has stopped rising. A learned λ is held against plain fits at λ=0 and λ=1: where one of these
    is clearly better, it is the result. `changes` are fields of the settings, for example
    `steps=300`; `**PAPER` gives those of the paper.

    >>> fit = fit_elbo(target, Parameterization.constant(target.program, 0.5), key=key)
    >>> fit.parameterization, fit.elbo, fit.gradients
    """
    settings = replace(settings, **changes)
    dtype = target.program.dtype
    start = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), start.check(target.program))
    climber = _Climber(target, key, settings)
    learn = learn and len(start) > 0
    climbs = {"learned" if learn else "fixed": climber.climb(start, learn, tied)}
    if learn:
        for name, end in ENDS.items():
            at_end = start.map(partial(np.full_like, fill_value=end))
            climbs[name] = climber.climb(at_end, False, tied)
    return _best(climbs, settings)


# -- climbing ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Climb:
    """Where an ascent ended, at every learning rate; `elbos` are from fresh noise common to all."""

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
        """Its ELBO at each step of the evaluation."""
        return self.elbos[:, self.lane]


@dataclass(frozen=True, eq=False)
class _Climber:
    """Runs ascents that differ only in λ, all with the same compiled program."""

    target: Target
    key: Array
    settings: ElboSettings

    @property
    def rates(self) -> np.ndarray:
        """The learning rates, each a lane of the compiled program."""
        return np.asarray(self.settings.learning_rates, self.target.program.dtype)

    def climb(self, start: Parameterization, learn: bool, tied: bool) -> _Climb:
        """The ascent from `start`, with λ learned or held."""
        s, rates, pairs = self.settings, self.rates, ceil(self.settings.samples / 2)
        go = partial(advance, self.target, start, pairs=pairs, chunk=s.chunk, memory=s.memory)
        mask, free = self._mask(learn, tied), self._initial(start)
        rest = jax.vmap(adam(s.memory).init)(free)
        state, average = (free, rest), free
        chunks: list[np.ndarray] = []
        for decay in s.decay:
            state = (state[0], rest)
            for _ in range(ceil(s.steps / len(s.decay) / s.chunk)):
                # μ and σ settle first: a λ that moves at once is pulled far off by a `q` that
                # does not fit yet, and is slow to come back.
                held = not chunks
                now = mask._replace(learn=np.asarray(learn and not held))
                key = jax.random.fold_in(self.key, len(chunks))
                state, average, elbos = go(now, state, decay * rates, key)
                state = (state[0], rest) if held else state
                chunks.append(np.asarray(elbos, float))
                if s.early_stop and len(chunks) > s.settling and _gain(chunks) <= s.stalled:
                    break
        key = jax.random.fold_in(self.key, 2**31)
        elbos = np.asarray(go(mask, (average, rest), 0 * rates, key)[2], float)
        elbos = np.where(np.isfinite(elbos).all(axis=0), elbos, np.nan)  # or dropped out
        draws = s.chunk * 2 * pairs
        paid = (len(chunks) + 1) * draws * rates.size
        # Far from the target the noise hides any gain; where `q` fits, its variance is below n.
        clear = (_mean_and_error(elbos)[1] < s.clear * (self.target.size / draws) ** 0.5).any()
        rising = not clear or _gain(chunks) > s.rising
        history = np.array([_mean_and_error(chunk)[0] for chunk in chunks])
        read = partial(read_compiled, self.target, start, mask)
        return _Climb(read, np.asarray(average), elbos, history, paid, rising)

    def _mask(self, learn: bool, tied: bool) -> Mask:
        sites = self.target.program.candidates
        # A λ of its own needs a gradient: without one it would stay where it started.
        own = {s.name: not tied and bool(s.loc_parents and s.scale_parents) for s in sites}
        return jax.tree.map(np.asarray, Mask(learn, own))

    def _initial(self, start: Parameterization) -> np.ndarray:
        margin = self.settings.margin
        inside = start.map(lambda lam: np.clip(lam, margin, 1 - margin))
        free = Free(
            np.zeros(self.target.size),
            np.full(self.target.size, np.log(np.expm1(self.settings.start_scale))),
            {name: -np.log(1 / inside[name] - 1) for name in start},
            {name: -np.log(1 / inside.scale[name] - 1) for name in start},
        )
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(free)])
        return np.tile(flat.astype(self.target.program.dtype), (self.rates.size, 1))


def _gain(chunks: list[np.ndarray]) -> float:
    """The gain of the last chunk at its best learning rate, in units of its Monte Carlo error."""
    (before, error_before), (now, error_now) = map(_mean_and_error, chunks[-2:])
    if np.isnan(now).all():
        return 0.0
    lane = np.nanargmax(now)
    error = np.hypot(error_before[lane], error_now[lane])
    return float(np.nan_to_num((now - before)[lane] / max(error, 1e-300), nan=np.inf))


def _mean_and_error(elbos: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and Monte Carlo error of the ELBO at each rate, over the steps where it is finite."""
    finite = np.ma.masked_invalid(elbos)
    error = finite.std(axis=0) / len(elbos) ** 0.5
    return finite.mean(axis=0).filled(np.nan), error.filled(np.nan)


# -- choosing ---------------------------------------------------------------------------------


def _best(climbs: dict[str, _Climb], settings: ElboSettings) -> Fit:
    """The fit of the first ascent, unless one of the others is clearly better."""
    first, notes = next(iter(climbs)), []
    finite = {name: climb for name, climb in climbs.items() if np.isfinite(climb.elbos).any()}
    if not finite:
        raise SamplingError(
            "the variational fit found no finite ELBO at any learning rate: the log density is not "
            "finite near the start of the search. Check that scales stay positive and that no data "
            "are missing, or try smaller learning_rates."
        )
    chosen = max(finite, key=lambda name: finite[name].values.mean())
    if first not in finite:
        notes.append(f"no finite ELBO was found with λ learned; the {chosen} model is used instead")
    else:
        lead = finite[chosen].values - finite[first].values
        if lead.mean() > settings.better * _error(lead) + settings.negligible:
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
