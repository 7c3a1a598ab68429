"""A run as a function of its state: each chunk takes a state and returns the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from autoreparam.mcmc.chains import Chains
from autoreparam.mcmc.hmc import Kernel, State, Tuning, tuning_like
from autoreparam.mcmc.interleaved import stack_slots
from autoreparam.mcmc.lockstep import Together
from autoreparam.mcmc.policy import Policy
from autoreparam.mcmc.settings import DEFAULTS, SamplerSettings
from autoreparam.mcmc.state import Ledger, RunState, Slot
from autoreparam.mcmc.step_size import FAR, Search, begin
from autoreparam.mcmc.trail import Trail
from autoreparam.mcmc.warmup import Step
from autoreparam.program.compiled import accelerated
from autoreparam.program.maps.gain import QUADRATIC
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.program import Program
from autoreparam.program.spread import is_spread
from autoreparam.program.target import Target

REHEARSED = 256  # made-up draws: about as many as learning asks for


@dataclass(frozen=True)
class Engine:
    """What stays the same during a run; built once."""

    target: Target
    keys: np.ndarray  # the words of one per chain
    policy: Policy
    settings: SamplerSettings = DEFAULTS
    max_tree_depth: int = 10
    learner: Callable | None = None  # draws, scores, λ -> a fit; None: λ stays
    given: Program | None = None  # with the data as they came; None: that of the target

    @property
    def program(self) -> Program:
        """What is sampled, with the data as they came, wherever they are now."""
        return self.target.program if self.given is None else self.given

    def begin(
        self,
        chains: State,
        lams: Sequence[Parameterization],
        tuning: Tuning,
        plan: Sequence[Step],
        target_accept: float,
        gradients: Ledger,
        notes: Sequence[str] = (),
    ) -> RunState:
        """The state before the first draw; every slot starts with the same tuning."""
        spread = np.ones(2 * self.target.size)
        state = RunState(
            chains=chains,
            slots=tuple(Slot(lam, tuning, spread) for lam in lams),
            adaptation=None,  # type: ignore[arg-type]  # follows below
            kernel=self.policy.kernel,
            target_accept=target_accept,
            plan=tuple(plan),
            gradients=gradients,
            notes=tuple(notes),
        )
        change: Mapping[str, Any] = {
            "num_steps": self.settings.first_steps,
            "length": self.settings.first_length,
            "jitter": 1.0,
        }
        if self.policy.num_steps is not None:
            change = {"num_steps": self.policy.num_steps}
        return self.fresh(self.tuned(state, [change] * len(lams)))

    def blank(
        self, slots: int, plan: Sequence[Step], target_accept: float, gain: str = QUADRATIC
    ) -> RunState:
        """A state of the right shapes, to compile with or to load a stored one into."""
        zeros = np.zeros((len(self.keys), self.target.size), self.target.program.dtype)
        chains = State(zeros, zeros[:, 0], zeros)
        tuning = tuning_like(self.target, self.settings)
        lams = [self._any_lam(gain)] * slots
        return self.begin(chains, lams, tuning, plan, target_accept, Ledger())

    def _any_lam(self, gain: str = QUADRATIC) -> Parameterization:
        """A λ of the right shapes, whose reference scales need no draws from the prior."""
        program = self.target.program
        shapes = program.reference_shapes
        lam = Parameterization.constant(program, 1.0, s0=1.0, gain=gain)
        ones = {name: np.ones(shapes[name], program.dtype) for name in lam.sites}
        return Parameterization.by_site(
            {name: replace(lam.of(name), reference=one) for name, one in ones.items()}
        )

    def rehearse(self, lam: Parameterization) -> None:
        """Learns λ from made-up draws, so that what every run needs for that is compiled."""
        if self.learner is None:
            return
        rng, dtype = np.random.default_rng(0), self.target.program.dtype
        position, score = rng.normal(size=(2, REHEARSED, self.target.size)).astype(dtype)
        with suppress(Exception), np.errstate(all="ignore"):  # of no consequence
            self.learner(self.target, position, score, position[:, 0], lam)

    def tuned(self, state: RunState, changes: Sequence[Mapping[str, Any]]) -> RunState:
        """The state with some entries of each slot's tuning changed."""
        dtype = self.target.program.dtype
        slots = []
        for slot, change in zip(state.slots, changes):
            arrays = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), dict(change))
            slots.append(slot._replace(tuning=slot.tuning._replace(**arrays)))
        return replace(state, slots=tuple(slots))

    def fresh(self, state: RunState, active: bool | None = None, search: Search = FAR) -> RunState:
        """The state with step-size adaptation restarted from its current step sizes."""
        sizes = [np.asarray(tuning.step_size) for tuning in state.tunings]
        all_chains = np.tile(np.stack(sizes), (len(self.keys), 1))
        if active is None:
            # In the last windows: steps that adapt to the chain would bias the acceptance rate.
            step = state.plan[0] if state.plan else None
            active = step is not None and step.phase == "warmup" and not step.last_window
        return replace(state, adaptation=begin(all_chains, active, state.target_accept, search))

    def compile(self, state: RunState) -> None:
        """Compiles what draws are made with."""
        chains = self.chains(state.kernel)
        slots = stack_slots(state.lams, state.tunings)
        chains.compile(state.chains, slots, state.adaptation)

    def draw(self, state: RunState, draws: int) -> Trail:
        """Draws that leave the run where it is."""
        return self._run(state, draws, scores=True)[2]

    def chunk(self, state: RunState) -> tuple[RunState, Trail]:
        """The next chunk of the plan: the state after it, and what it drew."""
        step = state.plan[0]
        chains, adaptation, trail = self._run(state, step.draws, step.phase == "warmup")
        gradients = int(np.sum(trail.info.n_steps, dtype=np.int64))
        state = replace(
            state,
            chains=chains,
            adaptation=adaptation,
            plan=state.plan[1:],
            drawn=state.drawn + step.draws,
            gradients=state.gradients.plus(step.phase, gradients),
        )
        return state, trail

    def chains(self, kernel: str, scores: bool = True) -> Chains | Together:
        """The chains with a kernel; without `scores`, these may be missing from their draws."""
        settings = self.settings
        if (accelerated() or is_spread(self.target)) and kernel == "hmc":
            return Together(self.target, self.keys, settings.divergence, scores)
        built = Kernel(kernel, self.max_tree_depth, settings.divergence, settings.again)
        return Chains(built, self.target, self.keys, self._work)

    @cached_property
    def _work(self) -> int:
        return self.target.work(self._any_lam())

    def _run(self, state: RunState, draws: int, scores: bool) -> Any:
        slots = stack_slots(state.lams, state.tunings)
        chains = self.chains(state.kernel, scores)
        return chains.run(state.drawn, draws, state.chains, slots, state.adaptation)
