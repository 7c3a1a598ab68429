"""The rule of a site that was non-centered by hand: that of what the model makes of its values.

With `theta = a + b * value` the working coordinates are those of a site `theta` of this location
and scale; the value itself is computed from the same noise. Whatever `a` and `b` are, that is a
one-to-one map between working coordinates and values, so the posterior stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions.transforms import Transform

from autoreparam.program.families import Correlated, Sequence, Standardization
from autoreparam.program.implicit.moves import Steps, rearrange
from autoreparam.program.maps import Point, SiteMap
from autoreparam.program.traits import Traits


class Mirrored(dist.Distribution):
    """The distribution of `-e`."""

    support = dist.constraints.real
    pytree_data_fields = ("base",)

    def __init__(self, base: dist.Distribution):
        self.base = base
        super().__init__(batch_shape=base.batch_shape)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws with their signs changed."""
        return -self.base.sample(key, sample_shape)

    def log_prob(self, value: Array) -> Array:
        """The base's density at `-value`."""
        return self.base.log_prob(-value)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ImpliedRule:
    """The rule `own` of a site's value, sampled in the coordinates of the rule `implied`."""

    own: Any
    implied: Any
    layout: Steps = field(default=(), metadata={"static": True})  # from own elements to implied
    shape: tuple[int, ...] = field(default=(), metadata={"static": True})
    negative: bool = field(default=False, metadata={"static": True})  # theta falls as values rise

    @property
    def loc(self) -> Any:
        """The location of what is implied."""
        return self.implied.loc

    @property
    def scale(self) -> Any:
        """The scale of what is implied, arranged like the site's value."""
        return self.back(self.implied.scale)

    @property
    def noise(self) -> dist.Distribution:
        """The noise of what is implied."""
        return self.implied.noise

    @property
    def transform(self) -> Transform:
        """From the site's own unconstrained value to its value."""
        return self.own.transform

    @property
    def spread(self) -> Any:
        """All that scales are computed from."""
        return self.implied.spread

    @property
    def traits(self) -> Traits:
        """Those of what is implied."""
        return self.implied.traits

    def map(self, lam_loc: Any, lam_scale: Any, reference: Any, mask: Any = None) -> SiteMap:
        """The map between the noise, the coordinates of what is implied, and the value."""
        return ImpliedMap(self, lam_loc, lam_scale, reference, mask)

    def to(self, array: Any) -> Any:
        """An array of the site's elements, arranged like what is implied."""
        if not self.layout:
            return array
        return rearrange(jnp.broadcast_to(array, self.shape), self.layout)

    def back(self, array: Any) -> Any:
        """The inverse of `to`."""
        if not self.layout:
            return array
        there = jax.eval_shape(self.to, jax.ShapeDtypeStruct(self.shape, float)).shape
        return rearrange(jnp.broadcast_to(array, there), self.layout, self.shape)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ImpliedMap(SiteMap):
    """Working coordinates of what is implied; the value is made from the same noise."""

    @property
    def _implied(self) -> SiteMap:
        to = self.rule.to
        reference = self.reference if not self.rule.layout else to(self.reference)
        inner = self.rule.implied.map(to(self.lam_loc), to(self.lam_scale), reference, None)
        more = {"tail": self.tail, "origin": self.origin, "tight": self.tight}
        more = {name: to(one) for name, one in more.items() if one is not None}
        return replace(inner, gain=self.gain, **more)

    @property
    def _own(self) -> SiteMap:
        zero = jnp.zeros((1,) * len(self.rule.shape))
        return self.rule.own.map(zero, zero, jnp.ones(()), None)

    def point(self, working: Array) -> Point:
        """The point at working coordinates."""
        return self._arranged(self._implied.point(self.rule.to(working)))

    def point_of_noise(self, noise: Array) -> Point:
        """The point at `e`."""
        return self._arranged(self._implied.point_of_noise(self.rule.to(noise)))

    def point_of_free(self, free: Array) -> Point:
        """The point at a value of what is implied."""
        return self._arranged(self._implied.point_of_free(self.rule.to(free)))

    def point_of_value(self, value: Array) -> Point:
        """The point at the model's own value."""
        return self.point_of_noise(self._turned(self._own.point_of_value(value).noise))

    def value(self, point: Point) -> Array:
        """The model's own value at a point."""
        return self._own.value(self._own_point(point))

    def working(self, point: Point) -> Array:
        """Working coordinates of a point."""
        return self.rule.back(self._implied.working(self._there(point)))

    def log_stretch(self, point: Point) -> Array:
        """`log |d working / d e|` of each element."""
        return self.rule.back(self._implied.log_stretch(self._there(point)))

    def log_scale(self, point: Point) -> Array:
        """The log scale of what is implied."""
        return self.rule.back(self._implied.log_scale(self._there(point)))

    def total_log_prob(self, point: Point) -> Array:
        """The sum of `log_prob`."""
        return self._implied.total_log_prob(self._there(point))

    def log_det(self, point: Point) -> Array:
        """`log |d value / d working|` of each element."""
        own, here = self._own, self._own_point(point)
        return own.log_det(here) + own.log_stretch(here) - self.log_stretch(point)

    def _own_point(self, point: Point) -> Point:
        return self._own.point_of_noise(self._turned(point.noise))

    def _turned(self, noise: Array) -> Array:
        return -noise if self.rule.negative else noise

    def _arranged(self, point: Point) -> Point:
        return jax.tree.map(self.rule.back, point)

    def _there(self, point: Point) -> Point:
        return jax.tree.map(self.rule.to, point)


def implied_rule(
    own: Any,
    loc: Any,
    scale: Any,
    shape: tuple[int, ...],
    *,
    positive: bool = False,
    negative: bool = False,
) -> ImpliedRule:
    """The rule of elements `loc + scale * value`, or of positive ones, `scale * value`."""
    if isinstance(own, Correlated):
        center = loc + scale * own.loc
        factor = own.factor * jnp.expand_dims(jnp.broadcast_to(jnp.abs(scale), shape), -1)
        return ImpliedRule(own, Correlated(center, factor, own.noise), (), shape, negative)
    if positive:
        inner = replace(own, loc=own.loc + jnp.log(scale))
    else:
        noise = own.noise if own.symmetric or not negative else Mirrored(own.noise)
        inner = Standardization(
            loc + scale * own.loc,
            jnp.abs(scale) * own.scale,
            noise,
            tails=own.tails,
            symmetric=own.symmetric,
            shape_parameters=own.shape_parameters,
        )
    return ImpliedRule(own, inner, (), shape, negative)


def matrix_rule(
    own: Any, loc: Any, factor: Any, shape: tuple[int, ...], layout: Steps, negative: bool
) -> ImpliedRule:
    """The rule of `loc + factor @ value` along the last axis of the rearranged value."""
    factor = jnp.tril(factor)
    center, scale = (
        rearrange(jnp.broadcast_to(part, shape), layout) for part in (own.loc, own.scale)
    )
    sign = -1.0 if negative else 1.0
    loc = loc + sign * jnp.sum(factor * center[..., None, :], axis=-1)
    inner = Correlated(loc, factor * scale[..., None, :], own.noise)
    return ImpliedRule(own, inner, layout, shape, negative)


def sequence_rule(
    own: Any, steps: Sequence, shape: tuple[int, ...], layout: Steps, negative: bool
) -> ImpliedRule:
    """The rule of a sequence whose steps have the value's elements as their noise."""
    return ImpliedRule(own, steps, layout, shape, negative)
