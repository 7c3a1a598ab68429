"""Draws and their scores from one λ's coordinates to another's."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

BLOCK = 64  # draws a call: always as many, so that one compiled program serves any number


def move(
    target: Target, positions: Any, scores: Any, lam: Parameterization, new: Parameterization
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of positions and scores under `new`, and what their log densities gain."""
    count = len(positions)
    rows = np.minimum(np.arange(-(-count // BLOCK) * BLOCK), count - 1)
    blocks = [
        jax.device_get(_carry(target, positions[take], scores[take], lam, new))
        for take in np.split(rows, len(rows) // BLOCK)
    ]
    position, score, gain = (np.concatenate(parts)[:count] for parts in zip(*blocks))
    return position, score, gain


@jax.jit
def _carry(target, positions, scores, lam, new) -> tuple[Any, Any, Any]:
    return jax.vmap(target.carry, (0, 0, None, None))(positions, scores, lam, new)
