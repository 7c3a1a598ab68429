"""The map between working coordinates, noise and values of one site at one λ.

With `loc = m`, `scale = s`, noise `e`, and the reference scale `s0`:

    working = λ m + s0 (s / s0)^λ e        value = transform(m + s e)

The first λ (of the location) and the second (of the scale) are the same unless untied.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.custom_derivatives import SymbolicZero
from numpyro.distributions import constraints

from autoreparam.program.families import Standardization


class WorkingMap(NamedTuple):
    """One site's standardization with its λ: noise <-> working coordinates <-> value."""

    rule: Standardization
    lam_loc: Any
    lam_scale: Any
    reference: Any
    mask: Any = None

    def noise(self, working: Array) -> Array:
        """`e` at working coordinates."""
        args = (working, self.rule.loc, self._log_ratio(), self.lam_loc, self.lam_scale)
        return _shrink(*map(jnp.asarray, args), jnp.asarray(self.reference))

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

    def total_log_prob(self, noise: Array) -> Array:
        """The sum of `log_prob`; cheaper, since scales are mostly scalars."""
        ones = noise.size // jnp.size(self.reference)
        stretch = _sum_of_product(jnp.asarray(self.lam_scale), self._log_ratio())
        log_reference = ones * jnp.sum(jnp.log(self.reference))
        return jnp.sum(self.rule.noise.log_prob(noise)) - stretch - log_reference

    def log_det(self, noise: Array) -> Array:
        """`log |d value / d working|` of each element."""
        unconstrained = self.rule.loc + self.rule.scale * noise
        value = self.rule.transform(unconstrained)
        constrain = self.rule.transform.log_abs_det_jacobian(unconstrained, value)
        return jnp.log(self.rule.scale) - self.log_stretch() + constrain

    def _log_ratio(self) -> Array:
        return jnp.log(self.rule.scale / self.reference)


@jax.custom_jvp
def _shrink(working, loc, log_ratio, lam_loc, lam_scale, reference) -> Array:
    """`(working - λ m) exp(-λ log(s / s0)) / s0`: cheaper than dividing by a power."""
    return (working - lam_loc * loc) * (jnp.exp(-lam_scale * log_ratio) / reference)


@partial(_shrink.defjvp, symbolic_zeros=True)
def _(primals, tangents):
    # Written out so that the exponential is evaluated once, and not again for the gradient; signs
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


def _sum_of_product(full: Array, small: Array) -> Array:
    """`sum(full * small)` for a `small` that broadcasts to `full`, without spreading it out."""
    small = jnp.reshape(small, (1,) * (full.ndim - jnp.ndim(small)) + jnp.shape(small))
    spread = tuple(i for i in range(full.ndim) if small.shape[i] != full.shape[i])
    return jnp.sum(jnp.sum(full, axis=spread, keepdims=True) * small)


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


def site_map(rule: Standardization, lam, name: str, mask: Any = None) -> WorkingMap:
    """The map of a site under the parameterization `lam`.

    Elements that are masked out stay centered. Their density is flat in the value, which has no
    scale: in other coordinates they would pull the scale of the site towards infinity.
    """
    lam_loc, lam_scale = lam[name], lam.scale[name]
    if mask is not None:
        lam_loc, lam_scale = jnp.where(mask, lam_loc, 1.0), jnp.where(mask, lam_scale, 1.0)
    return WorkingMap(rule, lam_loc, lam_scale, lam.reference[name], mask)
