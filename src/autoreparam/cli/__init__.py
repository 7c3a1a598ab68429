"""The command line: turns words into calls of the public API; no logic of its own."""

from autoreparam.cli import look, predict, run
from autoreparam.cli.app import app

__all__ = ["app", "look", "predict", "run"]
