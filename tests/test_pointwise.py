"""The log likelihood of data whose discrete latents are summed out: per observation, or in all."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from test_discrete import MARK, Y, hidden_markov, hidden_markov_density, two_groups

import autoreparam as ar
from autoreparam.errors import SamplingWarning
from autoreparam.program.pointwise import inseparable
from autoreparam.program.target import Target
from autoreparam.run.notes import about_call, available

PAIRS = np.stack([Y, -Y], axis=-1)


def two_layers(y):
    """Every observation has a class within a class, and a latent that depends on its class."""
    with numpyro.plate("class", 2):
        mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
    with numpyro.plate("obs", len(y)):
        a = numpyro.sample("a", dist.Bernoulli(0.3), infer=MARK)
        b = numpyro.sample("b", dist.Bernoulli(0.2 + 0.5 * a), infer=MARK)
        numpyro.sample("w", dist.Normal(1.0 * a, 1.0))
        both = jnp.stack([mean[b], mean[b]], axis=-1)
        spread = jnp.asarray(1.0 + a)[..., None]
        numpyro.sample("y", dist.Normal(both, spread).to_event(1), obs=y)


def two_layers_likelihood(v):
    """`log p(y, w) - log p(w)` for each observation."""

    def joint(with_data):
        terms = []
        for a in range(2):
            for b in range(2):
                term = np.log([0.7, 0.3][a]) + np.log(abs(1 - b - (0.2 + 0.5 * a)))
                term = term + np.asarray(dist.Normal(a, 1.0).log_prob(v["w"]))
                if with_data:
                    law = dist.Normal(v["mean"][b], 1.0 + a)
                    term = term + np.asarray(law.log_prob(PAIRS)).sum(-1)
                terms.append(term)
        return logsumexp(terms, axis=0)

    return joint(True) - joint(False)


def test_an_observation_has_the_sum_over_its_own_discrete_latents():
    target = Target(ar.inspect(two_layers, (PAIRS,)))
    lam = ar.Parameterization.centered(target.program)
    position = np.random.default_rng(2).normal(size=target.size)

    @jax.jit
    def everything(position):
        found = target.log_likelihood(position, lam)["y"]
        return target.to_sites(position, lam), found, target.total_log_likelihood(position, lam)

    values, found, total = jax.device_get(everything(position))
    np.testing.assert_allclose(found, two_layers_likelihood(values), rtol=1e-10)
    np.testing.assert_allclose(found.sum(), total, rtol=1e-10)


def test_a_chain_of_states_has_a_total_and_a_sentence():
    program = ar.inspect(hidden_markov, (Y,))
    target, lam = Target(program), ar.Parameterization.centered(program)
    position = np.random.default_rng(1).normal(size=target.size)
    found = jax.jit(lambda x: (target.to_sites(x, lam), target.total_log_likelihood(x, lam)))
    values, total = jax.device_get(found(position))
    prior = dist.Normal(0.0, 3.0).log_prob(values["mean"]).sum()
    prior += dist.Dirichlet(jnp.ones(2)).log_prob(values["rows"]).sum()
    prior += dist.HalfNormal(1.0).log_prob(values["scale"]).sum()
    np.testing.assert_allclose(total, hidden_markov_density(values) - prior, rtol=1e-10)
    (note,) = about_call(program, hidden_markov, (Y,), None, {"log_likelihood": True})
    assert note.startswith("'y' has no log likelihood per observation: the states 'x' depend on")
    assert "sample_stats, 'total_log_likelihood'" in note
    assert not available(program, "log_likelihood")
    assert available(program, "posterior_predictive")


def shared_class(y):
    share = numpyro.sample("share", dist.Uniform(0.0, 1.0))
    z = numpyro.sample("z", dist.Bernoulli(share), infer=MARK)
    with numpyro.plate("obs", len(y)):
        numpyro.sample("y", dist.Normal(2.0 * z, 1.0), obs=y)


def two_outcomes(y):
    share = numpyro.sample("share", dist.Uniform(0.0, 1.0))
    with numpyro.plate("obs", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(share), infer=MARK)
        numpyro.sample("y", dist.Normal(2.0 * z, 1.0), obs=y)
        numpyro.sample("x", dist.Normal(-1.0 * z, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (two_groups, {}),
        (shared_class, {"y": "its observations share the discrete 'z'"}),
        (
            two_outcomes,
            {
                "y": "it shares the discrete 'z' with 'x'",
                "x": "it shares the discrete 'z' with 'y'",
            },
        ),
    ],
)
def test_observations_that_share_a_discrete_latent_are_not_separated(model, why):
    assert inseparable(ar.inspect(model, (Y,)).sites) == why


@pytest.mark.slow
def test_a_run_keeps_what_there_is():
    short = {"draws": 20, "warmup": 60, "chains": 2, "log_likelihood": True, "progress": False}
    with pytest.warns(SamplingWarning, match="no log likelihood per observation"):
        tree = ar.sample(hidden_markov, (Y,), **short)
    assert tree["sample_stats"]["total_log_likelihood"].shape == (2, 20)
    assert "log_likelihood" not in tree.children
    with pytest.warns(SamplingWarning):  # twenty draws are few
        tree = ar.sample(two_groups, (Y,), **short)
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "obs")
    assert "total_log_likelihood" not in tree["sample_stats"]
