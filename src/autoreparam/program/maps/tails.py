"""Coordinates in which heavy tails are those of a Normal.

Noise `e` with the tails of a Student-t of ν degrees of freedom has a coordinate `v`,

    e = v sqrt(expm1(q v²) / (q v²))        v = e sqrt(log1p(q e²) / (q e²))

At `q = 1/ν` the tail of `v` falls like `exp(-v²/2)`, and its body is Normal too but for a percent;
at `q = 0` there is `v = e`. In between tails are Normal but wider. All is written in `y = q v²`,
which is also `log1p(q e²)`, so that nothing is squared twice and nothing overflows before `e` does.
"""

import jax.numpy as jnp
from jax import Array

SERIES = 0.1  # below it differences of y and exp(y) are lost to rounding
FAR = 1e9  # above it a square may not be a number in single precision


def lighten(noise: Array, q: Array) -> Array:
    """`v` at `e`."""
    y = _rise(noise, q)
    return noise * jnp.exp(-0.5 * (y + _log_ratio(y)))


def restore(light: Array, q: Array) -> Array:
    """`e` at `v`."""
    y = q * light**2
    return light * jnp.exp(0.5 * (y + _log_ratio(y)))


def log_slope(noise: Array, q: Array) -> Array:
    """`log |dv / de|` at `e`."""
    y = _rise(noise, q)
    return 0.5 * (_log_ratio(y) - y)


def _rise(noise: Array, q: Array) -> Array:
    """`log1p(q e²)`, also where the square overflows."""
    far = (jnp.abs(noise) > FAR) & (q > 0)
    near, size = jnp.where(far, 1.0, noise), jnp.where(far, jnp.abs(noise), 1.0)
    beyond = 2 * jnp.log(size) + jnp.log(q + size**-2)
    return jnp.where(far, beyond, jnp.log1p(q * near**2))


def _log_ratio(y: Array) -> Array:
    """`log((1 - exp(-y)) / y)` for `y >= 0`."""
    small = y < SERIES
    low, high = jnp.where(small, y, 0.0), jnp.where(small, 1.0, y)
    series = -low / 2 + low**2 / 24 - low**4 / 2880 + low**6 / 181440
    return jnp.where(small, series, jnp.log(-jnp.expm1(-high) / high))
