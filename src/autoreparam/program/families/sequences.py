"""Families that are sequences: each element has a location and a scale given the one before."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.tree_util import Partial
from numpyro.distributions.transforms import IdentityTransform, Transform

from autoreparam.program.families.multivariate import Correlated
from autoreparam.program.families.registry import (
    Sequential,
    Standardization,
    Unsupported,
    register,
    standardize,
)
from autoreparam.program.maps import SequenceMap, SiteMap
from autoreparam.program.traits import Coupling, Traits

UNIT = dist.Normal(0.0, 1.0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sequence:
    """A site whose elements along `axis` follow each other.

    `first` is the rule of the first one, `follow(previous, input)` that of each later one given the
    value before it; `inputs` has one entry per later element.

    Args:
        first: The rule of the first element.
        follow: The rule of an element, given those before and its inputs.
        inputs: What each step is given.
        length: The number of elements.
        axis: The axis they lie along, counted from the end.
    """

    first: Any
    follow: Any
    inputs: Any
    length: int = field(metadata={"static": True})
    axis: int = field(metadata={"static": True})  # counted from the end

    @property
    def noise(self) -> dist.Distribution:
        """Unit Normals."""
        return UNIT

    @property
    def transform(self) -> Transform:
        """None: values are unconstrained."""
        return IdentityTransform()

    @property
    def loc(self) -> Any:
        """The location of the first element."""
        return self.first.loc

    @property
    def spread(self) -> Any:
        """Everything the steps are computed from."""
        return self.first.spread, self.follow, self.inputs

    @property
    def scale(self) -> Any:
        """The scale of each element along the path without noise."""
        first = jnp.broadcast_arrays(self.first.loc, self.first.scale)

        def step(previous, inputs):
            rule = self.follow(previous, inputs)
            loc, scale = jnp.broadcast_arrays(rule.loc, rule.scale)
            return loc, scale

        _, later = jax.lax.scan(step, first[0], self.inputs, length=self.length - 1)
        return jnp.moveaxis(jnp.concatenate([first[1][None], later]), 0, self.axis)

    @property
    def traits(self) -> Traits:
        """Each element depends on the one before it."""
        return Traits(Coupling.SEQUENCE)

    def map(self, lam_loc: Any, lam_scale: Any, reference: Any, mask: Any = None) -> SiteMap:
        """The map of the whole sequence."""
        return SequenceMap(self, lam_loc, lam_scale, reference, mask)


@register(dist.GaussianRandomWalk)
def random_walk(d: dist.GaussianRandomWalk) -> Sequence:
    """`x_0 = scale e_0`, `x_t = x_(t-1) + scale e_t`."""
    scale = jnp.asarray(d.scale)

    def follow(scale, previous, _):
        return Sequential(previous, scale, UNIT)

    first = Standardization(jnp.zeros_like(scale), scale, UNIT)
    return Sequence(first, Partial(follow, scale), None, d.num_steps, -1)


@register(dist.GaussianStateSpace)
def state_space(d: dist.GaussianStateSpace) -> Sequence:
    """`z_t = A z_(t-1) + L e_t`, from the initial value."""

    def follow(matrix, factor, previous, _):
        return Correlated(previous @ matrix.T, factor, UNIT, follows=True)

    step = Partial(follow, jnp.asarray(d.transition_matrix), d.scale_tril)
    return Sequence(step(d.initial_value, None), step, None, d.num_steps, -2)


@register(dist.EulerMaruyama)
def euler_maruyama(d: dist.EulerMaruyama) -> Sequence:
    """`x_(t+h) = x_t + h f(x_t, t) + sqrt(h) g(x_t, t) e`, from a draw of the initial value."""
    first: Any = standardize(d.init_dist)
    if (
        first.traits.coupling is Coupling.SEQUENCE
        or not isinstance(first.noise, dist.Normal)
        or not isinstance(first.transform, IdentityTransform)
    ):
        raise Unsupported("an EulerMaruyama process whose initial distribution is not Normal")
    first = replace(first, loc=jnp.broadcast_to(first.loc, d.init_dist.shape()))
    events = d.event_dim - 1

    def follow(previous, inputs, drift):
        time, step = inputs
        shape = previous.shape[: previous.ndim - events]

        def one(value, time):
            f, g = drift(value, time)
            return jnp.broadcast_to(f, value.shape), jnp.broadcast_to(g, value.shape)

        for _ in shape:
            one = jax.vmap(one)
        f, g = one(previous, jnp.broadcast_to(time, shape))
        step = jnp.expand_dims(step, tuple(range(-events, 0)))
        return Sequential(previous + step * f, jnp.sqrt(step) * g, UNIT)

    times = jnp.moveaxis(jnp.asarray(d.t), -1, 0)
    inputs = (times[:-1], jnp.diff(times, axis=0))
    follow = Partial(partial(follow, drift=d.sde_fn))
    return Sequence(first, follow, inputs, times.shape[0], -d.event_dim)
