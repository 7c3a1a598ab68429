"""What a call gets that its author may not have meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autoreparam.errors import known
from autoreparam.program.bounds import about_indices
from autoreparam.program.outline import unobserved
from autoreparam.program.pointwise import inseparable
from autoreparam.program.program import Program


def about_call(
    program: Program,
    model: Callable,
    args: tuple,
    kwargs: Mapping | None,
    wanted: Mapping[str, bool],
) -> tuple[str, ...]:
    """Notes on data that were forgotten, stray indices, and groups that cannot be filled.

    `wanted` says which groups about the observed sites were asked for.
    """
    gaps = unobserved(model, args, kwargs)
    notes = [
        f"'{site.name}' is sampled, since argument {gaps[site.name]} is None. Was it meant to be "
        "observed?"
        for site in program.sites
        if site.kind in ("latent", "discrete") and site.name in gaps
    ]
    notes += about_indices(program)
    if wanted.get("log_likelihood"):
        notes += [
            f"'{name}' has no log likelihood per observation: {why}. Its total per draw is in "
            "sample_stats, 'total_log_likelihood'."
            for name, why in inseparable(program.sites).items()
        ]
    asked = [group for group, wish in wanted.items() if wish]
    if asked and not has_data(program):
        notes.append(
            f"The model has no observed site, so there is nothing to put into {known(asked)}."
        )
    return tuple(notes)


def available(program: Program, group: str) -> bool:
    """Whether a group about the observed sites can be filled."""
    names = {site.name for site in program.sites if site.kind == "observed"}
    return bool(names - set(inseparable(program.sites) if group == "log_likelihood" else ()))


def has_data(program: Program) -> bool:
    """Whether the model observes anything but factors."""
    return any(site.kind == "observed" for site in program.sites)
