"""A run, chunk by chunk: what has been tuned, where the chains stand, what it has cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from autoreparam.errors import CheckpointError
from autoreparam.mcmc.chains import Chains, Trail
from autoreparam.mcmc.hmc import State, Tuning
from autoreparam.mcmc.interleaved import slot_count, stack_slots
from autoreparam.mcmc.step_size import DUAL_AVERAGING, FIXED, begin
from autoreparam.mcmc.tuner import Tuner
from autoreparam.mcmc.warmup import Step, remaining
from autoreparam.program.parameterization import Parameterization

KERNELS = ("hmc", "nuts")


@dataclass
class Engine:
    """Chains on their way through a plan; `advance` takes the next step of it."""

    chains: Chains
    plan: list[Step]  # what is left to do
    tuner: Tuner
    states: State
    free: bool = False  # whether the run may change from HMC to NUTS
    adaptation: Any = None  # an Adaptation with a leading chain axis
    drawn: int = 0  # draws, numbered from the start of warm-up
    gradients: dict[str, int] = field(default_factory=dict)
    window: list[Trail] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gradients = {"learning": 0, "warmup": 0, "sampling": 0, **self.gradients}
        self.tuner.begin_lengths()
        self._begin()

    @property
    def lams(self) -> list[Parameterization]:
        """λ of every slot."""
        return self.tuner.lams

    @property
    def tunings(self) -> list[Tuning]:
        """Tuning of every slot."""
        return self.tuner.tunings

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
                self._retune(step.last_window)
        return trail

    def _retune(self, last: bool) -> None:
        self.states = self.tuner.retune(self.window, self.states, self.adaptation, last)
        self.window = []
        if self.free and self.plan and self.plan[0].last_window and self.tuner.long:
            self._use("nuts")
        self._begin()
        left = sum(step.draws for step in self.plan) if self._phase() == "sampling" else 0
        self.tuner.choose_lengths(
            self.drawn, sum(self.gradients.values()), left * len(self.chains.keys)
        )

    def _use(self, kernel: str) -> None:
        self.chains = replace(self.chains, kernel=replace(self.chains.kernel, name=kernel))
        if kernel == "nuts":
            self.tuner.use_leapfrog()

    def _begin(self) -> None:
        """Fresh adaptation for every chain, starting from the current step sizes."""
        sizes = [np.asarray(tuning.step_size) for tuning in self.tunings]
        sizes += [sizes[-1]] * (slot_count(self.lams) - len(sizes))
        all_chains = np.tile(np.stack(sizes), (len(self.chains.keys), 1))
        rule = self.tuner.rule if self.plan and self.plan[0].phase == "warmup" else FIXED
        if rule == DUAL_AVERAGING and self.plan[0].last_window:
            rule = FIXED  # steps that do not follow the chain show what they are worth
        self.adaptation = begin(all_chains, rule, self.tuner.target_accept)

    def _phase(self) -> str:
        return self.plan[0].phase if self.plan else "sampling"

    # -- saving -------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything that the rest of the run depends on, as named arrays."""
        counts = {f"gradients/{name}": np.asarray(n) for name, n in self.gradients.items()}
        counts |= {"drawn": np.asarray(self.drawn), "kernel": np.asarray(self._kernel_number())}
        return {**_named(self._moving()), **counts}

    def restore(self, arrays: dict[str, np.ndarray], window: list[Trail]) -> None:
        """Continues from a snapshot; `window` holds the chunks since the last retuning."""
        self.drawn = int(arrays["drawn"])
        self._use(KERNELS[int(arrays["kernel"])])
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
        self.states, self.adaptation, self.tuner.tunings, self.tuner.lams, rest = moving
        self.tuner.spreads, accept = rest
        self.tuner.target_accept = float(accept)
        self.window = window

    def _kernel_number(self) -> int:
        return KERNELS.index(self.chains.kernel.name)

    def _moving(self) -> tuple[Any, ...]:
        tuner = self.tuner
        rest = list(tuner.spreads), np.asarray(tuner.target_accept)
        return self.states, self.adaptation, list(tuner.tunings), list(tuner.lams), rest


def _named(tree: Any) -> dict[str, np.ndarray]:
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        f"{number:04d}{jax.tree_util.keystr(path)}": np.asarray(leaf)
        for number, (path, leaf) in enumerate(paths)
    }
