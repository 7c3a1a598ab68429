"""The front door's `predict`: new data, new groups, and what the prior says."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from autoreparam.errors import AutoreparamError, ModelError, SamplingWarning, known
from autoreparam.keywords import helpful
from autoreparam.program.blocks import in_blocks
from autoreparam.program.bounds import about_indices
from autoreparam.program.foreign import as_arrays, fitting
from autoreparam.program.named import constants
from autoreparam.program.outline import outline, unobserved
from autoreparam.program.predictive import Origin, simulate
from autoreparam.program.program import Program
from autoreparam.program.rows import over_rows
from autoreparam.results.labels import by_site, unique
from autoreparam.results.origins import (
    find_origins,
    find_variable,
    is_same_run,
    refuse_unplaced,
)
from autoreparam.results.predicted import Predicted, to_predictions
from autoreparam.run.precision import in_precision
from autoreparam.run.settings import as_seed, check_count
from autoreparam.run.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray

ROWS = 1000  # draws per call
NUMBERS = 20_000_000  # and at most this many numbers


@helpful
def predict(
    model: Callable,
    args: tuple = (),
    kwargs: dict | None = None,
    draws: xarray.DataTree | None = None,
    *,
    seed: Any = 0,
    num_draws: int = 1000,
    new: Iterable[str] | None = None,
    var_names: Iterable[str] | None = None,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
) -> xarray.DataTree:
    """Data simulated from the model, given the draws of a run or from the prior, as a DataTree.

    With the arguments of the run it gives `posterior_predictive`: what the run observed, drawn
    again. With other arguments it gives `predictions`: what they leave out (`y=None`), every
    deterministic, and groups that the run has not seen, drawn from their prior given the draws.
    Without draws it gives `prior` and `prior_predictive`. Discrete latents, which a run sums out,
    are drawn given the draws and the data of the call (`posterior`, or `predictions`).

    >>> future = ar.predict(model, (x_new,), draws=tree)
    >>> future["predictions"]["y"].mean(("chain", "draw"))

    Args:
        model: The NumPyro model, a function.
        args: Its positional arguments: the data.
        kwargs: Its keyword arguments; None for none.
        draws: The run to predict from; None for the prior.
        seed: The same seed gives the same predictions.
        num_draws: Draws from the prior; a run gives one prediction per draw.
        new: Plates whose elements are not those of the run; `[]` if all are, in the same order.
            None asks where that is not clear: labels tell, and groups that have no data of their
            own keep their numbers.
        var_names: Names of the variables to keep; None keeps all.
        coords: Labels of dimensions. Elements with a label of the run are the same, others are new.
        dims: Names of a variable's own axes, such as `{"beta": ["feature"]}`; where None, its
            plates'.
    """
    _check(kwargs, draws, num_draws)
    chosen = _plates(new)
    shown = Shown(var_names, coords, dims).checked()
    seed = as_seed(seed)
    precision = "auto" if draws is None else draws.attrs.get("precision", "auto")
    with in_precision(precision):
        program = outline(model, args, kwargs)
        for sentence in about_indices(program):
            warnings.warn(sentence, SamplingWarning, stacklevel=3)
        data = _data_sites(program, unobserved(model, args, kwargs), draws)
        given = constants(program, {})
        same = draws is None or is_same_run(draws, given)
        origins: dict[str, Origin] = {}
        values: dict[str, np.ndarray] = {}
        brought = as_arrays((args, kwargs))[1]
        if draws is not None:
            labels = fitting(brought, program.plates)
            refuse_unplaced(brought, labels, set(coords or ()), draws, program.plates)
            labels |= dict(coords or {})
            origins = find_origins(program, draws, data, labels, chosen, same)
            values = {name: _rows(draws, name) for name in origins}
        same = same and all(origin.complete for origin in origins.values())
        inferred = _inferred(program, data, draws)
        wanted: tuple[str, ...] = ()
        if same or not inferred:
            wanted = _wanted(program, data, origins, draws is None, same)
        kept = _kept((*wanted, *inferred), shown.var_names)
        predicted = Predicted(program, {}, frozenset(data), origins, given)
        label = partial(to_predictions, draws=draws, same_run=same, coords=coords, dims=dims,
                        brought=brought)  # fmt: skip
        label(predicted)  # whatever is wrong with the labels is known before anything is drawn
        lead = (1, int(num_draws)) if draws is None else _lead(draws)
        run = partial(_simulate_all, program, values, origins, jax.random.key(seed), lead)
        found = run([n for n in wanted if n in kept], replicate=same)
        found |= run([n for n in inferred if n in kept], replicate=False, given_data=True)
    return label(replace(predicted, values=found))


def _check(kwargs: Any, draws: Any, num_draws: Any) -> None:
    """Rejects what is no run, no keyword arguments or no number of draws."""
    if draws is not None and "posterior" not in getattr(draws, "children", ()):
        raise AutoreparamError(
            f"draws: expected the tree of a run, with a group 'posterior'; found "
            f"{type(draws).__name__}"
        )
    if hasattr(kwargs, "children"):
        raise AutoreparamError(
            "kwargs: expected a dict of the model's keyword arguments; found a tree. Pass a run "
            "as draws=tree."
        )
    check_count("num_draws", num_draws)
    if draws is None:
        return
    sizes = draws["posterior"].sizes
    missing = [dim for dim in ("chain", "draw") if dim not in sizes]
    if missing:
        raise AutoreparamError(
            f"draws: expected a posterior with the dimensions 'chain' and 'draw'; it has no "
            f"{known(missing)}. Select with a list, which keeps the dimension: isel(chain=[0])."
        )
    if sizes["chain"] * sizes["draw"] == 0:
        raise AutoreparamError("draws: the run has no draws to predict from")


def _plates(new: Any) -> list[str] | None:
    if new is None or isinstance(new, str):
        return None if new is None else [new]
    if not isinstance(new, Iterable):
        raise AutoreparamError(f"new: expected a list of plates; found {type(new).__name__}")
    return list(new)


def _kept(sites: tuple[str, ...], var_names: Iterable[str] | None) -> set[str]:
    """The sites to be kept; only these are computed."""
    if var_names is None:
        return set(sites)
    return set(by_site(dict.fromkeys(var_names), unique(sites, set()), "var_names"))


def _data_sites(program: Program, gaps: Mapping[str, str], draws: Any) -> set[str]:
    """What the model observes, here or in the run."""
    data = {site.name for site in program.sites if site.kind == "observed"}
    if draws is not None and "observed_data" in draws.children:
        group = draws["observed_data"]
        data |= {site.name for site in program.sites if find_variable(group, site.name) is not None}
    return data | {site.name for site in program.sites if site.name in gaps}


def _wanted(program: Program, data: set[str], origins, prior: bool, same: bool) -> tuple[str, ...]:
    """The sites to give back."""
    drawn = {site.name: site for site in program.sites if site.kind != "factor"}
    if prior:
        return tuple(drawn)
    if same:
        left = [name for name in drawn if name in data]
        what = "the model has no observed site, so there is nothing to predict"
    else:
        seen = {name for name, origin in origins.items() if origin.complete}
        # A series may be observed in part.
        fixed = {n for n, site in drawn.items() if site.kind == "observed" and site.loop is None}
        left = [name for name in drawn if name not in seen | fixed]
        if data and not data & set(left):
            left = []
        what = (
            f"{known(sorted(data))} is given, so there is nothing to predict: predictions do not "
            "learn from new data. Leave out what is to be predicted: y=None"
        )
    if not left:
        raise ModelError(what)
    return tuple(left)


def _inferred(program: Program, data: set[str], draws: Any) -> tuple[str, ...]:
    """Discrete latents that the draws left out, and what depends on them, where data are given."""
    kinds = {site.name: site.kind for site in program.sites}
    if draws is None or any(kinds[name] != "observed" for name in data):
        return ()
    left = [n for n in kinds if find_variable(draws["posterior"], n) is None and n not in data]
    if not any(kinds[name] == "discrete" for name in left):
        return ()
    return tuple(name for name in left if kinds[name] in ("discrete", "deterministic"))


def _rows(draws: xarray.DataTree, site: str) -> np.ndarray:
    values = np.asarray(find_variable(draws["posterior"], site))
    return values.reshape(-1, *values.shape[2:])


def _lead(draws: xarray.DataTree) -> tuple[int, int]:
    sizes = draws["posterior"].sizes
    return sizes["chain"], sizes["draw"]


def _simulate_all(
    program: Program,
    values: Mapping[str, np.ndarray],
    origins: Mapping[str, Origin],
    key: Any,
    lead: tuple[int, int],
    wanted: Iterable[str],
    **how: bool,
) -> dict[str, np.ndarray]:
    """The wanted sites for every draw, of shape (chain, draw, *shape), a block at a time."""
    wanted = tuple(wanted)
    if not wanted:
        return {}
    # What is not wanted is computed too, where the rest depends on it.
    size = sum(int(np.prod(site.shape)) for site in program.sites)

    @jax.jit
    def block(program, numbers, drawn):
        def one(number, drawn):
            own = jax.random.fold_in(key, number)
            found = simulate(program, drawn, origins, own, **how)
            return {name: found[name] for name in wanted}

        return over_rows(program, one, (0, 0))(numbers, drawn)

    names, count = list(values), lead[0] * lead[1]
    found = in_blocks(
        lambda first, numbers, *rows: block(program, numbers, dict(zip(names, rows))),
        max(1, min(ROWS, count, NUMBERS // max(size, 1))),
        np.arange(count),
        *(values[name] for name in names),
    )
    return {name: rows.reshape(*lead, *rows.shape[1:]) for name, rows in found.items()}
