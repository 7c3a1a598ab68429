"""The front door for many data sets: one fit for each, all in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from autoreparam.errors import AutoreparamError, known
from autoreparam.keywords import helpful
from autoreparam.program.many import inspect_many
from autoreparam.program.maps.gain import QUADRATIC
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target
from autoreparam.results.many import kept_names, many_tree, warnings_about
from autoreparam.results.progress import Progress
from autoreparam.run.blas import one_thread
from autoreparam.run.finish import warn
from autoreparam.run.many import Batches
from autoreparam.run.notes import about_call
from autoreparam.run.precision import COARSE, STAYS_SINGLE, in_precision
from autoreparam.run.settings import Settings, as_seed, check_flag
from autoreparam.run.shown import Shown

if TYPE_CHECKING:
    import xarray

METHODS = {"auto": 0.0, "centered": 1.0, "noncentered": 0.0}  # λ to begin with


@helpful
def sample_many(
    model: Callable,
    args: tuple = (),
    kwargs: dict | None = None,
    *,
    shared: Iterable[str] = (),
    parameterization: str | Parameterization = "auto",
    draws: int = 1000,
    warmup: int = 500,
    chains: int = 4,
    seed: Any = 0,
    target_accept: float = 0.8,
    var_names: Iterable[str] | None = None,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
    progress: bool = True,
    precision: str = "auto",
) -> xarray.DataTree:
    """Draws from the posterior of each of many data sets, as one DataTree.

    The arguments have a leading axis of data sets, and so has every variable of the tree:
    `tree.isel(dataset=0)` is the tree of the first. Each data set has its own λ, metric and step
    size; their chains advance together, so that a thousand small data sets take seconds. The group
    `diagnostics` has R-hat, ESS and divergences of each.

    >>> problem = ar.zoo.load("eight_schools")
    >>> y = np.stack([problem.kwargs["y"], -problem.kwargs["y"]])
    >>> data = {"sigma": problem.kwargs["sigma"], "y": y}
    >>> tree = ar.sample_many(problem.model, (), data, shared=["sigma"])

    Args:
        model: The NumPyro model, a function.
        args: Its positional arguments: the data, stacked along their first axis.
        kwargs: Its keyword arguments, in the same way; None for none.
        shared: Names of arguments that are the same for all data sets, without that axis.
        parameterization: "auto" learns λ of each data set during warm-up; "centered" and
            "noncentered" learn nothing; a Parameterization is used as it is, for all data sets.
        draws: Draws per chain after warm-up.
        warmup: Draws per chain to learn from, which are dropped.
        chains: Chains per data set, at least 2 for R-hat.
        seed: The same seed gives the same draws.
        target_accept: The acceptance rate to aim for; raised where transitions diverge.
        var_names: Names of the variables to keep, which saves memory; None keeps all.
        coords: Labels of dimensions, such as `{"county": names}`.
        dims: Names of a variable's own axes, such as `{"beta": ["feature"]}`.
        progress: Whether to show progress in a terminal or notebook.
        precision: "single" or "double"; "auto" leaves it to JAX's own setting.
    """
    given = parameterization if isinstance(parameterization, Parameterization) else None
    if given is None and parameterization not in METHODS:
        raise AutoreparamError(
            f"parameterization: expected one of {known(METHODS)} or a Parameterization; found "
            f"{parameterization!r}. ar.sample has others, for a single data set."
        )
    name = parameterization if isinstance(parameterization, str) else "given"
    settings = Settings(
        name, "hmc", draws, warmup, chains, as_seed(seed), None, target_accept, 10, 1, False, False,
        precision,
    ).checked()  # fmt: skip
    shown = Shown(var_names, coords, dims).checked()
    check_flag("progress", progress)
    with in_precision(precision), one_thread():
        sites = "auto" if given is None else given.sites
        program, targets, count = inspect_many(model, args, kwargs, shared, sites)
        if given is not None:
            lam = given.check(program)
        else:
            tail = 0.5 if name == "auto" else 0.0
            lam = Parameterization.constant(
                program, METHODS[name], s0=1.0, tail=tail, gain=QUADRATIC
            )
        kept = kept_names(program, lam, coords, dims, shown.var_names)
        notes = about_call(program, model, *program.structure.arguments.fill(program.data), {})
        with Progress(progress) as bar:
            found = Batches(targets, count, lam, settings, kept).run(bar)
        if np.spacing(np.abs(found.stats["lp"])).max() > COARSE:
            notes = (*notes, STAYS_SINGLE)
        observed = jax.device_get(jax.jit(lambda all_: all_.each(Target.observed))(targets))
        tree = many_tree(
            program,
            **found._asdict(),
            observed=observed,
            attrs={**settings.keywords(), "notes": notes},
            coords=coords,
            dims=dims,
        )
    return warn(tree, (*notes, *warnings_about(found.diagnostics, settings.chains)))
