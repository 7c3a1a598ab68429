"""λ learned on radon, beside the exact optimum of its objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autoreparam import zoo
from autoreparam.experiments.budget import MODELS, RADON
from autoreparam.experiments.exact import elbo_optimum, radon_posterior
from autoreparam.experiments.store import Results


@dataclass(frozen=True, eq=False)
class RadonLam:
    """λ of the counties of one state: learned, and at the exact optimum; None if not learned."""

    elbo: np.ndarray | None
    elbo_exact: np.ndarray
    score: np.ndarray | None
    score_exact: np.ndarray
    above: float | None  # the exact score objective at the learned λ, above its minimum

    @property
    def elbo_distance(self) -> float | None:
        """The largest difference over counties."""
        return None if self.elbo is None else float(np.abs(self.elbo - self.elbo_exact).max())


def radon_lams(results: Mapping[str, Results]) -> dict[str, RadonLam]:
    """Learned and exact λ of every state that was run."""
    found = {}
    for name in RADON:
        fits = results[name].fits if name in results else {}
        learned = {m: np.asarray(fits[m].lam["m"]) for m in ("VIP", "auto") if m in fits}
        if not learned:
            continue
        state = MODELS[name][1]["state"]
        posterior = radon_posterior(**zoo.load("radon", state=state).kwargs)
        best = posterior.score_optimum()
        score = learned.get("auto")
        above = None
        if score is not None:
            above = posterior.objective(score) - posterior.objective(best)
        found[state] = RadonLam(
            learned.get("VIP"), elbo_optimum(posterior.homes), score, best, above
        )
    return found
