"""Indices beyond what they index are noticed: JAX would take another element without a word."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import autoreparam as ar
from autoreparam.errors import SamplingWarning
from autoreparam.program.bounds import about_indices
from autoreparam.run.notes import about_call

Y = np.zeros(3)
CAPTURED = np.array([0, 1, 4])


def by_group(group, y=None):
    with numpyro.plate("groups", 4):
        theta = numpyro.sample("theta", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", 3):
        numpyro.sample("y", dist.Normal(theta[group], 1.0), obs=y)


def from_one(group, y=None):
    by_group(group - 1, y)


def compiled(group, y=None):
    by_group(jnp.where(group > 2, group, 0), y)


def crossed(row, column, y=None):
    theta = numpyro.sample("theta", dist.Normal(0.0, 1.0).expand([2, 5]).to_event(2))
    numpyro.sample("y", dist.Normal(theta[row, column], 1.0).to_event(1), obs=y)


def capturing(y=None):
    by_group(CAPTURED, y)


def filled(group, y=None):
    theta = numpyro.sample("theta", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    mean = theta.at[group].get(mode="fill", fill_value=0.0)
    numpyro.sample("y", dist.Normal(mean, 1.0).to_event(1), obs=y)


def looping(group, y=None):
    theta = numpyro.sample("theta", dist.Normal(0.0, 1.0).expand([4]).to_event(1))

    def step(carry, place):
        numpyro.sample("x", dist.Normal(theta[place], 1.0))
        return carry, None

    scan(step, 0.0, group)


@pytest.mark.parametrize(
    ("model", "args", "words"),
    [
        (by_group, (np.array([0, 3, 2]),), None),
        (by_group, (np.array([-1, -4, 2]),), None),
        (by_group, (np.array([1, 4, 2]),), "'group' holds the index 4 on an axis of 4 elements"),
        (by_group, (jnp.array([1, 4, 2]),), "'group' holds the index 4"),
        (by_group, (np.array([1, -5, 2]),), "'group' holds the index -5"),
        (from_one, (np.array([1, 4, 2]),), None),
        (from_one, (np.array([5, 4, 2]),), "'group' holds the index 4"),
        (compiled, (np.array([9, 0, 2]),), "'group' holds the index 9"),
        (crossed, (np.array([1, 0, 1]), np.array([4, 4, 0])), None),
        (
            crossed,
            (np.array([1, 0, 2]), np.array([4, 4, 0])),
            "'row' or 'column' holds the index 2",
        ),
        (capturing, (), "The model uses the index 4"),
        (filled, (np.array([1, 4, 2]),), None),
        (looping, (np.array([1, 4, 2]),), None),  # not known inside a loop
    ],
)
def test_an_index_beyond_its_axis_is_named(model, args, words):
    found = about_indices(ar.inspect(model, args, {"y": Y}))
    assert (len(found) == 1 and words in found[0]) if words else found == ()


def test_a_run_and_a_prediction_say_so():
    group = np.array([1, 4, 2])
    program = ar.inspect(by_group, (group, Y))
    (note,) = about_call(program, by_group, (group, Y), None, {})
    assert "a new group needs an element of its own" in note
    with pytest.warns(SamplingWarning, match="'group' holds the index 4"):
        ar.predict(by_group, (group,), num_draws=2)


def test_nothing_is_said_of_data_that_are_traced():
    def inside(y):
        assert about_indices(ar.inspect(by_group, (jnp.array([1, 4, 2]), y))) == ()
        return y

    jax.jit(inside)(Y)
