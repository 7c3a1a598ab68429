"""The map of a site whose elements are correlated: `u = m + L e`, `L` lower triangular.

Element i has the location `m_i + Σ_(j<i) L_ij e_j` given those before it, and the scale
`d_i = L_ii`. Its working coordinate is

    working_i = λ_i m_i + (d_i / s0_i)^(λ_i - 1) (λ_i Σ_(j<i) L_ij e_j + d_i e_i)

so the rows of the factor are mixed with the identity: λ = 1 gives `u`, λ = 0 whitens, and the map
is invertible for every λ, since it is triangular with a positive diagonal. Where `d_i` is small, so
is the rest of its row, but not `m_i`: multiplied by the same power, it would tie every vector to
the scale. In a sequence of vectors it is, but for an origin; `SteadyMap` says why.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from autoreparam.program.maps import triangular
from autoreparam.program.maps.element import Point, SiteMap, base, from_origin


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CorrelatedMap(SiteMap):
    """The map of a vector whose elements are correlated."""

    def point(self, working: Array) -> Point:
        """The point at working coordinates."""
        own = working - base(self) - self._pull() * from_origin(self)
        right = own / jnp.exp(self._log_gain())
        return self.point_of_noise(triangular.solve(self._mixed(), right))

    def point_of_noise(self, noise: Array) -> Point:
        """The point at `e`."""
        return Point(noise, self.rule.loc + triangular.multiply(self.rule.factor, noise))

    def point_of_free(self, free: Array) -> Point:
        """The point at `u`."""
        return Point(triangular.solve(self.rule.factor, free - self.rule.loc), free)

    def working(self, point: Point) -> Array:
        """Working coordinates of a point."""
        mixed = triangular.multiply(self._mixed(), point.noise)
        location = base(self) + self._pull() * from_origin(self)
        return location + jnp.exp(self._log_gain()) * mixed

    def log_stretch(self, point: Point) -> Array:
        """`log |d working / d e|` of each element."""
        return self.lam_scale * self._log_ratio() + jnp.log(self.reference)

    def log_scale(self, point: Point) -> Array:
        """`log |du / de|` of each element."""
        return jnp.log(self.rule.scale)

    def _pull(self) -> Array:
        """What one unit of location adds to the working coordinate."""
        return self.lam_loc * jnp.exp(self._log_gain()) if self.rule.follows else self.lam_loc

    def _mixed(self) -> Array:
        """The factor with everything below its diagonal multiplied by λ."""
        factor = self.rule.factor
        own = jnp.eye(factor.shape[-1], dtype=bool)
        return factor * jnp.where(own, 1.0, self.lam_loc[..., :, None])

    def _log_gain(self) -> Array:
        return (self.lam_scale - 1) * self._log_ratio()

    def _log_ratio(self) -> Array:
        return jnp.log(self.rule.scale / self.reference)
