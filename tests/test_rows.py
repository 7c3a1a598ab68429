"""Rows side by side or one after the other: the same numbers, and programs that end."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import autoreparam as ar
from autoreparam.program import rows
from autoreparam.program.target import Target

X = np.linspace(0.0, 1.0, 20)
DISTANCE = (X[:, None] - X) ** 2


def processes(count=2):
    total = 0.0
    for i in range(count):
        width = numpyro.sample(f"width_{i}", dist.HalfNormal(1.0))
        kernel = width**2 * jnp.exp(-8 * (i + 1) * DISTANCE) + 1e-3 * jnp.eye(20)
        total += numpyro.sample(f"f_{i}", dist.MultivariateNormal(0.0, kernel))
    numpyro.sample("y", dist.Normal(total, 0.3), obs=np.sin(6 * X))


def groups():
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    numpyro.sample("x", dist.Normal(0.0, scale).expand([5]))


def solved_in_a_loop():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]))

    def step(carry, _):
        return jnp.linalg.solve(2 * jnp.eye(3) + jnp.outer(carry, carry), carry), None

    y, _ = jax.lax.scan(step, x, length=3)
    numpyro.factor("likelihood", jnp.sum(y))


@pytest.mark.parametrize(
    ("model", "found"), [(processes, True), (solved_in_a_loop, True), (groups, False)]
)
def test_factorizations_are_found(model, found):
    assert ar.inspect(model).structure.factorizes is found


def test_both_ways_give_the_same(monkeypatch):
    target = Target(ar.inspect(processes))
    lam = ar.Parameterization.centered(target.program)
    positions = np.random.default_rng(0).normal(size=(5, target.size))

    def found(affected):
        monkeypatch.setattr(rows, "may_wait_for_itself", lambda: affected)
        look = jax.value_and_grad(Target.logdensity, argnums=1)
        return jax.jit(rows.over_rows(target.program, look, (None, 0, None)))(
            target, positions, lam
        )

    for side_by_side, in_turn in zip(found(False), found(True)):
        np.testing.assert_allclose(in_turn, side_by_side, rtol=1e-8)


@pytest.mark.slow
def test_several_processes_are_sampled_to_the_end():
    """As a program of its own, so that one that never ends does not take all tests with it."""
    code = (
        "import autoreparam as ar, tests.test_rows as t\n"
        "ar.sample(t.processes, warmup=60, draws=60, progress=False)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=300)
