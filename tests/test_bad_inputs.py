"""Every public name and every command refuses bad input in a sentence, before it computes."""

import contextlib
import json
import re
from pathlib import Path

import bad_inputs
import numpy as np
import pytest
import typer
from bad_inputs import CALLS, COMMANDS, KEYWORDS, MODELS, RUNS, Y, groups, sample
from typer.testing import CliRunner

import autoreparam as ar
from autoreparam.cli import app
from autoreparam.errors import AutoreparamError
from autoreparam.learn import elbo
from autoreparam.results.tree import Draws, to_tree
from autoreparam.run import begin, many

MODEL = """
import numpyro
import numpyro.distributions as dist

LIMIT = 3

def groups(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("group", len(sigma)):
        theta = numpyro.sample("theta", dist.Normal(mu, 2.0))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)
"""
FILES = {
    "model.py": MODEL,
    "broken.py": "x = 1 / 0",
    "data.json": json.dumps({"sigma": [1.0, 2.0], "y": [0.1, 0.2]}),
    "huge.json": json.dumps({"sigma": [10**30]}),
    "text.json": json.dumps({"sigma": [["low"], ["high"]]}),
    "list.json": "[1, 2]",
    "torn.json": '{"sigma": [1,',
    "text.csv": "sigma,y\nlow,0.5\n3,0.7\n",
    "uneven.csv": "sigma,y\n1,0.5\n2\n",
    "full.zarr/thesis.tex": "years of work",
    "full.nc/thesis.tex": "years of work",
    "folder.py/thesis.tex": "years of work",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(autouse=True)
def nothing_begins(monkeypatch):
    """Whoever gets to the first gradient has not been refused in time."""

    def began(*_, **__):
        pytest.fail("it began to sample or to fit")

    monkeypatch.setattr(begin, "find_start", began)
    monkeypatch.setattr(begin, "fit_elbo", began)
    monkeypatch.setattr(many, "begin", began)
    monkeypatch.setattr(elbo, "_Climber", began)


@pytest.fixture(scope="module")
def tree():
    program, rng = ar.inspect(groups, (Y,)), np.random.default_rng(0)
    values = {site.name: rng.normal(size=(2, 10, *site.shape)) for site in program.latents}
    lam = ar.Parameterization.constant(program, 0.5)
    return to_tree(program, Draws(values, {}), parameterizations=[lam], ledger={}, attrs={},
                   observed={"y": Y}, constant={})  # fmt: skip


def assert_refused(call, words):
    with pytest.raises((AutoreparamError, KeyError)) as caught:
        call()
    assert words in str(caught.value), f"\nexpected: {words}\nfound: {caught.value}"


def label(value):
    """A short name of a case, the same in every process."""
    if callable(value):
        return getattr(value, "__name__", "call")
    return re.sub(r"<function (\S+) at 0x\w+>|<[^>]* at 0x\w+>", r"\1", str(value))[:60]


@pytest.mark.parametrize(("keywords", "words"), KEYWORDS, ids=label)
def test_sample_refuses_keywords(keywords, words):
    assert_refused(lambda: sample(**{"progress": False, **keywords}), words)


@pytest.mark.parametrize(("arguments", "words"), MODELS, ids=label)
def test_sample_refuses_models_and_data(arguments, words):
    assert_refused(lambda: ar.sample(*arguments, progress=False), words)


@pytest.mark.parametrize(("call", "words"), CALLS, ids=label)
def test_calls_are_refused(call, words):
    assert_refused(call, words)


@pytest.mark.parametrize(("call", "words"), RUNS, ids=label)
def test_calls_with_a_run_are_refused(call, words, tree):
    assert_refused(lambda: call(tree), words)


@pytest.mark.parametrize(("command", "words"), COMMANDS, ids=label)
def test_commands_are_refused(command, words, folder):
    with contextlib.chdir(folder):
        done = CliRunner(env={"COLUMNS": "300"}).invoke(app, list(command))
    assert done.exit_code in (1, 2), done.output
    assert isinstance(done.exception, SystemExit), done.exception
    assert words in " ".join(done.stderr.split()), done.stderr
    assert done.stdout == ""


def test_the_table_has_every_public_name_and_every_command():
    assert len(KEYWORDS) + len(MODELS) + len(CALLS) + len(RUNS) + len(COMMANDS) >= 150
    source = Path(bad_inputs.__file__).read_text()
    assert not [name for name in ar.__all__ if f"ar.{name}" not in source]
    main = typer.main.get_command(app)
    assert set(main.commands) <= {command[0] for command, _ in COMMANDS}
