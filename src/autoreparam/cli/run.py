"""Commands that run: `sample`, `resume`, `learn`, `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import autoreparam as ar
from autoreparam.cli.app import (
    INTERRUPTED,
    Chains,
    Data,
    Double,
    Draws,
    IgnoreExtra,
    Json,
    Kernel,
    Model,
    Seed,
    Set,
    Warmup,
    command,
    find,
    say,
)
from autoreparam.cli.models import in_words
from autoreparam.disk import check_place
from autoreparam.errors import AutoreparamError
from autoreparam.results.files import check_name, read_tree, write_anywhere, write_tree
from autoreparam.run.rescue import undisturbed

if TYPE_CHECKING:
    import xarray

RunOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="Where to write the draws: .nc or .zarr")
]
Page = Annotated[Path | None, typer.Option("--report", help="Where to write a report: .html")]
Likelihood = Annotated[
    bool, typer.Option("--log-likelihood", help="Keep the log likelihood, for ArviZ's loo.")
]
Predictive = Annotated[
    bool, typer.Option("--posterior-predictive", help="Also draw from the posterior predictive.")
]
Names = Annotated[
    list[str] | None, typer.Option(help="A variable to keep; repeat it for others. All if none.")
]


@command
def sample(
    model: Model,
    data: Data = None,
    set_: Set = None,
    ignore_extra: IgnoreExtra = False,
    parameterization: Annotated[
        str,
        typer.Option(
            "--parameterization",
            "-p",
            help="auto, vip, centered, noncentered, interleaved, or a .json file with λ",
        ),
    ] = "auto",
    kernel: Kernel = "auto",
    draws: Draws = 1000,
    warmup: Warmup = 500,
    chains: Chains = 4,
    seed: Seed = 0,
    num_steps: Annotated[
        int | None, typer.Option(min=1, help="Number of leapfrog steps (HMC).")
    ] = None,
    target_accept: Annotated[float, typer.Option(help="Acceptance rate to aim for.")] = 0.8,
    max_tree_depth: Annotated[int, typer.Option(min=1, help="Maximum tree depth (NUTS).")] = 10,
    thin: Annotated[int, typer.Option(min=1, help="Keep every n-th draw.")] = 1,
    save_warmup: Annotated[
        bool, typer.Option("--save-warmup", help="Keep the warm-up draws too.")
    ] = False,
    log_likelihood: Likelihood = False,
    posterior_predictive: Predictive = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A folder to store the run in as it goes, for `resume`.")
    ] = None,
    out: RunOut = None,
    report: Page = None,
    implicit: Annotated[
        bool, typer.Option("--implicit/--no-implicit", help="Look for non-centering by hand.")
    ] = True,
    var_names: Names = None,
    shard: Annotated[
        list[str] | None,
        typer.Option(help="An argument whose rows devices share; repeat it for others."),
    ] = None,
    x64: Double = False,
    as_json: Json = False,
) -> None:
    """Samples from the posterior: prints a summary and saves the draws to a file."""
    _check_places(out, report, data)
    call = find(model, data, set_, ignore_extra, x64)
    lam: Any = parameterization
    if parameterization.endswith(".json"):
        lam = ar.Parameterization.load(parameterization)
    with in_words(call):
        tree = ar.sample(
            call.model,
            (),
            call.kwargs,
            parameterization=lam,
            kernel=kernel,
            draws=draws,
            warmup=warmup,
            chains=chains,
            seed=seed,
            num_steps=num_steps,
            target_accept=target_accept,
            max_tree_depth=max_tree_depth,
            thin=thin,
            save_warmup=save_warmup,
            log_likelihood=log_likelihood,
            posterior_predictive=posterior_predictive,
            var_names=var_names,
            implicit=implicit,
            shard=shard or (),
            checkpoint=checkpoint,
        )
    _finish(tree, out, report, as_json)


@command
def resume(
    checkpoint: Annotated[Path, typer.Argument(help="The folder that `sample` stored the run in")],
    model: Model,
    data: Data = None,
    set_: Set = None,
    ignore_extra: IgnoreExtra = False,
    draws: Annotated[
        int | None, typer.Option(min=1, help="Total draws per chain, to extend a finished run.")
    ] = None,
    log_likelihood: Likelihood = False,
    posterior_predictive: Predictive = False,
    var_names: Names = None,
    out: RunOut = None,
    report: Page = None,
    x64: Double = False,
    as_json: Json = False,
) -> None:
    """Finishes an interrupted run, or extends a finished one, as if it had never stopped."""
    _check_places(out, report, data)
    call = find(model, data, set_, ignore_extra, x64)
    with in_words(call):
        tree = ar.resume(
            checkpoint,
            call.model,
            (),
            call.kwargs,
            draws,
            log_likelihood=log_likelihood,
            posterior_predictive=posterior_predictive,
            var_names=var_names,
        )
    _finish(tree, out, report, as_json)


@command
def learn(
    model: Model,
    data: Data = None,
    set_: Set = None,
    ignore_extra: IgnoreExtra = False,
    objective: Annotated[
        str, typer.Option(help="elbo (the paper's VIP), or score (from the draws of a run)")
    ] = "elbo",
    draws: Annotated[
        Path | None, typer.Option(help="The run to learn from, with --objective score.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the ELBO fit.")] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write λ: a .json file")
    ] = None,
    x64: Double = False,
    as_json: Json = False,
) -> None:
    """Learns a parameterization, for use with `sample -p lam.json`."""
    if out is not None:
        if out.suffix != ".json":
            raise AutoreparamError(f"--out: expected a name ending in .json; found '{out}'")
        check_place(out, "--out")
        _refuse_inputs(out, "--out", data)
    if objective == "score" and draws is None:
        raise AutoreparamError("--objective score learns from a run: pass --draws RUN")
    call = find(model, data, set_, ignore_extra, x64)
    options: dict[str, Any] = {} if steps is None or objective != "elbo" else {"steps": steps}
    tree = None if draws is None else read_tree(draws)
    with in_words(call):
        fit = ar.learn(
            call.model, (), call.kwargs, objective=objective, draws=tree, seed=seed, **options
        )
    lam = fit.parameterization
    if out is not None:
        _save(lam, out)
    if as_json:
        found = {name: lam[name] for name in lam.sites}
        say({"lam": found, "elbo": fit.elbo, "gradients": fit.gradients, "out": out})
        return
    typer.echo(lam)
    elbo = "" if fit.elbo is None else f"ELBO {float(fit.elbo):.3f}, "
    typer.echo(f"{elbo}{fit.gradients:,} gradients" + (f", written to {out}" if out else ""))


@command
def compare(
    model: Model,
    data: Data = None,
    set_: Set = None,
    ignore_extra: IgnoreExtra = False,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", "-m", help="A parameterization; may be repeated. All by default."),
    ] = None,
    kernel: Kernel = "auto",
    draws: Draws = 1000,
    warmup: Warmup = 500,
    chains: Chains = 4,
    seed: Seed = 0,
    report: Page = None,
    x64: Double = False,
    as_json: Json = False,
) -> None:
    """Runs every parameterization on your model: what each delivers, and what it costs."""
    from autoreparam.experiments.compare import METHODS, best, table
    from autoreparam.experiments.compare import compare as run_all

    _check_places(None, report, data)
    call = find(model, data, set_, ignore_extra, x64)
    with in_words(call):
        runs = run_all(
            call.model,
            (),
            call.kwargs,
            methods=method or METHODS,
            kernel=kernel,
            draws=draws,
            warmup=warmup,
            chains=chains,
            seed=seed,
        )
    winner = best(runs)
    if as_json:
        say({"best": winner, "runs": {name: run.to_dict() for name, run in runs.items()}})
    else:
        Console(width=max(100, Console().width)).print(table(runs).to_terminal())
        typer.echo(f"Best with all costs: {winner}")
    if report is not None:
        others = {name: run.tree for name, run in runs.items() if name != winner}
        ar.report(runs[winner].tree, report, alternatives=others)
        typer.echo(f"report: {report}", err=as_json)


def _check_places(out: Path | None, page: Path | None, data: list[Path] | None) -> None:
    """Refuses, before anything runs, what could not or should not be written afterwards."""
    if out is not None:
        check_name(out)
    if page is not None:
        check_place(page, "--report")
        _refuse_inputs(page, "--report", data)


def _refuse_inputs(place: Path, what: str, data: list[Path] | None) -> None:
    if any(path.exists() and place.exists() and place.samefile(path) for path in data or ()):
        raise AutoreparamError(f"{what}: {place} holds the data. Choose another name.")


def _finish(tree: xarray.DataTree, out: Path | None, page: Path | None, as_json: bool) -> None:
    """Saves the draws first, then prints; whatever fails, the error says where the draws are."""
    saved = None
    try:
        if out is not None:
            write_tree(tree, out)
            saved = out
        if as_json:
            found, table = ar.efficiency(tree), ar.summary(tree)
            say({"efficiency": found.to_dict(), "summary": table.to_dict(), "out": out})
        else:
            typer.echo(str(ar.summary(tree)))
        if page is not None:
            ar.report(tree, page)
        for title, path in (("draws", out), ("report", page)):
            if path is not None and not as_json:
                typer.echo(f"{title}: {path}")
    except (Exception, KeyboardInterrupt) as error:
        with undisturbed():
            saved = saved or write_anywhere(tree)
        where = f"The draws are in {saved}." if saved else "They could not be written anywhere."
        said = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        kind = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else AutoreparamError
        raise kind(f"{said}\n{where}") from error
    if tree.attrs["interrupted"]:
        raise typer.Exit(INTERRUPTED)


def _save(lam: ar.Parameterization, out: Path) -> None:
    try:
        lam.save(out)
    except (AutoreparamError, KeyboardInterrupt):
        typer.echo(lam.to_json())  # where it can still be kept
        raise
