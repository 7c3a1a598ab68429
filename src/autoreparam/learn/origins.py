"""Where sequences are: the origins that their coordinates are relative to.

In the coordinate of an element of a sequence, the location, which depends on the values before it,
is multiplied by a power of the scale. So that its level is not, a constant is subtracted first: the
median of the element. Where its scale has a neck, the median is of what the element would be
without noise: to that it goes as its scale goes to zero, and from an origin elsewhere it could not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import log
from typing import Any

import numpy as np

from autoreparam.learn.informed import with_tails
from autoreparam.learn.necks import quantile
from autoreparam.learn.objective import Draws
from autoreparam.learn.settings import ScoreSettings
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target


def has_sequences(lam: Parameterization) -> bool:
    """Whether any site has an origin."""
    return any(_has_origin(lam, name) for name in lam)


def origins_of(
    target: Target,
    draws: Draws,
    depths: Mapping[str, Any],
    lam: Parameterization,
    move: Callable[[Any, Parameterization, Parameterization], Any],
    settings: ScoreSettings,
    xp: Any,
) -> dict[str, Any]:
    """The origins of each sequence, from draws in the coordinates of `lam`.

    `depths` are those of `necks.py`; `move(positions, old, new)` gives positions in other
    coordinates.
    """
    latents, used = target.program.latents, draws.weights > 0
    noncentered, centered = lam.map(xp.zeros_like), with_tails(lam, 0.0).map(xp.ones_like)
    deep = [
        depths[site.name] > log(settings.neck)
        if _has_origin(lam, site.name) and site.name in depths
        else np.zeros(site.size, bool)
        for site in latents
    ]
    noise = move(draws.positions, lam, noncentered)
    noise = xp.where(xp.concatenate(deep), xp.zeros_like(noise), noise)
    both = move(draws.positions, lam, centered), move(noise, noncentered, centered)
    cuts = np.cumsum([site.size for site in latents])[:-1]
    parts = zip(latents, deep, *(xp.split(values, cuts, axis=1) for values in both))
    return {
        site.name: xp.where(
            has_neck, quantile(noiseless, used, 0.5, xp), quantile(real, used, 0.5, xp)
        ).reshape(site.unconstrained_shape)
        for site, has_neck, real, noiseless in parts
        if _has_origin(lam, site.name)
    }


def _has_origin(lam: Parameterization, name: str) -> bool:
    return name in lam and lam.of(name).origin is not None


def around(lam: Parameterization, origins: Mapping[str, Any]) -> Parameterization:
    """The same λ with these origins."""
    new = {name: replace(lam.of(name), origin=origins.get(name)) for name in lam.sites}
    return Parameterization.by_site(new, lam.flat)
