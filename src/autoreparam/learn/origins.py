"""Where sequences are: the origins that their coordinates are relative to.

The location of an element of a sequence is the value before it, and its coordinate has a power of
the scale as a factor. Only what is left of the location after subtracting a constant may be
multiplied by that; the mean of the element is such a constant.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoreparam.learn.informed import with_tails
from autoreparam.learn.objective import Draws
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target


def origins_of(target: Target, draws: Draws, lam: Parameterization) -> dict[str, np.ndarray]:
    """About where the elements of each sequence are: their means, unconstrained."""
    latents = target.program.latents
    sequences = [site.name for site in latents if site.name in lam and site.follows]
    if not sequences:
        return {}
    centered = with_tails(lam, 0.0).map(np.ones_like)
    positions, _, _, weights = draws.moved(target, lam, centered)
    with np.errstate(all="ignore"):
        means = np.nan_to_num(weights @ positions / weights.sum(), posinf=0, neginf=0)
    parts = np.split(means.astype(positions.dtype), np.cumsum([site.size for site in latents])[:-1])
    found = {s.name: part.reshape(s.unconstrained_shape) for s, part in zip(latents, parts)}
    return {name: found[name] for name in sequences}


def around(lam: Parameterization, origins: dict[str, np.ndarray]) -> Parameterization:
    """The same λ with these origins."""
    new = {name: replace(lam.of(name), origin=origins.get(name)) for name in lam.sites}
    return Parameterization.by_site(new) if origins else lam
