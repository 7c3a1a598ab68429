"""Nothing is lost and nothing is silently wrong: checks that need no run, or only a tiny one."""

import json
import os
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from bad_inputs import Y, groups

import autoreparam as ar
from autoreparam.disk import replacing, write_text
from autoreparam.errors import CheckpointError, DiskError, SamplingWarning
from autoreparam.program import process
from autoreparam.program.numbers import WideIntegerError
from autoreparam.results.advice import warnings_for
from autoreparam.results.files import read_tree, write_anywhere, write_tree
from autoreparam.results.identity import identify, refuse_other
from autoreparam.results.storage import Store
from autoreparam.results.tree import Draws, to_tree
from autoreparam.results.words import above, below
from autoreparam.run import precision
from autoreparam.run.finish import _about_edges
from autoreparam.run.settings import as_seed


@pytest.fixture(scope="module")
def program():
    return ar.inspect(groups, (Y,))


def tree_of(program, draws=10, **attrs):
    rng = np.random.default_rng(0)
    values = {site.name: rng.normal(size=(2, draws, *site.shape)) for site in program.latents}
    lam = ar.Parameterization.constant(program, 0.5)
    return to_tree(program, Draws(values, {}), parameterizations=[lam], ledger={}, attrs=attrs,
                   observed={"y": Y}, constant={})  # fmt: skip


# -- silent wrongness -------------------------------------------------------------------------


@pytest.mark.usefixtures("float32")
def test_integers_that_do_not_fit_call_for_double_precision():
    """Where precision="auto" may choose, that is what it does; elsewhere it is an error."""

    def model(n):
        numpyro.sample("y", dist.Poisson(numpyro.sample("x", dist.LogNormal()) * n), obs=3.0)

    exposure = np.array([6 * 10**9])
    calls = []

    def look():
        calls.append(jnp.result_type(float))
        return ar.inspect(model, (exposure,))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision, "on_cpu", lambda: True)
        with precision.ExitStack() as stack:
            session = precision.begin_precisely(
                look, lambda program: SimpleNamespace(program=program), "auto", stack
            )
    assert calls == [jnp.float32, jnp.float64]
    assert session.program.data[0].dtype == np.int64
    with pytest.raises(WideIntegerError, match=r"'n' holds the integer 6,000,000,000"):
        ar.inspect(model, (exposure,))
    ar.inspect(model, (exposure.astype(float),))


def with_prior(mean, factor):
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(mean, 1.0))
        numpyro.sample("y", dist.Normal(mu * factor, 1.0), obs=y)

    return model


@pytest.mark.parametrize(
    ("mean", "factor", "data", "words"),
    [
        (3.0, 1.0, Y, "log density of 'mu' is not that of the run; 'mean', which it captures"),
        (0.0, 2.0, Y, "log density of 'y' is not that of the run; 'factor', which it captures"),
        (0.0, 1.0, Y + 1, "different data: 'y' of the model's arguments"),
    ],
)
def test_another_model_is_refused_by_the_name_of_what_changed(mean, factor, data, words):
    stored = json.loads(json.dumps(identify(ar.inspect(with_prior(0.0, 1.0), (Y,)))))
    refuse_other(stored, ar.inspect(with_prior(0.0, 1.0), (Y,)))
    with pytest.raises(CheckpointError, match=words):
        refuse_other(stored, ar.inspect(with_prior(mean, factor), (data,)))


def test_an_operation_that_changed_is_named_by_its_site():
    def before(y):
        numpyro.sample("y", dist.Normal(jnp.exp(numpyro.sample("x", dist.Normal())), 1.0), obs=y)

    def after(y):
        numpyro.sample("y", dist.Normal(jnp.cosh(numpyro.sample("x", dist.Normal())), 1.0), obs=y)

    with pytest.raises(CheckpointError, match=r"log density of 'y' .* an operation or a number"):
        refuse_other(identify(ar.inspect(before, (Y,))), ar.inspect(after, (Y,)))


def test_another_version_of_jax_is_a_warning():
    stored = identify(ar.inspect(with_prior(0.0, 1.0), (Y,)))
    stored["versions"] = {"jax": "0.1", "numpyro": "0.2"}
    stored["computed"] = {}  # as another version may trace it
    with pytest.warns(SamplingWarning, match=r"started with jax 0.1 and numpyro 0.2"):
        refuse_other(stored, ar.inspect(with_prior(0.0, 1.0), (Y,)))


def test_draws_at_the_ends_of_the_unit_interval_are_mentioned():
    def model():
        numpyro.sample("p", dist.Beta(0.05, 0.05))

    program = ar.inspect(model)
    session = SimpleNamespace(engine=SimpleNamespace(target=SimpleNamespace(program=program)))
    draws = np.full((2, 100), 0.5)
    assert _about_edges(session, {"p": draws}) == []
    draws[0, :10] = 1 - 1e-17
    (said,) = _about_edges(session, {"p": draws})
    assert "5.0% of the draws of 'p' are as close to 0 or 1 as double precision allows" in said


# -- files ------------------------------------------------------------------------------------


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "page.html"
    write_text(path, "old")

    def write(error):
        with replacing(path) as beside:
            beside.write_text("half of the n")
            raise error

    with pytest.raises(DiskError, match=r"page.html could not be written: .*free some space"):
        write(OSError(28, "No space left on device"))
    with pytest.raises(ZeroDivisionError):
        write(ZeroDivisionError())
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("ending", ["zarr", "nc"])
def test_a_run_that_cannot_be_written_leaves_the_old_one(tmp_path, program, monkeypatch, ending):
    if ending == "nc":
        pytest.importorskip("h5netcdf")
    path = tmp_path / f"run.{ending}"
    old, new = tree_of(program, 10), tree_of(program, 20)
    write_tree(old, path)
    write = {"zarr": "to_zarr", "nc": "to_netcdf"}[ending]
    method = getattr(type(new), write)

    def full(self, path, **keywords):
        method(self, path, **keywords)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(type(new), write, full)
        with pytest.raises(DiskError, match="free some space"):
            write_tree(new, path)
    assert read_tree(path).posterior.sizes["draw"] == 10
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    write_tree(new, path)
    assert read_tree(path).posterior.sizes["draw"] == 20


def test_a_link_to_a_run_stays_a_link(tmp_path, program):
    (tmp_path / "large").mkdir()
    link = tmp_path / "run.zarr"
    link.symlink_to(tmp_path / "large" / "run.zarr")
    for draws in (10, 20):
        write_tree(tree_of(program, draws), link)
        assert link.is_symlink()
        assert read_tree(link).posterior.sizes["draw"] == draws
    assert sorted(file.name for file in tmp_path.iterdir()) == ["large", "run.zarr"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of open files here")
def test_reading_a_run_leaves_no_file_open(tmp_path, program):
    pytest.importorskip("h5netcdf")
    write_tree(tree_of(program), tmp_path / "run.nc")
    read_tree(tmp_path / "run.nc")
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    assert not [link for link in links if os.path.exists(link) and "run.nc" in os.readlink(link)]


def test_a_run_that_nobody_named_a_place_for_is_written_somewhere(tmp_path, program, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_anywhere(tree_of(program))
    assert path.is_relative_to(tmp_path)
    assert read_tree(path).posterior.sizes["draw"] == 10


def test_a_run_killed_before_its_first_chunk_says_how_to_go_on(tmp_path, program):
    Store.create(tmp_path / "run", identify(program), {}).close()
    with pytest.raises(CheckpointError, match=r"Start again with ar.sample; it may use the same"):
        ar.resume(tmp_path / "run", groups, (Y,), progress=False)
    Store.create(tmp_path / "run", identify(program), {}).close()


@pytest.mark.parametrize(
    "left",
    [b"", b"999999999\n", f"{os.getpid()}\n".encode(), b"1\n", b"\xff\xfe"],
    ids=["nothing", "a dead process", "this process", "a live process", "no number"],
)
def test_a_lock_file_that_nobody_holds_is_taken_whatever_it_says(tmp_path, program, left):
    """The number in it may be another process's by now; only the system knows who holds it."""
    (tmp_path / "lock").write_bytes(left)
    store = Store.create(tmp_path, identify(program), {})
    with pytest.raises(CheckpointError, match=f"in use by process {os.getpid()}"):
        Store.create(tmp_path, identify(program), {})
    with pytest.raises(CheckpointError, match=f"in use by process {os.getpid()}"):
        Store.open(tmp_path, alone=True)
    store.close()
    Store.open(tmp_path, alone=True).close()


# -- processes, seeds, words ----------------------------------------------------------------


def test_a_forked_process_is_refused_instead_of_waiting_forever(monkeypatch):
    monkeypatch.setattr(process, "IMPORTED_BY", -1)
    with pytest.raises(ValueError, match=r"was forked from one .*get_context\('spawn'\)"):
        ar.inspect(groups, (Y,))


@pytest.mark.parametrize("key", [jax.random.key, jax.random.PRNGKey])
def test_a_key_of_jax_is_a_seed(key):
    assert as_seed(key(5)) == as_seed(np.int64(5)) == 5
    first, second = (as_seed(k) for k in jax.random.split(key(5)))
    assert first != second
    assert 0 <= first < 2**63


@pytest.mark.parametrize(
    ("value", "limit", "text"),
    [(5969253037225964.0, 1.01, "more than 101"), (1.0100001, 1.01, "1.0100001"),
     (1.0234, 1.01, "1.023"), (2.5, 1.01, "2.500")],
)  # fmt: skip
def test_a_number_above_its_limit_reads_so(value, limit, text):
    assert above(value, limit) == text


@pytest.mark.parametrize(
    ("value", "limit", "text"),
    [(399.7, 400, "399.7"), (12.2, 400, "12"), (0.2999, 0.3, "0.2999"), (0.12, 0.3, "0.12")],
)
def test_a_number_below_its_limit_reads_so(value, limit, text):
    assert below(value, limit) == text


def test_a_run_interrupted_before_its_first_draw_does_not_call_draws_valid(program):
    (said,) = warnings_for(tree_of(program, 0, interrupted=1))
    assert "after 0 draws per chain. There are no draws yet; with a checkpoint" in said
