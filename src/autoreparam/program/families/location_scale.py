"""Families on the whole line: the value itself is `loc + scale * e`."""

import jax.numpy as jnp
import numpyro.distributions as dist

from autoreparam.program.families.registry import Standardization, register


@register(dist.Normal, dist.Laplace, dist.Logistic, dist.SoftLaplace)
def symmetric(d) -> Standardization:
    """`value = loc + scale * e`, and `-e` has the law of `e`."""
    noise = type(d)(0.0, 1.0)
    return Standardization(d.loc, d.scale, noise, symmetric=True, shape_parameters=())


@register(dist.Gumbel)
def gumbel(d: dist.Gumbel) -> Standardization:
    """`value = loc + scale * e`."""
    return Standardization(d.loc, d.scale, dist.Gumbel(0.0, 1.0), shape_parameters=())


@register(dist.StudentT)
def student_t(d: dist.StudentT) -> Standardization:
    """`value = loc + scale * e`; the degrees of freedom, latent or not, stay with the noise."""
    return Standardization(
        d.loc,
        d.scale,
        dist.StudentT(d.df, 0.0, 1.0),
        tails=1 / d.df,
        symmetric=True,
        shape_parameters=("df",),
    )


@register(dist.Cauchy)
def cauchy(d: dist.Cauchy) -> Standardization:
    """`value = loc + scale * e`."""
    return Standardization(
        d.loc,
        d.scale,
        dist.Cauchy(0.0, 1.0),
        tails=jnp.ones(()),
        symmetric=True,
        shape_parameters=(),
    )


@register(dist.AsymmetricLaplace)
def asymmetric_laplace(d: dist.AsymmetricLaplace) -> Standardization:
    """`value = loc + scale * e`; the asymmetry stays with the noise."""
    noise = dist.AsymmetricLaplace(0.0, 1.0, d.asymmetry)
    return Standardization(d.loc, d.scale, noise, shape_parameters=("asymmetry",))


@register(dist.AsymmetricLaplaceQuantile)
def asymmetric_laplace_quantile(d: dist.AsymmetricLaplaceQuantile) -> Standardization:
    """`value = loc + scale * e`; the quantile stays with the noise."""
    noise = dist.AsymmetricLaplaceQuantile(0.0, 1.0, d.quantile)
    return Standardization(d.loc, d.scale, noise, shape_parameters=("quantile",))
