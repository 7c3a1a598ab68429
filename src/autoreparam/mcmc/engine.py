"""A run, chunk by chunk: what has been tuned, where the chains stand, what it has cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from autoreparam.errors import CheckpointError
from autoreparam.mcmc.chains import Chains, Trail
from autoreparam.mcmc.hmc import State, Tuning
from autoreparam.mcmc.interleaved import carry_state, slot_count, stack_slots
from autoreparam.mcmc.step_size import DUAL_AVERAGING, FIXED, begin
from autoreparam.mcmc.warmup import Step, diagonal_metric, remaining
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

TRAJECTORY = 1.2  # mean length of a jittered HMC trajectory, in units of the metric
MOST_STEPS = 1024


@dataclass
class Engine:
    """Chains on their way through a plan; `advance` takes the next step of it."""

    chains: Chains
    plan: list[Step]  # what is left to do
    lams: list[Parameterization]  # one per slot
    tunings: list[Tuning]
    states: State
    target_accept: float
    rule: int = DUAL_AVERAGING
    num_steps: int | None = None  # None: HMC chooses it from the step size
    metric: str = "scores"  # or "draws", or "fixed"
    learner: Callable | None = None  # draws, scores, λ -> a fit; None: λ stays
    reports: list[dict[str, Any]] = field(default_factory=list)  # what was learned, per window
    adaptation: Any = None  # an Adaptation with a leading chain axis
    drawn: int = 0  # draws, numbered from the start of warm-up
    gradients: dict[str, int] = field(default_factory=dict)
    window: list[Trail] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gradients = {"learning": 0, "warmup": 0, "sampling": 0, **self.gradients}
        if self.adaptation is None:
            self._begin(FIXED if self._phase() == "sampling" else self.rule)
        self._choose_steps()

    @property
    def finished(self) -> bool:
        """Whether nothing of the plan is left."""
        return not self.plan

    def compile(self) -> None:
        """Compiles the chunk by drawing nothing with it."""
        slots = stack_slots(self.lams, self.tunings)
        self.chains.run(0, 0, self.states, slots, self.adaptation)

    def advance(self) -> Trail:
        """The next chunk of draws."""
        step = self.plan[0]
        slots = stack_slots(self.lams, self.tunings)
        self.states, self.adaptation, trail = self.chains.run(
            self.drawn, step.draws, self.states, slots, self.adaptation
        )
        self.gradients[step.phase] += int(np.sum(trail.info.n_steps, dtype=np.int64))
        self.plan, self.drawn = self.plan[1:], self.drawn + step.draws
        if step.phase == "warmup":
            self.window.append(trail)
            if step.window_ends:
                self._retune(step)
                self.window = []
        return trail

    # -- tuning -------------------------------------------------------------------------------

    def _retune(self, step: Step) -> None:
        """Step sizes, and but for the last window the metric, from all chains together."""
        used = self.adaptation.final()[:, : len(self.lams)]
        sizes = np.exp(np.mean(np.log(used), axis=0))
        if not step.last_window and self.metric != "fixed":
            self._fit_metrics()
        dtype = self.chains.target.program.dtype
        self.tunings = [
            tuning._replace(step_size=np.asarray(size, dtype))
            for tuning, size in zip(self.tunings, sizes)
        ]
        self._begin(FIXED if self._phase() == "sampling" else self.rule)
        self._choose_steps()

    def _fit_metrics(self) -> None:
        position = np.concatenate([trail.position for trail in self.window], axis=1)
        score = np.concatenate([trail.score for trail in self.window], axis=1)
        # The first part of a window still moves to where the window's tuning leads it.
        late = slice(position.shape[1] // 3, None)
        position, score = _rows(position[:, late]), _rows(score[:, late])
        if self.learner is not None:
            position, score = self._learn(position, score)
        fitted = []
        for lam, tuning in zip(self.lams, self.tunings):
            if lam is not self.lams[-1]:
                here = _carry(self.chains.target, position, score, self.lams[-1], lam)
            else:
                here = position, score
            scores = np.asarray(here[1]) if self.metric == "scores" else None
            metric = diagonal_metric(np.asarray(here[0]), scores)
            fitted.append(tuning._replace(inverse_mass=np.asarray(metric)))
        self.tunings = fitted

    def _learn(self, position: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Moves everything to the λ learned from these draws; the draws too."""
        target, (lam,) = self.chains.target, self.lams
        assert self.learner is not None
        fit = self.learner(target, position, score, lam)
        self.reports.append({"draws": self.drawn, **fit.report()})
        new = fit.parameterization
        if new == lam:
            return position, score
        self.states = jax.device_get(_carry_states(target, self.states, lam, new))
        self.lams = [new]
        return jax.device_get(_carry(target, position, score, lam, new))

    def _begin(self, rule: int) -> None:
        """Fresh adaptation for every chain, starting from the current step sizes."""
        sizes = [np.asarray(tuning.step_size) for tuning in self.tunings]
        sizes += [sizes[-1]] * (slot_count(self.lams) - len(sizes))
        all_chains = np.tile(np.stack(sizes), (len(self.chains.keys), 1))
        self.adaptation = begin(all_chains, rule, self.target_accept)

    def _choose_steps(self) -> None:
        if self.chains.kernel.name != "hmc":
            return
        dtype = self.chains.target.program.dtype
        chosen = []
        for tuning in self.tunings:
            steps: Any = self.num_steps
            if steps is None:
                steps = np.clip(TRAJECTORY / tuning.step_size, 1, MOST_STEPS)
            jitter = 1.0 if self.num_steps is None else 0.0
            change = {"num_steps": np.asarray(steps, dtype), "jitter": np.asarray(jitter, dtype)}
            chosen.append(tuning._replace(**change))
        self.tunings = chosen

    def _phase(self) -> str:
        return self.plan[0].phase if self.plan else "sampling"

    # -- saving -------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything that the rest of the run depends on, as named arrays."""
        counts = {f"gradients/{name}": np.asarray(n) for name, n in self.gradients.items()}
        counts |= {"drawn": np.asarray(self.drawn)}
        return {**_named(self._moving()), **counts}

    def restore(self, arrays: dict[str, np.ndarray], window: list[Trail]) -> None:
        """Continues from a snapshot; `window` holds the chunks since the last retuning."""
        self.drawn = int(arrays["drawn"])
        self.plan = remaining(self.plan, self.drawn)
        self.gradients = {name: int(arrays[f"gradients/{name}"]) for name in self.gradients}
        names = _named(self._moving())
        missing = [name for name in names if name not in arrays]
        if missing:
            raise CheckpointError(f"the stored state lacks {', '.join(missing[:3])}")
        leaves, treedef = jax.tree.flatten(self._moving())
        found = [arrays[name] for name in names]
        if any(np.shape(a) != np.shape(b) for a, b in zip(leaves, found)):
            raise CheckpointError("the stored state has other shapes than this run")
        moving = jax.tree.unflatten(treedef, found)
        self.states, self.adaptation, self.tunings, self.lams = moving
        self.window = window

    def _moving(self) -> tuple[Any, ...]:
        return self.states, self.adaptation, list(self.tunings), list(self.lams)


def _named(tree: Any) -> dict[str, np.ndarray]:
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        f"{number:04d}{jax.tree_util.keystr(path)}": np.asarray(leaf)
        for number, (path, leaf) in enumerate(paths)
    }


def _rows(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, array.shape[-1])


@jax.jit
def _carry_states(
    target: Target, states: State, lam: Parameterization, new: Parameterization
) -> State:
    return jax.vmap(lambda state: carry_state(target, state, lam, new))(states)


@jax.jit
def _carry(
    target: Target, positions: Any, scores: Any, lam: Parameterization, new: Parameterization
) -> tuple[Any, Any]:
    moved = jax.vmap(target.carry, in_axes=(0, 0, None, None))(positions, scores, lam, new)
    return moved[0], moved[1]
