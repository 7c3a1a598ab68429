"""The map of a site that is itself a sequence: the rule of each element given the one before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from autoreparam.program.maps.element import ElementMap, Point, SiteMap, SteadyMap
from autoreparam.program.maps.gain import QUADRATIC


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SequenceMap(SiteMap):
    """The map of all elements of a sequence, linear in its length.

    The rule has `first`, the rule of the first element, and `follow(previous, input)`, the rule of
    a later one given the value before it. Only going from working coordinates or noise to values is
    sequential; at known values the elements are independent.
    """

    def point(self, working: Array) -> Point:
        """The point at working coordinates."""
        return self._walk(working, lambda map_, given: map_.point(given))

    def point_of_noise(self, noise: Array) -> Point:
        """The point at `e`."""
        return self._walk(noise, lambda map_, given: map_.point_of_noise(given))

    def point_of_free(self, free: Array) -> Point:
        """The point at `u`."""
        return Point(self._each(free, lambda map_, u: map_.point_of_free(u).noise, free), free)

    def working(self, point: Point) -> Array:
        """Working coordinates of a point."""
        return self._each(point.free, lambda map_, e, u: map_.working(Point(e, u)), *point[:2])

    def log_stretch(self, point: Point) -> Array:
        """`log |d working / d e|` of each element."""
        return self._each(point.free, lambda map_, e, u: map_.log_stretch(Point(e, u)), *point[:2])

    def log_scale(self, point: Point) -> Array:
        """`log |du / de|` of each element."""
        return self._each(point.free, lambda map_, e, u: map_.log_scale(Point(e, u)), *point[:2])

    def _lead(self, array: Any, like: Array) -> Array:
        """The array broadcast like another, with time as its first axis."""
        return jnp.moveaxis(jnp.broadcast_to(array, jnp.shape(like)), self.rule.axis, 0)

    def _lams(self, like: Array) -> tuple[Array, ...]:
        parts = (self.lam_loc, self.lam_scale, self.reference, *self._more.values())
        return tuple(self._lead(part, like) for part in parts)

    @property
    def _more(self) -> dict[str, Any]:
        more = {"origin": self.origin, "tight": self.tight}
        return {name: part for name, part in more.items() if part is not None}

    def _walk(self, given: Array, place: Callable[[SiteMap, Array], Point]) -> Point:
        lead, lams = self._lead(given, given), self._lams(given)
        start = place(self._map(self.rule.first, [lam[0] for lam in lams]), lead[0])

        def step(previous, xs):
            here, inputs, lam = xs
            point = place(self._map(self.rule.follow(previous, inputs), lam), here)
            return point.free, point

        later = (lead[1:], self.rule.inputs, [lam[1:] for lam in lams])
        _, rest = jax.lax.scan(step, start.free, later)
        joined = [jnp.concatenate([a[None], b]) for a, b in zip(start[:2], rest[:2])]
        return Point(*(jnp.moveaxis(part, 0, self.rule.axis) for part in joined))

    def _each(self, free: Array, read: Callable[..., Array], *given: Array) -> Array:
        """A quantity from each element's own map at known values, for all elements at once."""
        lams, arrays = self._lams(free), [self._lead(array, free) for array in given]
        lead = self._lead(free, free)

        def one(map_: SiteMap, parts: list[Array], like: Array) -> Array:
            return jnp.broadcast_to(read(map_, *parts), like.shape)

        start = one(self._map(self.rule.first, [lam[0] for lam in lams]),
                    [array[0] for array in arrays], lead[0])  # fmt: skip

        def later(previous, inputs, lam, parts, like):
            return one(self._map(self.rule.follow(previous, inputs), lam), parts, like)

        rest = jax.vmap(later)(
            lead[:-1],
            self.rule.inputs,
            [lam[1:] for lam in lams],
            [array[1:] for array in arrays],
            lead[1:],
        )
        return jnp.moveaxis(jnp.concatenate([start[None], rest]), 0, self.rule.axis)

    def _map(self, rule: Any, lam: Any) -> SiteMap:
        loc, scale, reference, *more = lam
        map_ = rule.map(loc, scale, reference, None)
        if type(map_) is ElementMap and self.gain == QUADRATIC:  # data hold the first one, too
            map_ = SteadyMap(rule, loc, scale, reference)
        return replace(map_, gain=self.gain, **dict(zip(self._more, more)))
