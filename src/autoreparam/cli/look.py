"""Commands that show things: `demo`, `inspect`, `report`, `data`, `reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import autoreparam as ar
from autoreparam.cli.app import (
    Data,
    Draws,
    IgnoreExtra,
    Json,
    Model,
    Seed,
    Set,
    command,
    data_app,
    find,
    say,
)
from autoreparam.cli.models import in_words
from autoreparam.disk import check_place
from autoreparam.errors import AutoreparamError, DataError
from autoreparam.render.table import Table
from autoreparam.results.files import read_tree
from autoreparam.zoo.data import FILES, Listed, fetch, listing


@command
def demo(
    draws: Draws = 1000,
    seed: Seed = 0,
    report: Annotated[Path, typer.Option(help="Where to write the report.")] = Path(
        "autoreparam-demo.html"
    ),
) -> None:
    """Two models, every parameterization side by side, and a report: why the choice matters."""
    from autoreparam.experiments.demo import show

    if draws < 4:
        raise AutoreparamError(f"--draws: expected 4 or more for an ESS; found {draws}")
    check_place(report, "--report")
    show(draws=draws, seed=seed, path=report)


@command
def inspect(
    model: Model,
    data: Data = None,
    set_: Set = None,
    ignore_extra: IgnoreExtra = False,
    as_json: Json = False,
) -> None:
    """The sites of a model: what depends on what, what can be reparameterized, and why not."""
    call = find(model, data, set_, ignore_extra)
    with in_words(call):
        program = ar.inspect(call.model, (), call.kwargs)
    if as_json:
        keys = ("name", "kind", "distribution", "shape", "support", "parents", "candidate", "note",
                "statement")  # fmt: skip
        say([{key: getattr(site, key) for key in keys} for site in program.sites])
    else:
        typer.echo(str(program))
        for site in program.candidates:
            if site.statement:
                form = "centered" if site.implied else "non-centered"
                typer.echo(f"\n{site.name}, {form}:\n    {site.statement}")


@command
def report(
    run: Annotated[Path, typer.Argument(help="A run written by `sample`: .nc or .zarr")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
    beside: Annotated[
        list[str] | None,
        typer.Option("--with", help="NAME=RUN, another run to compare with; may be repeated."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    code: Annotated[
        bool, typer.Option("--numpyro", help="Print λ as NumPyro code instead.")
    ] = False,
) -> None:
    """Writes one self-contained page about a run."""
    if not code:
        check_place(out, "--out")
    tree = read_tree(run)
    if code:
        typer.echo(ar.interop.numpyro_code(tree))
        return
    others = {}
    for entry in beside or ():
        name, equals, path = entry.partition("=")
        if not equals:
            raise AutoreparamError(f"--with: expected NAME=RUN; found '{entry}'")
        others[name] = read_tree(Path(path))
    typer.echo(ar.report(tree, out, alternatives=others, title=title))


def list_data(as_json: Json = False) -> None:
    """Lists every data file and where it is on this machine; downloads nothing."""
    found = listing()
    if as_json:
        say([vars(file) for file in found])
        return
    rows = [(file.name, _state(file), str(file.path or file.url)) for file in found]
    typer.echo(Table(("file", "state", "where"), rows).to_text())


def _state(file: Listed) -> str:
    if file.path is None:
        return "missing"
    return "ok" if file.intact else "damaged"


def fetch_data(
    names: Annotated[list[str] | None, typer.Argument(help="Names from `data list`.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every file.")] = False,
) -> None:
    """Downloads data files that are missing, and prints the paths of all."""
    wanted = list(FILES) if everything else names or []
    if not wanted:
        raise DataError("name the files to fetch (see `data list`), or pass --all")
    for name in wanted:
        typer.echo(fetch(name, progress=False))


command(list_data, data_app, name="list")
command(fetch_data, data_app, name="fetch")


@command
def reproduce(
    quick: Annotated[
        bool, typer.Option("--quick", help="Small budgets: minutes on two cores.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="The paper's own budgets: a quarter of an hour on a GPU, hours on two cores.",
        ),
    ] = False,
    model: Annotated[
        list[str] | None, typer.Option(help="A model of the paper; may be repeated.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="A method of the paper; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path(
        "reproduction"
    ),
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which it stops; run it again to go on.")
    ] = None,
    no_page: Annotated[bool, typer.Option("--no-page", help="Run, write no page.")] = False,
) -> None:
    """Repeats the paper's experiments: tables, figures, verdicts on its claims."""
    if quick and full:
        raise typer.BadParameter("choose one of --quick and --full")
    from autoreparam.experiments.reproduce import reproduce as run

    run("full" if full else "quick", model, method, out, time_limit=time_limit, page=not no_page)
