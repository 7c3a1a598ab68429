"""Models to learn from and to benchmark on, each with its data: the paper's, and some others."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autoreparam.errors import ModelError, known
from autoreparam.zoo import (
    co2_trend,
    correlated_slopes,
    data,
    eight_schools,
    election88,
    electric,
    funnel,
    gdp_growth,
    german_credit,
    gp_poisson,
    horseshoe,
    local_scales,
    r2d2,
    radon,
    rare_features,
    robust_schools,
    sleep_study,
    stochastic_volatility,
    toy,
    unequal_groups,
)

__all__ = ["Entry", "data", "load", "names"]

_LOADERS: dict[str, Callable[..., data.Loaded]] = {
    "eight_schools": eight_schools.load,
    "radon": radon.load,
    "radon_scales": radon.load_scales,
    "german_credit": german_credit.load,
    "german_credit_gamma": german_credit.load_gamma,
    "election88": election88.load,
    "electric": electric.load,
    "toy": toy.load,
    "funnel": funnel.load,
    "unequal_groups": unequal_groups.load,
    "co2_trend": co2_trend.load,
    "stochastic_volatility": stochastic_volatility.load,
    "gp_poisson": gp_poisson.load,
    "correlated_slopes": correlated_slopes.load,
    "horseshoe": horseshoe.load,
    "r2d2": r2d2.load,
    "robust_schools": robust_schools.load,
    "rare_features": rare_features.load,
    "local_scales": local_scales.load,
    "sleep_study": sleep_study.load,
    "gdp_growth": gdp_growth.load,
}


@dataclass(frozen=True, eq=False)
class Entry:
    """A model of the zoo and the data it is conditioned on; `model(*args, **kwargs)` runs it.

    `description` is one line about the model, `notes` says where model and data come from and what
    was corrected, `counts` how many homes, counties, ... are in the data.
    """

    name: str
    model: Callable
    args: tuple
    kwargs: dict[str, Any]
    description: str
    notes: str
    counts: dict[str, int]


def names() -> tuple[str, ...]:
    """The names that `load` knows."""
    return tuple(_LOADERS)


def load(name: str, **options: Any) -> Entry:
    """The model called `name`, with its data.

    Options depend on the model, for example a state:

        entry = load("radon", state="PA")
        tree = autoreparam.sample(entry.model, entry.args, entry.kwargs)

    Args:
        name: One of `ar.zoo.names()`.
        options: Settings of that model, such as a state of radon.
    """
    if name not in _LOADERS:
        raise ModelError(f"The zoo has no model named {name!r}. It has: {known(names())}.")
    loader = _LOADERS[name]
    accepted = inspect.signature(loader).parameters
    unknown = [option for option in options if option not in accepted]
    if unknown:
        raise ModelError(
            f"The zoo's model '{name}' has no option {known(unknown)}. "
            f"Its options: {known(accepted)}."
        )
    model, kwargs, counts = loader(**options)
    description = (inspect.getdoc(model) or "").partition("\n")[0]
    notes = inspect.getdoc(inspect.getmodule(model)) or ""
    return Entry(name, model, (), kwargs, description, notes, counts)
