"""Explains why a log density is not finite: which site, which elements, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpyro.handlers import seed, substitute
from numpyro.primitives import Messenger

from autoreparam.errors import ModelError
from autoreparam.program.site import ONE_AT_A_TIME
from autoreparam.program.trace import Program


class _Terms(Messenger):
    """Keeps the log density of each element of each site, and the site's value."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[Any, Any]] = {}

    def postprocess_message(self, msg) -> None:
        if msg["type"] == "sample":
            self.found[msg["name"]] = (msg["fn"].log_prob(msg["value"]), msg["value"])


@jax.jit  # as the sampler sees it; eagerly, NumPyro's validation would stop at the first bad number
def _terms(program: Program, values: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    terms = _Terms()
    with ONE_AT_A_TIME, terms, seed(rng_seed=0), substitute(data=dict(values)):
        program.run()
    return terms.found


def nonfinite(program: Program, values: Mapping[str, Any]) -> ModelError | None:
    """The error that names the first site whose log density is not finite at these values."""
    terms = _terms(program, dict(values))
    # An observed site explains more than a latent that came before it.
    for site in sorted(program.sites, key=lambda site: site.kind == "latent"):
        if site.name not in terms:
            continue
        log_prob, value = map(np.asarray, terms[site.name])
        bad = ~np.isfinite(log_prob)
        if not bad.any():
            continue
        where = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
        place = f"{int(bad.sum())} of {bad.size} elements"
        place += f", first at index {where}" if where else ""
        return ModelError(_explain(site.name, site.kind, place, _element(value, where)))
    return None


def _explain(name: str, kind: str, place: str, element: str) -> str:
    if kind == "observed":
        return (
            f"observed site '{name}' has a non-finite log density in {place}{element}. "
            "Mask missing or impossible values: use fn.mask(jnp.isfinite(y)) with the gaps filled "
            "by any valid number, or drop them."
        )
    if kind == "factor":
        return (
            f"factor '{name}' is not finite in {place}. Check its log density for overflow, for "
            "the log of zero and for missing values."
        )
    return (
        f"{kind} site '{name}' has a non-finite log density in {place}. Its parameters are out of "
        "range there: check that scales stay positive and that nothing overflows."
    )


def _element(value: np.ndarray, where: tuple[int, ...]) -> str:
    if len(where) > value.ndim:
        return ""
    return f" (value {np.array2string(value[where], threshold=4)})"
