"""Explains why a log density is not finite: which site, which elements, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.handlers import seed, substitute
from numpyro.primitives import Messenger

from autoreparam.errors import ModelError
from autoreparam.program.families import unwrap
from autoreparam.program.site import ONE_AT_A_TIME, Site
from autoreparam.program.trace import Program


class _Terms(Messenger):
    """Keeps the log density of each element of each site, and the site's value."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[Any, Any, Any]] = {}

    def postprocess_message(self, msg) -> None:
        if msg["type"] == "sample":
            fn, value = msg["fn"], msg["value"]
            self.found[msg["name"]] = (fn.log_prob(value), value, _out_of_range(fn))


def _out_of_range(fn: Any) -> dict[str, tuple[Any, Any]]:
    """Each parameter of a distribution, and where it breaks the distribution's own rules."""
    base, found = unwrap(fn)[0], {}
    for name, wanted in getattr(base, "arg_constraints", {}).items():
        value = vars(base).get(name)
        if value is not None and not constraints.is_dependent(wanted):
            found[name] = (value, ~jnp.asarray(wanted(value)))
    return found


@jax.jit  # as the sampler sees it; eagerly, NumPyro's validation would stop at the first bad number
def _terms(program: Program, values: Mapping[str, Any]) -> dict[str, tuple[Any, Any, Any]]:
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
        log_prob, value = map(np.asarray, terms[site.name][:2])
        bad = ~np.isfinite(log_prob)
        if not bad.any():
            continue
        where = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
        place = f"{int(bad.sum())} of {bad.size} elements"
        place += f", first at index {where}" if where else ""
        for parameter, (given, wrong) in terms[site.name][2].items():
            if np.any(wrong) and site.kind != "factor":
                return ModelError(_misfit(site, parameter, np.asarray(given), np.asarray(wrong)))
        return ModelError(_explain(site.name, site.kind, place, _element(value, where)))
    return None


def _misfit(site: Site, parameter: str, given: np.ndarray, wrong: np.ndarray) -> str:
    first = given[wrong] if wrong.shape == given.shape else given
    return (
        f"{site.kind} site '{site.name}': the {parameter} of its distribution "
        f"({site.distribution}) is {np.ravel(first)[0]:.6g} in {int(wrong.sum())} of {wrong.size} "
        "elements, which it cannot be. Check what it is computed from."
    )


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
