"""Posterior moments known without sampling, and data for which more is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoreparam as ar
from autoreparam.program.target import Target
from autoreparam.zoo.radon import radon


def gaussian(model, args, kwargs):
    """Means and standard deviations per site of a linear-Gaussian model, by linear algebra."""
    program = ar.inspect(model, args, kwargs)
    target, lam = Target(program), ar.Parameterization.centered(program)
    origin = jnp.zeros(target.size)
    slope = jax.jit(jax.grad(target.logdensity))(origin, lam)
    covariance = jnp.linalg.inv(-jax.jit(jax.hessian(target.logdensity))(origin, lam))
    mean = target.unflatten(covariance @ slope)
    sd = target.unflatten(jnp.sqrt(jnp.diag(covariance)))
    return {name: (np.asarray(mean[name]), np.asarray(sd[name])) for name in mean}


def radon_survey(homes, seed=0):
    """A made-up survey of radon with so many homes per county, as an entry of the zoo.

    The ELBO is best at λ = homes / (homes + 1): the precision of `mu` is 1 + Σ λ² + homes (1 - λ)²,
    that of `a` the same with weights, and no other diagonal element depends on λ.
    """
    random = np.random.default_rng(seed)
    county = np.repeat(np.arange(len(homes)), homes)
    floor = random.integers(0, 2, county.size).astype(float)
    uranium, effect = random.normal(size=(2, len(homes)))
    effect += 1 + 0.7 * uranium
    log_r = effect[county] - 0.6 * floor + random.normal(size=county.size)
    data = {"county": county, "floor": floor, "uranium": uranium, "log_r": log_r}
    return ar.zoo.Entry("radon", radon, (), data, "", "", {})


surveys = pytest.mark.parametrize(
    "survey",
    [
        pytest.param(lambda: radon_survey([1, 1, 2, 3, 5, 8, 40]), id="made up"),
        pytest.param(
            lambda: ar.zoo.load("radon", state="MN"), id="minnesota", marks=pytest.mark.data
        ),
    ],
)


def eight_schools(y, sigma):
    """Means and standard deviations of `mu`, `log_tau` and `theta`, by quadrature over log_tau.

    Given log_tau everything is Gaussian: y_j ~ N(mu, sigma_j² + tau²), mu ~ N(0, 5²).
    """
    grid = np.linspace(-40, 12, 20001)
    tau2 = np.exp(2 * grid)[:, None]
    weight = 1 / (sigma**2 + tau2)
    precision = 1 / 25 + weight.sum(1)
    mu = (weight * y).sum(1) / precision
    log_evidence = (
        0.5 * np.log(weight).sum(1)
        - 0.5 * (weight * y**2).sum(1)
        + 0.5 * precision * mu**2
        - 0.5 * np.log(precision)
        - 0.5 * (grid / 5) ** 2
    )
    density = np.exp(log_evidence - log_evidence.max())
    density /= density.sum()

    def moments(mean, second):
        first = (density[:, None] * mean).sum(0)
        return first, np.sqrt((density[:, None] * second).sum(0) - first**2)

    shrink = tau2 / (tau2 + sigma**2)  # theta = mu + shrink (y - mu) + noise
    theta = mu[:, None] + shrink * (y - mu[:, None])
    spread = shrink * sigma**2 + (1 - shrink) ** 2 / precision[:, None]
    squeeze = lambda pair: tuple(part[0] for part in pair)  # noqa: E731
    return {
        "mu": squeeze(moments(mu[:, None], (mu**2 + 1 / precision)[:, None])),
        "log_tau": squeeze(moments(grid[:, None], grid[:, None] ** 2)),
        "theta": moments(theta, theta**2 + spread),
    }
