"""What the paper's claims are held against, and how a verdict is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autoreparam.experiments.lam import RadonLam
from autoreparam.experiments.store import Results

CONFIRMED, REFUTED, OPEN = "confirmed", "not confirmed", "not measured"
UNDECIDED = "undecided"  # not reached, but within two standard errors


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, what was found here, and the verdict."""

    claim: str
    where: str
    found: str
    verdict: str
    why: str = ""


class Measured(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ± {self.error:.2g}"

    def over(self, other: Measured) -> Measured:
        """The ratio of two."""
        ratio = self.value / other.value
        relative = np.hypot(self.error / self.value, other.error / other.value)
        return Measured(ratio, float(ratio * relative))


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that the claims are checked against."""

    results: Mapping[str, Results]
    lams: Mapping[str, RadonLam]
    gaussian_error: float  # of the non-centered funnel, in nats
    condition_errors: Mapping[str, float]
    funnel_elbos: Sequence[tuple[float, float]]  # by λ

    def ess(self, model: str, method: str, by: str = "ess") -> Measured | None:
        """ESS per 1000 gradients at the oracle's number of steps."""
        best = self.results[model].best(method, by) if model in self.results else None
        if best is None or not best[by] > 0:
            return None
        return Measured(float(best[by]), float(best["error" if by == "ess" else "arviz_error"]))

    def ratios(self, method: str, by: str = "ess") -> dict[str, Measured]:
        """ESS per gradient of a method over the better of CP and NCP, by model."""
        found = {}
        for model in self.results:
            mine, *ends = (self.ess(model, name, by) for name in (method, "CP", "NCP"))
            known = [end for end in ends if end is not None]
            if mine is not None and len(known) == 2:
                found[model] = mine.over(max(known))
        return found


def verdict_on(holds: bool | None) -> str:
    """The verdict on something that holds, does not, or (None) was not measured."""
    return OPEN if holds is None else CONFIRMED if holds else REFUTED


def at_least(*found: tuple[Measured | None, float]) -> str:
    """The verdict on numbers, each of which should reach a limit."""
    known = [(number, limit) for number, limit in found if number is not None]
    if not known or len(known) < len(found):
        return OPEN
    if any(number.value + 2 * number.error < limit for number, limit in known):
        return REFUTED
    return UNDECIDED if any(number.value < limit for number, limit in known) else CONFIRMED
