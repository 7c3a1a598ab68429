"""What warm-up tunes, window by window, from all chains: λ, metric, step size and length."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from autoreparam.mcmc.chains import Trail
from autoreparam.mcmc.hmc import State, Tuning
from autoreparam.mcmc.integrator import LEAPFROG, TWO_STAGES
from autoreparam.mcmc.metric import Metric, diagonal_metric, fastest, fit_metric, spread
from autoreparam.mcmc.step_size import (
    DUAL_AVERAGING,
    Adaptation,
    for_gaussian,
    settled,
)
from autoreparam.mcmc.trajectory import best_length
from autoreparam.program.move import move
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

FIRST_LENGTH = 1.2  # mean length of a jittered trajectory before anything is known
FIRST_STEPS = 16  # and the most steps that it may take
MOST_STEPS = 100  # for the slowest direction; where it takes more, NUTS finds the length of each
ROUND = 0.75  # of the leapfrog step for a Gaussian; with shorter ones leapfrog is the better
SETTLING = 0.3  # of a window, in which chains move to where its tuning leads them
OUTLYING = 30.0  # median deviations from which a score is out of proportion
MOST_OUTLIERS = 0.3
TRUSTED = 25  # draws of a window whose divergences mean something
DIVERGENT = 0.005  # share of divergent draws at which smaller steps are called for
CAREFUL = 0.95  # the highest acceptance that is then asked for


@dataclass
class Tuner:
    """λ and tuning of every slot, and how they are found."""

    target: Target
    lams: list[Parameterization]
    tunings: list[Tuning]
    target_accept: float
    rule: int = DUAL_AVERAGING
    num_steps: int | None = None  # of every trajectory
    adaptive: bool = False  # whether HMC's trajectories and integrator are chosen here
    metric: str = "scores"  # or "draws", or "fixed"
    learner: Callable | None = None  # draws, scores, λ -> a fit; None: λ stays
    careful: bool = False  # whether divergences raise the acceptance asked for
    reports: list[dict[str, Any]] = field(default_factory=list)  # one a window
    spreads: list[np.ndarray] = field(default_factory=list)
    seconds: float = 0.0  # spent on learning λ

    def __post_init__(self) -> None:
        self.tunings = list(self.tunings)
        self.spreads = [np.ones(2 * self.target.size) for _ in self.lams]

    def retune(
        self, window: list[Trail], states: State, adaptation: Adaptation, last: bool
    ) -> State:
        """Everything that the draws of a window teach; in the last two, the step size alone.

        The chains' states come back in the coordinates of the new λ.
        """
        late = _Late(window)
        sizes = self._step_sizes(late, adaptation, last)
        if self.careful and late.draws >= TRUSTED and _divergent(late, sizes) > DIVERGENT:
            careful = 1 - (1 - self.target_accept) / 2
            self.target_accept = max(min(careful, CAREFUL), self.target_accept)
            sizes = self._step_sizes(late, adaptation, last)
        if not last and self.metric != "fixed":
            states, factors = self._fit(late, states)
            sizes = sizes * factors
        self.tunings = [
            self._with(tuning, step_size=size) for tuning, size in zip(self.tunings, sizes)
        ]
        if self.adaptive and not last:
            self._choose_stages()
        return states

    def _choose_stages(self) -> None:
        """Two stages where the posterior is nearly Gaussian, as far as the step size can tell.

        Narrow places shorten the steps; there leapfrog is stable for longer ones.
        """
        gaussian = for_gaussian(self.target.size, self.target_accept)
        for i, tuning in enumerate(self.tunings):
            nearly = tuning.step_size >= ROUND * gaussian
            self.tunings[i] = self._with(tuning, stages=TWO_STAGES if nearly else LEAPFROG)

    def choose_lengths(self, drawn: int, paid: int, draws: int) -> None:
        """Trajectories for the draws to come; `paid` gradients are spent, `draws` are wanted.

        While the step size settles a trajectory keeps its length, afterwards its steps.
        """
        if not self.adaptive:
            return
        for i, tuning in enumerate(self.tunings):
            size = float(tuning.step_size)
            steps, jitter, size = best_length(
                self.spreads[i], size, self.target_accept, int(tuning.stages), paid, draws
            )
            if draws:
                change = {"num_steps": steps, "length": 0.0, "step_size": size}
            else:
                change = {"num_steps": FIRST_STEPS * max(1, drawn / 50), "length": steps * size}
            self.tunings[i] = self._with(tuning, jitter=jitter, **change)

    @property
    def long(self) -> bool:
        """Whether trajectories long enough for the slowest direction are too long to be fixed."""
        return any(
            spread.max() > MOST_STEPS * float(tuning.step_size)
            for spread, tuning in zip(self.spreads, self.tunings)
        )

    def use_leapfrog(self) -> None:
        """From now on, as NUTS does."""
        self.adaptive = False
        self.tunings = [self._with(tuning, stages=LEAPFROG) for tuning in self.tunings]

    def begin_lengths(self) -> None:
        """Trajectories for the first window."""
        for i, tuning in enumerate(self.tunings):
            change = {"num_steps": FIRST_STEPS, "length": FIRST_LENGTH, "jitter": 1.0}
            if self.num_steps is not None:
                change = {"num_steps": self.num_steps}
            self.tunings[i] = self._with(tuning, **change)

    def _with(self, tuning: Tuning, **changes: Any) -> Tuning:
        dtype = self.target.program.dtype
        return tuning._replace(**jax.tree.map(lambda leaf: np.asarray(leaf, dtype), changes))

    def _step_sizes(self, late: _Late, adaptation: Adaptation, last: bool) -> np.ndarray:
        """A step size per slot."""
        sizes = _geometric_mean(adaptation.final()[:, : len(self.lams)])
        if self.rule != DUAL_AVERAGING:
            return sizes
        tried, rates = late["step_size"], late["acceptance_rate"]
        if last:
            sizes = np.array([tuning.step_size for tuning in self.tunings])
        found = [
            settled(
                tried[..., i],
                rates[..., i],
                size,
                self.target_accept,
                int(self.tunings[i].stages),
            )
            for i, size in enumerate(sizes)
        ]
        if last:
            return np.array(found)
        # Averages lag behind, and chains that adapt take long steps where that is easy.
        return _geometric_mean(np.stack([sizes, found]))

    def _fit(self, late: _Late, states: State) -> tuple[State, np.ndarray]:
        """Learns λ and the metrics; also by what factors the step sizes should change."""
        position, score = without_outliers(late.rows("position"), late.rows("score"))
        before = [
            fastest(tuning.inverse_mass, *self._carried(position, score, lam))
            for lam, tuning in zip(self.lams, self.tunings)
        ]
        if self.learner is not None:
            states, position, score = self._learn(states, position, score)
        factors = np.ones(len(self.lams))
        for i, lam in enumerate(self.lams):
            here = self._carried(position, score, lam)
            metric = (
                fit_metric(*here)
                if self.metric == "scores"
                else Metric.of(diagonal_metric(here[0], None))
            )
            self.tunings[i] = self._with(self.tunings[i], inverse_mass=metric)
            self.spreads[i] = spread(metric, *here)
            factors[i] = before[i] / fastest(metric, *here)
        return states, np.nan_to_num(factors, nan=1.0).clip(0.1, 10)

    def _learn(self, states: State, position: Any, score: Any) -> tuple[State, Any, Any]:
        """Moves everything to the λ learned from these draws; the draws too."""
        (lam,) = self.lams
        assert self.learner is not None
        began = time.perf_counter()
        fit = self.learner(self.target, position, score, lam)
        self.seconds += time.perf_counter() - began
        self.reports.append(fit.report())
        new = fit.parameterization
        if new == lam:
            return states, position, score
        self.lams = [new]
        there, slope, gain = move(self.target, states.position, states.score, lam, new)
        states = State(there, states.logdensity + gain, slope)
        return states, *move(self.target, position, score, lam, new)[:2]

    def _carried(self, position: Any, score: Any, lam: Parameterization) -> tuple[Any, Any]:
        """Draws and scores, from the last slot's coordinates to those of `lam`."""
        if lam is self.lams[-1]:
            return position, score
        return move(self.target, position, score, self.lams[-1], lam)[:2]


class _Late:
    """What a window left behind, but for its first part."""

    def __init__(self, window: list[Trail]) -> None:
        self._window = window
        self.draws = sum(trail.position.shape[1] for trail in window)

    def __getitem__(self, name: str) -> np.ndarray:
        parts = [{**trail._asdict(), **trail.info._asdict()}[name] for trail in self._window]
        whole = np.concatenate(parts, axis=1)
        return whole[:, int(SETTLING * whole.shape[1]) :]

    def rows(self, name: str) -> np.ndarray:
        """All chains in one."""
        found = self[name]
        return found.reshape(-1, found.shape[-1])


def without_outliers(position: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws but for those with scores far out of proportion, at most three in ten.

    One draw where the posterior is steep would otherwise decide every variance.
    """
    distance = np.abs(score - np.median(score, axis=0))
    usual = np.median(distance, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        worst = np.nan_to_num(
            np.max(distance / usual, axis=1, where=usual > 0, initial=0), nan=np.inf
        )
    kept = worst <= max(OUTLYING, np.quantile(worst, 1 - MOST_OUTLIERS))
    return position[kept], score[kept]


def _geometric_mean(sizes: np.ndarray) -> np.ndarray:
    return np.exp(np.mean(np.log(sizes), axis=0))


def _divergent(late: _Late, sizes: np.ndarray) -> float:
    """Share of divergent draws among those with steps hardly longer than `sizes`."""
    short = late["step_size"][..., : len(sizes)] <= 1.1 * sizes
    return float(np.mean(late["diverging"][..., : len(sizes)][short])) if short.any() else 0.0
