"""Each command as a user runs it, and its most likely misuse."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from interrupts import interrupted_at
from typer.testing import CliRunner

import autoreparam as ar
from autoreparam.cli import app
from autoreparam.cli.models import find_model
from autoreparam.cli.values import read_file
from autoreparam.errors import DataError
from autoreparam.results.files import read_tree
from autoreparam.zoo import data as zoo_data

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
COUNTIES = """
import numpyro
import numpyro.distributions as dist

def model(county, y=None):
    with numpyro.plate("county", int(county.max()) + 1):
        theta = numpyro.sample("theta", dist.Normal(0, 1))
    with numpyro.plate("row", len(county)):
        numpyro.sample("y", dist.Normal(theta[county], 1), obs=y)
"""
DATA = {"sigma": [1.0, 2.0, 3.0], "y": [1.5, -0.5, 2.0]}
QUICK = ("--kernel", "hmc", "--draws", "30", "--warmup", "60", "--chains", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    (folder / "model.py").write_text(MODEL)
    (folder / "data.json").write_text(json.dumps(DATA))
    return folder


def apart(folder, *words):
    """What the real program says, in a process of its own."""
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "COLUMNS": "200",
        "HTTPS_PROXY": "http://127.0.0.1:9",  # nothing there: the guard of the tests is not either
    }
    done = subprocess.run(
        [sys.executable, "-m", "autoreparam.cli", *map(str, words)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def good(folder, *words):
    """The same within this process, which need not import and compile everything again."""
    with contextlib.chdir(folder):
        done = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(folder, monkeypatch, *words):
    """What it says when it refuses."""
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 1, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    return done.stderr


@pytest.fixture(scope="module")
def sampled(folder):
    """One run that the other commands read."""
    words = ("sample", "model.py:groups", "--data", "data.json", *QUICK)
    said = good(folder, *words, "--out", "run.zarr", "--checkpoint", "kept", "--report", "r.html",
                "--log-likelihood", "-p", "noncentered")  # fmt: skip
    return said


def test_sample_writes_draws_and_report_and_prints_a_summary(folder, sampled):
    assert "theta[2]" in sampled
    assert "draws: run.zarr" in sampled
    assert (folder / "r.html").read_text().startswith("<!doctype html>")
    tree = read_tree(folder / "run.zarr")
    assert tree["posterior"]["theta"].shape == (2, 30, 3)
    assert "log_likelihood" in tree.children


def test_sample_refuses_a_shape_that_does_not_fit(folder, monkeypatch):
    (folder / "short.json").write_text(json.dumps(DATA | {"y": [1.0, 2.0]}))
    said = refused(folder, monkeypatch, "sample", "model.py:groups", "--data", "short.json", *QUICK)
    assert "the model 'groups' failed on its data" in said
    assert 'line 11: numpyro.sample("y"' in said
    assert "sigma of shape (3,), y of shape (2,)" in said


def test_sample_refuses_an_ending_it_cannot_write_before_it_runs(folder, monkeypatch):
    words = ("sample", "model.py:groups", "--data", "data.json", "--out", "run.txt")
    assert "ending in .nc or .zarr; found 'run.txt'" in refused(folder, monkeypatch, *words)


def test_resume_extends_a_run_and_speaks_json(folder, sampled):
    words = ("resume", "kept", "model.py:groups", "--data", "data.json", "--draws", "40", "--json")
    found = json.loads(good(folder, *words))
    assert found["efficiency"]["draws"] == 40
    assert set(found["summary"]) == {"mu", "theta[0]", "theta[1]", "theta[2]"}


def test_variables_can_be_named(folder, sampled):
    words = ("resume", "kept", "model.py:groups", "--data", "data.json", "--var-names", "mu")
    assert set(json.loads(good(folder, *words, "--json"))["summary"]) == {"mu"}


def test_ctrl_c_keeps_the_draws_says_how_to_go_on_and_is_an_exit_status(folder, monkeypatch):
    monkeypatch.chdir(folder)
    words = ["sample", "model.py:groups", "--data", "data.json", "--draws", "60", "--warmup", "20"]
    with interrupted_at(6):
        done = CliRunner().invoke(app, [*words, "--checkpoint", "half", "--out", "half.zarr"])
    assert done.exit_code == 130
    assert "`autoreparam resume` finishes the run" in done.stderr
    assert read_tree(folder / "half.zarr").attrs["interrupted"]
    said = refused(folder, monkeypatch, *words, "--checkpoint", "half")
    assert "Continue or extend it with `autoreparam resume`" in said


def test_predict_replicates_the_data_predicts_new_groups_and_asks_which(
    folder, sampled, monkeypatch
):
    words = ("predict", "model.py:groups", "--draws", "run.zarr")
    assert "posterior_predictive: mean" in good(folder, *words, "--data", "data.json")
    (folder / "new.json").write_text(json.dumps({"sigma": [1.0, 1.0]}))
    said = refused(folder, monkeypatch, *words, "--data", "new.json")
    assert "Pass new=['group'] (--new group) if they are new" in said
    said = good(folder, *words, "--data", "new.json", "--new", "group", "--out", "new.zarr")
    assert "y[1]" in said
    assert read_tree(folder / "new.zarr")["predictions"]["theta"].shape == (2, 30, 2)


def test_predict_without_a_run_draws_from_the_prior(folder):
    words = ("predict", "model.py:groups", "--set", "sigma=[1, 1]", "--num-draws", 20, "--json")
    assert set(json.loads(good(folder, *words))["summary"]) == {"y[0]", "y[1]"}


def test_resume_refuses_other_data(folder, sampled, monkeypatch):
    (folder / "other.json").write_text(json.dumps(DATA | {"y": [9.0, 9.0, 9.0]}))
    words = ("resume", "kept", "model.py:groups", "--data", "other.json")
    assert "belongs to different data" in refused(folder, monkeypatch, *words)


def test_inspect_shows_the_table_of_sites(folder):
    said = apart(folder, "inspect", "model.py:groups", "--data", "data.json")
    assert "yes: location depends on mu" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere.py:groups",), "nowhere.py: there is no such file"),
        (("model.py:group",), "model.py has no function 'group'; its functions are 'groups'"),
        (("model.py:LIMIT",), "is not a function but of type int"),
        (("model.py",), "expected path/to/model.py:function"),
        (("no_such_package:groups",), "could not be imported"),
        (("model.py:groups",), "needs 'sigma'; the data hold none"),
        (("model.py:groups", "--data", "no.json"), "no.json: there is no such file"),
        (("model.py:groups", "--data", "model.py"), "ending in '.json', '.npz', '.csv'"),
        (("zoo:nothing",), "The zoo has no model named 'nothing'"),
        (("model.py:groups", "--set", "sigma"), "expected NAME=VALUE"),
    ],
)
def test_inspect_says_what_is_missing(folder, monkeypatch, words, message):
    assert message in refused(folder, monkeypatch, "inspect", *words)


def test_inspect_speaks_json_and_reads_models_of_the_zoo(folder, monkeypatch):
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, ["inspect", "zoo:funnel", "--set", "n=3", "--json"])
    sites = {site["name"]: site for site in json.loads(done.stdout)}
    assert sites["x"]["candidate"]
    assert sites["x"]["shape"] == [3]


def test_learn_writes_lam_that_sample_takes(folder, sampled):
    words = ("learn", "model.py:groups", "--data", "data.json")
    said = good(folder, *words, "--objective", "score", "--draws", "run.zarr", "--out", "lam.json")
    assert "written to lam.json" in said
    lam = ar.Parameterization.load(folder / "lam.json")
    assert lam["theta"].shape == (3,)


def test_learn_refuses_to_learn_from_draws_without_any(folder, monkeypatch):
    words = ("learn", "model.py:groups", "--data", "data.json", "--objective", "score")
    assert "pass --draws RUN" in refused(folder, monkeypatch, *words)


def test_report_writes_a_page_and_the_code_for_numpyro(folder, sampled):
    said = good(folder, "report", "run.zarr", "--out", "page.html", "--with", "again=run.zarr")
    assert said.strip() == "page.html"
    assert "again" in (folder / "page.html").read_text()


def test_report_of_a_checkpoint_is_refused_with_the_way_out(folder, sampled, monkeypatch):
    assert "use `resume`" in refused(folder, monkeypatch, "report", "kept")
    assert "no such run" in refused(folder, monkeypatch, "report", "nothing.nc")


def test_compare_runs_them_side_by_side(folder, sampled):
    words = ("compare", "model.py:groups", "--data", "data.json", *QUICK)
    found = json.loads(good(folder, *words, "-m", "centered", "-m", "noncentered", "--json"))
    assert set(found["runs"]) == {"centered", "noncentered"}
    assert found["best"] in found["runs"]


def test_compare_refuses_an_unknown_method(folder, monkeypatch):
    words = ("compare", "model.py:groups", "--data", "data.json", "-m", "center")
    assert "expected one of 'centered', 'noncentered'" in refused(folder, monkeypatch, *words)


def test_data_lists_what_is_here(folder):
    listed = json.loads(good(folder, "data", "list", "--json"))
    assert "german.data" in {file["name"] for file in listed}
    head, _, *rows = good(folder, "data", "list").splitlines()
    assert head.split() == ["file", "state", "where"]
    assert [row.split()[0] for row in rows] == [file["name"] for file in listed]


def test_data_fetch_refuses_an_unknown_name(folder, monkeypatch):
    assert "no data file named 'x'" in refused(folder, monkeypatch, "data", "fetch", "x")
    assert "or pass --all" in refused(folder, monkeypatch, "data", "fetch")


def test_data_fetch_prints_the_path(tmp_path, monkeypatch):
    (tmp_path / "tiny.dat").write_bytes(b"1 2 3")
    digest = hashlib.sha256(b"1 2 3").hexdigest()
    files = {"tiny.dat": zoo_data.DataFile("http://nowhere.invalid/tiny.dat", digest)}
    monkeypatch.setattr(zoo_data, "FILES", files)
    monkeypatch.setenv("AUTOREPARAM_DATA", str(tmp_path))
    done = CliRunner().invoke(app, ["data", "fetch", "tiny.dat"])
    assert done.stdout.split() == [str(tmp_path / "tiny.dat")]


@pytest.mark.data
def test_data_fetch_finds_the_real_files():
    done = CliRunner().invoke(app, ["data", "fetch", "german.data"])
    assert done.stdout.strip().endswith("german.data")


def test_demo_ends_with_a_table_and_a_report(folder, sampled, monkeypatch):
    from autoreparam.experiments import compare

    tree = read_tree(folder / "run.zarr")
    monkeypatch.setattr(compare, "sample", lambda *args, **kwargs: tree)
    page = folder / "demo.html"
    done = CliRunner().invoke(app, ["demo", "--draws", "20", "--report", str(page)])
    assert done.exit_code == 0, done.output
    assert "with all costs" in done.output
    assert "interleaved" in page.read_text()


@pytest.mark.long
def test_the_real_demo(folder):
    assert "with all costs" in apart(folder, "demo", "--draws", "50")
    assert (folder / "autoreparam-demo.html").exists()


def test_demo_refuses_too_few_draws(folder, monkeypatch):
    assert "4 or more" in refused(folder, monkeypatch, "demo", "--draws", "2")


@pytest.mark.long  # test_experiments.py
@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("autoreparam.experiments.reproduce") is None, reason="no experiments here"
)
def test_reproduce_writes_its_results(folder):
    apart(folder, "reproduce", "--quick", "--model", "eight_schools", "--out", "paper")
    assert any((folder / "paper").iterdir())


def test_reproduce_refuses_two_budgets():
    done = CliRunner().invoke(app, ["reproduce", "--quick", "--full"])
    assert done.exit_code == 2
    assert "choose one of --quick and --full" in done.stderr


def test_reproduce_stops_in_time_and_needs_no_page(folder):
    words = ("--model", "eight_schools", "--time-limit", "0", "--no-page", "--out", "stopped")
    good(folder, "reproduce", *words)
    assert not (folder / "stopped").exists()


def test_version_and_completion(folder):
    assert apart(folder, "--version").strip() == f"autoreparam {ar.__version__}"
    words = {"_AUTOREPARAM_COMPLETE": "complete_bash", "COMP_WORDS": "autoreparam sa",
             "COMP_CWORD": "1"}  # fmt: skip
    done = CliRunner().invoke(app, [], env=words, prog_name="autoreparam")
    assert done.stdout.split() == ["sample"]


def test_an_unknown_command_is_a_usage_error():
    assert CliRunner().invoke(app, ["sampel"]).exit_code == 2


# -- data -------------------------------------------------------------------------------------


def test_json_npz_and_csv_hold_the_same_data(tmp_path):
    (tmp_path / "d.json").write_text(json.dumps(DATA))
    np.savez(tmp_path / "d.npz", **DATA)
    lines = [",".join(DATA), *(f"{a},{b}" for a, b in zip(*DATA.values()))]
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    for ending in ("json", "npz", "csv"):
        found = read_file(tmp_path / f"d.{ending}")
        for name, value in DATA.items():
            np.testing.assert_array_equal(found[name], value)


def test_stans_json_is_read_as_stan_means_it(tmp_path):
    (tmp_path / "s.json").write_text('{"N": 2, "x": [[1, 2, 3], [4, 5, 6]], "y": ["NaN", "-inf"]}')
    found = read_file(tmp_path / "s.json")
    assert found["N"] == 2
    assert found["x"].shape == (2, 3)
    assert found["x"].dtype.kind == "i"
    np.testing.assert_array_equal(found["y"], [np.nan, -np.inf])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "[1, 2]", "expected an object"),
        ("a.json", '{"x": [[1], [1, 2]]}', "'x' has rows of different lengths"),
        ("a.json", "{", "cannot be read"),
        ("a.csv", "a,b\n1\n", "line 2 has 1 values"),
        ("a.csv", "a\n", "at least one line of values"),
        ("a.npz", "nothing", "cannot be read"),
    ],
)
def test_damaged_data_are_refused_in_words(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_file(tmp_path / name)


def test_what_the_model_does_not_take_is_refused_or_ignored(folder, monkeypatch):
    (folder / "extra.json").write_text(json.dumps(DATA | {"N": 3}))
    words = ("inspect", "model.py:groups", "--data", "extra.json")
    assert "'N', which is not an argument" in refused(folder, monkeypatch, *words)
    assert CliRunner().invoke(app, [*words, "--ignore-extra"]).exit_code == 0


def test_columns_that_are_not_asked_for_do_no_harm_and_text_is_refused(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "d.csv").write_text("sigma,county,y\n1,a,0.5\n2,b,\n")
    words = ["inspect", "model.py:groups", "--data", "d.csv"]
    assert CliRunner().invoke(app, words).exit_code == 0
    (folder / "t.csv").write_text("sigma,y\n1.0,0.5\nlow,0.5\n")
    words = ("inspect", "model.py:groups", "--data", "t.csv")
    said = refused(folder, monkeypatch, *words)
    assert "'sigma' holds text, but '1.0' among it is a number" in said


def test_a_column_of_text_is_numbered_and_keeps_its_words_as_labels(folder, monkeypatch):
    (folder / "county.py").write_text(COUNTIES)
    (folder / "c.csv").write_text("county,y\nb,0.5\na,1.0\nb,0.2\n")
    monkeypatch.chdir(folder)
    words = ["predict", "county.py:model", "--data", "c.csv", "--num-draws", "3", "--out", "c.zarr"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert list(read_tree(folder / "c.zarr")["prior"]["county"].values) == ["a", "b"]
    done = CliRunner().invoke(app, ["inspect", *words[1:4]])
    assert "note: 'county' holds text, numbered in its order: a = 0, b = 1" in done.stderr


def test_an_argument_without_data_is_mentioned(folder, monkeypatch):
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, ["inspect", "model.py:groups", "--set", "sigma=[1.0, 2.0]"])
    assert done.exit_code == 0
    assert "no data for 'y': left at None" in done.stderr


def test_a_file_that_fails_names_its_line(folder):
    (folder / "broken.py").write_text("x = 1\ny = x / 0\n")
    with pytest.raises(ValueError, match=r"ZeroDivisionError.*line 2: y = x / 0"):
        find_model(str(folder / "broken.py") + ":model")


@pytest.mark.parametrize("ending", [".nc", ".zarr"])
def test_a_run_survives_the_disk(folder, sampled, tmp_path, ending):
    from autoreparam.results.files import write_tree

    if ending == ".nc":
        pytest.importorskip("h5py")
    tree = read_tree(folder / "run.zarr")
    write_tree(tree, tmp_path / f"run{ending}")
    write_tree(tree, tmp_path / f"run{ending}")  # in place of itself
    again = read_tree(tmp_path / f"run{ending}")
    np.testing.assert_array_equal(again["posterior"]["theta"], tree["posterior"]["theta"])
    assert ar.parameterization(again) == ar.parameterization(tree)
