"""Where sequences are: the origins that their coordinates are relative to.

In the coordinate of an element of a sequence, the location, which depends on the values before it,
is multiplied by what depends on the scale. So that its level is not, a constant is subtracted
first: the median of the element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from autoreparam.learn.informed import with_tails
from autoreparam.learn.necks import quantile
from autoreparam.learn.objective import Draws
from autoreparam.program.held import loose
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target


def has_sequences(lam: Parameterization) -> bool:
    """Whether any site has an origin."""
    return any(_has_origin(lam, name) for name in lam)


def origins_of(
    target: Target,
    draws: Draws,
    lam: Parameterization,
    move: Callable[[Any, Parameterization, Parameterization], Any],
    xp: Any,
) -> dict[str, Any]:
    """The origins of each sequence, from draws in the coordinates of `lam`.

    `move(positions, old, new)` gives positions in other coordinates.
    """
    latents = target.program.latents
    centered = move(draws.positions, lam, loose(with_tails(lam, 0.0).map(xp.ones_like)))
    parts = xp.split(centered, np.cumsum([site.size for site in latents])[:-1], axis=1)
    return {
        site.name: quantile(own, draws.weights > 0, 0.5, xp).reshape(site.unconstrained_shape)
        for site, own in zip(latents, parts)
        if _has_origin(lam, site.name)
    }


def _has_origin(lam: Parameterization, name: str) -> bool:
    return name in lam and lam.of(name).origin is not None


def around(lam: Parameterization, origins: Mapping[str, Any]) -> Parameterization:
    """The same λ with these origins."""
    new = {name: replace(lam.of(name), origin=origins.get(name)) for name in lam.sites}
    return Parameterization.by_site(new, lam.flat)
