"""Polynomials whose derivatives stay small."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """The sum of `coefficients[n] * x**n`."""
    total = jnp.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = coefficient + x * total
    return total


@polynomial.defjvp
def _(coefficients, primals, tangents):
    # A polynomial again: differentiating its steps takes many more products, especially twice.
    slope = tuple(n * coefficient for n, coefficient in enumerate(coefficients))[1:]
    return polynomial(coefficients, *primals), polynomial(slope, *primals) * tangents[0]
