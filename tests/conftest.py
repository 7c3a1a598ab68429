"""Tests run in double precision unless they ask for single."""

import jax
import pytest

jax.config.update("jax_enable_x64", True)


@pytest.fixture
def float32():
    with jax.enable_x64(False):
        yield
