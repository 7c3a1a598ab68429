"""One row per family: how a user writes it, and the same written non-centered by hand.

`centered(m, t)` is the distribution of `x` given a real parent `m` and a positive parent `t`;
`noise(m, t)` and `value(m, t, w)` are the hand-written non-centered form.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import transforms


class Row(NamedTuple):
    name: str
    family: type
    centered: Callable
    noise: Callable
    value: Callable
    same_coordinates: bool = True  # λ=1 is NumPyro's own unconstrained space


def affine(m, t, w):
    return m + t * w


def times(m, t, w):
    return t * w


EXP = transforms.ExpTransform()

ROWS = [
    Row("normal", dist.Normal, dist.Normal, lambda m, t: dist.Normal(0, 1), affine),
    Row("student_t", dist.StudentT, lambda m, t: dist.StudentT(4.0, m, t),
        lambda m, t: dist.StudentT(4.0, 0, 1), affine),
    Row("student_t_latent_df", dist.StudentT, lambda m, t: dist.StudentT(2 + t, m, t),
        lambda m, t: dist.StudentT(2 + t, 0, 1), affine),
    Row("cauchy", dist.Cauchy, dist.Cauchy, lambda m, t: dist.Cauchy(0, 1), affine),
    Row("laplace", dist.Laplace, dist.Laplace, lambda m, t: dist.Laplace(0, 1), affine),
    Row("logistic", dist.Logistic, dist.Logistic, lambda m, t: dist.Logistic(0, 1), affine),
    Row("gumbel", dist.Gumbel, dist.Gumbel, lambda m, t: dist.Gumbel(0, 1), affine),
    Row("soft_laplace", dist.SoftLaplace, dist.SoftLaplace,
        lambda m, t: dist.SoftLaplace(0, 1), affine),
    Row("asymmetric_laplace", dist.AsymmetricLaplace,
        lambda m, t: dist.AsymmetricLaplace(m, t, 1.5),
        lambda m, t: dist.AsymmetricLaplace(0, 1, 1.5), affine),
    Row("asymmetric_laplace_quantile", dist.AsymmetricLaplaceQuantile,
        lambda m, t: dist.AsymmetricLaplaceQuantile(m, t, 0.3),
        lambda m, t: dist.AsymmetricLaplaceQuantile(0, 1, 0.3), affine),
    Row("log_normal", dist.LogNormal, dist.LogNormal, lambda m, t: dist.Normal(0, 1),
        lambda m, t, w: jnp.exp(m + t * w)),
    Row("logit_normal", dist.TransformedDistribution,
        lambda m, t: dist.TransformedDistribution(
            dist.Normal(m, t), transforms.SigmoidTransform()),
        lambda m, t: dist.Normal(0, 1), lambda m, t, w: 1 / (1 + jnp.exp(-m - t * w))),
    Row("shifted_log_student", dist.TransformedDistribution,
        lambda m, t: dist.TransformedDistribution(
            dist.StudentT(5.0, m, t),
            [EXP, transforms.AffineTransform(1.0, 2.0, domain=dist.constraints.positive)]),
        lambda m, t: dist.StudentT(5.0, 0, 1), lambda m, t, w: 1 + 2 * jnp.exp(m + t * w),
        same_coordinates=False),
    Row("affine_normal", dist.TransformedDistribution,
        lambda m, t: dist.TransformedDistribution(
            dist.Normal(0.0, 1.0), transforms.AffineTransform(m, t)),
        lambda m, t: dist.Normal(0, 1), affine),
    Row("power_of_gamma", dist.TransformedDistribution,
        lambda m, t: dist.TransformedDistribution(
            dist.Gamma(3.0, t), transforms.PowerTransform(2.0)),
        lambda m, t: dist.Gamma(3.0, 1.0), lambda m, t, w: (w / t) ** 2, same_coordinates=False),
    Row("half_normal", dist.HalfNormal, lambda m, t: dist.HalfNormal(t),
        lambda m, t: dist.HalfNormal(1), times),
    Row("half_cauchy", dist.HalfCauchy, lambda m, t: dist.HalfCauchy(t),
        lambda m, t: dist.HalfCauchy(1), times),
    Row("exponential", dist.Exponential, lambda m, t: dist.Exponential(t),
        lambda m, t: dist.Exponential(1), lambda m, t, w: w / t),
    Row("gamma", dist.Gamma, lambda m, t: dist.Gamma(2.5, t),
        lambda m, t: dist.Gamma(2.5, 1), lambda m, t, w: w / t),
    Row("inverse_gamma", dist.InverseGamma, lambda m, t: dist.InverseGamma(3.0, t),
        lambda m, t: dist.InverseGamma(3.0, 1), times),
    Row("weibull", dist.Weibull, lambda m, t: dist.Weibull(jnp.exp(m), 1 + t),
        lambda m, t: dist.TransformedDistribution(dist.Exponential(1.0), EXP.inv),
        lambda m, t, w: jnp.exp(m + w / (1 + t))),
    Row("pareto", dist.Pareto, lambda m, t: dist.Pareto(t, 3.0),
        lambda m, t: dist.Pareto(1.0, 3.0), times),
    Row("gompertz", dist.Gompertz, lambda m, t: dist.Gompertz(0.7, t),
        lambda m, t: dist.Gompertz(0.7, 1.0), lambda m, t, w: w / t),
    Row("levy", dist.Levy, lambda m, t: dist.Levy(0.5, t), lambda m, t: dist.Levy(0.0, 1.0),
        lambda m, t, w: 0.5 + t * w),
    Row("dagum", dist.Dagum, lambda m, t: dist.Dagum(1.5, 2.0, t),
        lambda m, t: dist.TransformedDistribution(dist.Dagum(1.5, 1.0, 1.0), EXP.inv),
        lambda m, t, w: t * jnp.exp(w / 2)),
    Row("left_truncated_normal", dist.LeftTruncatedDistribution,
        lambda m, t: dist.TruncatedNormal(1.0, t, low=1.0),
        lambda m, t: dist.TruncatedNormal(0.0, 1.0, low=0.0), lambda m, t, w: 1 + t * w),
    Row("left_truncated_logistic", dist.LeftTruncatedDistribution,
        lambda m, t: dist.LeftTruncatedDistribution(dist.Logistic(0.0, t), low=0.0),
        lambda m, t: dist.LeftTruncatedDistribution(dist.Logistic(0.0, 1.0), low=0.0), times),
    Row("right_truncated_normal", dist.RightTruncatedDistribution,
        lambda m, t: dist.TruncatedNormal(2.0, t, high=2.0),
        lambda m, t: dist.TruncatedNormal(0.0, 1.0, low=0.0), lambda m, t, w: 2 - t * w),
    Row("folded_normal", dist.FoldedDistribution,
        lambda m, t: dist.FoldedDistribution(dist.Normal(0.0, t)),
        lambda m, t: dist.HalfNormal(1.0), times),
]  # fmt: skip

# Truncated families with a moving location have no hand-written form to compare with.
MOVING_TRUNCATED = [
    Row("left_truncated_moving", dist.LeftTruncatedDistribution,
        lambda m, t: dist.TruncatedNormal(m, t, low=-0.5), None, None),
    Row("right_truncated_moving", dist.RightTruncatedDistribution,
        lambda m, t: dist.TruncatedNormal(m, t, high=0.7), None, None),
    Row("two_sided_truncated_normal", dist.TwoSidedTruncatedDistribution,
        lambda m, t: dist.TruncatedNormal(m, t, low=-1.0, high=2.0), None, None),
    Row("folded_moving", dist.FoldedDistribution,
        lambda m, t: dist.FoldedDistribution(dist.Normal(m, t)), None, None),
]  # fmt: skip
ALL_ROWS = ROWS + MOVING_TRUNCATED
