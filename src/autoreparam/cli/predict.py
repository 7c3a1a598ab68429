"""The command `predict`: new data, new groups, and what the prior says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import autoreparam as ar
from autoreparam.cli.app import (
    Data,
    Double,
    IgnoreExtra,
    Json,
    Model,
    Seed,
    Set,
    command,
    find,
    say,
)
from autoreparam.cli.models import in_words
from autoreparam.results.files import check_name, read_tree, write_tree


@command
def predict(
    model: Model,
    data: Data = None,
    set_: Set = None,
    ignore_extra: IgnoreExtra = False,
    draws: Annotated[
        Path | None,
        typer.Option(help="The run to predict from: .nc or .zarr. Without it, from the prior."),
    ] = None,
    new: Annotated[
        list[str] | None,
        typer.Option("--new", help="A plate whose elements are not those of the run; repeatable."),
    ] = None,
    same: Annotated[
        bool, typer.Option("--same", help="All elements are those of the run, in its order.")
    ] = False,
    num_draws: Annotated[int, typer.Option(min=1, help="Draws from the prior.")] = 1000,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write them: .nc or .zarr")
    ] = None,
    x64: Double = False,
    as_json: Json = False,
) -> None:
    """Predicts what the data leave out, from the draws of a run or from the prior."""
    if out is not None:
        check_name(out)
    call = find(model, data, set_, ignore_extra, x64, quiet=True)  # what is left out is predicted
    tree = None if draws is None else read_tree(draws)
    chosen = [] if same else (new or None)
    with in_words(call):
        found = ar.predict(
            call.model, (), call.kwargs, tree, seed=seed, num_draws=num_draws, new=chosen
        )
    if out is not None:
        write_tree(found, out)
    table = ar.summary(found)
    if as_json:
        say({"summary": table.to_dict(), "out": out})
        return
    typer.echo(str(table))
    if out is not None:
        typer.echo(f"predictions: {out}")
