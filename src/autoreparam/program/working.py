"""A site in working coordinates: its map under a parameterization, and its distribution there."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.batch_util import promote_batch_shape

from autoreparam.program.centering import Centering
from autoreparam.program.families import Standardized
from autoreparam.program.maps import SiteMap


class WorkingDistribution(dist.Distribution):
    """The distribution of a site's working coordinates, one real number per element."""

    support = constraints.real
    pytree_data_fields = ("map",)

    def __init__(self, map: SiteMap, shape: tuple[int, ...]):
        self.map = map
        super().__init__(batch_shape=shape)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws noise and moves it to working coordinates."""
        draws = self.map.rule.noise.expand(self.batch_shape).sample(key, sample_shape)
        working = self.map.working(self.map.point_of_noise(draws))
        return jnp.broadcast_to(working, sample_shape + self.batch_shape)

    def log_prob(self, value: Array) -> Array:
        """The log density of each element."""
        return self.map.log_prob(self.map.point(value))


class _Stacked(WorkingDistribution):
    """The working distributions of all steps of a `scan`, whose parameters came out stacked."""

    def log_prob(self, value: Array) -> Array:
        """The log density of each element, step by step."""
        return jax.vmap(WorkingDistribution.log_prob)(self, value)


@promote_batch_shape.register
def _(d: WorkingDistribution):
    length = jnp.shape(jax.tree.leaves(d.map)[0])[0]
    return _Stacked(d.map, (length, *d.batch_shape))


def site_map(rule: Standardized, lam: Centering, mask: Any = None) -> SiteMap:
    """The map of a site under its λ.

    Elements that are masked out stay centered. Their density is flat in the value and has no scale:
    in other coordinates they would pull the scale of the site toward infinity.
    """
    if mask is not None:
        tail = None if lam.tail is None else jnp.where(mask, lam.tail, 0.0)
        loc, scale = jnp.where(mask, lam.loc, 1.0), jnp.where(mask, lam.scale, 1.0)
        tight = None if lam.tight is None else jnp.where(mask, lam.tight, 1.0)
        lam = replace(lam, loc=loc, scale=scale, tail=tail, tight=tight)
    map_ = rule.map(lam.loc, lam.scale, lam.reference, mask)
    more = {"tail": lam.tail, "origin": lam.origin, "tight": lam.tight, "gain": lam.gain}
    return replace(map_, **{name: one for name, one in more.items() if one is not None})


def per_element(scale: Any, event_dim: int) -> Any:
    """The factor of a `scale` handler, shaped to multiply the elements of a site's value."""
    if scale is None or jnp.ndim(scale) == 0:
        return scale
    return jnp.reshape(scale, jnp.shape(scale) + (1,) * event_dim)


def temper(log_prob: Array, log_det: Array, scale: Any, mask: Any) -> Array:
    """Working log density of a site whose own density is scaled or masked.

    The density of the values is scaled, the Jacobian is not: `c log p(z) + log |dz / d working|`.
    """
    weight: Any = 1.0 if scale is None else scale
    if mask is None:
        return weight * (log_prob - log_det) + log_det
    return jnp.where(mask, weight * (log_prob - log_det), 0.0) + log_det
