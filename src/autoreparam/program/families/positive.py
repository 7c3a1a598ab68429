"""Positive scale families: `value = c * w`, a shift by `log c` on the log scale.

Where a shape parameter says how wide the logarithm is, the logarithm has a scale, too.
"""

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions.transforms import AffineTransform, ExpTransform

from autoreparam.program.families.registry import (
    Pulled,
    Standardization,
    exp_from,
    log_noise,
    log_shift,
    register,
)
from autoreparam.program.families.standard import (
    StandardLogGamma,
    log_gamma_loc,
    log_gamma_scale,
)
from autoreparam.program.maps.tails import LogGamma


@register(dist.HalfNormal, dist.HalfCauchy)
def half(d) -> Standardization:
    """`value = scale * w`."""
    return log_shift(jnp.log(d.scale), type(d)(1.0))


@register(dist.Exponential)
def exponential(d: dist.Exponential) -> Standardization:
    """`value = w / rate`."""
    return log_shift(-jnp.log(d.rate), dist.Exponential(1.0))


@register(dist.Gamma)
def gamma(d: dist.Gamma) -> Standardization:
    """`log value = loc + scale * e`; the concentration says how wide it is."""
    scale = log_gamma_scale(d.concentration)
    return Standardization(
        log_gamma_loc(d.concentration, d.rate),
        scale,
        StandardLogGamma(d.concentration),
        ExpTransform(),
        LogGamma(d.concentration, scale),
    )


@register(dist.InverseGamma)
def inverse_gamma(d: dist.InverseGamma) -> Standardization:
    """One over a Gamma variable: its logarithm with the sign changed."""
    noise = dist.TransformedDistribution(
        StandardLogGamma(d.concentration), AffineTransform(0.0, -1.0)
    )
    loc = -log_gamma_loc(d.concentration, d.rate)
    return Standardization(loc, log_gamma_scale(d.concentration), noise, ExpTransform())


@register(dist.Weibull)
def weibull(d: dist.Weibull) -> Standardization:
    """`log value = log scale + e / concentration`, `e` the log of a unit exponential."""
    return Standardization(
        jnp.log(d.scale),
        1.0 / d.concentration,
        log_noise(dist.Exponential(1.0)),
        ExpTransform(),
    )


@register(dist.Pareto)
def pareto(d: dist.Pareto) -> Standardization:
    """`value = scale * w` with `w > 1`: the shift is on the scale of `log(value - scale)`."""
    noise = Pulled(dist.Pareto(1.0, d.alpha), exp_from(1.0))
    return Standardization(jnp.log(d.scale), jnp.ones(()), noise, exp_from(d.scale))


@register(dist.Gompertz)
def gompertz(d: dist.Gompertz) -> Standardization:
    """`value = w / rate`; the concentration stays with the noise."""
    return log_shift(-jnp.log(d.rate), dist.Gompertz(d.concentration, 1.0))


@register(dist.Levy)
def levy(d: dist.Levy) -> Standardization:
    """`value = loc + scale * w`: the shift is on the scale of `log(value - loc)`."""
    return log_shift(jnp.log(d.scale), dist.Levy(0.0, 1.0), lower=d.loc)


@register(dist.Dagum)
def dagum(d: dist.Dagum) -> Standardization:
    """`log value = log scale + e / sharpness`; the concentration stays with the noise."""
    return Standardization(
        jnp.log(d.scale),
        1.0 / d.sharpness,
        log_noise(dist.Dagum(d.concentration, 1.0, 1.0)),
        ExpTransform(),
    )
