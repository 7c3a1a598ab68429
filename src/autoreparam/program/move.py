"""Moves draws and their scores from one λ's coordinates to another's."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoreparam.program.blocks import in_blocks
from autoreparam.program.compiled import rarely
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.rows import over_rows
from autoreparam.program.target import Target

BLOCK = 64  # draws per call
SMALL_BLOCK = 16  # where each takes long
LARGE_BLOCK = 4096  # on an accelerator
MANY_LATENTS = 100_000  # from which it does
MOST_ROWS = 30  # of a matrix that can be factorized quickly
MOST_SITES = 20  # with a λ; with more, compiling takes too long


def held_out(count: int) -> np.ndarray:
    """Which draws are held out for comparison.

    Whole stretches, not every fourth draw: neighbors in a chain are much alike.
    """
    return np.arange(count) * 16 // count % 4 == 3


def move(
    target: Target, positions: Any, scores: Any, lam: Parameterization, new: Parameterization
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions and scores under `new`, row by row, and the change of their log densities."""
    if lam.flat is not None and new.flat is not None:  # by two programs that other moves need too
        bare = lam.with_flat(None)
        positions, scores, gain = move(target, positions, scores, lam, bare)
        positions, scores, more = move(target, positions, scores, bare, new)
        return positions, scores, gain + more

    def carry(_: int, positions: np.ndarray, scores: np.ndarray) -> Any:
        return _carry(target, positions, scores, lam, new)

    return in_blocks(carry, block(target), positions, scores, large=LARGE_BLOCK)


def block(target: Target) -> int:
    """How many draws per call; fewer where each takes long, since the last block is padded."""
    long = large_matrices(target) or target.size > MANY_LATENTS
    return SMALL_BLOCK if long else BLOCK


def large_matrices(target: Target) -> bool:
    """Whether a draw's locations and scales require factorizing large matrices."""
    return any(site.side > MOST_ROWS for site in target.program.candidates)


@rarely
def _carry(target, positions, scores, lam, new) -> tuple[Any, Any, Any]:
    carry = over_rows(target.program, target.carry, (0, 0, None, None))
    return carry(positions, scores, lam, new)
