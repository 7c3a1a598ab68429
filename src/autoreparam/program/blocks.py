"""Runs rows through a compiled program in blocks: one compiled shape for any number of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from autoreparam.program.compiled import accelerated


def in_blocks(call: Callable, size: int, *arrays: np.ndarray, large: int = 0) -> Any:
    """The results of `call(first, *block)` for blocks of `size` rows that start at row `first`.

    The last block is padded with zeros, and the results for the padding are dropped. Beside the
    results only one block is in memory. On an accelerator, which would wait, blocks may be `large`.
    """
    count = len(arrays[0])
    if accelerated() and large > size:
        size = min(large, max(size, 1 << (count - 1).bit_length()))
    joined: Any = None
    for first in range(0, max(1, count), size):
        block = [_padded(rows[first : first + size], size) for rows in arrays]
        found = jax.device_get(call(first, *block))
        if joined is None:
            joined = jax.tree.map(lambda x: np.empty((count, *x.shape[1:]), x.dtype), found)
        for whole, part in zip(jax.tree.leaves(joined), jax.tree.leaves(found)):
            whole[first : first + size] = part[: count - first]
    return joined


def _padded(rows: np.ndarray, size: int) -> np.ndarray:
    if len(rows) == size:
        return rows
    filled = np.zeros((size, *rows.shape[1:]), rows.dtype)
    filled[: len(rows)] = rows
    return filled
