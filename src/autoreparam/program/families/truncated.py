"""Families truncated at bounds or folded at zero: shifted in the coordinates of their support.

`asinh(x / 2)` is the log of the positive root of `r**2 - x r - 1`: about `log x` for a location far
inside the bound and `-log|x|` far outside, like the log mean of a truncated Normal. Bounds that
depend on latents use their current values.
"""

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    SigmoidTransform,
)

from autoreparam.program.families.registry import (
    Standardization,
    Unsupported,
    exp_from,
    register,
    shift,
)


@register(dist.LeftTruncatedDistribution)
def left_truncated(d: dist.LeftTruncatedDistribution) -> Standardization:
    """`value = low + exp(u)`, shifted by the log of the distance from the bound to the mass."""
    loc, scale = d.base_dist.loc, d.base_dist.scale
    return shift(d, exp_from(d.low), jnp.log(scale) + jnp.arcsinh((loc - d.low) / (2 * scale)))


@register(dist.RightTruncatedDistribution)
def right_truncated(d: dist.RightTruncatedDistribution) -> Standardization:
    """`value = high - exp(u)`, the mirror image of the left truncated rule."""
    loc, scale = d.base_dist.loc, d.base_dist.scale
    below = ComposeTransform([ExpTransform(), AffineTransform(d.high, -1.0)])
    return shift(d, below, jnp.log(scale) + jnp.arcsinh((d.high - loc) / (2 * scale)))


@register(dist.TwoSidedTruncatedDistribution)
def two_sided_truncated(d: dist.TwoSidedTruncatedDistribution) -> Standardization:
    """`value = low + (high - low) * sigmoid(u)`, shifted by the log odds of the distances."""
    loc, scale = d.base_dist.loc, d.base_dist.scale
    between = ComposeTransform([SigmoidTransform(), AffineTransform(d.low, d.high - d.low)])
    from_low = jnp.arcsinh((loc - d.low) / (2 * scale))
    from_high = jnp.arcsinh((d.high - loc) / (2 * scale))
    return shift(d, between, from_low - from_high)


@register(dist.FoldedDistribution)
def folded(d: dist.FoldedDistribution) -> Standardization:
    """`value = exp(u)`, shifted by the log of the base's scale."""
    if not hasattr(d.base_dist, "scale"):
        raise Unsupported(f"a folded {type(d.base_dist).__name__} has no scale")
    return shift(d, ExpTransform(), jnp.log(d.base_dist.scale))
