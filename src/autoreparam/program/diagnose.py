"""Says in words why a log density is not finite: which site, which elements, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpyro.handlers import seed, substitute
from numpyro.primitives import Messenger

from autoreparam.errors import ModelError
from autoreparam.program.trace import Program, Site


class _Terms(Messenger):
    """Keeps the log density of each element of each site of a concrete run."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        super().__init__()
        self.sites = sites
        self.found: list[tuple[str, str, np.ndarray, Any]] = []

    def postprocess_message(self, msg) -> None:
        if msg["type"] == "sample":
            log_prob = np.asarray(msg["fn"].log_prob(msg["value"]))
            kind = self.sites[msg["name"]].kind
            self.found.append((msg["name"], kind, log_prob, msg["value"]))


def nonfinite(program: Program, values: Mapping[str, Any]) -> ModelError | None:
    """The error that names the first site whose log density is not finite at these values."""
    terms = _Terms(program.structure.by_name)
    with terms, seed(rng_seed=0), substitute(data=dict(values)):
        program.run()
    # An observation explains more than a latent that came before it.
    for name, kind, log_prob, value in sorted(terms.found, key=lambda term: term[1] == "latent"):
        bad = ~np.isfinite(log_prob)
        if not bad.any():
            continue
        where = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
        place = f"{int(bad.sum())} of {bad.size} elements, first at index {where}"
        if kind == "factor":
            return ModelError(
                f"factor '{name}' is not finite in {place}. Check its log density for overflow, "
                "for the log of zero and for missing values."
            )
        if kind == "observed":
            shown = _element(value, where)
            return ModelError(
                f"observed site '{name}' has a log density that is not finite in {place}"
                f"{shown}. Missing or impossible values must be masked: pass "
                "fn.mask(jnp.isfinite(y)) with the gaps filled by any valid number, or drop them."
            )
        return ModelError(
            f"latent site '{name}' has a log density that is not finite in {place}. Its parameters "
            "are out of range there: check that scales stay positive and nothing overflows."
        )
    return None


def _element(value: Any, where: tuple[int, ...]) -> str:
    value = np.asarray(value)
    if len(where) > value.ndim:
        return ""
    return f" (value {np.array2string(value[where], threshold=4)})"
