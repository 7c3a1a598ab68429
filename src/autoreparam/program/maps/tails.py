"""Coordinates in which heavy tails are those of a Normal.

Noise `e` with the tails of a Student-t of ν degrees of freedom has a coordinate `v`,

    e = v sqrt(expm1(q v²) / (q v²))        v = e sqrt(log1p(q e²) / (q e²))

At `q = 1/ν` the tail of `v` falls like `exp(-v²/2)`, and its body is Normal too but for a percent;
at `q = 0` there is `v = e`. In between tails are Normal but wider. All of it is sound as long as
`e²` is a number: up to 10^19 in single precision.
"""

from math import factorial

import jax.numpy as jnp
from jax import Array

SERIES = 0.01  # below it derivatives of the roots are lost to rounding


def lighten(noise: Array, q: Array) -> Array:
    """`v` at `e`."""
    return noise * _log1p_root(q * noise**2)


def restore(light: Array, q: Array) -> Array:
    """`e` at `v`."""
    return light * _expm1_root(q * light**2)


def log_slope(noise: Array, q: Array) -> Array:
    """`log |dv / de|` at `e`."""
    x = q * noise**2
    return -jnp.log(_log1p_root(x)) - jnp.log1p(x)


def _log1p_root(x: Array) -> Array:
    """`sqrt(log1p(x) / x)` for `x >= 0`."""
    near = x < SERIES
    low, high = jnp.where(near, x, 0.0), jnp.where(near, 1.0, x)
    series = _polynomial([(-1) ** n / (n + 1) for n in range(7)], low)
    # A ratio of roots: the derivative of a ratio has the square of what it is divided by.
    return jnp.where(near, jnp.sqrt(series), jnp.sqrt(jnp.log1p(high)) / jnp.sqrt(high))


def _expm1_root(x: Array) -> Array:
    """`sqrt(expm1(x) / x)` for `x >= 0`."""
    near = x < SERIES
    low, high = jnp.where(near, x, 0.0), jnp.where(near, 1.0, x)
    series = _polynomial([1 / factorial(n + 1) for n in range(6)], low)
    return jnp.where(near, jnp.sqrt(series), jnp.sqrt(jnp.expm1(high)) / jnp.sqrt(high))


def _polynomial(coefficients: list[float], x: Array) -> Array:
    """The sum of `coefficients[n] * x**n`."""
    total = jnp.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = coefficient + x * total
    return total
