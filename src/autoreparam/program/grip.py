"""The grip of the data on the elements of a sequence: how precise they are, where that varies.

λ stands for data about an element that are as precise as a Normal of width `t`, with
`λ = s0² / (s0² + t²)` (`gain.py`). Where the noise of the data is unknown, `t` is no constant: as
the noise goes to zero, so does the width that the data leave an element, and the coordinates of a
fixed λ have a neck there. With a grip, `t` is `t0 / tightness`, where

    2 log tightness = b + Σ_k β_k η_k

and the η are the unconstrained values of roots: elements of small latents that depend on nothing
and have no λ, such as the scales of noise and steps. Then `s tightness` takes the place of the
scale in the gain, and the pull is multiplied by the tightness: for Gaussian data whose width is
such a product of powers, the coordinate is equally wide at every value of the roots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.program.program import Program

BASE = ""  # the name of `b` among the β
MOST_EACH = 4  # elements of a latent whose elements are roots
MOST_ROOTS = 8  # of a model: each is one more number to fit for every element
STEEPEST = 60.0  # what 2 log tightness is limited to: single precision has its square


class Root(NamedTuple):
    """An element of a latent that depends on nothing."""

    label: str
    site: str
    place: int  # among the elements of its site

    def of(self, working: Mapping[str, Any]) -> Any:
        """Its unconstrained value."""
        return jnp.ravel(working[self.site])[self.place]


def roots(program: Program) -> tuple[Root, ...]:
    """The roots of a model with sequences; of others, none."""
    if not any(site.follows for site in program.candidates):
        return ()
    scales = {name for site in program.candidates for name in site.scale_parents}
    own = [
        site
        for site in program.latents
        if not (site.candidate or site.parents or site.discrete_parents or site.loop)
        and 0 < site.size <= MOST_EACH
    ]
    found = [
        Root(site.name if site.size == 1 else f"{site.name}[{place}]", site.name, place)
        for site in sorted(own, key=lambda site: site.name not in scales)
        for place in range(site.size)
    ]
    return tuple(found[:MOST_ROOTS])


def no_grip(labels: tuple[str, ...], shape: tuple[int, ...], dtype: Any) -> dict[str, Any] | None:
    """A grip that never varies; None where there are no roots."""
    zeros = np.zeros(shape, dtype)
    return dict.fromkeys((BASE, *labels), zeros) if labels else None


def tightness(grip: Mapping[str, Any], values: Mapping[str, Any]) -> Array:
    """The tightness of each element where the roots have these values."""
    powers = sum((grip[label] * value for label, value in values.items()), grip[BASE])
    return jnp.exp(jnp.clip(powers, -STEEPEST, STEEPEST) / 2)
