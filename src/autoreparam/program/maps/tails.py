"""Coordinates in which heavy tails are those of a Normal.

Each kind of tails has a coordinate `v` of the noise `e`; a share between 0, `v = e`, and 1 says how
much of it is used.
"""

from functools import partial
from math import factorial, log, pi, sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln, log_ndtr

SERIES = 0.01  # below it derivatives of the roots are lost to rounding
NEWTON = 30  # steps; far out in a tail each halves the distance at first


class Student(NamedTuple):
    """Tails of a Student-t of ν degrees of freedom; `weight` is 1/ν.

        e = v sqrt(expm1(q v²) / (q v²))        v = e sqrt(log1p(q e²) / (q e²))

    At `q = 1/ν` the tail of `v` falls like `exp(-v²/2)`, and its body is Normal too but for a
    percent; at `q = 0` there is `v = e`. In between tails are Normal but wider. All of it is sound
    as long as `e²` is a number: up to 10^19 in single precision.
    """

    weight: Any

    def lighten(self, noise: Array, share: Any) -> Array:
        """`v` at `e`."""
        return noise * _log1p_root(share * self.weight * noise**2)

    def restore(self, light: Array, share: Any) -> Array:
        """`e` at `v`."""
        return light * _expm1_root(share * self.weight * light**2)

    def log_slope(self, noise: Array, share: Any, light: Array | None = None) -> Array:
        """`log |dv / de|` at `e`."""
        x = share * self.weight * noise**2
        return -jnp.log(_log1p_root(x)) - jnp.log1p(x)


class LogGamma(NamedTuple):
    """The left tail of the logarithm of a Gamma variable, long where its shape is small.

    A Gamma variable of shape 1/2 is half the square of a Normal one, `z`; of a smaller shape `a` it
    is nearly a multiple of `z^(1/a)` where it is small. `v` is a Normal variable with the same
    quantiles as `|z|`, but for a percent:

        |z| = Φ(v) h(v),        h(v) = sqrt(π/2) + log(1 + exp(1.5 (v - 1.06))) / 1.5
    """

    shape: Any

    def lighten(self, noise: Array, share: Any) -> Array:
        """`v` at `e`."""
        return _solve(*map(jnp.asarray, (noise, self.shape, share)))

    def restore(self, light: Array, share: Any) -> Array:
        """`e` at `v`."""
        return _restore(light, self.shape, share)

    def log_slope(self, noise: Array, share: Any, light: Array | None = None) -> Array:
        """`log |dv / de|` at `e`, or at `v`."""
        if light is None:
            light = self.lighten(noise, share)
        return -jnp.log(_slope(light, self.shape, share))


def _restore(light: Array, shape: Any, share: Any) -> Array:
    power = jnp.minimum(shape, 0.5)
    log_z = log_ndtr(light) + jnp.log(sqrt(pi / 2) + jax.nn.softplus(1.5 * (light - 1.06)) / 1.5)
    noise = (log_z - 0.5 * log(pi / 2) + gammaln(power + 1)) / power
    return (1 - share) * light + share * noise


def _slope(light: Array, shape: Any, share: Any) -> Array:
    """`de / dv`."""
    at = partial(_restore, shape=shape, share=share)
    return jax.jvp(at, (light,), (jnp.ones_like(light),))[1]


@jax.custom_jvp
def _solve(noise: Array, shape: Array, share: Array) -> Array:
    """`v` at `e`, by Newton's method from the left, where it cannot overshoot."""
    power = jnp.minimum(shape, 0.5)
    depth = -power * jnp.minimum(noise, 0.0)
    start = jnp.where(share > 0.0, -jnp.sqrt(2 * depth / jnp.maximum(share, 1e-3)) - 1.0, noise)
    start = jnp.broadcast_to(start, jnp.broadcast_shapes(*map(jnp.shape, (noise, shape, share))))

    def step(_, light: Array) -> Array:
        gap = noise - _restore(light, shape, share)
        return light + gap / _slope(light, shape, share)

    return jax.lax.fori_loop(0, NEWTON, step, start)


@_solve.defjvp
def _(primals, tangents):
    _, shape, share = primals
    light = _solve(*primals)
    moved = jax.jvp(partial(_restore, light), primals[1:], tangents[1:])[1]
    return light, (tangents[0] - moved) / _slope(light, shape, share)


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
