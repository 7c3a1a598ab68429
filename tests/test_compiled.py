"""Programs are compiled quickly where the compiler can do that, and compute the same."""

import jax
import numpy as np
import pytest

from autoreparam.program import compiled
from autoreparam.program.compiled import Compiled, often, on_little, rarely


def double(x, by=2):
    return by * x


@pytest.mark.parametrize("kind", [often, on_little, rarely])
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
    assert compiled._taken((unknown, *compiled.TO_RUN_OFTEN)) == compiled.TO_RUN_OFTEN


def test_other_backends_compile_as_they_always_do(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    compiled._taken.cache_clear()
    assert compiled._taken(compiled.TO_RUN_RARELY) == ()
    compiled._taken.cache_clear()
