"""Draws mapped back to the model's own space: values, likelihoods, predictions, in blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from autoreparam.program.blocks import in_blocks
from autoreparam.program.compiled import accelerated, rarely
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.predictive import predict
from autoreparam.program.rows import over_rows
from autoreparam.program.target import Target

ROWS = 1000  # draws per call; on an accelerator more
MOST_NUMBERS = 2**23  # in their positions; where draws are larger, a call has fewer of them


@partial(rarely, static_argnames="names")
def map_back(
    target: Target, positions: Any, lam: Parameterization, names: tuple[str, ...] | None = None
):
    """Values of the variables named, or of all, and the log determinant, of each position."""
    values, log_det = over_rows(target.program, target.map_back, (0, None))(positions, lam)
    return {n: v for n, v in values.items() if names is None or n in names}, log_det


def compile_map_back(target: Target, lam: Parameterization) -> None:
    """Compiles the program that maps all variables back, on a CPU, without running it.

    On an accelerator its blocks are as long as the draws ask for.
    """
    if not accelerated():
        rows = np.zeros((min(ROWS, _most_rows(target.size)), target.size), target.program.dtype)
        map_back.lower(target, rows, lam, names=None).compile()


@rarely
def likelihoods(target: Target, positions: Any, lam: Parameterization):
    """The log density of every observation at each position."""
    return over_rows(target.program, target.log_likelihood, (0, None))(positions, lam)


@rarely
def total_likelihood(target: Target, positions: Any, lam: Parameterization):
    """The log density of all data at each position."""
    return over_rows(target.program, target.total_log_likelihood, (0, None))(positions, lam)


@rarely
def predictions(target: Target, positions: Any, lam: Parameterization, key: Any):
    """Data drawn from the model at each position."""

    def one(position, key):
        return predict(target.program, target.to_sites(position, lam), key)

    keys = jax.random.split(key, len(positions))
    return over_rows(target.program, one, (0, 0))(positions, keys)


def by_rows(
    call: Callable,
    target: Target,
    positions: np.ndarray,
    lam: Parameterization,
    *key: Any,
    before: int = 0,
    **options: Any,
) -> Any:
    """The results of `call` for draws of shape (chain, draw, dim), one block of rows at a time.

    If `call` takes a `key`, each block gets a different one; `before` are the rows of other calls.
    """
    chains, draws, size = positions.shape
    most = _most_rows(size)

    def block(first: int, rows: np.ndarray) -> Any:
        keys = [jax.random.fold_in(k, before + first) for k in key]
        return call(target, rows, lam, *keys, **options)

    # Values take about as much memory as positions; likelihoods and predictions may take more.
    large = most if call is map_back else 0
    joined = in_blocks(block, min(ROWS, most), positions.reshape(-1, size), large=large)
    return jax.tree.map(lambda leaf: leaf.reshape(chains, draws, *leaf.shape[1:]), joined)


def _most_rows(size: int) -> int:
    return max(1, MOST_NUMBERS // max(size, 1))
