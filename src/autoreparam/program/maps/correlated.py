"""The map of a site whose elements are correlated: `u = m + L e`, `L` lower triangular.

Element i has the location `m_i + Σ_(j<i) L_ij e_j` given those before it, and the scale
`d_i = L_ii`. With the gain `g_i` of `d_i` and the pull `p_i` of `gain.py` its coordinate is

    working_i = λ_i m_i + p_i Σ_(j<i) L_ij e_j + g_i e_i

so the rows of the factor are mixed with the identity: λ = 1 gives `u`, λ = 0 whitens, and the map
is invertible for every λ, since it is triangular with a positive diagonal. Where `d_i` is small, so
is the rest of its row, but not `m_i`: pulled in the same way, it would tie every vector to the
scale. In a sequence of vectors it is, but for an origin; `SteadyMap` says why.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from autoreparam.program.maps import triangular
from autoreparam.program.maps.element import Point, SiteMap, base, from_origin
from autoreparam.program.maps.gain import mixed, pull


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CorrelatedMap(SiteMap):
    """The map of a vector whose elements are correlated."""

    def point(self, working: Array) -> Point:
        """The point at working coordinates."""
        own = working - base(self) - self._pull() * from_origin(self)
        right = own / (self._relative() * self.reference)
        return self.point_of_noise(triangular.solve(self._mixed(), right))

    def point_of_noise(self, noise: Array) -> Point:
        """The point at `e`."""
        return Point(noise, self.rule.loc + triangular.multiply(self.rule.factor, noise))

    def point_of_free(self, free: Array) -> Point:
        """The point at `u`."""
        return Point(triangular.solve(self.rule.factor, free - self.rule.loc), free)

    def working(self, point: Point) -> Array:
        """Working coordinates of a point."""
        wide = triangular.multiply(self._mixed(), point.noise) * self._relative() * self.reference
        return base(self) + self._pull() * from_origin(self) + wide

    def log_stretch(self, point: Point) -> Array:
        """`log |d working / d e|` of each element."""
        return self._log_gain()

    def log_scale(self, point: Point) -> Array:
        """`log |du / de|` of each element."""
        return jnp.log(self.rule.scale)

    def _pull(self) -> Array:
        """What one unit of location adds to the working coordinate."""
        if not self.rule.follows:
            return self.lam_loc
        return pull(self.gain, self.lam_loc, self._ratio(), self._relative())

    def _mixed(self) -> Array:
        """The factor with a diagonal of ones, and below it multiplied as the pull says."""
        factor = self.rule.factor
        own = jnp.eye(factor.shape[-1], dtype=bool)
        below = mixed(self.gain, self.lam_loc, self._ratio(), self._relative())
        # The derivative of a quotient has the square of the scale, which may be zero or infinite.
        below *= jnp.exp(-jnp.log(self.rule.scale))
        return jnp.where(own, 1.0, factor * below[..., :, None])
