"""What the paper derives or plots without data: the funnel, the two-level Gaussian model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam import paper, zoo
from autoreparam.learn.elbo import fit_elbo
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target
from autoreparam.program.trace import inspect

FUNNEL_LAMS = (1.0, 0.75, 0.5, 0.25, 0.0)
SIGMA_MUS = (0.3, 1.0, 3.0)
QS = np.logspace(-2, 3, 200)


@dataclass(frozen=True, eq=False)
class FunnelFit:
    """The mean-field fit of the funnel at one λ; the funnel's evidence is 1, its log 0."""

    lam: Parameterization
    value: float
    elbo: float
    loc: np.ndarray
    scale: np.ndarray


def funnel() -> Target:
    """Neal's funnel in two dimensions, as the paper draws it."""
    entry = zoo.load("funnel", n=1)
    return Target(inspect(entry.model, entry.args, entry.kwargs))


def funnel_lam(target: Target, value: float) -> Parameterization:
    """λ of the lower variable."""
    return Parameterization.constant(target.program, value, s0=1.0)


def funnel_fits(target: Target) -> list[FunnelFit]:
    """Mean-field fits of the funnel from centered to non-centered."""
    fits = []
    for value in FUNNEL_LAMS:
        lam = funnel_lam(target, value)
        fit = fit_elbo(target, lam, key=jax.random.key(0), learn=False, samples=32)
        fits.append(FunnelFit(lam, value, float(fit.elbo or np.nan), fit.loc, fit.scale))
    return fits


@jax.jit
def log_density(target: Target, points: Array, lam: Parameterization) -> Array:
    """The log density in working coordinates, at points of shape (n, dim)."""
    return jax.vmap(target.logdensity, (0, None))(points, lam)


@jax.jit
def implied(target: Target, values: Array, lam: Parameterization, loc: Array, scale: Array):
    """log q of a mean-field fit, carried to the model's own space; values of shape (n, 2)."""

    def log_q(value: Array) -> Array:
        position = target.from_sites({"z": value[0], "x": value[1:]}, lam)
        standard = (position - loc) / scale
        log_prob = -0.5 * standard**2 - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi)
        return jnp.sum(log_prob) - target.log_determinant(position, lam)

    return jax.vmap(log_q)(values)


def distance_from_gaussian(target: Target, count: int = 1000) -> float:
    """How far the non-centered funnel is from independent Normals, in nats at random points."""
    spread = np.array([3.0, 1.0])
    points = spread * np.random.default_rng(0).normal(size=(count, 2))
    gaussian = np.sum(-0.5 * (points / spread) ** 2 - np.log(spread), axis=1) - np.log(2 * np.pi)
    dtype = target.program.dtype
    found = log_density(target, points.astype(dtype), funnel_lam(target, 0.0))
    return float(np.abs(np.asarray(found) - gaussian).max())


# -- the two-level Gaussian model ----------------------------------------------------------------


def numeric_condition_number(q: float, sigma_mu: float, centered: bool) -> float:
    """κ from the eigenvalues of the posterior's correlation matrix, mu (or its noise) first."""
    v = sigma_mu**2
    if centered:
        precision = np.array([[1 / v + q, -1 / v], [-1 / v, 1 / v + 1]])
    else:
        precision = np.array([[v * q + 1, sigma_mu * q], [sigma_mu * q, q + 1]])
    covariance = np.linalg.inv(precision)
    scale = np.sqrt(np.diag(covariance))
    low, high = np.linalg.eigvalsh(covariance / np.outer(scale, scale))
    return float(high / low)


def printed_condition_number_ncp(q: Any, sigma_mu: Any) -> Any:
    """κ of the non-centered model as the paper's appendix prints it, stray factor included.

    NaN where the printed root has no real value.
    """
    v = np.square(sigma_mu)
    with np.errstate(invalid="ignore"):
        root = np.sqrt((v * q + 1) ** 2 - v * (v * q + q + 1) * (v * q + 1) / (q + 1))
    return (v * q + 1 + root) / (v * q + 1 - root)


def condition_errors() -> dict[str, float]:
    """The largest relative error of each closed form against eigenvalues, over a grid."""
    grid = [(q, s) for q in QS[::10] for s in SIGMA_MUS]
    forms = {
        "CP": (paper.condition_number_cp, True),
        "NCP": (paper.condition_number_ncp, False),
        "NCP as printed": (printed_condition_number_ncp, False),
    }
    return {
        name: float(np.nanmax([
            abs(form(q, s) / numeric_condition_number(q, s, centered) - 1) for q, s in grid
        ]))
        for name, (form, centered) in forms.items()
    }  # fmt: skip
