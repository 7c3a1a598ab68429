"""Programs are compiled quickly where the compiler can do that, and compute the same."""

from dataclasses import replace

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from test_start import SETTINGS

import autoreparam as ar
from autoreparam.mcmc import chains
from autoreparam.program import compiled
from autoreparam.program.compiled import Compiled, often, on_little, on_much, rarely
from autoreparam.program.effort import numbers_given
from autoreparam.run.begin import blank_state, build_engine


def double(x, by=2):
    return by * x


@pytest.mark.parametrize("kind", [on_much, often, on_little, rarely])
def test_a_program_is_what_jit_makes_of_it(kind):
    program = kind(double, static_argnames="by")
    x = np.arange(3.0)
    np.testing.assert_array_equal(program(x), 2 * x)
    np.testing.assert_array_equal(program(x, by=3), 3 * x)
    assert program.programs() == 2
    assert program.shapes(x).shape == (3,)
    assert "multiply" in program.lower(x).as_text()
    assert program.__name__ == "double"


def test_options_that_the_compiler_does_not_know_are_left_out():
    unknown = ("xla_option_of_another_release", True)
    assert Compiled(double, (unknown,))(2.0) == 4.0
    assert compiled._taken((unknown, *compiled.TO_RUN_ON_MUCH)) == compiled.TO_RUN_ON_MUCH


@pytest.mark.parametrize(("backend", "taken"), [("gpu", compiled.ON_GPU), ("tpu", ())])
def test_other_backends_take_none_of_a_cpus_options(monkeypatch, backend, taken):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    compiled._taken.cache_clear()
    assert compiled._taken(compiled.TO_RUN_RARELY) == taken
    compiled._taken.cache_clear()


def test_work_is_the_numbers_that_operations_give():
    def loop(x):
        return jax.lax.fori_loop(0, 10, lambda i, y: y + 1.0, x)

    def choice(x):
        return jax.lax.cond(x[0] > 0, lambda y: y + 1.0, lambda y: y * 2.0, x)

    def count(function):
        return numbers_given(jax.make_jaxpr(function)(np.zeros(5)).jaxpr)

    assert count(lambda x: 2 * x) == 5
    assert count(lambda x: jax.numpy.sum(2 * x)) == 6
    assert count(jax.jit(jax.jit(lambda x: 2 * x))) == 5
    assert 50 <= count(loop) <= 60
    assert count(choice) >= 10


@pytest.mark.parametrize(
    ("rows", "wanted"), [(8, "on_little"), (1500, "often"), (50_000, "on_much")]
)
def test_the_chunk_is_compiled_for_the_work_it_does(rows, wanted, monkeypatch):
    def noting(name):
        def call(*_):
            raise ValueError(name)

        return call

    for name in ("on_little", "often", "on_much"):
        monkeypatch.setattr(chains, f"_{name}", noting(name))

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.StudentT(4.0, mu, 1.0), obs=y)

    settings = replace(SETTINGS, chains=1)
    engine = build_engine(ar.inspect(model, (np.zeros(rows),)), settings)
    with pytest.raises(ValueError, match=f"^{wanted}$"):
        engine.compile(blank_state(engine, settings))
