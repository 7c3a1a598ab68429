"""Chains in lockstep, as an accelerator runs them, here on a CPU."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from exact import eight_schools
from test_sampling import worst_z

import autoreparam as ar
from autoreparam.mcmc import engine, lockstep, metric, passes, warmup
from autoreparam.mcmc.chains import chain_keys
from autoreparam.mcmc.hmc import Kernel, jittered, key_of, tuning_like
from autoreparam.mcmc.interleaved import carry_state, stack_slots
from autoreparam.mcmc.metric import Metric
from autoreparam.mcmc.step_size import begin
from autoreparam.program.target import Target

CHAINS, DRAWS = 4, 7


def pair(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    numpyro.sample("theta", dist.Normal(mu, 0.5))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


@pytest.fixture
def accelerator(monkeypatch):
    for module in (engine, metric, warmup):
        monkeypatch.setattr(module, "accelerated", lambda: True)


class Case:
    """Four chains of a small model, under a tuning."""

    def __init__(self, stages, turned, adapts=False):
        self.target = Target(ar.inspect(pair, (0.3,)))
        self.lam = ar.Parameterization.constant(self.target.program, 0.3)
        dtype = self.target.program.dtype
        directions = np.array([[0.6, -0.8], [0.8, 0.6]], dtype)
        stretch = np.array([1.5, 0.7] if turned else [1.0, 1.0], dtype)
        inverse_mass = Metric(np.array([0.5, 2.0], dtype), directions, stretch)
        self.tuning = tuning_like(self.target, step_size=0.4, num_steps=6.0, jitter=0.5,
                                  stages=stages, inverse_mass=inverse_mass)  # fmt: skip
        self.keys = np.asarray(chain_keys(0, CHAINS))
        positions = 0.1 * jax.random.normal(jax.random.key(1), (CHAINS, self.target.size))
        states = jax.vmap(lambda p: Kernel("hmc").init(self.target, p, self.lam))(positions)
        self.states = jax.device_get(states)
        self.adaptation = begin(np.full((CHAINS, 1), 0.4, dtype), adapts, 0.8)

    def run(self, start, count, states, adaptation):
        together = lockstep.Together(self.target, self.keys, 1000.0)
        slots = stack_slots([self.lam], [self.tuning])
        return together.run(start, count, states, slots, adaptation)


@pytest.mark.parametrize(
    ("stages", "turned"), [pytest.param(1, False, marks=pytest.mark.slow), (2, True)]
)
def test_draws_are_those_of_each_chain_alone(stages, turned):
    case = Case(stages, turned)
    states, _, trail = case.run(3, DRAWS, case.states, case.adaptation)
    kernel = Kernel("hmc", again=None)

    @jax.jit
    def alone(key, state, number, steps, size):
        tuning = case.tuning._replace(step_size=size)
        key = key_of(key, number)
        return kernel.travel(key, case.target, state, case.lam, tuning, steps)

    for chain in range(CHAINS):
        state = jax.tree.map(lambda leaf, chain=chain: leaf[chain], case.states)
        for draw in range(DRAWS):
            uniform = passes._spread(jnp.asarray(3 + draw), case.target.program.dtype)
            steps, size = jittered(uniform, case.tuning)
            state, info = alone(case.keys[chain], state, 3 + draw, steps, size)
            at = chain, draw
            np.testing.assert_allclose(trail.position[at], state.position, atol=2e-5)
            np.testing.assert_allclose(trail.logdensity[at], state.logdensity, atol=2e-5)
            np.testing.assert_allclose(trail.info.energy[at], info.energy, atol=5e-5)
            np.testing.assert_allclose(
                trail.info.acceptance_rate[at], info.acceptance_rate, atol=5e-5
            )
            assert trail.info.n_steps[at] == info.n_steps
        np.testing.assert_array_equal(states.position[chain], trail.position[chain, -1])


def test_a_draw_of_an_interleaved_run_is_a_trajectory_in_each_slot():
    case = Case(1, True)
    lams = [case.lam, ar.Parameterization.centered(case.target.program)]
    dtype = case.target.program.dtype
    tunings = [case.tuning, case.tuning._replace(step_size=np.asarray(0.3, dtype))]
    together = lockstep.Together(case.target, case.keys, 1000.0)
    start = jax.vmap(lambda p: Kernel("hmc").init(case.target, p, lams[1]))(case.states.position)
    adaptation = begin(np.full((CHAINS, 2), 0.4, dtype), False, 0.8)
    slots = stack_slots(lams, tunings)
    states, _, trail = together.run(3, DRAWS, jax.device_get(start), slots, adaptation)
    kernel = Kernel("hmc", again=None)

    @jax.jit
    def alone(key, state, number, before, lam, tuning):
        state = carry_state(case.target, state, before, lam)
        steps, size = jittered(passes._spread(number, dtype), tuning)
        tuning = tuning._replace(step_size=size)
        return kernel.travel(key_of(key, number), case.target, state, lam, tuning, steps)

    assert trail.info.acceptance_rate.shape == trail.step_size.shape == (CHAINS, DRAWS, 2)
    for chain in range(CHAINS):
        state = jax.tree.map(lambda leaf, chain=chain: leaf[chain], start)
        for draw in range(DRAWS):
            for slot in range(2):
                number = 2 * (3 + draw) + slot
                places = lams[slot - 1], lams[slot], tunings[slot]
                state, info = alone(case.keys[chain], state, number, *places)
                rate = trail.info.acceptance_rate[chain, draw, slot]
                np.testing.assert_allclose(rate, info.acceptance_rate, atol=5e-5)
                assert trail.info.n_steps[chain, draw, slot] == info.n_steps
            np.testing.assert_allclose(trail.position[chain, draw], state.position, atol=2e-5)
            np.testing.assert_allclose(trail.score[chain, draw], state.score, atol=1e-4)
        np.testing.assert_array_equal(states.position[chain], trail.position[chain, -1])


@pytest.mark.long
@pytest.mark.slow
def test_interleaved_chains_have_the_posterior(accelerator, float32):
    problem = ar.zoo.load("eight_schools")
    expected = eight_schools(problem.kwargs["y"], problem.kwargs["sigma"])
    tree = ar.sample(problem.model, problem.args, problem.kwargs, draws=300, warmup=300, chains=64,
                     parameterization="interleaved", progress=False)  # fmt: skip
    assert worst_z(tree, expected, ["mu", "theta", "log_tau"]) < 4.5
    assert tree.sample_stats.acceptance_rate.shape == (64, 300, 2)


@pytest.mark.slow
def test_however_draws_are_cut_into_calls_they_are_the_same(monkeypatch):
    monkeypatch.setattr(lockstep, "CHUNK_TOGETHER", 5)
    case = Case(1, False, adapts=True)
    whole = case.run(0, 2 * DRAWS, case.states, case.adaptation)
    states, adaptation, first = case.run(0, DRAWS, case.states, case.adaptation)
    assert first.position.shape == (CHAINS, DRAWS, case.target.size)
    states, adaptation, second = case.run(DRAWS, DRAWS, states, adaptation)
    np.testing.assert_array_equal(states.position, whole[0].position)
    np.testing.assert_array_equal(
        np.concatenate([first.step_size, second.step_size], axis=1), whole[2].step_size
    )
    assert len(np.unique(whole[2].step_size)) == 2 * DRAWS
    np.testing.assert_array_equal(adaptation.final(), whole[1].final())


@pytest.mark.slow
def test_no_draws_leave_everything_as_it_is():
    case = Case(1, False)
    states, _, trail = case.run(0, 0, case.states, case.adaptation)
    np.testing.assert_array_equal(states.position, case.states.position)
    assert trail.position.shape == (CHAINS, 0, case.target.size)


def test_lengths_are_spread_evenly():
    numbers = np.sort(jax.vmap(lambda i: passes._spread(i, np.float32))(jnp.arange(100)))
    assert numbers[0] >= 0
    assert numbers[-1] < 1
    assert np.diff(numbers).max() < 0.02


@pytest.mark.slow
def test_two_programs_make_a_run(accelerator, monkeypatch):
    calls = []

    def noted(given, length, divergence, adapts, mesh):
        calls.append((adapts, given.slots.tuning.inverse_mass.rank))
        return program(given, length, divergence, adapts, mesh)

    program = lockstep.run_together
    before = program.programs() if "_program" in vars(program) else 0
    monkeypatch.setattr(lockstep, "run_together", noted)
    ar.sample(pair, (0.3,), kernel="hmc", chains=8, draws=40, warmup=100, progress=False)
    assert {adapts for adapts, _ in calls} == {False, True}
    plain = all(rank == 0 for adapts, rank in calls[2:] if not adapts)  # it was prepared for turns
    assert program.programs() - before == 2 + plain


@pytest.mark.slow
def test_a_few_draws_with_a_fixed_step_size_need_no_program_of_their_own():
    case = Case(1, True)
    few, many = (case.run(0, n, case.states, case.adaptation)[2] for n in (lockstep.FEW, DRAWS))
    np.testing.assert_allclose(few.position, many.position[:, : lockstep.FEW], atol=1e-6)
    np.testing.assert_array_equal(few.step_size, many.step_size[:, : lockstep.FEW])


@pytest.mark.slow
def test_eight_schools_is_met(accelerator):
    problem = ar.zoo.load("eight_schools")
    expected = eight_schools(problem.kwargs["y"], problem.kwargs["sigma"])
    tree = ar.sample(problem.model, problem.args, problem.kwargs, draws=300, warmup=300, chains=64,
                     kernel="hmc", progress=False)  # fmt: skip
    assert worst_z(tree, expected, ["mu", "theta", "log_tau"]) < 4.5


@pytest.mark.slow
def test_a_run_that_is_stored_and_resumed_is_the_same(accelerator, tmp_path):
    problem = ar.zoo.load("eight_schools")
    # Trajectories of a given length: a learned one is for the number of draws that was asked for.
    keywords = {"warmup": 100, "chains": 8, "kernel": "hmc", "num_steps": 6, "progress": False}
    whole = ar.sample(problem.model, problem.args, problem.kwargs, draws=600, **keywords)
    path = tmp_path / "run.zarr"
    ar.sample(problem.model, problem.args, problem.kwargs, draws=300, checkpoint=path, **keywords)
    longer = ar.resume(path, problem.model, problem.args, problem.kwargs, draws=600, progress=False)
    np.testing.assert_array_equal(longer.posterior.theta.values, whole.posterior.theta.values)


ON_MANY_DEVICES = """
import jax, numpy as np, sys
import autoreparam as ar
from autoreparam.mcmc import engine, metric, warmup
for module in (engine, metric, warmup):
    module.accelerated = lambda: True
assert len(jax.devices()) == int(sys.argv[1])
problem = ar.zoo.load("eight_schools")
tree = ar.sample(problem.model, problem.args, problem.kwargs, parameterization="noncentered",
                 draws=200, warmup=100, chains=64, kernel="hmc", progress=False)
np.save(sys.argv[2], tree.posterior["mu"].values)
"""


@pytest.mark.long
def test_many_devices_give_the_posterior_of_one(tmp_path):
    found = []
    for devices in (1, 8):
        path = tmp_path / f"{devices}.npy"
        flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        subprocess.run(
            [sys.executable, "-c", ON_MANY_DEVICES, str(devices), str(path)],
            check=True, env=os.environ | flags,
        )  # fmt: skip
        found.append(np.load(path))
    one, many = found
    # Sums over devices round differently, and step sizes follow; the first draws tell it apart
    # from another seed, and the means from another posterior.
    error = np.sqrt((one.var() + many.var()) / 2000)
    assert abs(one.mean() - many.mean()) < 4.5 * error
