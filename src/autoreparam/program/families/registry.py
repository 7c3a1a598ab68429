"""The open table of rules: distribution type -> how its elements standardize.

A rule takes a distribution and returns a `Standardization`. Registering one is all it takes to
support a family:

    @register(dist.Normal)
    def normal(d):
        return Standardization(d.loc, d.scale, dist.Normal(0.0, 1.0))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array, lax
from numpyro.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IdentityTransform,
    Transform,
)

from autoreparam.errors import AutoreparamError
from autoreparam.program.maps import ElementMap, SiteMap, SteadyMap
from autoreparam.program.traits import Traits


class Standardized(Protocol):
    """A site seen as `value = transform(u)` with `u` a function of noise `e`.

    `loc` and `scale` broadcast against `u`; `spread` is a pytree of all that scales and dependence
    between elements are computed from. `traits` is what other rooms need to know of the family.
    """

    @property
    def loc(self) -> Any: ...  # noqa: D102

    @property
    def scale(self) -> Any: ...  # noqa: D102

    @property
    def noise(self) -> dist.Distribution: ...  # noqa: D102

    @property
    def transform(self) -> Transform: ...  # noqa: D102

    @property
    def spread(self) -> Any: ...  # noqa: D102

    @property
    def traits(self) -> Traits: ...  # noqa: D102

    def map(self, lam_loc: Any, lam_scale: Any, reference: Any, mask: Any) -> SiteMap:
        """The map between noise, working coordinates and values at one λ."""
        ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Standardization:
    """A site seen as `value = transform(u)`, `u = loc + scale * e`, with `e` drawn from `noise`.

    `loc` and `scale` broadcast against `u`; `noise` is univariate and may keep shape parameters
    (degrees of freedom, a concentration); `transform` acts on each element separately, or is that
    of a value with more elements than are free.
    `tails` is for noise with heavy tails: a coordinate in which they are light (`maps/tails.py`),
    or, for Student-t tails, one over the degrees of freedom. `symmetric` says that `-e` has
    the law of `e`; `shape_parameters` are the names of what the family is constructed from beside
    `loc` and `scale`, None where it is not made from these two.

    Args:
        loc: The location, computed from the distribution's parameters.
        scale: The scale, positive.
        noise: The distribution of `e`, with what neither shifts nor stretches.
        transform: From `u` to the value, element by element; the identity by default.
        tails: What heavy tails are like, where they are; None for light ones.
        symmetric: Whether `-e` has the law of `e`.
        shape_parameters: What the family is made from beside location and scale; None if it cannot
            be said.
    """

    loc: Any
    scale: Any
    noise: dist.Distribution
    transform: Transform = field(default_factory=IdentityTransform)
    tails: Any = None
    symmetric: bool = field(default=False, kw_only=True, metadata={"static": True})
    shape_parameters: tuple[str, ...] | None = field(
        default=None, kw_only=True, metadata={"static": True}
    )

    @property
    def spread(self) -> Any:
        """The scale alone."""
        return self.scale

    @property
    def traits(self) -> Traits:
        """Elements are independent given location and scale."""
        return Traits(heavy=self.tails is not None, shape_parameters=self.shape_parameters)

    def map(self, lam_loc: Any, lam_scale: Any, reference: Any, mask: Any = None) -> SiteMap:
        """The map of each element on its own."""
        return ElementMap(self, lam_loc, lam_scale, reference, mask)

    def following(self) -> Standardization:
        """The same, where the location depends on elements before it."""
        return Sequential(**vars(self))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sequential(Standardization):
    """The same, for elements whose location depends on the elements before them.

    Args:
        loc: The location, computed from the distribution's parameters.
        scale: The scale, positive.
        noise: The distribution of `e`, with what neither shifts nor stretches.
        transform: From `u` to the value, element by element; the identity by default.
        tails: What heavy tails are like, where they are; None for light ones.
        symmetric: Whether `-e` has the law of `e`.
        shape_parameters: What the family is made from beside location and scale; None if it cannot
            be said.
    """

    def map(self, lam_loc: Any, lam_scale: Any, reference: Any, mask: Any = None) -> SiteMap:
        """A map that does not explode along a sequence."""
        return SteadyMap(self, lam_loc, lam_scale, reference, mask)


class Unsupported(Exception):  # noqa: N818 - a message to `inspect`, never shown as an error
    """Says in words why a distribution cannot be standardized."""


Rule = Callable[[Any], Standardized]
_RULES: dict[type, Rule] = {}


def register(*types: type[dist.Distribution]) -> Callable[[Rule], Rule]:
    """A decorator that registers a rule for the given distribution types and their subclasses.

    Args:
        types: The distributions that the rule is for.
    """

    if not types or not all(
        isinstance(t, type) and issubclass(t, dist.Distribution) for t in types
    ):
        found = ", ".join(map(repr, types)) or "none"
        raise AutoreparamError(
            f"register: expected distribution classes; found {found}. Write "
            "@ar.register(dist.Normal)."
        )

    def add(rule: Rule) -> Rule:
        for type_ in types:
            _RULES[type_] = rule
        return rule

    return add


def registered() -> tuple[type, ...]:
    """The distribution types that have a rule."""
    return tuple(_RULES)


def standardize(fn: dist.Distribution, *, sequential: bool = False) -> Standardized:
    """The standardization of a distribution by the most specific rule for its type.

    `sequential` is for a site inside a loop, whose location may depend on its own past. Raises
    `Unsupported`, with the reason, if there is no rule.

    Args:
        fn: The distribution.
        sequential: Whether its elements follow others of the same site, as inside `scan`.
    """
    base = unwrap(fn)[0]
    for type_ in type(base).__mro__:
        if type_ in _RULES:
            rule = _applied(type_, base)
            return rule.following() if sequential and hasattr(rule, "following") else rule
    raise Unsupported(f"no rule for the {type(base).__name__} family")


def _applied(type_: type, base: dist.Distribution) -> Standardized:
    """What the rule of a type says about a distribution; an error that names it if it fails."""
    try:
        rule = _RULES[type_](base)
    except (Unsupported, AutoreparamError):
        raise
    except Exception as error:
        raise AutoreparamError(
            f"the rule for {type_.__name__} failed: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(rule, "map"):
        raise AutoreparamError(
            f"the rule for {type_.__name__} returned {type(rule).__name__}; expected an "
            "ar.Standardization, or families.Correlated or families.Sequence"
        )
    return rule


def unwrap(fn: dist.Distribution) -> tuple[dist.Distribution, Any]:
    """The distribution inside `expand`, `to_event` and `mask`, and the mask of its elements.

    Both the parameters of the inner distribution and the mask broadcast against the outer one's
    values. The mask is None where there was none.

    Args:
        fn: The distribution.
    """
    mask = None
    while isinstance(fn, dist.MaskedDistribution | dist.ExpandedDistribution | dist.Independent):
        if isinstance(fn, dist.MaskedDistribution):
            inner = jnp.asarray(fn._mask)
            inner = inner.reshape(inner.shape + (1,) * (fn.event_dim if inner.ndim else 0))
            mask = inner if mask is None else jnp.logical_and(mask, inner)
        fn = fn.base_dist
    return fn, mask


class Pulled(dist.Distribution):
    """The distribution of `e` where `transform(loc + e)` is drawn from `base`.

    TransformedDistribution would unwrap a transformed `base` and lose its own density.
    """

    support = dist.constraints.real
    pytree_data_fields = ("base", "loc", "transform")

    def __init__(self, base: dist.Distribution, transform: Transform, loc: Any = 0.0):
        self.base, self.transform, self.loc = base, transform, loc
        super().__init__(batch_shape=lax.broadcast_shapes(base.batch_shape, jnp.shape(loc)))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws from the base, mapped to `e`."""
        draws = self.base.expand(self.batch_shape).sample(key, sample_shape)
        return self.transform.inv(draws) - self.loc

    def log_prob(self, value: Array) -> Array:
        """The base's density at `transform(loc + e)`, times the Jacobian."""
        point = self.loc + value
        image = self.transform(point)
        return self.base.log_prob(image) + self.transform.log_abs_det_jacobian(point, image)


def log_noise(base: dist.Distribution) -> dist.Distribution:
    """The distribution of `log w` for `w` drawn from a positive distribution.

    Args:
        base: The positive distribution.
    """
    return Pulled(base, ExpTransform())


def log_shift(log_center: Array, base: dist.Distribution, lower: Any = None) -> Standardization:
    """A positive scale family `value = lower + exp(log_center) * w`: a shift of `log w`.

    Args:
        log_center: The logarithm of the scale.
        base: The distribution of `w`.
        lower: Where values begin; None for 0.
    """
    return Standardization(log_center, jnp.ones(()), log_noise(base), exp_from(lower))


def shift(d: dist.Distribution, transform: Transform, loc: Array) -> Standardization:
    """Any family shifted by `loc` in the coordinates `u` of `value = transform(u)`.

    Args:
        d: The distribution of the value.
        transform: From `u` to the value.
        loc: The shift.
    """
    return Standardization(loc, jnp.ones(()), Pulled(d, transform, loc), transform)


def exp_from(lower: Any = None) -> Transform:
    """`u -> lower + exp(u)`.

    Args:
        lower: Where values begin; None for 0.
    """
    if lower is None:
        return ExpTransform()
    return ComposeTransform([ExpTransform(), AffineTransform(lower, 1.0)])
