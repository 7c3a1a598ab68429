"""The map between working coordinates, noise and values of one site at one λ.

With `loc = m`, `scale = s` and noise `e`:

    working = λ m + gain e        value = transform(m + s e)

The gain, a mean of `s` and the reference scale `s0`, is what `gain.py` is about. Its λ, of the
scale, and that of the location are the same unless untied. Where the
noise has heavy tails, `e` in `working` is replaced by a coordinate with lighter ones (`tails.py`).
That is the map of a family whose elements are independent; `SiteMap` is the interface that all maps
share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from autoreparam.program.maps.gain import GEOMETRIC, QUADRATIC, pull, relative_gain, within_range
from autoreparam.program.maps.tails import Student


class Point(NamedTuple):
    """A point of a site: its noise `e`, and `u`, its unconstrained value."""

    noise: Array
    free: Array
    light: Any = None  # the coordinate of `e` in the map that the point came from, if it has one


@dataclass(frozen=True)
class SiteMap(ABC):
    """One site's rule with its λ: noise <-> working coordinates <-> value.

    The map from noise to working coordinates, and that from noise to `u`, are triangular: each has
    one log derivative per element, and their sum is the log-determinant.
    """

    rule: Any
    lam_loc: Any
    lam_scale: Any
    reference: Any
    mask: Any = None
    tail: Any = None  # of heavy-tailed noise: 0 leaves it alone, 1 makes it as light as a Normal's
    origin: Any = None  # of a sequence: about where its elements are
    tight: Any = None  # of a sequence: how tightly the data hold them, relative to usual
    gain: str = field(default=GEOMETRIC, metadata={"static": True})

    @abstractmethod
    def point(self, working: Array) -> Point:
        """The point at working coordinates."""

    @abstractmethod
    def point_of_noise(self, noise: Array) -> Point:
        """The point at `e`."""

    @abstractmethod
    def point_of_free(self, free: Array) -> Point:
        """The point at `u`."""

    @abstractmethod
    def working(self, point: Point) -> Array:
        """Working coordinates of a point."""

    @abstractmethod
    def log_stretch(self, point: Point) -> Array:
        """`log |d working / d e|` of each element."""

    @abstractmethod
    def log_scale(self, point: Point) -> Array:
        """`log |du / de|` of each element."""

    def point_of_value(self, value: Array) -> Point:
        """The point at the model's own value."""
        return self.point_of_free(self.rule.transform.inv(value))

    def value(self, point: Point) -> Array:
        """The model's own value at a point."""
        return self.rule.transform(point.free)

    def _log_gain(self) -> Array:
        if self.gain == GEOMETRIC:
            return self.lam_scale * jnp.log(self._ratio()) + jnp.log(self.reference)
        return jnp.log(self._relative()) + jnp.log(self.reference)

    def _relative(self) -> Array:
        """The gain relative to the reference scale."""
        return relative_gain(self.gain, self.lam_scale, self._ratio())

    def _ratio(self) -> Array:
        ratio = self.rule.scale / self.reference
        return ratio if self.gain == GEOMETRIC else within_range(ratio)

    def log_prob(self, point: Point) -> Array:
        """The log density of the working coordinates of a point, element by element."""
        return self.rule.noise.log_prob(point.noise) - self.log_stretch(point)

    def total_log_prob(self, point: Point) -> Array:
        """The sum of `log_prob`."""
        return jnp.sum(self.log_prob(point))

    def log_det(self, point: Point) -> Array:
        """`log |d value / d working|` of each element."""
        transform = self.rule.transform
        constrain = transform.log_abs_det_jacobian(point.free, transform(point.free))
        if events := transform.domain.event_dim:  # one number for all of them, divided equally
            axes = tuple(range(-events, 0))
            constrain = jnp.expand_dims(constrain, axes) / _sizes(point.free, events)
        return self.log_scale(point) - self.log_stretch(point) + constrain


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ElementMap(SiteMap):
    """The map of a family whose elements are independent given location and scale."""

    def point(self, working: Array) -> Point:
        """The point at working coordinates."""
        light = self._light(working)
        if self.tail is None:
            return self.point_of_noise(light)
        noise = self._tails.restore(light, self.tail)
        return self.point_of_noise(noise)._replace(light=light)

    def point_of_noise(self, noise: Array) -> Point:
        """The point at `e`."""
        return Point(noise, self.rule.loc + self.rule.scale * noise)

    def point_of_free(self, free: Array) -> Point:
        """The point at `u`."""
        return Point((free - self.rule.loc) / self.rule.scale, free)

    def working(self, point: Point) -> Array:
        """Working coordinates of a point."""
        noise = point.noise
        if self.tail is not None:
            noise = self._tails.lighten(noise, self.tail)
        return self._pull() * self._loc() + noise * jnp.exp(self._log_gain())

    def log_stretch(self, point: Point) -> Array:
        """`log |d working / d e|` of each element."""
        if self.tail is None:
            return self._log_gain()
        return self._log_gain() + self._log_slope(point)

    def log_scale(self, point: Point) -> Array:
        """`log |du / de|` of each element."""
        return jnp.log(self.rule.scale)

    def total_log_prob(self, point: Point) -> Array:
        """The sum of `log_prob`; cheaper than summing, since scales are mostly scalars."""
        ones = point.noise.size // jnp.size(self.reference)
        if self.gain == GEOMETRIC:
            stretch = _sum_of_product(jnp.asarray(self.lam_scale), jnp.log(self._ratio()))
        else:
            lam = jnp.broadcast_to(self.lam_scale, point.noise.shape)
            stretch = _sum_of_logs(lam, jnp.asarray(self._ratio()))
        log_reference = ones * jnp.sum(jnp.log(self.reference))
        if self.tail is not None:
            stretch += jnp.sum(self._log_slope(point))
        return jnp.sum(self.rule.noise.log_prob(point.noise)) - stretch - log_reference

    def _loc(self) -> Array:
        """The location that is pulled into the working coordinate."""
        return self.rule.loc

    def _pull(self) -> Array:
        """What one unit of location adds to the working coordinate."""
        return self.lam_loc

    @property
    def _tails(self) -> Any:
        tails = self.rule.tails
        return tails if hasattr(tails, "lighten") else Student(tails)

    def _log_slope(self, point: Point) -> Array:
        """`log |dv / de|` of the coordinate with lighter tails."""
        return self._tails.log_slope(point.noise, self.tail, point.light)

    def _light(self, working: Array) -> Array:
        geometric = self.gain == GEOMETRIC
        ratio = jnp.log(self._ratio()) if geometric else self._ratio()
        args = (working, self._loc(), ratio, self._pull(), self.lam_scale, self.reference)
        return (_shrink if geometric else _narrow)(*map(jnp.asarray, args))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SteadyMap(ElementMap):
    """The map of an element whose location depends on the elements before it.

    With the pull `p` of `gain.py`, `working = λ o + p (m - o) + gain e`: what is passed from
    element to element is multiplied by a number between 0 and 1. With the map of independent
    elements the factor would be `1 - λ s / gain`, and a sequence would explode where `s` is far
    above `s0`. The origin `o` is a constant close to where the element is: without it, the level of
    a sequence would be multiplied by what depends on the scale, and tie every element to that.
    `grip.py` says what the tightness is for.
    """

    def point(self, working: Array) -> Point:
        """The point at working coordinates."""
        return super().point(working - base(self))

    def working(self, point: Point) -> Array:
        """Working coordinates of a point."""
        return super().working(point) + base(self)

    def _loc(self) -> Array:
        return from_origin(self)

    def _pull(self) -> Array:
        own = pull(self.gain, self.lam_loc, self._ratio(), self._relative())
        return own if self._loose else own * self.tight

    def _ratio(self) -> Array:
        ratio = self.rule.scale / self.reference
        return super()._ratio() if self._loose else within_range(ratio * self.tight)

    @property
    def _loose(self) -> bool:
        return self.tight is None or self.gain == GEOMETRIC


def base(map_: SiteMap) -> Any:
    """The working coordinate of the origin."""
    return 0.0 if map_.origin is None else map_.lam_loc * map_.origin


def from_origin(map_: SiteMap) -> Any:
    """The location, relative to the origin."""
    return map_.rule.loc if map_.origin is None else map_.rule.loc - map_.origin


@jax.custom_jvp
def _shrink(working, loc, log_ratio, lam_loc, lam_scale, reference) -> Array:
    """`(working - λ m) exp(-λ log(s / s0)) / s0`: cheaper than dividing by a power."""
    return (working - lam_loc * loc) * (jnp.exp(-lam_scale * log_ratio) / reference)


@partial(_shrink.defjvp, symbolic_zeros=True)
def _(primals, tangents):
    # Written out so that the exponential is evaluated only once, not again for the gradient; signs
    # go with the tangents, which are mostly scalars. Both matter at a million elements.
    working, loc, log_ratio, lam_loc, lam_scale, reference = primals
    factor = jnp.exp(-lam_scale * log_ratio) / reference
    noise = (working - lam_loc * loc) * factor
    slopes = (factor, lam_loc * factor, lam_scale * noise, loc * factor, log_ratio * noise,
              noise / reference)  # fmt: skip
    signs = (1, -1, -1, -1, -1, -1)
    terms = [
        slope * (tangent if sign > 0 else -tangent)
        for slope, tangent, sign in zip(slopes, tangents, signs)
        if not isinstance(tangent, SymbolicZero)
    ]
    return noise, sum(terms[1:], terms[0]) if terms else jnp.zeros_like(noise)


@jax.custom_jvp
def _narrow(working, loc, ratio, pull, lam, reference) -> Array:
    """`(working - p m) / gain` with the quadratic gain, written out for the same reasons."""
    return (working - pull * loc) / (reference * relative_gain(QUADRATIC, lam, ratio))


@partial(_narrow.defjvp, symbolic_zeros=True)
def _(primals, tangents):
    working, loc, ratio, pull, lam, reference = primals
    inverse = 1 / relative_gain(QUADRATIC, lam, ratio)
    factor = inverse / reference
    noise = (working - pull * loc) * factor
    bent = noise * inverse
    slopes = (factor, pull * factor, lam * bent * (ratio * inverse), loc * factor,
              0.5 * bent * inverse, noise / reference)  # fmt: skip
    changes = (1, -1, -1, -1, 1 - ratio**2, -1)
    terms = [
        slope * (change * tangent)
        for slope, tangent, change in zip(slopes, tangents, changes)
        if not isinstance(tangent, SymbolicZero)
    ]
    return noise, sum(terms[1:], terms[0]) if terms else jnp.zeros_like(noise)


@jax.custom_jvp
def _sum_of_logs(lam, ratio) -> Array:
    """The sum of the logarithms of the quadratic gain."""
    return jnp.sum(jnp.log(relative_gain(QUADRATIC, lam, ratio)))


@partial(_sum_of_logs.defjvp, symbolic_zeros=True)
def _(primals, tangents):
    lam, ratio = primals
    relative = relative_gain(QUADRATIC, lam, ratio)
    inverse, value = 1 / relative, jnp.sum(jnp.log(relative))
    change = jnp.zeros_like(value)
    if not isinstance(tangents[1], SymbolicZero):
        change += _sum_of_product(lam * inverse * (ratio * inverse), tangents[1])
    if not isinstance(tangents[0], SymbolicZero):
        change += jnp.sum(0.5 * (ratio**2 - 1) * inverse**2 * tangents[0])
    return value, change


def _sum_of_product(full: Array, small: Array) -> Array:
    """`sum(full * small)` for a `small` that broadcasts to `full`, without expanding it."""
    small = jnp.reshape(small, (1,) * (full.ndim - jnp.ndim(small)) + jnp.shape(small))
    spread = tuple(i for i in range(full.ndim) if small.shape[i] != full.shape[i])
    return jnp.sum(jnp.sum(full, axis=spread, keepdims=True) * small)


def _sizes(array: Array, events: int) -> int:
    size = 1
    for axis in range(-events, 0):
        size *= array.shape[axis]
    return size
