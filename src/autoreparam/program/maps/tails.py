"""Coordinates in which heavy tails become those of a Normal.

Each kind of tail has a coordinate `v` of the noise `e`; a share between 0 (`v = e`) and 1 says how
far to go.
"""

from functools import partial
from math import factorial, log, pi, sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from autoreparam.program.maps.series import polynomial

SERIES = 0.5  # up to here the series is exact, and derivatives without it are not
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)  # even ones, from 2
COEFFICIENTS = (0.0, *(b / (2 * n * factorial(2 * n)) for n, b in enumerate(BERNOULLI, start=1)))
NEWTON = 10  # steps
TAILLESS = 5.0  # from this shape on, tails inflate the variance by about a tenth or less


class Student(NamedTuple):
    """Tails of a Student-t with ν degrees of freedom; `weight` is 1/ν.

        q v² = log1p(q e²)

    At `q = 1/ν` the tail of `v` falls like `exp(-v²/2)`, and its body is within a percent of
    Normal; at `q = 0`, `v = e`. In between tails are Normal but wider. All of this works as long as
    `e²` is finite: up to 10^19 in single precision.

    Args:
        weight: 1/ν; 0 is a Normal.
    """

    weight: Any

    def lighten(self, noise: Array, share: Any) -> Array:
        """`v` at `e`."""
        x = share * self.weight * noise**2
        return noise / _root(x, jnp.log1p(x))

    def restore(self, light: Array, share: Any) -> Array:
        """`e` at `v`."""
        y = share * self.weight * light**2
        return light * _root(jnp.expm1(y), y)

    def log_slope(self, noise: Array, share: Any, light: Array | None = None) -> Array:
        """`log |dv / de|` at `e`, or at `v`."""
        q = share * self.weight
        if light is None:
            x = q * noise**2
            y = jnp.log1p(x)
        else:
            y = q * light**2
            x = jnp.expm1(y)
        return _log_ratio(x, y) / 2 - y


class LogGamma(NamedTuple):
    """The left tail of the logarithm of a Gamma variable, long where its shape is small.

    A Gamma variable of shape 1/2 is half the square of a Normal one, `z`; with a smaller shape `a`
    it is, where small, nearly a multiple of `z^(1/a)`. Within a few percent, `v` is a Normal
    variable with the quantiles of `|z|`:

        |z| = (s + v) / 2 exp(-r²/2),    s = sqrt(v² + 3),    r = (sqrt(v² + 1.62) - v) / 2

    Noise is that logarithm, with `log(shape + 1/2)` subtracted and divided by a scale. Whatever the
    shape, `v` is 0 where `e` is 0, and at the whole share of the order of one.

    Args:
        shape: The concentration of the Gamma.
        scale: What the logarithm was divided by.
    """

    shape: Any
    scale: Any = 1.0

    def lighten(self, noise: Array, share: Any) -> Array:
        """`v` at `e`."""
        share, center, unit = self._frame(share)
        goal = _restore(center, self.shape, share) + self.scale * noise
        light = _solve(*map(jnp.asarray, (goal, self.shape, share)))
        # Where the map is mostly straight, less is lost by subtracting its bent part than by taking
        # a difference from the center, which is far away where shapes are large.
        straight = _slope(light, self.shape, share) < 2 * (1 - share)
        gain = share * (_curved(light, self.shape) - _curved(center, self.shape))
        left = (self.scale * noise - gain) / jnp.where(straight, 1 - share, 1.0)
        return jnp.where(straight, left, light - center) / unit

    def restore(self, light: Array, share: Any) -> Array:
        """`e` at `v`."""
        share, center, unit = self._frame(share)
        gain = _curved(center + unit * light, self.shape) - _curved(center, self.shape)
        return ((1 - share) * unit * light + share * gain) / self.scale

    def log_slope(self, noise: Array, share: Any, light: Array | None = None) -> Array:
        """`log |dv / de|` at `e`, or at `v`."""
        if light is None:
            light = self.lighten(noise, share)
        share, center, unit = self._frame(share)
        return jnp.log(self.scale / unit / _slope(center + unit * light, self.shape, share))

    def _frame(self, share: Any) -> tuple[Array, Array, Array]:
        """How far to go, less where there is hardly a tail; where `v` is 0; and its unit."""
        share = share * jnp.minimum(1.0, TAILLESS / self.shape)
        # About where the whole share would be at `e = 0`.
        z = jnp.sqrt(2 * jnp.maximum(self.shape, 0.5) + 1)
        center = z - 0.55 / (z + 0.15)
        return share, center, self.scale / _slope(center, 0.5, share)


def _restore(light: Array, shape: Any, share: Any) -> Array:
    return (1 - share) * light + share * _curved(light, shape)


def _curved(light: Array, shape: Any) -> Array:
    """`e` at `v` with nothing left alone."""
    power = jnp.minimum(shape, 0.5)
    r = (jnp.sqrt(light**2 + 1.62) - light) / 2
    log_z = jnp.arcsinh(light / sqrt(3)) + log(sqrt(3) / 2) - r**2 / 2
    return (log_z + _log_unit(power)) / power


def _log_unit(power: Any) -> Array:
    """About `log Γ(power + 1) - log(pi / 2) / 2`, for powers up to 1/2."""
    return power * (0.67 * power - 0.577) - 0.5 * log(pi / 2)


def _slope(light: Array, shape: Any, share: Any) -> Array:
    """`de / dv`."""
    root = jnp.sqrt(light**2 + 1.62)
    slope = 1 / jnp.sqrt(light**2 + 3) + ((root - light) / 2) ** 2 / root
    return 1 - share + share * slope / jnp.minimum(shape, 0.5)


@jax.custom_jvp
def _solve(noise: Array, shape: Array, share: Array) -> Array:
    """`v` at `e`, by Newton's method from the left, where it cannot overshoot.

    It starts where the nearer of the coordinate's two parts would be on its own.
    """
    tiny, power = jnp.finfo(noise.dtype).eps, jnp.minimum(shape, 0.5)
    depth = -jnp.minimum(noise, 0.0)
    curved = jnp.sqrt(2 * power * depth / (share + tiny)) + 1.0
    left = -jnp.minimum(depth / (1 - share + tiny), curved)
    right = jnp.exp(power * noise - _log_unit(power)) - 0.87
    right = jnp.maximum(jnp.where(share < 1.0, jnp.minimum(right, noise), right), 0.0)
    start = jnp.where(noise < 0.0, left, right)
    start = jnp.broadcast_to(start, jnp.broadcast_shapes(*map(jnp.shape, (noise, shape, share))))

    def step(_, light: Array) -> Array:
        gap = noise - _restore(light, shape, share)
        return light + gap / _slope(light, shape, share)

    return jax.lax.fori_loop(0, NEWTON, step, start)


@partial(_solve.defjvp, symbolic_zeros=True)
def _(primals, tangents):
    light, change = _solve(*primals), tangents[0]
    # Shapes are mostly constants, and derivatives with respect to them compile slowly.
    moving = [i for i in (1, 2) if not isinstance(tangents[i], SymbolicZero)]
    if moving:

        def at(*values: Array) -> Array:
            shape, share = (values[moving.index(i)] if i in moving else primals[i] for i in (1, 2))
            return _restore(light, shape, share)

        moved = jax.jvp(at, [primals[i] for i in moving], [tangents[i] for i in moving])[1]
        change = -moved if isinstance(change, SymbolicZero) else change - moved
    return light, change / _slope(light, *primals[1:])


def _root(x: Array, y: Array) -> Array:
    """`sqrt(x / y)` of `x = expm1(y)`, for `y >= 0`."""
    near, series, ratio = _near_and_far(x, y)
    return jnp.where(near, jnp.exp(series / 2), jnp.sqrt(ratio))


def _log_ratio(x: Array, y: Array) -> Array:
    """`log(x / y)` of `x = expm1(y)`, for `y >= 0`."""
    near, series, ratio = _near_and_far(x, y)
    return jnp.where(near, series, jnp.log(ratio))


def _near_and_far(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Where `y` is small; `log(x / y)` there; and `x / y` elsewhere."""
    near = y < SERIES
    low = jnp.where(near, y, 0.0)
    series = low / 2 + polynomial(COEFFICIENTS, low**2)
    return near, series, jnp.where(near, 1.0, x) / jnp.where(near, 1.0, y)
