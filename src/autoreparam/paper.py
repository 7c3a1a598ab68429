"""The paper's vocabulary (Gorinova, Moore and Hoffman 2019): its program transformations, by name.

λ here has the paper's reference scale `s0 = 1`. The condition numbers are those of its two-level
Gaussian model, `theta ~ N(0, 1)`, `mu ~ N(theta, sigma_mu)`, N times `y ~ N(mu, sigma)`, with
`q = N / sigma²`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from autoreparam.program.evaluate import log_joint, original_values
from autoreparam.program.guide import learnable, mean_field
from autoreparam.program.handlers import reparameterize
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.trace import inspect

make_log_joint = log_joint
make_variational = mean_field


def make_ncp(model: Callable, args: tuple = (), kwargs: dict | None = None) -> tuple:
    """The non-centered model, and the map `f` from its latents' values to the original model's.

    Both are keyed by the original names.

    Args:
        model: The NumPyro model, a function.
        args: Its positional arguments: the data.
        kwargs: Its keyword arguments; None for none.
    """
    program = inspect(model, args, kwargs, sites="all")
    lam = Parameterization.noncentered(program, s0=1.0)
    return reparameterize(model, lam), partial(original_values, program, lam)


def make_vip(model: Callable, args: tuple = (), kwargs: dict | None = None) -> tuple:
    """The model with λ as NumPyro params that start at 0.5, and the map `f(values, λ)`.

    Fit it with `SVI(model, make_variational(model), ...)`; the params are named `<site>_lam`.

    Args:
        model: The NumPyro model, a function.
        args: Its positional arguments: the data.
        kwargs: Its keyword arguments; None for none.
    """
    program = inspect(model, args, kwargs, sites="all")
    start = Parameterization.constant(program, 0.5, s0=1.0)

    def to_sites(values: dict[str, Any], lam: dict[str, Any]) -> dict[str, Any]:
        return original_values(program, start.replace(lam), values)

    return learnable(model, start), to_sites


def condition_number_cp(q: Any, sigma_mu: Any) -> Any:
    """κ of the centered posterior covariance under the best diagonal preconditioner.

    For two variables with correlation r that is (1 + |r|) / (1 - |r|); here, with v = sigma_mu²,
    r² = 1 / ((1 + v) (1 + q v)).

    >>> round(float(condition_number_cp(q=1.0, sigma_mu=1.0)), 6)
    3.0

    Args:
        q: `N / sigma²`, the precision of the data.
        sigma_mu: Standard deviation of the mean, in units of the effects'.
    """
    v = np.square(sigma_mu)
    return _condition_number(1 / ((1 + v) * (1 + q * v)))


def condition_number_ncp(q: Any, sigma_mu: Any) -> Any:
    """κ of the non-centered posterior covariance under the best diagonal preconditioner.

    Here r² = v q² / ((1 + q) (1 + q v)). The paper's appendix has an extra factor sigma_mu² in the
    product under its root, so it is right only for sigma_mu = 1.

    Args:
        q: `N / sigma²`, the precision of the data.
        sigma_mu: Standard deviation of the mean, in units of the effects'.
    """
    v = np.square(sigma_mu)
    return _condition_number(v * np.square(q) / ((1 + q) * (1 + q * v)))


def condition_crossing(sigma_mu: Any) -> Any:
    """The q where both are equal, `q + 1 = v (1 + v) q²`; above it the centered model is better.

    Args:
        sigma_mu: Standard deviation of the mean, in units of the effects'.
    """
    a = np.square(sigma_mu) * (1 + np.square(sigma_mu))
    return (1 + np.sqrt(1 + 4 * a)) / (2 * a)


def _condition_number(squared_correlation: Any) -> Any:
    r = np.sqrt(squared_correlation)
    return (1 + r) / (1 - r)
