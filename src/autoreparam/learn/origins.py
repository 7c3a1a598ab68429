"""Where sequences are: the origins that their coordinates are relative to.

In the coordinate of an element of a sequence, the location, which depends on the values before it,
is multiplied by a power of the scale. So that its level is not, a constant is subtracted first: the
mean of the element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from autoreparam.learn.objective import Draws
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target


def has_sequences(lam: Parameterization) -> bool:
    """Whether any site has an origin."""
    return any(lam.of(name).origin is not None for name in lam)


def origins_of(
    target: Target, draws: Draws, lam: Parameterization, xp: Any = jnp
) -> dict[str, Any]:
    """The means of the elements of each sequence, from draws in centered coordinates."""
    latents, weights = target.program.latents, draws.weights[:, None]
    total = xp.sum(xp.where(weights > 0, weights * draws.positions, 0), axis=0)
    means = xp.nan_to_num(total / xp.sum(weights), nan=0, posinf=0, neginf=0)
    parts = xp.split(means, np.cumsum([site.size for site in latents])[:-1])
    found = {s.name: part.reshape(s.unconstrained_shape) for s, part in zip(latents, parts)}
    return {name: found[name] for name in lam if lam.of(name).origin is not None}


def around(lam: Parameterization, origins: Mapping[str, Any]) -> Parameterization:
    """The same λ with these origins."""
    new = {name: replace(lam.of(name), origin=origins.get(name)) for name in lam.sites}
    return Parameterization.by_site(new)
