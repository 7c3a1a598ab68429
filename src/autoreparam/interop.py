"""Bridges to other tools: values to and from BlackJAX, an answer to its verdict, NumPyro code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from autoreparam.errors import AutoreparamError, ModelError, ParameterizationError
from autoreparam.learn.score import fit_draws
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target
from autoreparam.program.trace import inspect
from autoreparam.results.export import numpyro_code

__all__ = ["model_values", "numpyro_code", "on_verdict"]


def model_values(
    model: Callable,
    args: tuple,
    kwargs: dict | None,
    working: Mapping[str, Any],
    parameterization: Parameterization,
) -> dict[str, Any]:
    """Every latent and deterministic in the model's own space, from draws of `ar.log_joint`.

    `working` has one array per latent, for one position or for many along leading axes.

    >>> values = ar.interop.model_values(model, args, kwargs, state.position, lam)

    Args:
        model: The NumPyro model, a function.
        args: Its positional arguments: the data.
        kwargs: Its keyword arguments; None for none.
        working: Values by latent in the coordinates of λ.
        parameterization: That λ.
    """
    if not isinstance(parameterization, Parameterization):
        raise ParameterizationError(
            f"expected a Parameterization; found {type(parameterization).__name__}"
        )
    target = Target(inspect(model, args, kwargs, sites=parameterization.sites))
    lam = parameterization.check(target.program)
    lead = _leading(target, working)

    def one(position: Mapping[str, Any]) -> dict[str, Any]:
        return target.to_sites(target.flatten(position), lam)

    call: Callable = one
    for _ in lead:
        call = jax.vmap(call)
    return jax.jit(call)({site.name: working[site.name] for site in target.program.latents})


def on_verdict(
    verdict: Any,
    model: Callable,
    args: tuple,
    kwargs: dict | None,
    working: Mapping[str, Any],
    parameterization: Parameterization | None = None,
) -> Parameterization | None:
    """λ learned from the draws of a BlackJAX warm-up if its verdict asks for one, else None.

    `verdict` is that of `metric="auto"`, or its flags, or None; `working` holds the positions, one
    array per latent with draws along leading axes, in the coordinates of `parameterization` (by
    default centered). It costs one gradient per draw.

    >>> lam = ar.interop.on_verdict(verdict, model, args, kwargs, info.state.position)

    Args:
        verdict: BlackJAX's verdict, or its flags.
        model: The NumPyro model, a function.
        args: Its positional arguments: the data.
        kwargs: Its keyword arguments; None for none.
        working: Positions by latent.
        parameterization: The coordinates of the positions; None for centered.
    """
    flags = verdict if isinstance(verdict, Mapping) else getattr(verdict, "flags", None)
    if not isinstance(flags, Mapping):
        raise AutoreparamError(
            "expected BlackJAX's verdict, which has flags; found "
            f"{type(verdict).__name__}. Make it with extract_meta_verdict(final_state, ...)."
        )
    if flags.get("handoff") != "reparameterize":
        return None
    target = Target(inspect(model, args, kwargs))
    if not target.program.candidates:
        return None
    start = parameterization
    if start is None:  # the coordinates of the model as written
        plain = [site.name for site in target.program.candidates if site.implied is None]
        start = Parameterization.centered(inspect(model, args, kwargs, sites=plain))
    values = model_values(model, args, kwargs, working, start)
    lead = len(_leading(target, working))
    rows = {
        site.name: np.asarray(values[site.name]).reshape(-1, *np.shape(values[site.name])[lead:])
        for site in target.program.latents
    }
    half = Parameterization.constant(target.program, 0.5, tail=0.5)
    return fit_draws(target, rows, half).parameterization


def _leading(target: Target, working: Mapping[str, Any]) -> tuple[int, ...]:
    """The axes in front of each latent's own, which must be the same for all."""
    leads = set()
    for site in target.program.latents:
        if site.name not in working:
            raise ModelError(f"no value for '{site.name}'; every latent needs one")
        shape, own = np.shape(working[site.name]), site.unconstrained_shape
        cut = len(shape) - len(own)
        if cut < 0 or shape[cut:] != own:
            raise ModelError(
                f"site '{site.name}': expected values of shape {own} after the axes of the draws; "
                f"found {shape}"
            )
        leads.add(shape[:cut])
    if len(leads) != 1:
        raise ModelError(f"the latents have different numbers of draws: {sorted(leads)}")
    return leads.pop()
