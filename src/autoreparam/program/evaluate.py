"""A model at given values of its latents: its log joint density, and its own values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from numpyro.handlers import block, seed, substitute, trace

from autoreparam.errors import ModelError, ParameterizationError, known
from autoreparam.keywords import helpful
from autoreparam.program.handlers import Reparameterized, working_name
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target
from autoreparam.program.trace import Program, inspect


@helpful
def log_joint(
    model: Callable,
    args: tuple = (),
    kwargs: dict | None = None,
    *,
    parameterization: Parameterization | None = None,
    implicit: bool = True,
) -> Callable[[Mapping[str, Any]], Any]:
    """A function that takes one value per latent and returns the log joint density.

    Without a parameterization the values are the model's own and no Jacobian is added. With one
    they are working coordinates, keyed by the original names, and the Jacobian is included.

    Args:
        model: The NumPyro model, a function.
        args: Its positional arguments: the data.
        kwargs: Its keyword arguments; None for none.
        parameterization: The coordinates of the values; None for the model's own.
        implicit: That of `inspect`.
    """
    if parameterization is not None and not isinstance(parameterization, Parameterization):
        raise ParameterizationError(
            f"parameterization: expected a Parameterization or None; found "
            f"{type(parameterization).__name__}"
        )
    sites = "auto" if parameterization is None else parameterization.sites
    target = Target(inspect(model, args, kwargs, sites=sites, implicit=implicit))
    if parameterization is None:
        return target.log_joint
    lam = parameterization.check(target.program)

    def working_log_joint(working: Mapping[str, Any]):
        _refuse_missing(target.program, working)
        for site in target.program.latents:
            if jnp.shape(working[site.name]) != site.unconstrained_shape:
                raise ModelError(
                    f"site '{site.name}': expected a value of shape {site.unconstrained_shape}, "
                    f"found {jnp.shape(working[site.name])}"
                )
        return target.logdensity(target.flatten(working), lam)

    return working_log_joint


def original_values(
    program: Program, lam: Parameterization, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Every latent and deterministic of the model, from the rewritten model's latents.

    Both are keyed by the original names.
    """
    _refuse_missing(program, values)
    given = {working_name(name) if name in lam else name: value for name, value in values.items()}
    args, kwargs = program.structure.arguments.fill(program.data)
    with block(), trace() as found, seed(rng_seed=0), substitute(data=given):
        Reparameterized(program.structure.model, lam)(*args, **kwargs)
    kept = [site.name for site in program.sites if site.kind in ("latent", "deterministic")]
    return {name: found[name]["value"] for name in kept}


def _refuse_missing(program: Program, values: Mapping[str, Any]) -> None:
    missing = [site.name for site in program.latents if site.name not in values]
    if missing:
        raise ModelError(f"no value for {known(missing)}; every latent needs one")
