"""Sites inside `scan` have λ per time step: states, innovations and everything between."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from gains import rows_by_gain
from numpyro.contrib.control_flow import scan
from numpyro.distributions import biject_to, constraints
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import init_to_value
from numpyro.infer.util import initialize_model, log_density
from origins import with_origins
from test_same_posterior import assert_moments, nuts

import autoreparam as ar
from autoreparam.errors import ParameterizationError
from autoreparam.program.dependence import scan_inputs
from autoreparam.program.held import loose
from autoreparam.program.maps.gain import QUADRATIC
from autoreparam.program.target import Target

Y = np.linspace(-1.0, 1.0, 6)
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def mixed(y=Y):
    """Plates, two families and a mask inside one scan, and another one that runs backwards."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    tau = numpyro.sample("tau", dist.LogNormal(0.0, 0.3))
    start = numpyro.sample("start", dist.Normal(mu, tau).expand([2]).to_event(1))

    def step(previous, y):
        with numpyro.plate("series", 2):
            fn = dist.StudentT(4.0, mu + 0.9 * (previous - mu), tau)
            x = numpyro.sample("x", fn.mask(y < 0.9))
            with numpyro.handlers.scale(scale=0.7):
                spread = numpyro.sample("spread", dist.HalfNormal(tau))
            numpyro.sample("y", dist.Normal(x, spread), obs=y)
        return x, numpyro.deterministic("twice", 2 * x)

    scan(step, start, y)
    back = lambda c, _: (numpyro.sample("w", dist.Normal(c, tau)),) * 2  # noqa: E731
    scan(back, 0.0, None, length=3, reverse=True)


def autoregression(order):
    """AR(p) with a likelihood outside the loop."""

    def model(y=Y):
        phi = numpyro.sample("phi", dist.Normal(0.0, 0.3).expand([order]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))

        def step(past, _):
            h = numpyro.sample("h", dist.Normal(past @ phi, sigma))
            return jnp.append(h, past[:-1]), h

        _, h = scan(step, jnp.zeros(order), None, length=y.shape[0])
        numpyro.sample("y", dist.Normal(h, 0.5), obs=y)

    return model


def state_space(y=Y):
    """A vector of states with correlated innovations, one of them observed."""
    rho = numpyro.sample("rho", dist.Uniform(-0.9, 0.9))
    tau = numpyro.sample("tau", dist.LogNormal(0.0, 0.3))
    factor = tau * jnp.array([[1.0, 0.0], [0.5, 0.8]])

    def step(z, y):
        z = numpyro.sample("z", dist.MultivariateNormal(rho * z, scale_tril=factor))
        numpyro.sample("y", dist.Normal(z[0], 0.5), obs=y)
        return z, None

    scan(step, jnp.zeros(2), y)


MODELS = {"mixed": mixed, "ar1": autoregression(1), "ar3": autoregression(3),
          "state_space": state_space}  # fmt: skip
SLOW = ("mixed",)
models = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in MODELS]
)
by_gain = rows_by_gain("name", MODELS, alike=SLOW, papers=("ar3",))


@cache
def place(name, gain=QUADRATIC):
    model = MODELS[name]
    target = Target(ar.inspect(model))
    lam = ar.Parameterization.constant(target.program, 0.5, gain=gain)
    draw = np.random.default_rng(0)
    lam = lam.replace(
        {n: draw.uniform(size=lam[n].shape) for n in lam},
        scale={n: draw.uniform(size=lam[n].shape) for n in lam},
        tail={n: draw.uniform(size=lam[n].shape) for n in lam.tail},
    )
    position = jnp.asarray(draw.normal(size=target.size) * 0.4)
    return model, target, with_origins(lam, draw), position


def turned(name, values):
    """NumPyro substitutes by the number of the step, which runs against the order of the values."""
    backwards = ("w", "w_working") if name == "mixed" else ()
    return {n: v[::-1] if n in backwards else v for n, v in values.items()}


def latents(target, position, lam):
    values = target.to_sites(position, lam)
    return {site.name: values[site.name] for site in target.program.latents}


@models
def test_every_site_of_the_loop_is_a_candidate(name):
    program = place(name)[1].program
    inside = [site for site in program.latents if site.loop is not None]
    assert inside
    assert all(site.candidate for site in inside)


@cache
def facts(name, gain):
    """All that the laws compare, from one compiled program."""
    _, target, lam, position = place(name, gain)
    new = lam.map(lambda old: 1 - old**2)

    @partial(jax.jit, compiler_options=QUICK)
    def measure(position):
        def flat(position):
            found = latents(target, position, lam)
            return jnp.concatenate([jnp.ravel(value) for value in found.values()]), found

        jacobian, values = jax.jacobian(flat, has_aux=True)(position)
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

    return measure(position)


@by_gain
def test_density_minus_log_determinant_is_the_models_own_log_joint(name, gain):
    found = facts(name, gain)
    own = log_density(MODELS[name], (), {}, turned(name, found["values"]))[0]
    np.testing.assert_allclose(found["density"] - found["log_det"], own, rtol=1e-9)
    np.testing.assert_allclose(found["log_joint"], own, rtol=1e-9)


@by_gain
def test_values_survive_the_round_trip_and_the_log_determinant_is_autodiffs(name, gain):
    found = facts(name, gain)
    np.testing.assert_allclose(found["back"], place(name)[-1], atol=1e-12)
    np.testing.assert_allclose(found["log_det"], found["autodiff"], rtol=1e-9)


@by_gain
def test_a_carried_score_is_the_gradient_in_the_new_coordinates(name, gain):
    density, score = facts(name, gain)["carried"]
    there, expected = facts(name, gain)["there"]
    np.testing.assert_allclose(score, expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(density, there, rtol=1e-10)


@by_gain
def test_the_rewritten_numpyro_model_has_the_same_density_and_values(name, gain):
    model, target, lam, position = place(name, gain)
    rewritten, working = ar.reparameterize(model, lam), target.unflatten(position)
    values = latents(target, position, loose(lam))
    expected = target.logdensity(position, loose(lam))
    given = {n + "_working" if n in lam else n: working[n] if n in lam else values[n]
             for n in values}  # fmt: skip
    found, sites = log_density(rewritten, (), {}, turned(name, given))
    own = {n: biject_to(constraints.positive) for n in ("tau", "sigma")}
    own["rho"] = biject_to(constraints.interval(-0.9, 0.9))
    jacobian = sum(
        transform.log_abs_det_jacobian(transform.inv(values[n]), values[n])
        for n, transform in own.items()
        if n in values
    )
    np.testing.assert_allclose(found + jacobian, expected, rtol=1e-9)
    for site in target.program.candidates:
        np.testing.assert_allclose(sites[site.name]["value"], values[site.name], rtol=1e-9)
        assert sites[site.name]["type"] == "deterministic"


def test_lam_zero_is_the_hand_written_model_of_innovations():
    def innovations(y=Y):
        phi = numpyro.sample("phi", dist.Normal(0.0, 0.3).expand([1]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        e = numpyro.sample("e", dist.Normal(0.0, 1.0).expand([y.shape[0]]).to_event(1))
        _, h = jax.lax.scan(lambda h, e: (phi[0] * h + sigma * e,) * 2, 0.0, e)
        numpyro.sample("y", dist.Normal(h, 0.5), obs=y)

    target = place("ar1")[1]
    lam = ar.Parameterization.noncentered(target.program, s0=1.0)
    values = {"phi": jnp.array([0.4]), "sigma": jnp.array(0.7), "e": jnp.linspace(-1, 1.5, 6)}
    free = {"phi": values["phi"], "sigma": jnp.log(values["sigma"]), "h": values["e"]}
    own = log_density(innovations, (), {}, values)[0] + free["sigma"]
    np.testing.assert_allclose(target.logdensity(target.flatten(free), lam), own, rtol=1e-10)


def test_single_precision_agrees_with_double():
    _, _, lam, position = place("ar3")
    expected = float(facts("ar3", QUADRATIC)["density"])
    with jax.enable_x64(False):
        target = Target(ar.inspect(MODELS["ar3"], (Y.astype(np.float32),)))
        lam = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), lam)
        found = target.logdensity(jnp.asarray(np.asarray(position), jnp.float32), lam)
        assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.slow
def test_nuts_finds_the_moments_of_a_smoother():
    sd, noise = 0.9, 0.5

    def local_level(y):
        def step(level, t):
            level = numpyro.sample("level", dist.Normal(0.8 * level, sd))
            numpyro.sample("y", dist.Normal(level, noise), obs=t)
            return level, None

        scan(step, 0.0, y)

    y = np.array([0.3, -1.0, 0.8, 1.9])
    program = ar.inspect(local_level, (y,))
    assert [site.name for site in program.candidates] == ["level"]
    lam = ar.Parameterization.constant(program, 0.5).replace({"level": [0.0, 0.3, 0.7, 1.0]})
    draws = nuts(ar.reparameterize(local_level, lam), y, draws=3000)
    difference = np.eye(4) - 0.8 * np.eye(4, k=-1)
    covariance = np.linalg.inv(difference.T @ difference / sd**2 + np.eye(4) / noise**2)
    mean = covariance @ y / noise**2
    assert_moments(draws["level"], mean, np.sqrt(np.diag(covariance)))


def test_a_value_from_outside_is_used_or_refused_but_never_ignored():
    model, _, lam, _ = place("ar1")
    rewritten = ar.reparameterize(model, lam)
    values = {"phi": jnp.array([0.3]), "sigma": jnp.array(0.7), "h": jnp.linspace(-1, 1, 6)}
    with pytest.raises(ParameterizationError, match="site 'h' is reparameterized"):
        trace(seed(substitute(rewritten, values), 0)).get_trace()
    start = init_to_value(values=rewritten.initial_values(values))
    info = initialize_model(jax.random.key(0), rewritten, init_strategy=start)
    np.testing.assert_allclose(info.postprocess_fn(info.param_info.z)["h"], values["h"])


def test_a_parameterization_of_another_length_is_refused():
    model, _, lam, _ = place("ar1")
    with pytest.raises(ParameterizationError, match=r"site 'h': λ has shape \(6,\).*\(4,\)"):
        trace(seed(ar.reparameterize(model, lam), 0)).get_trace(Y[:4])


def test_the_gradient_of_a_long_loop_takes_no_memory_of_its_length_at_every_step():
    program = ar.inspect(autoregression(1), (np.zeros(10_000),))
    target, lam = Target(program), ar.Parameterization.constant(program, 0.4)
    density = jax.jit(jax.value_and_grad(Target.logdensity, argnums=1))
    compiled = density.lower(target, jnp.zeros(target.size), lam).compile()
    value, score = compiled(target, jnp.zeros(target.size), lam)
    assert np.isfinite(value)
    assert np.isfinite(score).all()
    # A step that touched whole series would count their length squared.
    assert compiled.cost_analysis()["bytes accessed"] < 10_000 * 1_000


def test_inputs_of_a_scan_are_told_apart_by_their_shapes():
    def loop(one, other, start, series):
        return jax.lax.scan(lambda x, e: (x * one + e @ other, (x, one)), start, series)

    shapes = (2,), (3, 2), (2,), (4, 3)
    (equation,) = jax.make_jaxpr(loop)(*map(jnp.ones, shapes)).eqns
    assert scan_inputs(equation) == (2, 1)
