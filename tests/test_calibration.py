"""Samplers against the joint distribution of parameters and data: ranks, Geweke's test."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import autoreparam as ar
from autoreparam.mcmc.hmc import Kernel, tuning_like
from autoreparam.mcmc.interleaved import draw, stack_slots
from autoreparam.program.target import Target

GROUPS, REPLICATIONS = 3, 400


def model(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    log_tau = numpyro.sample("log_tau", dist.Normal(-0.5, 0.5))
    with numpyro.plate("group", GROUPS):
        theta = numpyro.sample("theta", dist.Normal(mu, jnp.exp(log_tau)))
        numpyro.sample("y", dist.Normal(theta, 0.7), obs=y)


def from_prior(key):
    """Parameters and data drawn from the model."""
    keys = jax.random.split(key, 4)
    mu = jax.random.normal(keys[0])
    log_tau = -0.5 + 0.5 * jax.random.normal(keys[1])
    theta = mu + jnp.exp(log_tau) * jax.random.normal(keys[2], (GROUPS,))
    y = theta + 0.7 * jax.random.normal(keys[3], (GROUPS,))
    return {"mu": mu, "log_tau": log_tau, "theta": theta}, y


def with_data(target, y):
    return jax.tree.unflatten(jax.tree.structure(target), [y])


def sampler(kernel, method):
    """A target, its slots, and a transition between values of the sites."""
    target = Target(ar.inspect(model, (np.zeros(GROUPS),)))
    program = target.program
    lams = {
        "centered": [ar.Parameterization.centered(program)],
        "noncentered": [ar.Parameterization.noncentered(program)],
        "partial": [ar.Parameterization.constant(program, 0.3)],
        "interleaved": [ar.Parameterization.centered(program),
                        ar.Parameterization.noncentered(program)],
        "three": [ar.Parameterization.constant(program, lam) for lam in (0.2, 1.0, 0.6)],
    }[method]  # fmt: skip
    tuning = tuning_like(target, step_size=0.45, num_steps=4.0, jitter=0.7)
    slots = jax.device_put(stack_slots(lams, [tuning] * len(lams)))
    kernel = Kernel(kernel, 6)

    def begin(target, values):
        return kernel.init(target, target.from_sites(values, lams[-1]), lams[-1])

    def transition(target, state, key):
        return draw(kernel, key, target, state, slots, slots.tuning.step_size)[0]

    return target, begin, transition, partial(Target.to_sites, lam=lams[-1])


KERNELS_AND_METHODS = [
    pytest.param(kernel, method, marks=mark)
    for methods, mark in (
        (("partial", "interleaved"), pytest.mark.slow),
        (("centered", "noncentered", "three"), pytest.mark.long),
    )
    for kernel in ("hmc", "nuts")
    for method in methods
]


@pytest.mark.parametrize(("kernel", "method"), KERNELS_AND_METHODS)
def test_ranks_of_the_truth_among_posterior_draws_are_uniform(kernel, method):
    target, begin, transition, to_sites = sampler(kernel, method)
    draws, apart = 31, 6

    def replicate(key):
        truth, y = from_prior(jax.random.fold_in(key, 0))
        here = with_data(target, y)

        def step(state, key):
            state = jax.lax.fori_loop(
                0, apart, lambda i, s: transition(here, s, jax.random.fold_in(key, i)), state
            )
            found = to_sites(here, state.position)
            return state, {name: found[name] for name in truth}

        keys = jax.random.split(jax.random.fold_in(key, 1), draws + 10)
        _, trail = jax.lax.scan(step, begin(here, truth), keys)
        return jax.tree.map(lambda x, at: jnp.sum(x[10:] < at, axis=0), trail, truth)

    keys = jax.random.split(jax.random.key(7), REPLICATIONS)
    ranks = jax.jit(jax.vmap(replicate))(keys)
    for name, rank in ranks.items():
        for column in np.asarray(rank).reshape(REPLICATIONS, -1).T:
            counts = np.bincount(column // 4, minlength=8)  # 32 ranks in 8 bins
            assert stats.chisquare(counts).pvalue > 1e-4, (name, counts)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["hmc", "nuts"])
def test_interleaving_leaves_the_joint_distribution_as_it_is(kernel):
    """Geweke: parameters given data, data given parameters, again and again, keep the prior."""
    target, begin, transition, to_sites = sampler(kernel, "interleaved")

    def replicate(key):
        values, _ = from_prior(jax.random.fold_in(key, 0))

        def step(values, key):
            noise = jax.random.normal(jax.random.fold_in(key, 0), (GROUPS,))
            here = with_data(target, values["theta"] + 0.7 * noise)
            state = transition(here, begin(here, values), jax.random.fold_in(key, 1))
            found = to_sites(here, state.position)
            return {name: found[name] for name in values}, None

        return jax.lax.scan(step, values, jax.random.split(jax.random.fold_in(key, 1), 15))[0]

    found = jax.jit(jax.vmap(replicate))(jax.random.split(jax.random.key(3), 4000))
    assert stats.kstest(found["mu"], stats.norm(0, 1).cdf).pvalue > 1e-4
    assert stats.kstest(found["log_tau"], stats.norm(-0.5, 0.5).cdf).pvalue > 1e-4
    noise = (found["theta"] - found["mu"][:, None]) / np.exp(found["log_tau"])[:, None]
    for column in np.asarray(noise).T:
        assert stats.kstest(column, stats.norm(0, 1).cdf).pvalue > 1e-4


@pytest.mark.slow
def test_the_default_is_calibrated_with_all_that_it_adapts():
    """Ranks again, with λ, metric, step size and length learned anew for every data set."""
    ranks = {"mu": [], "log_tau": [], "theta": []}
    for seed in range(200):
        truth, y = jax.device_get(from_prior(jax.random.key(1000 + seed)))
        tree = ar.sample(model, (y,), draws=310, warmup=250, chains=2, seed=seed, progress=False)
        for name, found in ranks.items():
            values = tree["posterior"][name].values[:, ::20].reshape(-1, *np.shape(truth[name]))
            found.append(np.sum(values[:31] < truth[name], axis=0))
    for name, found in ranks.items():
        for column in np.reshape(found, (len(found), -1)).T:
            counts = np.bincount(column // 4, minlength=8)
            assert stats.chisquare(counts).pvalue > 1e-4, (name, counts)
