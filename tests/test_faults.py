"""Runs that break: interrupted, failing after the last draw, on another model's checkpoint."""

import os
import re
import shutil
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import autoreparam as ar
from autoreparam.errors import AutoreparamError, CheckpointError, SamplingError, SamplingWarning
from autoreparam.mcmc.chains import Chains
from autoreparam.results.storage import Store
from autoreparam.run import finish

KEYWORDS = {"draws": 200, "warmup": 150, "chains": 2, "kernel": "hmc", "num_steps": 4, "seed": 5}
# With the default parameterization: what is learned must survive a crash too.
Y = np.array([0.3, -1.0, 2.2, 0.7])


def groups(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    log_tau = numpyro.sample("log_tau", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", y.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, jnp.exp(log_tau)))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


@pytest.fixture(scope="module")
def whole():
    return ar.sample(groups, (Y,), progress=False, **KEYWORDS)


def assert_same(tree, other):
    for group in ("posterior", "sample_stats"):
        for name in tree[group].data_vars:
            np.testing.assert_array_equal(tree[group][name].values, other[group][name].values)
    for purpose in ("warmup", "sampling"):
        assert tree.attrs[f"gradients_{purpose}"] == other.attrs[f"gradients_{purpose}"]


@pytest.mark.faults
@pytest.mark.parametrize("count", [40])
def test_whatever_a_kill_leaves_on_disk_resumes_to_the_same_draws(tmp_path, whole, count):
    """The folder, copied in the middle of storage's own calls, is what `kill -9` leaves."""
    moments = set(np.random.default_rng(0).choice(2000, count, replace=False).tolist())
    path, calls, copies = tmp_path / "run", 0, []

    def watch(frame, event, _):
        nonlocal calls
        if event not in ("call", "return") or not frame.f_code.co_filename.endswith("storage.py"):
            return
        calls += 1
        if calls in moments and (path / "manifest.json").exists():
            copies.append(tmp_path / f"copy{calls}")
            shutil.copytree(path, copies[-1])

    sys.setprofile(watch)
    try:
        tree = ar.sample(groups, (Y,), checkpoint=path, progress=False, **KEYWORDS)
    finally:
        sys.setprofile(None)
    assert_same(tree, whole)
    resumable = [copy for copy in copies if Store.open(copy).chunks]
    assert len(resumable) >= count // 4
    for copy in resumable:
        assert_same(ar.resume(copy, groups, (Y,), progress=False), whole)


def test_a_finished_run_can_be_extended_as_if_it_had_been_longer(tmp_path, whole):
    short = {**KEYWORDS, "draws": 90}
    ar.sample(groups, (Y,), checkpoint=tmp_path / "run", progress=False, **short)
    assert_same(ar.resume(tmp_path / "run", groups, (Y,), draws=200, progress=False), whole)


def test_ctrl_c_returns_what_has_been_drawn_and_says_so(tmp_path, monkeypatch, whole):
    run, calls = Chains.run, []

    def interrupted(self, *args):
        calls.append(1)
        if len(calls) == 13:
            raise KeyboardInterrupt
        return run(self, *args)

    monkeypatch.setattr(Chains, "run", interrupted)
    tree = ar.sample(groups, (Y,), checkpoint=tmp_path / "run", progress=False, **KEYWORDS)
    monkeypatch.setattr(Chains, "run", run)
    assert tree.attrs["interrupted"] == 1
    drawn = tree["posterior"].sizes["draw"]
    assert 0 < drawn < 200
    np.testing.assert_array_equal(
        tree["posterior"]["mu"].values, whole["posterior"]["mu"].values[:, :drawn]
    )
    assert_same(ar.resume(tmp_path / "run", groups, (Y,), progress=False), whole)


def test_ctrl_c_during_warmup_returns_a_tree_without_draws(monkeypatch):
    def interrupted(self, *args):
        raise KeyboardInterrupt

    monkeypatch.setattr(Chains, "run", interrupted)
    tree = ar.sample(groups, (Y,), progress=False, **KEYWORDS)
    assert tree.attrs["interrupted"] == 1
    assert tree["posterior"].sizes["draw"] == 0
    assert "No draws: the run ended during warm-up." in str(ar.summary(tree))


# -- after the last draw ----------------------------------------------------------------------


def fail(error):
    def failing(*_, **__):
        raise error

    return failing


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("no memory")])
def test_draws_without_a_tree_are_in_a_folder_that_the_error_names(
    tmp_path, monkeypatch, whole, error
):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(finish, "_to_tree", fail(error))
        with pytest.raises((KeyboardInterrupt, SamplingError)) as caught:
            ar.sample(groups, (Y,), progress=False, **KEYWORDS)
    assert isinstance(caught.value, KeyboardInterrupt) == isinstance(error, KeyboardInterrupt)
    folder = re.search(r"The draws are in (\S+): ar.resume", str(caught.value))[1]
    assert_same(ar.resume(folder, groups, (Y,), progress=False), whole)


def test_with_a_checkpoint_the_error_names_it(tmp_path, monkeypatch, whole):
    with monkeypatch.context() as patch:
        patch.setattr(finish, "_to_tree", fail(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt, match=f"The draws are in {tmp_path / 'run'}:"):
            ar.sample(groups, (Y,), checkpoint=tmp_path / "run", progress=False, **KEYWORDS)
    assert_same(ar.resume(tmp_path / "run", groups, (Y,), progress=False), whole)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError("0 / 0")])
@pytest.mark.parametrize(
    ("place", "name", "what"),
    [
        (finish, "add_geometry", "The geometry of the run"),
        (finish, "warnings_for", "The diagnostics"),
        (finish, "_of_all_transitions", "The diagnostics of the transitions"),
        (finish, "likelihoods", "The log likelihood"),
        (finish, "predictions", "The posterior predictive"),
    ],
)
def test_what_fails_beside_the_draws_costs_only_itself(
    monkeypatch, whole, place, name, what, error
):
    asked = {"log_likelihood": name == "likelihoods", "posterior_predictive": name == "predictions"}
    monkeypatch.setattr(place, name, fail(error))
    with pytest.warns(SamplingWarning, match=f"{what} could not be computed"):
        tree = ar.sample(groups, (Y,), progress=False, **KEYWORDS, **asked)
    assert_same(tree, whole)


def test_where_warnings_are_errors_the_error_has_the_tree(whole):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SamplingWarning) as caught:
            ar.sample(groups, (Y,), progress=False, **KEYWORDS)
    assert_same(caught.value.tree, whole)


def test_a_failure_while_sampling_keeps_what_was_drawn(tmp_path, monkeypatch, whole):
    run = Chains.run

    def failing(self, start, *args):
        if start > KEYWORDS["warmup"]:  # in the middle of sampling
            raise RuntimeError("the device is gone")
        return run(self, start, *args)

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Chains, "run", failing)
        with pytest.raises(SamplingError, match="the device is gone") as caught:
            ar.sample(groups, (Y,), progress=False, **KEYWORDS)
    folder = re.search(r"The draws are in (\S+): ar.resume", str(caught.value))[1]
    assert_same(ar.resume(folder, groups, (Y,), progress=False), whole)


# -- another model ----------------------------------------------------------------------------


def broken(y):
    with_other_prior = numpyro.sample("mu", dist.Normal(1.0, 2.0))
    log_tau = numpyro.sample("log_tau", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", y.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(with_other_prior, jnp.exp(log_tau)))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def renamed(y):
    with numpyro.handlers.scope(prefix="a"):
        groups(y)


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (groups, Y + 1, "belongs to different data"),
        (renamed, Y, "belongs to a different model: they differ in"),
        (broken, Y, "the log density of 'mu' is not that of the run"),
    ],
)
def test_a_checkpoint_of_another_model_or_data_is_refused(tmp_path, model, data, message):
    short = {**KEYWORDS, "draws": 30, "warmup": 25}
    ar.sample(groups, (Y,), checkpoint=tmp_path / "run", progress=False, **short)
    with pytest.raises(AutoreparamError, match=message):
        ar.resume(tmp_path / "run", model, (data,), progress=False)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    short = {**KEYWORDS, "draws": 30, "warmup": 25}
    ar.sample(groups, (Y,), checkpoint=tmp_path / "run", progress=False, **short)
    victim = max((tmp_path / "run").rglob("*"), key=lambda path: path.stat().st_size)
    content = victim.read_bytes()
    victim.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError):
        ar.resume(tmp_path / "run", groups, (Y,), progress=False)


def test_an_existing_checkpoint_is_never_overwritten(tmp_path):
    short = {**KEYWORDS, "draws": 30, "warmup": 25}
    ar.sample(groups, (Y,), checkpoint=tmp_path / "run", progress=False, **short)
    with pytest.raises(CheckpointError, match="resume"):
        ar.sample(groups, (Y,), checkpoint=tmp_path / "run", progress=False, **short)


def test_a_full_disk_is_said_in_words(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="space"):
        ar.sample(groups, (Y,), checkpoint=tmp_path / "run", progress=False, **KEYWORDS)


def test_gradients_that_are_not_a_number_count_as_divergences():
    def model():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        # Finite at the start, NaN in one tail: sqrt has no value there.
        numpyro.factor("tail", jnp.sqrt(x + 2.5))

    tree = ar.sample(model, draws=300, warmup=150, progress=False)
    draws = tree["posterior"]["x"].values
    assert np.isfinite(draws).all()
    assert draws.min() > -2.5


def test_a_density_that_is_nowhere_finite_names_the_site():
    def model():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x, -1.0 + jax.nn.relu(-1e9 - x)), obs=0.3)

    with pytest.raises(AutoreparamError, match="site 'y'"):
        ar.sample(model, progress=False)
