"""The paper's vocabulary (Gorinova, Moore and Hoffman 2019): its program transformations by name.

λ here has the paper's reference scale `s0 = 1`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from autoreparam.program.handlers import (
    learnable,
    log_joint,
    mean_field,
    original_values,
    reparameterize,
)
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.trace import inspect

make_log_joint = log_joint
make_variational = mean_field


def make_ncp(model: Callable, args: tuple = (), kwargs: dict | None = None) -> tuple:
    """The non-centered model, and the map `f` from its latents' values to the original model's.

    Both are keyed by the original names.
    """
    program = inspect(model, args, kwargs, sites="all")
    lam = Parameterization.noncentered(program, s0=1.0)
    return reparameterize(model, lam), partial(original_values, program, lam)


def make_vip(model: Callable, args: tuple = (), kwargs: dict | None = None) -> tuple:
    """The model with λ as NumPyro params that start at 0.5, and the map `f(values, λ)`.

    Fit it with `SVI(model, make_variational(model), ...)`; the params are named `<site>_lam`.
    """
    program = inspect(model, args, kwargs, sites="all")
    start = Parameterization.constant(program, 0.5, s0=1.0)

    def to_sites(values: dict[str, Any], lam: dict[str, Any]) -> dict[str, Any]:
        return original_values(program, start.replace(lam), values)

    return learnable(model, start), to_sites
