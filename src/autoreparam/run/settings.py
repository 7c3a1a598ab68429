"""The keywords of a run, and checks that they are valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from autoreparam.errors import AutoreparamError, known
from autoreparam.learn.settings import ScoreSettings
from autoreparam.mcmc.delayed import Again
from autoreparam.mcmc.policy import Policy
from autoreparam.mcmc.settings import SamplerSettings

METHODS = ("auto", "vip", "centered", "noncentered", "interleaved")
KERNELS = ("auto", "nuts", "hmc")
PRECISIONS = ("auto", "single", "double")


@dataclass(frozen=True)
class Adaptation:
    """Every number that steers warm-up: of the sampler, and of learning λ.

    Args:
        sampler: Of the sampler: windows, metric, step size, trajectory.
        learner: Of learning λ from scores.
    """

    sampler: SamplerSettings = field(default_factory=SamplerSettings)
    learner: ScoreSettings = field(default_factory=ScoreSettings)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Mapping[str, Any]]) -> Adaptation:
        """The numbers, as read back from JSON."""
        parts: list[dict[str, Any]] = [
            {name: tuple(x) if isinstance(x, list) else x for name, x in stored[part].items()}
            for part in ("sampler", "learner")
        ]
        if "again" in parts[0]:
            parts[0]["again"] = Again(*parts[0]["again"])
        return cls(SamplerSettings(**parts[0]), ScoreSettings(**parts[1]))


@dataclass(frozen=True)
class Settings:
    """The keywords of a run that a checkpoint must store."""

    parameterization: str
    kernel: str
    draws: int
    warmup: int
    chains: int
    seed: int
    num_steps: int | None
    target_accept: float
    max_tree_depth: int
    thin: int
    save_warmup: bool
    save_working: bool
    precision: str = "auto"
    adaptation: Adaptation = field(default_factory=Adaptation)

    @property
    def policy(self) -> Policy:
        """What the run may change about its kernel."""
        return Policy.of(self.kernel, self.num_steps)

    @property
    def slots(self) -> int:
        """The number of parameterizations that take turns."""
        return 2 if self.parameterization == "interleaved" else 1

    def keywords(self) -> dict[str, Any]:
        """Only the keywords, for the attributes of a tree."""
        return {name: value for name, value in asdict(self).items() if name != "adaptation"}

    def to_dict(self) -> dict[str, Any]:
        """All settings, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Settings:
        """The settings, as read back from JSON, without what an older release did not store."""
        words = dict(stored)
        if "adaptation" in words:
            words["adaptation"] = Adaptation.from_dict(words["adaptation"])
        return cls(**words)

    def checked(self) -> Settings:
        """These settings if they are valid; otherwise an error that names the keyword."""
        if self.kernel not in KERNELS:
            raise AutoreparamError(
                f"kernel: expected one of {known(KERNELS)}; found {self.kernel!r}"
            )
        if self.precision not in PRECISIONS:
            raise AutoreparamError(
                f"precision: expected one of {known(PRECISIONS)}; found {self.precision!r}"
            )
        least = {"draws": 1, "warmup": 0, "chains": 1, "thin": 1, "max_tree_depth": 1, "seed": 0}
        if self.num_steps is not None:
            least["num_steps"] = 1
            if self.kernel == "nuts":
                raise AutoreparamError(
                    "num_steps: NUTS chooses its own number of steps. Leave it out, or use "
                    "kernel='hmc'."
                )
        for name, low in least.items():
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < low:
                raise AutoreparamError(f"{name}: expected an integer >= {low}; found {value!r}")
        if self.thin > self.draws:
            raise AutoreparamError(
                f"thin: expected at most the number of draws ({self.draws}); found {self.thin}"
            )
        if self.seed >= 2**63:
            raise AutoreparamError(f"seed: expected an integer below 2**63; found {self.seed}")
        if not isinstance(self.target_accept, float | np.floating) or not (
            0 < self.target_accept < 1
        ):
            raise AutoreparamError(
                f"target_accept: expected a number between 0 and 1; found {self.target_accept!r}"
            )
        if not isinstance(self.adaptation, Adaptation):
            raise AutoreparamError(
                "adaptation: expected an Adaptation, the numbers that steer warm-up; found "
                f"{type(self.adaptation).__name__}"
            )
        integers: dict[str, Any] = {name: int(getattr(self, name)) for name in least}
        return replace(self, **integers)
