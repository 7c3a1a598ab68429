"""λ of elements that are informed only by their own data and their prior, without a descent.

In non-centered coordinates the score of an element's prior is `-e`; the rest of its score `g` comes
from the data. For Gaussians that is a share `λ = Cov(g, g + e) / Var(g)` of it, which is just the λ
that makes the element independent of its location. A few draws are enough.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from autoreparam.learn.objective import Draws
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target


def informed(target: Target, draws: Draws, lam: Parameterization) -> Parameterization:
    """λ of each element, from what its own data say about it."""
    origin = with_tails(lam.map(np.zeros_like), 1.0)
    with np.errstate(all="ignore"):
        return by_data(target, draws.moved(target, lam, origin), lam, np)


def by_data(target: Target, draws: Draws, lam: Parameterization, xp: Any = jnp) -> Parameterization:
    """The same, from draws in non-centered coordinates, by numpy or JAX."""
    position, score, _, weights = draws
    latents, own = target.program.latents, dict(lam.reference)
    units = [xp.broadcast_to(own.get(s.name, 1.0), s.unconstrained_shape) for s in latents]
    unit = xp.concatenate([xp.ravel(part) for part in units]).astype(position.dtype)
    noise, score = position / unit, score * unit
    share = (weights / xp.sum(weights))[:, None]
    noise, score = (x - xp.sum(share * x, axis=0) for x in (noise, score))
    # Draws with far larger scores than the prior would give count linearly, not by their square.
    share = share / (1 + score**2)
    data = xp.sum(share * score * (score + noise), axis=0)
    found = xp.nan_to_num(data / xp.sum(share * score**2, axis=0)).clip(0, 1)
    parts = xp.split(found, np.cumsum([site.size for site in latents])[:-1])
    by_site = {s.name: part.reshape(s.unconstrained_shape) for s, part in zip(latents, parts)}
    return lam.replace({name: by_site[name] for name in lam.sites})


def with_tails(lam: Parameterization, tail: float) -> Parameterization:
    """The same λ with heavy tails left as they are (0) or made like a Normal's (1)."""
    return lam.replace(tail=dict.fromkeys(lam.tail, tail))
