"""The command line: words to calls of the front door, no logic."""

from autoreparam.cli import look, run
from autoreparam.cli.app import app

__all__ = ["app", "look", "run"]
