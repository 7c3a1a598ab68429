"""Products with, and solutions of, batches of triangular matrices.

Small ones, of which there may be thousands (a 2x2 factor for every group), are written out row by
row as operations on the whole batch: a linear algebra call for each would cost more than the
arithmetic.
"""

import jax.numpy as jnp
from jax import Array, lax

UNROLLED = 6  # the largest size that is written out


def multiply(matrix: Array, vector: Array) -> Array:
    """`matrix @ vector`, batches broadcast."""
    if matrix.ndim == 2:
        return vector @ matrix.T
    return jnp.sum(matrix * vector[..., None, :], axis=-1)


def solve(matrix: Array, vector: Array) -> Array:
    """`x` with `matrix @ x = vector` for lower triangular matrices, batches broadcast."""
    size = matrix.shape[-1]
    if size <= UNROLLED:
        found: list[Array] = []
        for i in range(size):
            rest = vector[..., i]
            for j in range(i):
                rest = rest - matrix[..., i, j] * found[j]
            found.append(rest / matrix[..., i, i])
        return jnp.stack(found, axis=-1)
    if matrix.ndim == 2:  # one matrix for all: solve for all at once
        right = vector.reshape(-1, size)
        found_rows = lax.linalg.triangular_solve(matrix, right, lower=True, transpose_a=True)
        return found_rows.reshape(vector.shape)
    batch = jnp.broadcast_shapes(matrix.shape[:-2], vector.shape[:-1])
    matrix = jnp.broadcast_to(matrix, (*batch, size, size))
    right = jnp.broadcast_to(vector, (*batch, size))[..., None]
    return lax.linalg.triangular_solve(matrix, right, left_side=True, lower=True)[..., 0]


def diagonal(matrix: Array) -> Array:
    """The diagonal of each matrix."""
    return jnp.diagonal(matrix, axis1=-2, axis2=-1)
