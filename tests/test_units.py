"""Runs in single precision on data in units that its squares cannot hold."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import autoreparam as ar

GROUPS = np.repeat(np.arange(12), 6)
EFFECTS = np.random.default_rng(1).normal(2.0, 1.5, 12)
Y = EFFECTS[GROUPS] + np.random.default_rng(2).normal(size=len(GROUPS))
SETTINGS = {"precision": "single", "progress": False}


def groups(y, unit):
    mean = numpyro.sample("mean", dist.Normal(0.0, 10 * unit))
    scale = numpyro.sample("scale", dist.HalfNormal(5 * unit))
    noise = numpyro.sample("noise", dist.HalfNormal(5 * unit))
    with numpyro.plate("group", 12):
        effect = numpyro.sample("effect", dist.Normal(mean, scale))
    numpyro.sample("y", dist.Normal(effect[GROUPS], noise), obs=y)


def nested(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 100.0))
    variances = numpyro.sample("variances", dist.InverseGamma(0.01, 0.01).expand([3]).to_event(1))
    upper, lower, noise = jnp.sqrt(variances)
    with numpyro.plate("schools", 4):
        school = numpyro.sample("school", dist.Normal(mean, upper))
    with numpyro.plate("classes", 12):
        each = numpyro.sample("each", dist.Normal(school[np.arange(12) // 3], lower))
    numpyro.sample("y", dist.Normal(each[GROUPS], noise), obs=y)


def converged(tree):
    found = ar.efficiency(tree)
    return found.r_hat < 1.02 and tree.attrs["divergences"] <= 10


@pytest.mark.slow
@pytest.mark.parametrize("unit", [pytest.param(1e-12, marks=pytest.mark.long), 1e12])
def test_the_posterior_does_not_depend_on_units(unit):
    usual, wild = (ar.sample(groups, (one * Y, one), **SETTINGS) for one in (1.0, unit))
    assert converged(usual)
    assert converged(wild)
    for name in ("mean", "scale", "noise", "effect"):
        expected, found = usual["posterior"][name], wild["posterior"][name].astype(float) / unit
        spread = expected.std(("chain", "draw"))
        away = (found - expected).mean(("chain", "draw")) / spread
        assert np.abs(away).max() < 0.15
        assert np.abs(np.log(found.std(("chain", "draw")) / spread)).max() < 0.15


@pytest.mark.slow
def test_nested_variances_with_the_vague_priors_of_bugs_converge():
    tree = ar.sample(nested, (Y,), **SETTINGS)
    assert converged(tree)
    assert ar.efficiency(tree).gradients_total < 1_000_000
