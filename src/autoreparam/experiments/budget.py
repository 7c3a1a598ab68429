"""What the experiments run: models, methods and budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autoreparam.errors import AutoreparamError, known
from autoreparam.learn.elbo import PAPER
from autoreparam.zoo.radon import STATES

METHODS = ("CP", "NCP", "iHMC", "VIP", "dVIP", "auto")

# Name in the results, name in the zoo, options there. Data whose rows fall into few kinds are
# grouped: the same posterior, with gradients at a fraction of the cost.
MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "german_credit": ("german_credit", {}),
    "eight_schools": ("eight_schools", {}),
    **{f"radon_{state}": ("radon", {"state": state, "grouped": True}) for state in STATES},
    "election88": ("election88", {"grouped": True}),
    "electric": ("electric", {}),
}
RADON = tuple(name for name in MODELS if name.startswith("radon_"))


def batches(models: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Models that run together in one compiled program, such as the radon states."""
    alone: list[tuple[str, ...]] = [(name,) for name in models if name not in RADON]
    together = tuple(name for name in models if name in RADON)
    if not together:
        return alone
    place = sum(models.index(name) < models.index(together[0]) for (name, *_) in alone)
    return [*alone[:place], together, *alone[place:]]


@dataclass(frozen=True)
class Budget:
    """How long everything runs; `pilot_*` are for the runs that "auto" learns λ from."""

    name: str
    fit: Mapping[str, Any]
    chains: int
    warmup: int
    adapt: int  # the warm-up steps that adapt the step size
    draws: int
    num_steps: tuple[int, ...]
    pilot_warmup: int
    pilot_draws: int
    pilot_rounds: int
    score_draws: int  # draws that λ is learned from
    pilot_steps: int
    short: int  # leapfrog steps: longer runs come later, and only those that can still win
    seed: int = 0
    protocol: int = 2  # raised when new results can no longer be compared with earlier ones

    def stages(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of leapfrog steps that run together: up to `short`, and above."""
        short = tuple(n for n in self.num_steps if n <= self.short)
        long = tuple(n for n in self.num_steps if n > self.short)
        return tuple(steps for steps in (short, long) if steps)

    def settings(self) -> dict[str, Any]:
        """All settings, ready for JSON; results from other settings are never mixed with these."""
        plain = asdict(self)
        plain["fit"] = {key: _listed(value) for key, value in self.fit.items()}
        plain["num_steps"] = list(self.num_steps)
        return plain


BUDGETS = {
    # The paper's own numbers.
    "full": Budget(
        name="full",
        fit=PAPER,
        chains=200,
        warmup=2000,
        adapt=1500,
        draws=10000,
        num_steps=(1, 2, 4, 8, 16, 32, 64, 128),
        pilot_warmup=500,
        pilot_draws=200,
        pilot_rounds=2,
        score_draws=16000,
        pilot_steps=8,
        short=8,
    ),
    # Minutes on two cores: the same protocol on a smaller scale.
    "quick": Budget(
        name="quick",
        fit={"steps": 900, "samples": 64, "learning_rates": (0.05, 0.2), "early_stop": True},
        chains=8,
        warmup=240,
        adapt=180,
        draws=500,
        num_steps=(2, 4, 8, 16),
        pilot_warmup=200,
        pilot_draws=400,
        pilot_rounds=2,
        score_draws=3200,
        pilot_steps=8,
        short=16,
    ),
    # Seconds: for tests of the protocol itself.
    "smoke": Budget(
        name="smoke",
        fit={"steps": 150, "samples": 4, "learning_rates": (0.2,), "early_stop": True},
        chains=4,
        warmup=60,
        adapt=40,
        draws=40,
        num_steps=(4, 8),
        pilot_warmup=40,
        pilot_draws=40,
        pilot_rounds=1,
        score_draws=200,
        pilot_steps=4,
        short=8,
    ),
}


def checked(asked: tuple[str, ...] | None, known_names: Any, what: str) -> tuple[str, ...]:
    """The requested names, or all if none was; the error for an unknown name lists them."""
    names = tuple(known_names)
    if not asked:
        return names
    for name in asked:
        if name not in names:
            raise AutoreparamError(f"There is no {what} {name!r}. There are: {known(names)}.")
    return tuple(name for name in names if name in asked)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
