"""Families whose elements depend on each other: every law, with a λ for each element."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from families_table import COUPLED, FACTOR, TIMES
from gains import rows_by_gain
from numpyro.handlers import seed, trace
from numpyro.infer.util import log_density
from origins import with_origins
from test_same_posterior import assert_moments, nuts

import autoreparam as ar
from autoreparam.program.compiled import may_wait_for_itself
from autoreparam.program.held import loose
from autoreparam.program.maps.gain import QUADRATIC
from autoreparam.program.move import _carry
from autoreparam.program.target import Target
from autoreparam.program.traits import Coupling
from autoreparam.run.mapping import map_back

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
ROWS = {row.name: row for row in COUPLED}
WORDS = {
    Coupling.CORRELATED: "; elements are correlated",
    Coupling.SEQUENCE: "; each element depends on the one before",
}
# The same map as other rows, from other parameters.
SLOW = ("precision", "low_rank", "log_multivariate")
PAPERS = ("covariance", "zero_sum", "random_walk")
rows = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in ROWS]
)
by_gain = rows_by_gain("name", ROWS, alike=SLOW, papers=PAPERS)


def parents():
    m = numpyro.sample("m", dist.Normal(0.3, 1.0))
    t = numpyro.sample("t", dist.LogNormal(-0.2, 0.5))
    return m, t


def model_of(row):
    def model(height=0.4):
        m, t = parents()
        with numpyro.plate("group", 2):
            x = numpyro.sample("x", row.centered(m, t))
        numpyro.factor("likelihood", -jnp.sum((jnp.tanh(x) - height) ** 2))

    return model


@cache
def facts(name, gain):
    """All that the laws compare, from one compiled program."""
    model = model_of(ROWS[name])
    target = Target(ar.inspect(model))
    lam = ar.Parameterization.constant(target.program, 0.5, gain=gain)
    draw = np.random.default_rng(0)
    lam = lam.replace(
        {"x": draw.uniform(size=lam["x"].shape)}, scale={"x": draw.uniform(size=lam["x"].shape)}
    )
    position = jnp.asarray(draw.normal(size=target.size) * 0.5)
    lam = with_origins(lam, draw)

    @partial(jax.jit, compiler_options=QUICK)
    def measure(target, position, lam, new):
        def flat(position):
            values = target.to_sites(position, lam)
            measured = ROWS[name].measured
            x = measured(values["x"]) if measured else values["x"]
            return jnp.concatenate([values["m"][None], values["t"][None], x.ravel()]), values

        jacobian, values = jax.jacfwd(flat, has_aux=True)(position)
        density, score = jax.value_and_grad(target.logdensity)(position, lam)
        moved, carried, gain = target.carry(position, score, lam, new)
        return {
            "values": values,
            "back": target.from_sites(values, lam),
            "density": density,
            "log_det": target.log_determinant(position, lam),
            "autodiff": jnp.linalg.slogdet(jacobian)[1],
            "log_joint": target.log_joint(values),
            "carried": (density + gain, carried),
            "there": jax.value_and_grad(target.logdensity)(moved, new),
        }

    def of(lam, position=position):
        return measure(target, position, lam, lam.map(lambda old: 1 - old**2))

    return model, target, lam, position, of


@rows
def test_inspect_finds_the_family_and_says_how_its_elements_depend_on_each_other(name):
    site = facts(name, QUADRATIC)[1].program["x"]
    assert site.distribution == ROWS[name].family.__name__
    assert site.candidate
    assert site.coupling is ROWS[name].coupling
    said = [coupling for coupling, words in WORDS.items() if words in site.note]
    assert said == [site.coupling] * (site.coupling is not Coupling.NONE)
    assert site.side == (site.shape[-1] if site.coupling is Coupling.CORRELATED else 1)


def test_a_process_that_starts_from_a_sequence_stays_centered_and_inspect_says_why():
    def model():
        t = numpyro.sample("t", dist.LogNormal(0.0, 1.0))
        start = dist.GaussianRandomWalk(t, 2)
        numpyro.sample("x", dist.EulerMaruyama(TIMES, lambda x, _: (-x, t), start))

    site = ar.inspect(model)["x"]
    assert not site.candidate
    assert "whose initial distribution is not Normal; stays centered" in site.note


@by_gain
@pytest.mark.parametrize("end", [None, 0.0, 1.0], ids=["random", "noncentered", "centered"])
def test_laws_of_density_round_trip_determinant_and_carried_score(name, gain, end):
    model, _, lam, position, of = facts(name, gain)
    found = of(lam if end is None else lam.replace({"x": end}))
    values = {n: found["values"][n] for n in ("m", "t", "x")}
    own = log_density(model, (), {}, values)[0]
    np.testing.assert_allclose(found["density"] - found["log_det"], own, rtol=1e-8)
    np.testing.assert_allclose(found["log_joint"], own, rtol=1e-9)
    np.testing.assert_allclose(found["back"], position, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found["log_det"], found["autodiff"], rtol=1e-8)
    density, score = found["carried"]
    there, expected = found["there"]
    np.testing.assert_allclose(score, expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(density, there, rtol=1e-9)


@by_gain
def test_lam_one_is_the_value_itself_and_lam_zero_the_hand_written_form(name, gain):
    target = facts(name, gain)[1]
    row, draw = ROWS[name], np.random.default_rng(1)
    noise = jnp.asarray(draw.normal(size=target.program["x"].unconstrained_shape))
    values = {"m": jnp.array(0.4), "t": jnp.array(1.3), "x": row.value(0.4, 1.3, noise)}
    for lam, expected in (
        (ar.Parameterization.noncentered(target.program, s0=1.0), noise),
        (ar.Parameterization.centered(target.program), None),
    ):
        if expected is None:
            expected = values["x"] if row.free is None else row.free(values["x"])
        found = target.unflatten(target.from_sites(values, lam))["x"]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_vectors_without_correlation_have_the_coordinates_of_independent_elements():
    def vectors():
        mean = numpyro.sample("mean", dist.Normal(0, 5).expand([3]).to_event(1))
        scale = numpyro.sample("scale", dist.HalfNormal(1).expand([3]).to_event(1))
        with numpyro.plate("group", 4):
            numpyro.sample("x", dist.MultivariateNormal(mean, scale_tril=jnp.diag(scale)))

    def elements():
        mean = numpyro.sample("mean", dist.Normal(0, 5).expand([3]).to_event(1))
        scale = numpyro.sample("scale", dist.HalfNormal(1).expand([3]).to_event(1))
        with numpyro.plate("group", 4):
            numpyro.sample("x", dist.Normal(mean, scale).to_event(1))

    draw = np.random.default_rng(0)
    lam = draw.uniform(size=(4, 3))
    values = {"mean": draw.normal(size=3), "scale": draw.gamma(0.5, size=3)}
    values["x"] = values["mean"] + values["scale"] * draw.normal(size=(4, 3))
    working = []
    for model in (vectors, elements):
        target = Target(ar.inspect(model))
        own = ar.Parameterization.constant(target.program, 0.5).replace({"x": lam})
        working.append(target.unflatten(target.from_sites(values, own))["x"])
    np.testing.assert_allclose(*working, rtol=1e-5)


@by_gain
def test_the_rewritten_numpyro_model_has_the_same_density(name, gain):
    model, target, lam, position, of = facts(name, gain)
    rewritten, found = ar.reparameterize(model, lam), of(loose(lam))
    given = {"m": found["values"]["m"], "t": found["values"]["t"],
             "x_working": target.unflatten(position)["x"]}  # fmt: skip
    total, sites = log_density(rewritten, (), {}, given)
    jacobian = jnp.log(given["t"])
    np.testing.assert_allclose(total + jacobian, found["density"], rtol=1e-9)
    np.testing.assert_allclose(sites["x"]["value"], found["values"]["x"], rtol=1e-9, atol=1e-12)
    drawn = trace(seed(rewritten, 0)).get_trace()
    assert drawn["x"]["value"].shape == target.program["x"].shape


@rows_by_gain("name", ["covariance", "zero_sum", "state_space", "euler_maruyama"], papers=PAPERS)
def test_single_precision_agrees_with_double(name, gain):
    model, _, lam, position, of = facts(name, gain)
    expected = float(of(lam)["density"])
    with jax.enable_x64(False):
        target = Target(ar.inspect(model))
        lam = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), lam)
        found = jax.jit(Target.logdensity)(target, np.asarray(position, np.float32), lam)
        assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_gradients_are_finite_for_a_nearly_singular_covariance():
    def model():
        rho = numpyro.sample("rho", dist.Uniform(0.0, 1.0))
        covariance = jnp.eye(8) * (1 - rho) + rho
        numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(8), covariance))

    target = Target(ar.inspect(model))
    score = jax.jit(jax.grad(target.logdensity))
    for lam in (0.0, 0.5, 1.0):
        lam = ar.Parameterization.constant(target.program, lam)
        position = target.from_sites({"rho": 1 - 1e-12, "x": jnp.linspace(-1, 1, 8) * 1e-6}, lam)
        assert np.isfinite(score(position, lam)).all()


def test_masked_and_scaled_vectors_keep_the_models_own_density():
    def model():
        m, t = parents()
        fn = dist.MultivariateNormal(m, scale_tril=t * FACTOR[:2, :2])
        with numpyro.plate("group", 3), numpyro.handlers.scale(scale=0.3):
            x = numpyro.sample("x", fn.mask(jnp.array([True, False, True])))
        numpyro.factor("likelihood", -jnp.sum((x - 1) ** 2))

    target = Target(ar.inspect(model))
    lam = ar.Parameterization.constant(target.program, 0.3)
    position = jnp.linspace(-0.5, 0.8, target.size)
    values = target.to_sites(position, lam)
    given = {name: values[name] for name in ("m", "t", "x")}
    own = log_density(model, (), {}, given)[0]
    found = target.logdensity(position, lam)
    np.testing.assert_allclose(found - target.log_determinant(position, lam), own, rtol=1e-9)
    working = {"m": values["m"], "t": values["t"], "x_working": target.unflatten(position)["x"]}
    rewritten = log_density(ar.reparameterize(model, lam), (), {}, working)[0]
    np.testing.assert_allclose(rewritten + jnp.log(values["t"]), found, rtol=1e-9)


@pytest.mark.slow
def test_nuts_finds_the_exact_moments_of_correlated_effects():
    prior = np.asarray(FACTOR[:2, :2] @ FACTOR[:2, :2].T)
    y, sd = np.array([[1.0, -0.5], [0.2, 2.0], [-1.0, 0.3]]), np.array([0.4, 1.5])

    def model():
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("groups", 3):
            beta = numpyro.sample("beta", dist.MultivariateNormal(mu, prior))
            numpyro.sample("y", dist.Normal(beta, sd).to_event(1), obs=y)

    lam = ar.Parameterization.constant(ar.inspect(model), 0.5)
    lam = lam.replace({"beta": [[0.0, 1.0], [0.3, 0.8], [0.6, 0.2]]})
    draws = nuts(ar.reparameterize(model, lam), draws=3000)
    whole = np.kron(np.ones((3, 3)), np.eye(2)) + np.kron(np.eye(3), prior)
    noise = np.diag(np.tile(sd**2, 3))
    gain = whole @ np.linalg.inv(whole + noise)
    mean, covariance = gain @ y.ravel(), whole - gain @ whole
    sds = np.sqrt(np.diag(covariance)).reshape(3, 2)
    assert_moments(draws["beta"], mean.reshape(3, 2), sds)


def test_a_long_random_walk_costs_what_its_length_says():
    def model(steps):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.sample("x", dist.GaussianRandomWalk(scale, steps))

    program = ar.inspect(model, (10_000,))
    target, lam = Target(program), ar.Parameterization.constant(program, 0.4)
    density = jax.jit(jax.value_and_grad(Target.logdensity, argnums=1))
    compiled = density.lower(target, jnp.zeros(target.size), lam).compile()
    assert np.isfinite(compiled(target, jnp.zeros(target.size), lam)[0])
    assert compiled.cost_analysis()["bytes accessed"] < 10_000 * 1_000


@pytest.mark.skipif(not may_wait_for_itself(), reason="stacks do no harm")
def test_no_stack_of_matrices_is_factorized():
    """Several at once can wait for each other forever: jaxlib 0.10 on two cores."""

    def model():
        log_scale = numpyro.sample("log_scale", dist.Normal(0.0, 1.0))
        covariance = jnp.exp(log_scale) * (jnp.eye(40) + 0.5)
        numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(40), covariance))

    program = ar.inspect(model)
    target, lam = Target(program), ar.Parameterization.constant(program, 0.5)
    rows = np.zeros((4, target.size), program.dtype)
    programs = (
        map_back.lower(target, rows, lam),
        _carry.lower(target, rows, rows, lam, lam.map(np.zeros_like)),
    )
    for one in programs:
        calls = [line for line in one.compile().as_text().splitlines() if "potrf_ffi" in line]
        assert calls
        assert not any("[4,40,40]" in call for call in calls)
