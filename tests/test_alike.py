"""Equal expressions once, alike ones side by side: the same values, less to compile."""

import subprocess
import sys
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import autoreparam as ar
from autoreparam.program import alike
from autoreparam.program.alike import FEWEST, computed_once, sum_computed_once
from autoreparam.program.compiled import rarely
from autoreparam.program.target import Target
from autoreparam.program.visit import AtWorking


def operations(function, *args):
    """How often each operation is in a traced function."""
    found = Counter()

    def read(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name in ("jit", "pjit"):
                read(equation.params["jaxpr"].jaxpr)
            else:
                found[equation.primitive.name] += 1

    read(jax.make_jaxpr(function)(*args).jaxpr)
    return found


# -- functions --------------------------------------------------------------------------------

PAIR = jnp.array([[2.0, 0.3], [0.3, 1.0]])


@jax.custom_jvp
def steep(x):
    """A function with a derivative of its own, which is not that of its value."""
    return jnp.sin(x)


@steep.defjvp
def _(primals, tangents):
    return steep(*primals), 7.0 * tangents[0]


def elements(x):
    return [jnp.exp(x[i]) * x[0] for i in range(12)]


def backwards(x):
    return [jnp.exp(x[11 - i]) + x[i] for i in range(12)]


def every_other(x):
    return [jnp.log1p(x[i] ** 2) for i in range(0, 24, 2)]


def chain(x):
    terms, last = [], x[0]
    for i in range(1, 12):
        terms.append(-0.5 * (x[i] - last) ** 2)
        last = jnp.tanh(x[i]) + 0.5 * last
    return terms


def gathered(x):
    parts = jnp.stack([jnp.exp(x[i]) for i in range(12)])
    return [jnp.sum(parts * jnp.arange(12.0)), parts[3], parts[3]]


def matrices(x):
    blocks = [jnp.linalg.cholesky(PAIR * jnp.exp(x[i])) for i in range(10)]
    return [jnp.sum(block) * (i + 1) for i, block in enumerate(blocks)]


def several_results(x):
    rows = x.reshape(12, 2)
    return [jax.lax.top_k(rows[i], 2)[0][1] * x[i] for i in range(12)]


def constants(x):
    return [x[i] * c for i, c in enumerate(np.linspace(-1, 1, 12))]


def branches(x):
    positive = [jnp.where(x[i] > 0, jnp.log(jnp.abs(x[i])), 0.0) for i in range(12)]
    return [jax.lax.cond(x[i] > 0, jnp.log, jnp.exp, x[i]) for i in range(12)] + positive


def own_derivative(x):
    return [steep(x[i]) for i in range(12)]


FUNCTIONS = [elements, backwards, every_other, chain, gathered, matrices, several_results]
FUNCTIONS += [constants, branches, own_derivative]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_values_and_gradients_are_those_of_the_function(function):
    total, once = sum_computed_once(function), computed_once(function)

    def side_by_side(x):
        return once(x), total(x), jax.grad(total)(x)

    def plain(x):
        return function(x), sum(function(x)), jax.grad(lambda x: sum(function(x)))(x)

    x = jax.random.normal(jax.random.key(1), (2, 24))
    found, expected = rarely(jax.vmap(side_by_side))(x), rarely(jax.vmap(plain))(x)
    for own, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [elements, every_other, matrices], ids=lambda f: f.__name__)
def test_alike_operations_become_one(function, monkeypatch):
    x = jnp.ones(24)
    monkeypatch.setattr(alike, "may_wait_for_itself", lambda: False)
    found = operations(sum_computed_once(function), x)
    for name in ("exp", "log1p", "cholesky"):
        assert found[name] <= 1


def test_matrices_are_not_stacked_where_that_may_never_end(monkeypatch):
    monkeypatch.setattr(alike, "may_wait_for_itself", lambda: True)
    found = operations(sum_computed_once(matrices), jnp.ones(24))
    assert found["cholesky"] == 10
    assert found["exp"] == 1


def test_few_alike_operations_stay_as_they_are():
    def few(x):
        return [jnp.exp(x[i]) for i in range(FEWEST - 1)]

    assert operations(sum_computed_once(few), jnp.ones(8))["exp"] == FEWEST - 1


def test_derivatives_of_a_models_own_are_not_taken_for_each_other():
    def clipped(bound):
        @jax.custom_jvp
        def identity(x):
            return x * 1.5

        @identity.defjvp
        def _(primals, tangents):
            return identity(*primals), bound * tangents[0]

        return identity

    def function(x):
        return [clipped(bound)(x[i % 2]) for i, bound in enumerate(range(12))]

    found = jax.grad(sum_computed_once(function))(jnp.ones(2))
    np.testing.assert_allclose(found, [30.0, 36.0])


def test_a_derivative_by_hand_may_index_what_a_model_reads():
    """As the adjoint of an ordinary differential equation does with its times."""
    times = np.array([0.5, 1.0, 2.0])

    def total(x, times):
        return jnp.sum(times) * jnp.sin(x)

    def slope(x, times):
        return jnp.sum(jax.lax.map(lambda i: times[i] * jnp.cos(x), jnp.arange(3)))

    own = jax.custom_vjp(total)
    own.defvjp(lambda *given: (total(*given), given), lambda kept, by: (by * slope(*kept), None))
    within = computed_once(lambda x: jax.jit(own)(x, times))
    x = jnp.asarray(0.3)
    np.testing.assert_allclose(jax.jit(jax.grad(within))(x), 3.5 * np.cos(0.3), rtol=1e-6)


@pytest.mark.slow
def test_every_process_makes_the_same_program():
    code = """
import hashlib, jax, jax.numpy as jnp
from autoreparam.program.alike import sum_computed_once
waste = [object() for _ in range({waste})]  # moves what comes after it in memory
def function(x):
    return [y for i in range(12) for y in (jnp.exp(x[i]), jnp.sin(x[i]), jnp.cos(x[i]) + x[0])]
text = jax.jit(sum_computed_once(function)).lower(jnp.ones(12)).as_text()
print(hashlib.sha256(text.encode()).hexdigest())
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", code.format(waste=waste)], capture_output=True, check=True
        ).stdout
        for waste in (0, 1000, 54321)
    }
    assert len(found) == 1


def test_a_function_that_prints_still_does(capfd):
    def noisy(x):
        jax.debug.print("here {}", x[0])
        return [x[i] ** 2 for i in range(12)]

    assert float(sum_computed_once(noisy)(jnp.ones(12))) == 12.0
    jax.effects_barrier()
    assert "here 1.0" in capfd.readouterr().out


# -- models -----------------------------------------------------------------------------------

GROUPS = 9


def looped(y):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(2))
    for i in range(GROUPS):
        theta = numpyro.sample(f"theta{i}", dist.StudentT(4, mu, tau))
        numpyro.sample(f"y{i}", dist.Normal(theta, 1 + i % 3), obs=y[i])


def walked(y):
    tau = numpyro.sample("tau", dist.LogNormal(0, 1))
    last = numpyro.sample("x0", dist.Normal(0, 1))
    for i in range(1, GROUPS):
        last = numpyro.sample(f"x{i}", dist.Normal(0.9 * last, tau))
        numpyro.sample(f"y{i}", dist.Poisson(jnp.exp(last)), obs=jnp.round(jnp.abs(y[i])))


def by_hand(y):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    for i in range(GROUPS):
        eps = numpyro.sample(f"eps{i}", dist.Normal(0, 1))
        theta = numpyro.deterministic(f"theta{i}", mu + tau * eps)
        numpyro.sample(f"y{i}", dist.Normal(theta, 1), obs=y[i])


@pytest.mark.parametrize(
    "model",
    [pytest.param(looped, marks=pytest.mark.slow), walked, by_hand],
    ids=["looped", "walked", "by_hand"],
)
def test_a_model_that_samples_in_a_loop(model):
    y = np.random.default_rng(0).normal(size=GROUPS)
    program = ar.inspect(model, (y,))
    target, rng = Target(program), np.random.default_rng(1)
    lam, new_lam = (
        ar.Parameterization.constant(program, 0.5).map(lambda x: rng.uniform(size=np.shape(x)))
        for _ in range(2)
    )
    position = jnp.asarray(rng.normal(size=target.size), program.dtype)

    def plain(position):
        return AtWorking(program, target.unflatten(position), lam).total()

    found = rarely(jax.value_and_grad(target.logdensity))(position, lam)
    expected = rarely(jax.value_and_grad(plain))(position)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-4, atol=1e-4)
    there, gain = target.translate(position, lam, new_lam)
    back, loss = target.translate(there, new_lam, lam)
    np.testing.assert_allclose(back, position, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(gain, -loss, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["funnel", "unequal_groups", "robust_schools", "correlated_slopes", "horseshoe", "r2d2"],
)
def test_a_model_of_the_zoo(name):
    problem = ar.zoo.load(name)
    program = ar.inspect(problem.model, problem.args, problem.kwargs)
    target, rng = Target(program), np.random.default_rng(1)
    lam = ar.Parameterization.constant(program, 0.5).map(lambda x: rng.uniform(size=np.shape(x)))
    position = jnp.asarray(0.5 * rng.normal(size=target.size), program.dtype)

    def plain(position):
        return AtWorking(program, target.unflatten(position), lam).total()

    found = rarely(jax.value_and_grad(target.logdensity))(position, lam)
    expected = rarely(jax.value_and_grad(plain))(position)
    for own, other in zip(found, expected, strict=True):
        scale = 1 + np.max(np.abs(other))
        np.testing.assert_allclose(own / scale, other / scale, atol=1e-4)


def test_what_is_compiled_does_not_grow_with_the_groups():
    def size(groups):
        def model(y):
            mu = numpyro.sample("mu", dist.Normal(0, 5))
            tau = numpyro.sample("tau", dist.HalfCauchy(2))
            for i in range(groups):
                theta = numpyro.sample(f"theta{i}", dist.Normal(mu, tau))
                numpyro.sample(f"y{i}", dist.Normal(theta, 1), obs=y[i])

        target = Target(ar.inspect(model, (np.zeros(groups),)))
        lam = ar.Parameterization.constant(target.program, 0.5)
        gradient = jax.grad(target.logdensity)
        return operations(gradient, jnp.zeros(target.size), lam).total()

    assert size(24) == size(12)
