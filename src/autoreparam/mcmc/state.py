"""The state of a run: one frozen value with everything the rest of the run depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from autoreparam.mcmc.hmc import State, Tuning
from autoreparam.mcmc.step_size import Adaptation
from autoreparam.mcmc.warmup import Step, chunks_of
from autoreparam.program.parameterization import Parameterization


class Slot(NamedTuple):
    """One parameterization of a run and its tuning; interleaved runs have two."""

    lam: Parameterization
    tuning: Tuning
    spread: Any  # the scales that the metric leaves, one per direction considered


class Ledger(NamedTuple):
    """Gradients spent, by purpose."""

    learning: int = 0
    warmup: int = 0
    sampling: int = 0

    @property
    def total(self) -> int:
        """The total."""
        return sum(self)

    def plus(self, purpose: str, gradients: int) -> Ledger:
        """The ledger after more gradients for a purpose."""
        return self._replace(**{purpose: getattr(self, purpose) + gradients})

    def all_warmup(self) -> Ledger:
        """The ledger of a run whose draws were not sampling after all."""
        return self._replace(warmup=self.warmup + self.sampling, sampling=0)


@dataclass(frozen=True)
class RunState:
    """What a run knows: where its chains are, how it is tuned, what is left to do, what it cost."""

    chains: State  # in the coordinates of the last slot, with a leading chain axis
    slots: tuple[Slot, ...]
    adaptation: Adaptation  # of step sizes, with a leading chain axis
    kernel: str  # the one in use
    target_accept: float  # the current target acceptance
    plan: tuple[Step, ...]  # what is left to do
    gradients: Ledger
    drawn: int = 0  # draws, numbered from the start of warm-up
    warmup_until: int = 0  # draws before this one are warm-up, whatever they were meant to be
    reports: tuple[dict[str, Any], ...] = ()  # what learning λ saw, one per window
    restarts: int = 0  # of chains that were lost during warm-up
    added_windows: int = 0  # where others taught too little; second warm-ups count as one each
    every: int = 1  # how many draws it takes to keep one; doubled where chains mix slowly
    notes: tuple[str, ...] = ()  # what the user should be told
    seconds: float = 0.0  # of the whole run
    seconds_learning: float = 0.0  # of it, spent on λ

    @property
    def lams(self) -> list[Parameterization]:
        """λ of every slot."""
        return [slot.lam for slot in self.slots]

    @property
    def tunings(self) -> list[Tuning]:
        """Tuning of every slot."""
        return [slot.tuning for slot in self.slots]

    @property
    def draws_left(self) -> int:
        """Draws per chain still to come in the sampling phase."""
        return sum(step.draws for step in self.plan if step.phase == "sampling")

    @property
    def kept_every(self) -> int:
        """Of how many draws in a row one is kept; more of them only once all have been drawn."""
        return max(1, self.every // 2) if self.plan else self.every

    def until(self, draws_left: int) -> RunState:
        """The same run with this many draws still to come in the sampling phase."""
        warmup = (step for step in self.plan if step.phase == "warmup")
        return replace(self, plan=(*warmup, *chunks_of("sampling", draws_left)))
