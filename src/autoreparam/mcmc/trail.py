"""What chains leave behind: their draws and what is known about each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.mcmc.hmc import Info, blank_info
from autoreparam.program.target import Target


class Trail(NamedTuple):
    """The draws of a chunk, in the coordinates of the last slot, and their statistics."""

    position: Any  # (chain, draw, dim)
    score: Any
    logdensity: Any  # (chain, draw)
    step_size: Any  # (chain, draw, slot)
    info: Info  # (chain, draw, slot)


def blank_trail(shape: tuple[int, ...], target: Target, slots: int) -> Trail:
    """A trail of draws of this shape, to be written into."""
    dtype = target.program.dtype
    vector, per_slot = np.zeros((*shape, target.size), dtype), (*shape, slots)
    sizes = np.zeros(per_slot, dtype)
    return Trail(vector, vector, np.zeros(shape, dtype), sizes, blank_info(per_slot, dtype))


def as_row(entry: Trail) -> Array:
    """One draw as a vector: nine arrays to write into take a tenth of the time to compile."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(entry)])


def from_rows(rows: np.ndarray, target: Target, slots: int) -> Trail:
    """The draws whose vectors are along the last axis."""
    leaves, structure = jax.tree.flatten(blank_trail((), target, slots))
    parts = np.split(rows, np.cumsum([leaf.size for leaf in leaves])[:-1], axis=-1)
    shaped = [
        part.reshape(*rows.shape[:-1], *leaf.shape).astype(leaf.dtype)
        for part, leaf in zip(parts, leaves)
    ]
    return jax.tree.unflatten(structure, shaped)


def joined_draws(parts: Sequence[Any]) -> Any:
    """Trails, or other pytrees of draws of the same chains, one after another, as one."""
    if len(parts) == 1:
        return parts[0]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)


def thinned(trail: Trail, first: int, every: int) -> Trail:
    """One of `every` draws, from the `first` on, in memory of their own."""
    if every == 1:
        return trail
    return jax.tree.map(lambda leaf: leaf[:, first::every].copy(), trail)


def in_calls(
    call: Callable, most: int, start: int, count: int, states: Any, adaptation: Any
) -> tuple[Any, Any, Trail]:
    """`count` draws in calls of at most `most`: `call(start, count, states, adaptation)`."""
    trails = []
    for first in range(start, start + max(count, 1), most):
        draws = min(most, start + count - first)
        states, adaptation, trail = call(first, draws, states, adaptation)
        trails.append(trail)
    return states, adaptation, joined_draws(trails)
