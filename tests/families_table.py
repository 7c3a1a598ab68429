"""One row per family: how a user writes it, and the same written non-centered by hand.

`centered(m, t)` is the distribution of `x` given a real parent `m` and a positive parent `t`;
`noise(m, t)` and `value(m, t, w)` are the hand-written non-centered form.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import transforms

from autoreparam.program.traits import Coupling


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
LOGIT = transforms.SigmoidTransform().inv


def log_gamma_moments(a):
    return jnp.log(a + 0.5), 1 / jnp.sqrt(a + 0.5)


def logit_beta_moments(a, b):
    (loc, scale), (other, along) = log_gamma_moments(a), log_gamma_moments(b)
    return loc - other, jnp.sqrt(scale**2 + along**2)


def standardized(base, to_real, loc, scale):
    affine = transforms.AffineTransform(-loc / scale, 1 / scale)
    return dist.TransformedDistribution(base, [to_real, affine])


def log_gamma(a, w):
    loc, scale = log_gamma_moments(a)
    return loc + scale * w


def log_gamma_noise(a):
    return standardized(dist.Gamma(a, 1.0), EXP.inv, *log_gamma_moments(a))


def logit_beta(a, b, w):
    loc, scale = logit_beta_moments(a, b)
    return loc + scale * w


def logit_beta_noise(a, b):
    return standardized(dist.Beta(a, b), LOGIT, *logit_beta_moments(a, b))


def shares(m, t):
    """Three parts, the middle one's concentration small where `m` is."""
    return jnp.stack([2 + t, jnp.exp(m), 0.5 * t])


def shares_value(m, t, e):
    a, b = shares(m, t)[:2], jnp.stack([jnp.exp(m) + 0.5 * t, 0.5 * t])
    first, second = jnp.moveaxis(1 / (1 + jnp.exp(-logit_beta(a, b, e))), -1, 0)
    return jnp.stack([first, (1 - first) * second, (1 - first) * (1 - second)], axis=-1)


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
        lambda m, t: log_gamma_noise(3.0), lambda m, t, w: (jnp.exp(log_gamma(3.0, w)) / t) ** 2,
        same_coordinates=False),
    Row("half_normal", dist.HalfNormal, lambda m, t: dist.HalfNormal(t),
        lambda m, t: dist.HalfNormal(1), times),
    Row("half_cauchy", dist.HalfCauchy, lambda m, t: dist.HalfCauchy(t),
        lambda m, t: dist.HalfCauchy(1), times),
    Row("exponential", dist.Exponential, lambda m, t: dist.Exponential(t),
        lambda m, t: dist.Exponential(1), lambda m, t, w: w / t),
    Row("gamma", dist.Gamma, lambda m, t: dist.Gamma(2.5, t),
        lambda m, t: log_gamma_noise(2.5), lambda m, t, w: jnp.exp(log_gamma(2.5, w)) / t),
    Row("gamma_latent_shape", dist.Gamma, lambda m, t: dist.Gamma(0.3 + t, jnp.exp(m)),
        lambda m, t: log_gamma_noise(0.3 + t), lambda m, t, w: jnp.exp(log_gamma(0.3 + t, w) - m)),
    Row("inverse_gamma", dist.InverseGamma, lambda m, t: dist.InverseGamma(3 * t, jnp.exp(m)),
        lambda m, t: dist.TransformedDistribution(
            log_gamma_noise(3 * t), transforms.AffineTransform(0.0, -1.0)),
        lambda m, t, w: jnp.exp(m - log_gamma(3 * t, -w))),
    Row("beta", dist.Beta, lambda m, t: dist.Beta(5 * t, jnp.exp(m)),
        lambda m, t: logit_beta_noise(5 * t, jnp.exp(m)),
        lambda m, t, w: 1 / (1 + jnp.exp(-logit_beta(5 * t, jnp.exp(m), w)))),
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


# -- families whose elements depend on each other ---------------------------------------------

FACTOR = np.array([[1.0, 0.0, 0.0], [0.6, 0.5, 0.0], [-0.3, 0.2, 0.9]])
NEIGHBORS = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
TRANSITION = np.array([[0.9, 0.2], [0.0, 0.5]])
TIMES = np.array([0.0, 0.2, 0.5, 1.0])


def array(values):
    """The numbers in whatever precision is the default when a model runs."""
    return jnp.array(values.tolist())


class Coupled(NamedTuple):
    name: str
    family: type
    centered: Callable
    value: Callable  # of m, t and unit noise
    free: Callable | None = None  # from the value to unconstrained coordinates
    coupling: Coupling = Coupling.CORRELATED
    measured: Callable | None = None  # from the value to as many numbers as are free, same volume


def matrix_value(factor):
    return lambda m, t, e: m + e @ (t * factor).T


def recursion(step, start):
    def value(m, t, e):
        states = []
        for i in range(e.shape[1]):
            states.append(step(m, t, states[-1] if states else start(m, t), e[:, i]))
        return jnp.stack(states, axis=1)

    return value


def sde(m, t):
    return lambda x, s: (-(x - m), t * jnp.sqrt(1 + x**2))


def euler_value(m, t, e):
    states = [m + t * e[:, 0]]
    for i in range(1, e.shape[1]):
        h, x = TIMES[i] - TIMES[i - 1], states[-1]
        f, g = sde(m, t)(x, TIMES[i - 1])
        states.append(x + h * f + jnp.sqrt(h) * g * e[:, i])
    return jnp.stack(states, axis=1)


WIDE = np.linspace(-0.5, 1.0, 7)[:, None] * np.ones((7, 7)) + 2 * np.eye(7)
COUPLED = [
    Coupled("scale_tril", dist.MultivariateNormal,
            lambda m, t: dist.MultivariateNormal(m, scale_tril=t * array(FACTOR)),
            matrix_value(FACTOR)),
    Coupled("covariance", dist.MultivariateNormal,
            lambda m, t: dist.MultivariateNormal(m, t**2 * array(WIDE @ WIDE.T)),
            matrix_value(np.linalg.cholesky(WIDE @ WIDE.T))),
    Coupled("precision", dist.MultivariateNormal,
            lambda m, t: dist.MultivariateNormal(
                m, precision_matrix=array(np.linalg.inv(FACTOR @ FACTOR.T)) / t**2),
            matrix_value(FACTOR)),
    Coupled("low_rank", dist.LowRankMultivariateNormal,
            lambda m, t: dist.LowRankMultivariateNormal(
                jnp.full(3, m), t * array(FACTOR[:, :1]), t**2 * jnp.ones(3)),
            matrix_value(np.linalg.cholesky(FACTOR[:, :1] @ FACTOR[:, :1].T + np.eye(3)))),
    Coupled("multivariate_student_t", dist.MultivariateStudentT,
            lambda m, t: dist.MultivariateStudentT(3 + t, m, t * array(FACTOR)),
            matrix_value(FACTOR)),
    Coupled("car", dist.CAR, lambda m, t: dist.CAR(m, 0.5, t**-2, NEIGHBORS),
            matrix_value(np.linalg.cholesky(
                np.linalg.inv(np.diag(NEIGHBORS.sum(0)) - 0.5 * NEIGHBORS)))),
    Coupled("log_multivariate", dist.TransformedDistribution,
            lambda m, t: dist.TransformedDistribution(
                dist.MultivariateNormal(m, scale_tril=t * array(FACTOR)), EXP),
            lambda m, t, e: jnp.exp(matrix_value(FACTOR)(m, t, e)), jnp.log),
    Coupled("zero_sum", dist.ZeroSumNormal, lambda m, t: dist.ZeroSumNormal(t, (3, 2)),
            lambda m, t, e: transforms.ZeroSumTransform(2)(t * e),
            transforms.ZeroSumTransform(2).inv, Coupling.NONE, transforms.ZeroSumTransform(2).inv),
    Coupled("dirichlet", dist.Dirichlet, lambda m, t: dist.Dirichlet(shares(m, t)), shares_value,
            transforms.StickBreakingTransform().inv, Coupling.NONE, lambda x: x[..., :-1]),
    Coupled("random_walk", dist.GaussianRandomWalk,
            lambda m, t: dist.GaussianRandomWalk(t, 4), lambda m, t, e: t * jnp.cumsum(e, -1),
            coupling=Coupling.SEQUENCE),
    Coupled("state_space", dist.GaussianStateSpace,
            lambda m, t: dist.GaussianStateSpace(
                3, array(TRANSITION), scale_tril=t * array(FACTOR[:2, :2]),
                initial_value=m * jnp.ones(2)),
            recursion(lambda m, t, z, e: z @ TRANSITION.T + e @ (t * FACTOR[:2, :2]).T,
                      lambda m, t: m * jnp.ones(2)), coupling=Coupling.SEQUENCE),
    Coupled("euler_maruyama", dist.EulerMaruyama,
            lambda m, t: dist.EulerMaruyama(array(TIMES), sde(m, t), dist.Normal(m, t)),
            euler_value, coupling=Coupling.SEQUENCE),
]  # fmt: skip
