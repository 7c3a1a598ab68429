"""What a run may change about its kernel while it warms up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """The kernel that a run starts with, and what it may change by itself."""

    kernel: str  # "hmc" or "nuts"
    adapts_length: bool  # HMC's trajectories and integrator are learned from draws
    may_change: bool  # from HMC to NUTS, where trajectories would be long
    careful: bool  # divergences raise the target acceptance, and slow mixing the number of draws
    num_steps: int | None = None  # of every HMC trajectory, where a user set it

    @classmethod
    def of(cls, kernel: str, num_steps: int | None = None) -> Policy:
        """The policy behind the keywords `kernel` and `num_steps` of `sample`."""
        free = num_steps is None
        return cls(
            kernel="nuts" if kernel == "nuts" else "hmc",
            adapts_length=kernel != "nuts" and free,
            may_change=kernel == "auto" and free,
            careful=kernel == "auto",
            num_steps=num_steps,
        )
