"""Families with correlated elements: `u = loc + L e` with a triangular factor `L`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln
from numpyro.distributions.transforms import IdentityTransform, Transform, ZeroSumTransform

from autoreparam.program.families.registry import Standardization, register
from autoreparam.program.maps import CorrelatedMap, SiteMap, triangular
from autoreparam.program.traits import Coupling, Traits


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Correlated:
    """A site seen as `value = transform(loc + factor @ e)`, `factor` lower triangular.

    Args:
        loc: The location of each element.
        factor: The lower triangular factor of the covariance.
        noise: The distribution of each `e`.
        transform: From `u` to the value, element by element; the identity by default.
        follows: Whether the location depends on a vector of the same sequence before it.
    """

    loc: Any
    factor: Any
    noise: dist.Distribution
    transform: Transform = field(default_factory=IdentityTransform)
    follows: bool = field(default=False, metadata={"static": True})

    @property
    def scale(self) -> Any:
        """The scale of each element given those before it."""
        return triangular.diagonal(self.factor)

    @property
    def spread(self) -> Any:
        """The factor."""
        return self.factor

    @property
    def traits(self) -> Traits:
        """Elements depend on each other through the factor."""
        return Traits(Coupling.CORRELATED)

    def following(self) -> Correlated:
        """The same, where the location depends on vectors before it."""
        return replace(self, follows=True)

    def map(self, lam_loc: Any, lam_scale: Any, reference: Any, mask: Any = None) -> SiteMap:
        """The map of all elements of a vector together."""
        return CorrelatedMap(self, lam_loc, lam_scale, reference, mask)


@register(dist.MultivariateNormal)
def multivariate_normal(d: dist.MultivariateNormal) -> Correlated:
    """`value = loc + L e`, `L` the Cholesky factor of the covariance."""
    return Correlated(d.loc, d.scale_tril, dist.Normal(0.0, 1.0))


@register(dist.LowRankMultivariateNormal)
def low_rank(d: dist.LowRankMultivariateNormal) -> Correlated:
    """The same, with the Cholesky factor of the full covariance."""
    factor = jnp.linalg.cholesky(d.covariance_matrix)
    return Correlated(d.loc, factor, dist.Normal(0.0, 1.0))


@register(dist.CAR)
def car(d: dist.CAR) -> Correlated:
    """The same, with the factor of the inverse of the precision matrix."""
    whole = dist.MultivariateNormal(d.loc, precision_matrix=d.precision_matrix)
    return Correlated(d.loc, whole.scale_tril, dist.Normal(0.0, 1.0))


@register(dist.MultivariateStudentT)
def multivariate_student_t(d: dist.MultivariateStudentT) -> Correlated:
    """The same, with noise whose elements share one random scale."""
    return Correlated(d.loc, d.scale_tril, SphericalT(d.df, d.event_shape[0]))


@register(dist.ZeroSumNormal)
def zero_sum(d: dist.ZeroSumNormal) -> Standardization:
    """`value = scale * e` in coordinates of zero-sum arrays, with one element fewer per axis."""
    events = len(d.event_shape)
    scale = jnp.expand_dims(d.scale, tuple(range(-events, 0)))
    return Standardization(jnp.zeros(()), scale, dist.Normal(0.0, 1.0), ZeroSumTransform(events))


class SphericalT(dist.Distribution):
    """Vectors from a multivariate Student-t with unit factor; `log_prob` is split over elements."""

    support = dist.constraints.real
    pytree_data_fields = ("df",)
    pytree_aux_fields = ("size",)

    def __init__(self, df: Any, size: int):
        self.df, self.size = df, size
        super().__init__(batch_shape=(*jnp.shape(df), size))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Normal draws divided by the root of one chi-square draw per vector."""
        key_normal, key_chi2 = jax.random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        mixing = dist.Chi2(self.df).sample(key_chi2, sample_shape) / self.df
        return jax.random.normal(key_normal, shape) / jnp.sqrt(mixing)[..., None]

    def log_prob(self, value: Array) -> Array:
        """The log density of a vector, divided equally among its elements."""
        half, n = 0.5 * (self.df + self.size), self.size
        constant = gammaln(half) - gammaln(0.5 * self.df) - 0.5 * n * jnp.log(jnp.pi * self.df)
        joint = constant - half * jnp.log1p(jnp.sum(value**2, axis=-1) / self.df)
        return jnp.broadcast_to(joint[..., None] / n, (*jnp.shape(joint), n))
