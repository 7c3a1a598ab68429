"""Noise that a loop samples and scales itself is placed by the loop's own steps."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from implicit_forms import UNIT, observe, positive, real
from numpyro.contrib.control_flow import scan
from test_implicit import laws

import autoreparam as ar
from autoreparam.program.target import Target

TIMES = np.linspace(0.0, 1.0, 6)


def many_ways():
    """A wide noise that is scaled by the state, a falling one of the same step, a fixed value."""
    mu, sigma, turn = real(), positive("sigma"), positive("turn")

    def step(previous, time):
        level, fixed, slope = previous["level"], previous["fixed"], previous["slope"]
        wide = numpyro.sample("wide", dist.Normal(0.5, 2.0))
        slope = 0.5 * slope + time * mu - turn * numpyro.sample("falling", UNIT)
        level = 0.9 * level + slope + fixed + sigma * jnp.exp(0.1 * level) * wide
        return {"level": level, "fixed": fixed, "slope": slope}, level

    start = {"level": mu, "fixed": mu, "slope": 0.0}
    observe(scan(step, start, TIMES)[1])


def beside_a_state():
    """The noise's location depends on a state that is sampled in the natural way."""
    sigma = positive("sigma")

    def step(previous, _):
        state, x = previous
        x = 0.5 * x + state + sigma * numpyro.sample("eps", UNIT)
        state = numpyro.sample("state", dist.Normal(state, sigma))
        return (state, x), x

    observe(scan(step, (0.0, 0.0), None, length=6)[1])


def after_a_state():
    """The same, with the state of the same step, which is not known when the step begins."""
    sigma = positive("sigma")

    def step(previous, _):
        state, x = previous
        state = numpyro.sample("state", dist.Normal(state, sigma))
        x = 0.5 * x + state + sigma * numpyro.sample("eps", UNIT)
        return (state, x), x

    observe(scan(step, (0.0, 0.0), None, length=6)[1])


def in_another_loop():
    """One loop samples the noise, another one makes something of it."""
    sigma = positive("sigma")

    def draw(count, _):
        return count + 1.0, numpyro.sample("eps", UNIT)

    def step(previous, here):
        x = 0.5 * previous + sigma * here
        return x, x

    _, eps = scan(draw, 0.0, None, length=6)
    observe(scan(step, 0.0, eps)[1])


def loops(model) -> int:
    """How many loops a density has."""
    target = Target(ar.inspect(model))
    lam = ar.Parameterization.constant(target.program, 0.5)
    traced = jax.make_jaxpr(target.logdensity)(jnp.zeros(target.size), lam)
    return str(traced).count("= scan[")


@pytest.mark.parametrize("model", [many_ways, beside_a_state])
def test_the_models_own_loop_is_the_only_one(model):
    assert loops(model) == 1


@pytest.mark.parametrize("model", [after_a_state, in_another_loop])
def test_where_a_step_does_not_know_enough_all_steps_are_walked_through_before(model):
    assert any(site.implied is not None for site in ar.inspect(model).candidates)
    assert loops(model) > 1


@pytest.mark.parametrize(
    "model",
    [
        many_ways,
        beside_a_state,
        pytest.param(after_a_state, marks=pytest.mark.slow),
        pytest.param(in_another_loop, marks=pytest.mark.slow),
    ],
)
def test_values_densities_and_scores_are_those_of_the_model(model):
    laws(model)
