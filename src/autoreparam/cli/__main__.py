"""`python -m autoreparam.cli`."""

from autoreparam.cli import app

app(prog_name="autoreparam")
