"""Runs rows through a compiled program in blocks: one compiled shape for any number of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def in_blocks(call: Callable, size: int, *arrays: np.ndarray) -> Any:
    """The results of `call(first, *block)` for blocks of `size` rows that start at row `first`.

    The last block is padded with zeros, and the results for the padding are dropped.
    """
    count = len(arrays[0])
    padded = []
    for rows in arrays:
        filled = np.zeros((max(1, -(-count // size)) * size, *rows.shape[1:]), rows.dtype)
        filled[:count] = rows
        padded.append(filled)
    parts = [
        jax.device_get(call(first, *(rows[first : first + size] for rows in padded)))
        for first in range(0, len(padded[0]), size)
    ]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *parts)
