"""Draws mapped back to the model's own space: values, likelihoods, predictions, in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from autoreparam.program.blocks import in_blocks
from autoreparam.program.compiled import rarely
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.predictive import predict
from autoreparam.program.target import Target

ROWS = 1000  # draws per call
MOST_NUMBERS = 2**23  # in the positions of a call on an accelerator


@rarely
def map_back(target: Target, positions: Any, lam: Parameterization):
    """Values of every latent and deterministic, and the log determinant, of each position."""
    return jax.vmap(target.map_back, (0, None))(positions, lam)


@rarely
def likelihoods(target: Target, positions: Any, lam: Parameterization):
    """The log density of every observation at each position."""
    return jax.vmap(lambda position: target.log_likelihood(position, lam))(positions)


@rarely
def total_likelihood(target: Target, positions: Any, lam: Parameterization):
    """The log density of all data at each position."""
    return jax.vmap(lambda position: target.total_log_likelihood(position, lam))(positions)


@rarely
def predictions(target: Target, positions: Any, lam: Parameterization, key: Any):
    """Data drawn from the model at each position."""

    def one(position, key):
        return predict(target.program, target.to_sites(position, lam), key)

    return jax.vmap(one)(positions, jax.random.split(key, len(positions)))


def by_rows(
    call: Callable, target: Target, positions: np.ndarray, lam: Parameterization, *key: Any
) -> Any:
    """The results of `call` for draws of shape (chain, draw, dim), one block of rows at a time.

    If `call` takes a `key`, each block gets a different one.
    """
    chains, draws, size = positions.shape

    def block(first: int, rows: np.ndarray) -> Any:
        return call(target, rows, lam, *(jax.random.fold_in(k, first) for k in key))

    # Values take about as much memory as positions; likelihoods and predictions may take more.
    large = MOST_NUMBERS // max(size, 1) if call is map_back else 0
    joined = in_blocks(block, ROWS, positions.reshape(-1, size), large=large)
    return jax.tree.map(lambda leaf: leaf.reshape(chains, draws, *leaf.shape[1:]), joined)
