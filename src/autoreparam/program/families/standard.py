"""Logarithms of Gamma variables and logits of Beta variables, standardized whatever their shape.

The logarithm of a Gamma variable of shape `a` is nearly `Normal(log a, 1 / sqrt(a))` where `a` is
large; where it is small, values are below about 1, over many orders of magnitude. A location of
`log(a + 1/2)` and a scale of `1 / sqrt(a + 1/2)` are good for both: what is left is nearly Normal,
or ends at about zero and has a long tail to the left. For the logit of a Beta variable this gives
what is known as the empirical logit and its standard error. Densities are written around their
peak, where single precision has them for shapes of millions too.
"""

from math import factorial, log, pi
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from autoreparam.program.maps.series import polynomial

STEPS = 8  # so far from zero Stirling's series is exact to 11 digits
NEAR = 0.1  # up to here so are these
HIGH = 80.0  # single precision has its exponential
EXPONENTIAL = tuple(1 / factorial(n) for n in range(2, 12))
LOGARITHM = tuple((-1) ** n / n for n in range(2, 14))
SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)  # of odd powers of one over the shape


def log_gamma_loc(shape: Any, rate: Any = 1.0) -> Array:
    """The location of `log g` for `g` drawn from `Gamma(shape, rate)`."""
    return jnp.log((shape + 0.5) / rate)


def log_gamma_scale(shape: Any) -> Array:
    """The scale of `log g` for `g` drawn from `Gamma(shape, 1)`."""
    return 1 / jnp.sqrt(shape + 0.5)


def logit_beta_loc(first: Any, second: Any) -> Array:
    """The location of the logit of a draw from `Beta(first, second)`."""
    return jnp.log((first + 0.5) / (second + 0.5))


def logit_beta_scale(first: Any, second: Any) -> Array:
    """The scale of the logit of a draw from `Beta(first, second)`."""
    return jnp.sqrt(1 / (first + 0.5) + 1 / (second + 0.5))


class StandardLogGamma(dist.Distribution):
    """`(log g - loc) / scale` for `g` drawn from `Gamma(concentration, 1)`."""

    support = dist.constraints.real
    pytree_data_fields = ("concentration",)

    def __init__(self, concentration: Any):
        self.concentration = concentration
        super().__init__(batch_shape=jnp.shape(concentration))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Logarithms of Gamma draws, which would underflow themselves."""
        a = self.concentration
        drawn = _log_gamma(key, a, (*sample_shape, *self.batch_shape))
        return (drawn - log_gamma_loc(a)) / log_gamma_scale(a)

    def log_prob(self, value: Array) -> Array:
        """Around the peak of the density of `log g`, which is at the logarithm of the shape."""
        a, scale = self.concentration, log_gamma_scale(self.concentration)
        return -a * _above_tangent(_beyond_peak(a) + scale * value) + _log_peak(a) + jnp.log(scale)


class StandardLogitBeta(dist.Distribution):
    """`(logit p - loc) / scale` for `p` drawn from `Beta(first, second)`."""

    support = dist.constraints.real
    pytree_data_fields = ("first", "second")

    def __init__(self, first: Any, second: Any):
        self.first, self.second = first, second
        super().__init__(batch_shape=jnp.broadcast_shapes(jnp.shape(first), jnp.shape(second)))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Differences of logarithms of Gamma draws, which would underflow themselves."""
        shape, keys = (*sample_shape, *self.batch_shape), jax.random.split(key)
        logit = _log_gamma(keys[0], self.first, shape) - _log_gamma(keys[1], self.second, shape)
        loc = logit_beta_loc(self.first, self.second)
        return (logit - loc) / logit_beta_scale(self.first, self.second)

    def log_prob(self, value: Array) -> Array:
        """Around the peak of the density of the logit, which is at `log(first / second)`."""
        a, b, scale = self.first, self.second, logit_beta_scale(self.first, self.second)
        from_peak, total = _beyond_peak(a) - _beyond_peak(b) + scale * value, a + b
        rarer = a < b
        share = jnp.where(rarer, a, b) / total
        fall = -total * _log_above_tangent(jnp.where(rarer, from_peak, -from_peak), share)
        peaks = _log_peak(jnp.stack(jnp.broadcast_arrays(a, b, total)))
        return fall + peaks[0] + peaks[1] - peaks[2] + jnp.log(scale)


def _log_gamma(key: Array, shape: Any, sizes: tuple[int, ...]) -> Array:
    return jax.random.loggamma(key, jnp.asarray(shape, float), sizes)


def _beyond_peak(shape: Any) -> Array:
    """How far the location of `log g` lies above its peak: `log(a + 1/2) - log a`."""
    return jnp.log1p(0.5 / shape)


def _log_peak(shape: Any) -> Array:
    """The log density of `log g` at its peak: `a log a - a - log Γ(a)`.

    By Stirling's series for `Γ(a + 8)`. Derivatives of JAX's own function take long to compile.
    """
    a = shape + STEPS
    ratio = shape / a
    for step in range(1, STEPS):
        ratio *= (shape + step) / a
    series = polynomial(SERIES, 1 / a**2) / a
    steps = STEPS - shape * jnp.log1p(STEPS / shape)
    return steps + 0.5 * jnp.log(a) - 0.5 * log(2 * pi) + jnp.log(ratio) - series


@jax.custom_jvp
def _above_tangent(x: Array) -> Array:
    """`expm1(x) - x`, near zero not the difference of two numbers that are far larger."""
    near = jnp.abs(x) < NEAR
    low = jnp.where(near, x, 0.0)
    return jnp.where(near, low**2 * polynomial(EXPONENTIAL, low), jnp.expm1(x) - x)


@_above_tangent.defjvp
def _(primals, tangents):
    return _above_tangent(*primals), jnp.expm1(primals[0]) * tangents[0]


@jax.custom_jvp
def _log_above_tangent(x: Array, share: Array) -> Array:
    """`log1p(share expm1(x)) - share x`, in the same way; for shares up to 1/2."""
    near = jnp.abs(x) < NEAR
    step = share * jnp.expm1(jnp.where(near, x, 0.0))
    series = share * _above_tangent(x) - step**2 * polynomial(LOGARITHM, step)
    return jnp.where(near, series, _log_mix(x, share) - share * x)


@_log_above_tangent.defjvp
def _(primals, tangents):
    x, share = primals
    fold, decay, few = _parts(x, share)
    ratio = jnp.where(few, fold / (1 + share * fold), (1 - decay) / (share + (1 - share) * decay))
    near = jnp.abs(x) < NEAR
    low = jnp.where(near, x, 0.0)
    step = jnp.expm1(low)
    bent = (_above_tangent(low) - share * low * step) / (1 + share * step)
    by_share = jnp.where(near, bent, ratio - x)
    slope = share * (1 - share) * ratio * tangents[0] + by_share * tangents[1]
    return _log_above_tangent(x, share), slope


def _log_mix(x: Array, share: Array) -> Array:
    """`log(1 - share + share exp(x))`."""
    fold, decay, few = _parts(x, share)
    return jnp.where(few, jnp.log1p(share * fold), x + jnp.log(share + (1 - share) * decay))


def _parts(x: Array, share: Array) -> tuple[Array, Array, Array]:
    """`expm1(x)` and `exp(-x)` without overflow, and where the first is the one to use."""
    fold = jnp.expm1(jnp.minimum(x, HIGH))
    few = (x < HIGH) & (share * fold < 1.0)
    return fold, jnp.exp(-jnp.maximum(x, 0.0)), few
