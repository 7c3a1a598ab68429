"""Where sequences are: the origins that their coordinates are relative to.

In the coordinate of an element of a sequence, the location, which depends on the values before it,
is multiplied by a power of the scale. So that its level is not, a constant is subtracted first: the
mean of the element. Where its scale has a neck, though, data say little about it, and it is
somewhere else: there a sequence shrinks to what it would be without noise, and could not get there
from an origin far from that. Then the mean is of what it would be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import log
from typing import Any

import numpy as np

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
    latents, used = target.program.latents, draws.weights[:, None] > 0
    sequences = [site.name for site in latents if _has_origin(lam, site.name)]
    without_noise = [
        depths[site.name] > log(settings.neck)
        if site.name in sequences and site.name in depths
        else np.zeros(site.size, bool)
        for site in latents
    ]
    noncentered, centered = lam.map(xp.zeros_like), lam.map(xp.ones_like)
    noise = move(draws.positions, lam, noncentered)
    noise = xp.where(xp.concatenate(without_noise), xp.zeros_like(noise), noise)
    values = move(noise, noncentered, centered)
    means = xp.sum(xp.where(used, draws.weights[:, None] * values, 0), axis=0)
    means = xp.nan_to_num(means / xp.sum(draws.weights), nan=0, posinf=0, neginf=0)
    parts = xp.split(means, np.cumsum([site.size for site in latents])[:-1])
    found = {s.name: part.reshape(s.unconstrained_shape) for s, part in zip(latents, parts)}
    return {name: found[name] for name in sequences}


def _has_origin(lam: Parameterization, name: str) -> bool:
    return name in lam and lam.of(name).origin is not None


def around(lam: Parameterization, origins: Mapping[str, Any]) -> Parameterization:
    """The same λ with these origins."""
    new = {name: replace(lam.of(name), origin=origins.get(name)) for name in lam.sites}
    return Parameterization.by_site(new)
