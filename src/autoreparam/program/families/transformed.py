"""Element-wise bijections of a registered base: LogNormal, and anything else users compose."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    IdentityTransform,
)

from autoreparam.program.families.registry import (
    Standardization,
    Standardized,
    Unsupported,
    register,
    standardize,
)
from autoreparam.program.traits import Coupling


@register(dist.TransformedDistribution)
def transformed(d: dist.TransformedDistribution) -> Standardized:
    """The base's standardization, with the transforms appended to its own.

    Leading affine steps become part of the location and the scale, so that `AffineTransform(mu,
    tau)` of a unit Normal is a `Normal(mu, tau)` here too.
    """
    rule: Any = standardize(d.base_dist)
    if rule.traits.coupling is Coupling.SEQUENCE:
        raise Unsupported(f"a transformed {type(d.base_dist).__name__}")
    steps = _flat([rule.transform, *d.transforms])
    if isinstance(rule, Standardization):
        rule = replace(rule, shape_parameters=None)  # those of the base
        # Only with symmetric noise may a step of unknown sign become part of the scale.
        while rule.symmetric and steps and isinstance(steps[0], AffineTransform):
            step = steps.pop(0)
            loc, scale = step.loc + step.scale * rule.loc, jnp.abs(step.scale) * rule.scale
            rule = replace(rule, loc=loc, scale=scale)
    for step in steps:
        if step.domain.event_dim or step.codomain.event_dim:
            raise Unsupported(f"{type(step).__name__} does not act on each element separately")
        if isinstance(step, AbsTransform):
            raise Unsupported("AbsTransform cannot be undone")
    if len(steps) == 1:
        return replace(rule, transform=steps[0])
    return replace(rule, transform=ComposeTransform(steps) if steps else IdentityTransform())


def _flat(transforms) -> list:
    """The individual steps of nested compositions, without identities."""
    steps = []
    for step in transforms:
        if isinstance(step, ComposeTransform):
            steps += _flat(step.parts)
        elif not isinstance(step, IdentityTransform):
            steps.append(step)
    return steps
