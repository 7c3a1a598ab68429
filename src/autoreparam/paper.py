"""The paper's vocabulary (Gorinova, Moore and Hoffman 2019): its program transformations by name.

λ here has the paper's reference scale `s0 = 1`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoreparam.program.handlers import Reparameterized, learnable, log_joint, mean_field
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target
from autoreparam.program.trace import inspect

make_log_joint = log_joint
make_variational = mean_field


def make_ncp(model: Callable, args: tuple = (), kwargs: dict | None = None) -> tuple:
    """The non-centered model, and the map `f` from its values to the original model's.

    Values are keyed by the original names on both sides, in the model's own space.
    """
    program = inspect(model, args, kwargs, sites="all")
    lam = Parameterization.noncentered(program, s0=1.0)
    return Reparameterized(model, lam), _to_sites(Target(program), lam)


def make_vip(model: Callable, args: tuple = (), kwargs: dict | None = None) -> tuple:
    """The model with λ as NumPyro params that start at 0.5, and the map `f(values, λ)`.

    Fit it with `SVI(model, make_variational(model), ...)`; the params are named `<site>_lam`.
    """
    program = inspect(model, args, kwargs, sites="all")
    start = Parameterization.constant(program, 0.5, s0=1.0)
    target = Target(program)

    def to_sites(working: dict[str, Any], lam: dict[str, Any]) -> dict[str, Any]:
        return _to_sites(target, start.replace(lam))(working)

    return learnable(model, start), to_sites


def _to_sites(target: Target, lam: Parameterization) -> Callable:
    return lambda working: target.to_sites(target.flatten(working), lam)
