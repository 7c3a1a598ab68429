"""Single or double precision for one run: asked for, found to be needed, kept by checkpoints."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import autoreparam as ar
from autoreparam import sampling
from autoreparam.errors import AutoreparamError

KEYWORDS = {"draws": 10, "warmup": 25, "chains": 2, "kernel": "hmc", "progress": False}
Y = np.array([0.3, -1.0, 2.2, 0.7], np.float32)


def plain(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def with_a_large_constant(y):
    plain(y)
    numpyro.factor("constant", 1e8)


def is_double():
    return jnp.result_type(float) == jnp.float64


@pytest.mark.usefixtures("float32")
def test_a_run_in_double_precision_leaves_the_session_as_it_was():
    before = jax.config.jax_enable_x64
    tree = ar.sample(plain, (Y,), precision="double", **KEYWORDS)
    assert tree["posterior"]["mean"].dtype == np.float64
    assert tree.attrs["precision"] == "double"
    assert jax.config.jax_enable_x64 == before
    assert not is_double()


def test_a_run_in_single_precision_leaves_the_session_as_it_was():
    tree = ar.sample(plain, (Y,), precision="single", **KEYWORDS)
    assert tree["posterior"]["mean"].dtype == np.float32
    assert tree.attrs["precision"] == "single"
    assert is_double()


@pytest.mark.usefixtures("float32")
def test_rounding_that_would_hurt_is_found_and_the_run_goes_on_in_double(tmp_path):
    run = tmp_path / "run"
    tree = ar.sample(with_a_large_constant, (Y,), checkpoint=run, **KEYWORDS)
    assert tree.attrs["precision"] == "double"
    assert tree["posterior"]["mean"].dtype == np.float64
    assert not is_double()
    longer = ar.resume(run, with_a_large_constant, (Y,), draws=20, progress=False)
    assert longer["posterior"]["mean"].dtype == np.float64
    np.testing.assert_array_equal(longer["posterior"]["mean"][:, :10], tree["posterior"]["mean"])
    assert not is_double()


@pytest.mark.usefixtures("float32")
def test_a_model_without_trouble_stays_in_single_precision():
    tree = ar.sample(plain, (Y,), **KEYWORDS)
    assert tree.attrs["precision"] == "single"
    assert tree["posterior"]["mean"].dtype == np.float32


@pytest.mark.parametrize("precision", ["single", "double"])
def test_a_run_is_resumed_in_its_own_precision(tmp_path, precision):
    run = tmp_path / "run"
    ar.sample(plain, (Y,), checkpoint=run, precision=precision, **KEYWORDS)
    with jax.enable_x64(precision == "single"):  # the session computes in the other one
        tree = ar.resume(run, plain, (Y,), draws=20, progress=False)
        assert is_double() == (precision == "single")
    assert tree.attrs["precision"] == precision
    assert tree["posterior"].sizes["draw"] == 20


def test_a_precision_that_there_is_not_is_refused():
    with pytest.raises(AutoreparamError, match="precision: expected one of 'auto'"):
        ar.sample(plain, (Y,), precision="half", **KEYWORDS)


@pytest.mark.usefixtures("float32")
def test_matrices_that_call_for_double_precision_do_so_before_anything_is_compiled(monkeypatch):
    built = []
    monkeypatch.setattr(
        sampling, "build_engine", lambda program, settings: built.append(program.dtype) or stop()
    )

    def stop():
        raise InterruptedError

    def model():
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.sample("f", dist.MultivariateNormal(jnp.zeros(12), scale * jnp.eye(12)))

    with pytest.raises(InterruptedError):
        ar.sample(model, **KEYWORDS)
    assert built == [jnp.float64]
    assert not is_double()


@pytest.mark.usefixtures("float32")
def test_arrays_that_a_model_captures_are_seen_anew_in_double_precision():
    """JAX would go on with what it made of them in single precision, and mix both."""
    which, shift, none = np.array([2, 0, 1, 2]), np.array(1.5), np.empty(0, int)

    def model(y):
        means = numpyro.sample("means", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.factor("constant", jnp.asarray(1e8))
        numpyro.sample("y", dist.Normal(means[which] + shift, 1.0), obs=y)
        numpyro.deterministic("some", means[none])

    for _ in range(2):
        tree = ar.sample(model, (Y,), **KEYWORDS)
        assert tree.attrs["precision"] == "double"


@pytest.mark.usefixtures("float32")
def test_arrays_that_something_else_holds_in_single_precision_are_refused():
    which = np.array([2, 0, 1, 2])
    held = jax.make_jaxpr(lambda x: x[which])(Y)

    def model(y):
        means = numpyro.sample("means", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(means[which], 1.0), obs=y)

    with pytest.raises(
        AutoreparamError, match=r"'which'.* in another precision .*which = which\.copy"
    ):
        ar.sample(model, (Y,), precision="double", **KEYWORDS)
    assert held.consts
