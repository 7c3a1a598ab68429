"""The command-line program, the options its commands share, and how it reports errors."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

import autoreparam as ar
from autoreparam.cli.models import Call, find_call
from autoreparam.cli.values import plain
from autoreparam.errors import AutoreparamError, SamplingWarning
from autoreparam.run.cache import keep_compiled

app = typer.Typer(
    help="Sample Bayesian models in the parameterization that fits the data.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_show_locals=False,
)
data_app = typer.Typer(help="The data sets of the model zoo.", no_args_is_help=True)
app.add_typer(data_app, name="data")

INTERRUPTED = 130  # the shell's exit code of a command stopped by Ctrl-C

Model = Annotated[
    str, typer.Argument(help="path/to/model.py:function, package.module:function or zoo:name")
]
Data = Annotated[
    list[Path] | None,
    typer.Option("--data", "-d", help="A .json (also Stan's), .npz or .csv file; may be repeated."),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="NAME=VALUE for an argument; may be repeated.")
]
IgnoreExtra = Annotated[
    bool, typer.Option("--ignore-extra", help="Ignore data that the model does not take.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Draws = Annotated[int, typer.Option(min=1, help="Draws per chain.")]
Warmup = Annotated[int, typer.Option(min=0, help="Warm-up draws per chain.")]
Chains = Annotated[int, typer.Option(min=1, help="Number of chains.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Kernel = Annotated[str, typer.Option(help="auto, nuts or hmc.")]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Do not keep compiled programs for the next time.")
]
Double = Annotated[bool, typer.Option("--x64", help="Compute in double precision.")]


def command(run: Callable, on: typer.Typer = app, **options: Any) -> Callable:
    """Turns a function into a command whose errors are one sentence and exit code 1.

    Compiled programs are kept for the next time, unless the user says `--no-cache`.
    """

    @wraps(run)
    def guarded(*args: Any, no_cache: bool = False, **kwargs: Any) -> None:
        if not no_cache:
            keep_compiled()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", SamplingWarning)
                warnings.showwarning = _show_warning
                run(*args, **kwargs)
        except AutoreparamError as refusal:
            typer.echo(f"error: {_in_shell(refusal)}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as stopped:
            typer.echo(f"error: {_in_shell(stopped) or 'interrupted'}", err=True)
            raise typer.Exit(INTERRUPTED) from None

    own = signature(run, eval_str=True)
    more = Parameter("no_cache", Parameter.KEYWORD_ONLY, default=False, annotation=NoCache)
    guarded.__signature__ = own.replace(parameters=[*own.parameters.values(), more])  # type: ignore[attr-defined]
    return on.command(**options)(guarded)


def _show_warning(message: Any, category: Any, *place: Any, **more: Any) -> None:
    if issubclass(category, SamplingWarning):
        typer.echo(f"warning: {_in_shell(message)}", err=True)


def _in_shell(said: Any) -> str:
    """What is said about functions, about the commands of the same name."""
    of_folder = re.sub(r"\bar\.resume\('(.*?)', .*?\)", r"`autoreparam resume \1 ...`", str(said))
    return re.sub(r"\bar\.(resume|sample)\b", r"`autoreparam \1`", of_folder)


def find(
    model: str,
    data: list[Path] | None,
    settings: list[str] | None,
    ignore: bool,
    x64: bool = False,
    quiet: bool = False,
) -> Call:
    """The model of a command with its data; notes for the user go to standard error."""
    if x64:
        import jax

        jax.config.update("jax_enable_x64", True)
    call = find_call(model, data or (), settings or (), ignore)
    for note in () if quiet else call.notes:
        typer.echo(f"note: {note}", err=True)
    return call


def say(content: Any) -> None:
    """Prints JSON; numbers that JSON cannot express become null."""
    typer.echo(json.dumps(plain(content), indent=1, ensure_ascii=False))


@app.callback(invoke_without_command=True)
def main(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    """Sample Bayesian models in the parameterization that fits the data."""
    if version:
        typer.echo(f"autoreparam {ar.__version__}")
        raise typer.Exit
