"""The map between working coordinates, noise and values of one site at one λ.

With `loc = m`, `scale = s`, noise `e`, and the reference scale `s0`:

    working = λ m + s0 (s / s0)^λ e        value = transform(m + s e)

The first λ (of the location) and the second (of the scale) are the same unless untied.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from autoreparam.program.families import Standardization


class WorkingMap(NamedTuple):
    """One site's standardization with its λ: noise <-> working coordinates <-> value."""

    rule: Standardization
    lam_loc: Any
    lam_scale: Any
    reference: Any

    def noise(self, working: Array) -> Array:
        """`e` at working coordinates."""
        # Multiplying by exp(-λ log(s/s0)) is cheaper than dividing by a power.
        shrink = jnp.exp(-self.lam_scale * self._log_ratio()) / self.reference
        return (working - self.lam_loc * self.rule.loc) * shrink

    def working(self, noise: Array) -> Array:
        """Working coordinates of `e`."""
        return self.lam_loc * self.rule.loc + noise * jnp.exp(self.log_stretch())

    def value(self, noise: Array) -> Array:
        """The model's own value at `e`."""
        return self.rule.transform(self.rule.loc + self.rule.scale * noise)

    def noise_of_value(self, value: Array) -> Array:
        """`e` at the model's own value."""
        return (self.rule.transform.inv(value) - self.rule.loc) / self.rule.scale

    def log_stretch(self) -> Array:
        """`log |d working / d e|` of each element."""
        return self.lam_scale * self._log_ratio() + jnp.log(self.reference)

    def log_prob(self, noise: Array) -> Array:
        """The log density of the working coordinates of `e`, element by element."""
        return self.rule.noise.log_prob(noise) - self.log_stretch()

    def log_det(self, noise: Array) -> Array:
        """`log |d value / d working|` of each element."""
        unconstrained = self.rule.loc + self.rule.scale * noise
        value = self.rule.transform(unconstrained)
        constrain = self.rule.transform.log_abs_det_jacobian(unconstrained, value)
        return jnp.log(self.rule.scale) - self.log_stretch() + constrain

    def _log_ratio(self) -> Array:
        return jnp.log(self.rule.scale / self.reference)


class WorkingDistribution(dist.Distribution):
    """The distribution of a site's working coordinates, one independent real per element."""

    support = constraints.real
    pytree_data_fields = ("map",)

    def __init__(self, map: WorkingMap, shape: tuple[int, ...]):
        self.map = map
        super().__init__(batch_shape=shape)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws noise and moves it to working coordinates."""
        shape = sample_shape + self.batch_shape
        draws = self.map.rule.noise.expand(self.batch_shape).sample(key, sample_shape)
        return jnp.broadcast_to(self.map.working(draws), shape)

    def log_prob(self, value: Array) -> Array:
        """The log density of each element."""
        return self.map.log_prob(self.map.noise(value))


def site_map(rule: Standardization, lam, name: str) -> WorkingMap:
    """The map of a site under the parameterization `lam`."""
    return WorkingMap(rule, lam[name], lam.scale[name], lam.reference[name])


