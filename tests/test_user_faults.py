"""What a user could lose or be told wrongly, seen from outside.

Hardly anything internal is used, so that this file can be run on any release to see what that got
wrong.
"""

import importlib.util
import os
import re
import shutil
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import arviz_stats
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray
from scipy import stats
from typer.testing import CliRunner

import autoreparam as ar
from autoreparam.cli import app
from autoreparam.errors import AutoreparamError, ModelError, SamplingWarning

TINY = {"draws": 10, "warmup": 10, "chains": 2, "kernel": "hmc", "num_steps": 2, "progress": False}
MODEL = """
import numpy as np
import numpyro
import numpyro.distributions as dist

SHIFT = np.zeros(2)

def made(limit):
    def located(mu):
        return mu * limit
    return located

located = made(1.0)

def model(y, prior=0.0):
    mu = numpyro.sample("mu", dist.Normal(prior + SHIFT[1], 1.0))
    nu = numpyro.sample("nu", dist.Normal(0.0, located(1.0)))
    numpyro.sample("y", dist.Normal(mu + nu, 1.0), obs=y)
"""


def load(path):
    spec = importlib.util.spec_from_file_location("model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.model


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a model, its data and the checkpoint of a finished run; and its tree."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "model.py").write_text(MODEL)
    y = np.random.default_rng(0).normal(1.0, 1.0, 100_000)
    np.savez(folder / "data.npz", y=y)
    return folder, ar.sample(
        load(folder / "model.py"), (), {"y": y}, checkpoint=folder / "run", **TINY
    )


@pytest.fixture
def folder(finished, tmp_path, monkeypatch):
    """A copy of that folder, to work in."""
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def resume(*options):
    command = ["resume", "run", "model.py:model", "--data", "data.npz", "--x64", *options]
    return CliRunner(env={"COLUMNS": "300"}).invoke(app, command)


# -- silent wrongness -------------------------------------------------------------------------


def exposed(n, y):
    numpyro.sample("y", dist.Poisson(n * numpyro.sample("rate", dist.LogNormal(0.0, 1.0))), obs=y)


def trials(n, y):
    numpyro.sample("y", dist.Binomial(n, numpyro.sample("p", dist.Beta(2.0, 2.0))), obs=y)


@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize(
    ("model", "n", "at", "law"),
    [
        (exposed, 6 * 10**9, {"rate": 1.0}, stats.poisson(6e9)),
        (trials, 2**32 + 10, {"p": 0.5}, stats.binom(2**32 + 10, 0.5)),
    ],
)
def test_wide_integers_are_used_as_they_are_or_refused(model, n, at, law):
    try:
        found = float(ar.log_joint(model, (np.array([n]), 0.5 * n))(at))
    except ModelError as error:
        found = error
    if isinstance(found, ModelError):
        assert f"the integer {n:,}" in str(found)
    else:
        assert found == pytest.approx(law.logpmf(n // 2), rel=0.01, abs=30)


WIDE = np.array([6 * 10**9, 1])
HELD = {"n": WIDE}


@dataclass
class Held:
    n: Any

    def __call__(self, y):
        exposed(self.n, y)


def with_default(y, n=WIDE):
    exposed(n, y)


@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize("verb", ["inspect", "predict"])
@pytest.mark.parametrize(
    ("model", "args"),
    [
        (lambda table, y: exposed(jnp.asarray(table["n"]), y), (pd.DataFrame({"n": WIDE}), 1.0)),
        (lambda held, y: exposed(held.n, y), (Held(WIDE), 1.0)),
        (lambda held, y: exposed(held["a"]["n"], y), ({"a": HELD}, 1.0)),
        (lambda y: exposed(HELD["n"], y), (1.0,)),
        (lambda table, y: exposed(table["n"].values, y), (pd.DataFrame({"n": WIDE}), 1.0)),
        (lambda y: trials(HELD["n"], y), (1.0,)),
        (partial(exposed, WIDE), (1.0,)),
        (Held(WIDE), (1.0,)),
        (Held(WIDE).__call__, (1.0,)),
        (with_default, (1.0,)),
    ],
    ids=["table", "object", "dicts", "captured", "values", "parameter", "partial", "callable",
         "method", "default"],
)  # fmt: skip
def test_wide_integers_are_found_wherever_they_are(verb, model, args):
    with pytest.raises(ModelError, match="the integer 6,000,000,00"):
        getattr(ar, verb)(model, args)


@pytest.mark.usefixtures("float32")
def test_a_wide_column_that_the_model_does_not_use_does_no_harm():
    table = pd.DataFrame({"id": WIDE, "n": [3, 4]})
    program = ar.inspect(lambda table, y: exposed(jnp.asarray(table["n"]), y), (table, 1.0))
    assert program.dtype == np.float32


@pytest.mark.usefixtures("float32")
def test_an_index_of_64_bits_that_the_model_captures_stays_an_index():
    index = np.array([0, 1, 1])
    for _ in range(2):
        assert ar.inspect(lambda y: grouped(y, index), (np.zeros(3),)).dtype == np.float32


@pytest.mark.slow
@pytest.mark.usefixtures("float32")
def test_an_exposure_beyond_32_bits_gives_the_right_rate():
    n = np.array([6 * 10**9])
    tree = ar.sample(exposed, (n, 1.0 * n), draws=200, warmup=200, progress=False)
    np.testing.assert_allclose(tree["posterior"]["rate"], 1.0, rtol=0.01)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("dist.Normal(prior", "dist.Normal(3.0 + prior"),  # of 100,000 terms one changes
        ("prior=0.0", "prior=3.0"),
        ("np.zeros(2)", "np.array([0.0, 3.0])"),
        ("made(1.0)", "made(1.0 + 1e-9)"),
        ("mu * limit", "mu * limit + 3.0"),
    ],
)
def test_a_run_is_not_extended_under_an_edited_model(folder, before, after):
    assert before in MODEL
    (folder / "model.py").write_text(MODEL.replace(before, after))
    done = resume("--draws", "20")
    assert "belongs to a different" in done.stderr, done.output
    assert done.exit_code == 1


@pytest.mark.faults
def test_a_model_that_was_only_moved_and_commented_is_extended(folder):
    (folder / "model.py").write_text(
        f"# edited\n{MODEL}".replace("    mu =", "    # why\n    mu =")
    )
    done = resume("--draws", "20")
    assert done.exit_code == 0, done.output


@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize("nested", [False, True])
def test_an_array_changed_in_place_is_seen_or_refused(nested):
    seen, held = np.zeros(3), {"y": np.zeros(3)}

    def model():
        y = held["y"] if nested else seen
        numpyro.sample("y", dist.Normal(numpyro.sample("x", dist.Normal()), 1.0), obs=y)

    at = {"x": 0.0}
    density = jax.jit(ar.log_joint(model))
    before = float(density(at))
    seen[:] = held["y"][:] = 100.0
    try:
        after = float(jax.jit(ar.log_joint(model))(at))
    except ModelError:  # it says so
        seen, held["y"] = seen.copy(), held["y"].copy()
        after = float(jax.jit(ar.log_joint(model))(at))
    assert after < before - 1000


@pytest.mark.parametrize("name", ["draw", "chain"])
def test_a_latent_named_like_an_axis_does_not_cost_the_run(name):
    def model():
        numpyro.sample("mu", dist.Normal())
        numpyro.sample(name, dist.Normal())

    with pytest.raises(AutoreparamError, match=f"site '{name}': draws have an axis of this name"):
        ar.sample(model, **TINY)


# -- nothing is lost --------------------------------------------------------------------------


@pytest.mark.faults
def test_a_full_disk_leaves_the_earlier_draws_and_says_where_the_new_ones_are(folder, monkeypatch):
    assert resume("--out", "draws.zarr").exit_code == 0
    write, calls = xarray.DataTree.to_zarr, []

    def full(self, path, **keywords):
        calls.append(path)
        write(self, path, **keywords)
        if len(calls) == 1:
            for file in list(os.scandir(path))[1:]:  # half of it
                shutil.rmtree(file.path) if file.is_dir() else os.remove(file.path)
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(xarray.DataTree, "to_zarr", full)
    done = resume("--draws", "20", "--out", "draws.zarr")
    with xarray.open_datatree("draws.zarr", engine="zarr", consolidated=False) as old:
        assert old["posterior"].sizes["draw"] == 10
        assert np.isfinite(old["posterior"]["mu"]).all()
    assert done.exit_code == 1
    place = re.search(r"The draws are in (\S+)\.$", done.stderr.strip())[1]
    with xarray.open_datatree(place, engine="zarr", consolidated=False) as new:
        assert new["posterior"].sizes["draw"] == 20


@pytest.mark.faults
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of open files here")
def test_a_run_that_was_read_can_be_replaced(folder):
    pytest.importorskip("h5netcdf")
    assert resume("--out", "draws.nc").exit_code == 0
    done = CliRunner().invoke(app, ["report", "draws.nc", "--out", "page.html"])
    assert done.exit_code == 0, done.output
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    assert not [link for link in links if os.path.exists(link) and "draws.nc" in os.readlink(link)]


@pytest.mark.faults
def test_ctrl_c_after_the_last_draw_keeps_the_draws(finished, tmp_path, monkeypatch):
    folder, tree = finished
    model, y = load(folder / "model.py"), np.load(folder / "data.npz")["y"]
    monkeypatch.chdir(tmp_path)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(xarray.DataTree, "from_dict", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            ar.sample(model, (), {"y": y}, **TINY)
    place = re.search(r"The draws are in (\S+):", str(caught.value))
    assert place, "they are lost"
    kept = ar.resume(place[1], model, (), {"y": y}, progress=False)
    np.testing.assert_array_equal(kept["posterior"]["mu"], tree["posterior"]["mu"])


# -- words ------------------------------------------------------------------------------------


def flat():
    return numpyro.sample("x", dist.ImproperUniform(dist.constraints.real, (), ()))


def vague():
    numpyro.sample("x", dist.Normal(0.0, 1e30))


def box():
    numpyro.factor("box", jnp.where(jnp.abs(flat()) < 10, 0.0, -jnp.inf))


@pytest.mark.faults
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("model", [flat, vague, box])
def test_a_density_without_slope_is_sampled(model, double):
    with jax.enable_x64(double), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ar.sample(model, **TINY | {"warmup": 60})
    assert np.isfinite(tree["posterior"]["x"]).all()


@pytest.mark.parametrize("model", [flat, pytest.param(vague, marks=pytest.mark.faults)])
def test_no_warning_of_numpys_gets_out(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", SamplingWarning)
        tree = ar.sample(model, **TINY | {"warmup": 60})
        str(ar.summary(tree))
    assert tree["posterior"]["x"].shape == (2, 10)


def apart(goal):
    """Draws of two chains whose R-hat is this, or the next that ranks allow."""
    noise = np.random.default_rng(0).normal(size=(2, 500))
    low, high = 0.0, 1.0
    for _ in range(30):
        gap = (low + high) / 2
        draws = noise + np.array([[0.0], [gap]])
        found = float(arviz_stats.rhat(xarray.Dataset({"x": (("chain", "draw"), draws)}))["x"])
        low, high = (gap, high) if found < goal else (low, gap)
    return noise + np.array([[0.0], [high]])


@pytest.mark.faults
@pytest.mark.parametrize(
    ("draws", "words"),
    [
        (apart(1.0102), r"1\.010[1-4]\d*"),
        (np.tile([[0.0], [1.0]], 500), "more than 101"),
    ],
    ids=["barely", "stuck"],
)
def test_the_report_gives_r_hat_in_digits_that_make_sense(finished, tmp_path, draws, words):
    tree = finished[1].copy(deep=True)
    for group in ("posterior", "sample_stats"):
        tree[group] = xarray.DataTree(tree[group].to_dataset().isel(draw=np.arange(500) % 10))
    for group, name in (("posterior", "mu"), ("posterior", "nu"), ("sample_stats", "lp")):
        tree[group][name].values[...] = draws
    ar.report(tree, tmp_path / "page.html")
    said = re.search(r"R-hat is (.{1,40}?) for", (tmp_path / "page.html").read_text())
    assert re.fullmatch(words, said[1])


@pytest.mark.faults
def test_a_run_interrupted_in_warmup_does_not_call_its_draws_valid(finished):
    folder, _ = finished

    def stop(*_):
        raise KeyboardInterrupt

    model, y = load(folder / "model.py"), np.load(folder / "data.npz")["y"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autoreparam.mcmc.chains.Chains.run", stop)
        with pytest.warns(SamplingWarning, match="interrupted after 0 draws") as said:
            tree = ar.sample(model, (), {"y": y}, **TINY)
    assert tree["posterior"].sizes["draw"] == 0
    assert not [str(w.message) for w in said if "draws are valid" in str(w.message)]


def grouped(y, group):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x[group], 1.0), obs=y)


def test_ctrl_c_is_called_that_by_the_command_line(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(ar, "inspect", stop)
    done = CliRunner().invoke(app, ["inspect", "zoo:funnel"])
    assert done.exit_code == 130
    assert done.stderr == "error: interrupted\n"


def test_a_pandas_series_may_be_an_index():
    y, group = np.array([0.3, 0.7, 0.1]), np.array([0, 1, 1])
    at = {"x": np.array([0.1, 0.2])}
    expected = ar.log_joint(grouped, (y, group))(at)
    assert ar.log_joint(grouped, (y, pd.Series(group)))(at) == expected


def test_a_model_with_a_key_of_its_own_may_be_used():
    seeded = numpyro.handlers.seed(grouped, jax.random.key(0))
    program = ar.inspect(seeded, (np.array([0.3]), np.array([0])))
    assert [site.name for site in program.latents] == ["x"]


@pytest.mark.faults
def test_a_key_of_jax_is_a_seed(finished):
    folder, tree = finished
    model, y = load(folder / "model.py"), np.load(folder / "data.npz")["y"]
    again = ar.sample(model, (), {"y": y}, seed=jax.random.key(0), **TINY)
    np.testing.assert_array_equal(again["posterior"]["mu"], tree["posterior"]["mu"])


@pytest.mark.faults
def test_a_negative_scale_is_not_blamed_on_missing_data():
    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x, -jnp.exp(x)), obs=y)

    with pytest.raises(ModelError, match=r"'y': the scale of its distribution") as caught:
        ar.sample(model, (np.array([0.3, 1.0]),), **TINY)
    assert "missing" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.usefixtures("float32")
def test_a_beta_that_single_precision_cuts_off_is_mentioned():
    with pytest.warns(SamplingWarning, match=r"'p' are as close to 0 or 1 as single precision"):
        ar.sample(
            lambda: numpyro.sample("p", dist.Beta(0.05, 0.05)), draws=200, warmup=200,
            precision="single", progress=False,
        )  # fmt: skip


@pytest.mark.slow
def test_a_mixture_is_seldom_taken_for_one_of_its_halves():
    """Starts are as far apart as the prior, so that the halves are found and R-hat tells.

    Four chains are in the same half by chance in a quarter of the runs: no start can rule that out.
    """
    law = dist.MixtureSameFamily(
        dist.Categorical(jnp.array([0.3, 0.7])), dist.Normal(jnp.array([0.0, 20.0]), 1.0)
    )
    told = 0
    for seed in range(8):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            ar.sample(
                lambda: numpyro.sample("x", law), seed=seed, draws=200, warmup=200, progress=False
            )
        told += any("R-hat is" in str(warning.message) for warning in said)
    assert told >= 5
