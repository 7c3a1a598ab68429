"""Families of shares: a probability, or the parts of a whole."""

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions.transforms import SigmoidTransform, StickBreakingTransform

from autoreparam.program.families.registry import Standardization, Unsupported, register
from autoreparam.program.families.standard import (
    StandardLogitBeta,
    logit_beta_loc,
    logit_beta_scale,
)


@register(dist.Beta)
def beta(d: dist.Beta) -> Standardization:
    """`logit value = loc + scale * e`; both concentrations say how wide it is."""
    a, b = d.concentration1, d.concentration0
    return Standardization(
        logit_beta_loc(a, b), logit_beta_scale(a, b), StandardLogitBeta(a, b), SigmoidTransform()
    )


@register(dist.Dirichlet)
def dirichlet(d: dist.Dirichlet) -> Standardization:
    """What each part takes of what those before it have left: independent Beta variables."""
    if d.event_shape[0] < 2:
        raise Unsupported("a Dirichlet of one part")
    a, others = d.concentration[..., :-1], d.concentration[..., :0:-1]
    rest = jnp.cumsum(others, axis=-1)[..., ::-1]
    left = jnp.arange(a.shape[-1], 0, -1)  # parts after this one; logits are zero at equal shares
    loc = logit_beta_loc(a, rest) + jnp.log(left)
    return Standardization(
        loc, logit_beta_scale(a, rest), StandardLogitBeta(a, rest), StickBreakingTransform()
    )
