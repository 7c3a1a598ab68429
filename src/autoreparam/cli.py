"""The command line: words to calls of the front door, no logic."""

from __future__ import annotations

import typer

import autoreparam

app = typer.Typer(
    help="Sample Bayesian models in the parameterization that fits the data.",
    no_args_is_help=True,
    add_completion=True,
)


@app.callback(invoke_without_command=True)
def main(
    version: bool = typer.Option(False, "--version", help="Print the version and leave."),
) -> None:
    """Sample Bayesian models in the parameterization that fits the data."""
    if version:
        typer.echo(f"autoreparam {autoreparam.__version__}")
        raise typer.Exit


@app.command()
def demo(
    draws: int = typer.Option(1000, min=4, help="Draws per chain."),
    seed: int = typer.Option(0, min=0, help="Seed of the random numbers."),
) -> None:
    """Two models, every parameterization side by side: why the choice matters."""
    from autoreparam.experiments.demo import show

    show(draws=draws, seed=seed)


if __name__ == "__main__":
    app()
