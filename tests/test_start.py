"""Chains start close enough to the posterior, wherever the prior is, and exactly where told."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import autoreparam as ar
from autoreparam.mcmc.start import find_start
from autoreparam.results.progress import Progress
from autoreparam.run.begin import build_engine, first_state
from autoreparam.run.settings import Settings

SETTINGS = Settings("auto", "hmc", 10, 10, 4, 0, None, 0.8, 10, 1, False, False)


def started(model, *args, parameterization="auto", init=None):
    """Where chains begin: values of the sites, and their log densities."""
    settings = Settings(**{**SETTINGS.keywords(), "parameterization": parameterization})
    engine = build_engine(ar.inspect(model, args), settings)
    state = first_state(engine, settings, parameterization, init, Progress(False))
    lam = state.lams[-1]
    values = jax.jit(jax.vmap(lambda position: engine.target.to_sites(position, lam)))(
        state.chains.position
    )
    assert np.isfinite(state.chains.score).all()
    return jax.tree.map(np.asarray, values), state


def far(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 100.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(100.0))
    numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


def test_a_posterior_far_from_zero_is_begun_within_a_few_hundred_nats():
    y = 250 + np.random.default_rng(0).normal(size=20)
    _, state = started(far, y)
    best = ar.log_joint(far, (y,))({"mean": y.mean(), "sigma": y.std()})
    # Around 0 in unconstrained values it would be 20 (250 / sigma)² / 2 for a sigma of 1 or so.
    assert (best - state.chains.logdensity < 300).all()


def test_a_precision_whose_prior_is_beyond_numbers_costs_no_warning():
    """Half of the draws of a Gamma(0.001, 0.001) are below e^-690."""

    def vague(y):
        mean = numpyro.sample("mean", dist.Normal(200.0, 100.0))
        tau = numpyro.sample("tau", dist.Gamma(0.001, 0.001))
        numpyro.sample("y", dist.Normal(mean, 1 / jnp.sqrt(tau)), obs=y)

    values, _ = started(vague, 250 + np.random.default_rng(0).normal(size=20))
    assert (np.abs(values["mean"] - 250) < 200).all()


def wild(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Poisson(jnp.exp(slope * x)), obs=y)


def test_covariates_in_wild_units_are_begun_as_narrowly_as_they_ask_for():
    x = 1e5 * np.random.default_rng(0).normal(size=20)
    y = np.ones(20)
    values, state = started(wild, x, y)
    # With a hundredth of the prior's width it would be -exp(1000).
    assert (ar.log_joint(wild, (x, y))({"slope": 0.0}) - state.chains.logdensity < 20).all()
    assert len(np.unique(values["slope"])) == 4


def test_no_lucky_candidate_ends_the_search_far_below():
    x = 1e5 * np.random.default_rng(0).normal(size=20)
    program = ar.inspect(wild, (x, np.ones(20)))
    engine = build_engine(program, SETTINGS)
    lam, none, one = ar.Parameterization.centered(program), np.zeros((4, 1)), np.ones(1)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        found = find_start(engine.target, rng, none, lam, 0.8, around=(none[0], one))
        assert (found.state.logdensity > -50).all()  # it is -21 in the middle


def vague(y):
    precision = numpyro.sample("precision", dist.Gamma(0.01, 0.01))
    numpyro.sample("y", dist.Normal(0.0, precision**-0.5), obs=y)


def test_a_vague_gamma_prior_gives_finite_starts():
    values, state = started(vague, np.array([0.3, -1.0, 2.2, 0.7]))
    assert np.isfinite(state.chains.logdensity).all()
    assert np.isfinite(values["precision"]).all()
    assert (values["precision"] > 0).all()


def groups(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
    scale = numpyro.sample("scale", dist.HalfNormal(5.0))
    with numpyro.plate("group", len(y)):
        effect = numpyro.sample("effect", dist.Normal(mean, scale))
        numpyro.sample("y", dist.Normal(effect, 1.0), obs=y)


Y = np.array([0.3, -1.0, 2.2, 0.7])


@pytest.mark.parametrize("parameterization", ["centered", "auto"])
def test_values_that_are_given_are_where_chains_begin(parameterization):
    given = {"mean": np.array([5.0, -3.0, 700.0, 0.0]), "scale": 2.5, "effect": 3 * Y}
    values, _ = started(groups, Y, parameterization=parameterization, init=given)
    np.testing.assert_allclose(values["mean"], given["mean"], rtol=1e-12)
    np.testing.assert_allclose(values["scale"], np.full(4, 2.5), rtol=1e-12)
    np.testing.assert_allclose(values["effect"], np.tile(3 * Y, (4, 1)), rtol=1e-9)


def test_chains_begin_apart_where_that_does_no_harm():
    values, _ = started(groups, Y)
    for name in ("mean", "scale"):
        assert len(np.unique(values[name])) == 4
