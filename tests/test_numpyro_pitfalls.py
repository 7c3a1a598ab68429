"""What goes wrong with NumPyro's own reparameterizers does not go wrong here."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer import init_to_value
from numpyro.infer.util import initialize_model, log_density

import autoreparam as ar
from autoreparam.errors import ModelError, ParameterizationError
from autoreparam.program.target import Target

Y = np.array([0.4, -1.0, 2.2])


def grouped(family=dist.Normal):
    """A model whose group effects have the given distribution of a location and a scale."""

    def model(theta=None):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        with numpyro.plate("groups", 3):
            theta = numpyro.sample("theta", family(mu, tau), obs=theta)
            numpyro.sample("y", dist.Normal(theta, 1.0), obs=Y)

    return model


def assert_reparameterized(model):
    """The site is rewritten without a word from the user, and the density is the model's own."""
    program = ar.inspect(model)
    assert [site.name for site in program.candidates] == ["theta"]
    lam = ar.Parameterization.constant(program, 0.3)
    target = Target(program)
    position = jnp.linspace(-0.4, 0.7, target.size)
    values = target.to_sites(position, lam)
    own = log_density(model, (), {}, {s.name: values[s.name] for s in program.latents})[0]
    found = target.logdensity(position, lam) - target.log_determinant(position, lam)
    np.testing.assert_allclose(found, own, rtol=1e-9)
    rewritten = ar.reparameterize(model, lam)
    trace = handlers.trace(handlers.seed(rewritten, 0)).get_trace()
    assert trace["theta"]["type"] == "deterministic"


def test_no_sampler_runs_on_a_lam_that_nobody_learned():
    with pytest.raises(ParameterizationError, match="expected a Parameterization, found NoneType"):
        ar.reparameterize(grouped(), None)
    model = ar.reparameterize(grouped(), ar.Parameterization.noncentered(ar.inspect(grouped())))
    trace = handlers.trace(handlers.seed(model, 0)).get_trace()
    assert not [name for name, site in trace.items() if site["type"] == "param"]
    unlearned, _ = ar.paper.make_vip(grouped())
    with pytest.raises(ModelError, match="site 'mu_lam' is a param, which MCMC does not learn"):
        ar.inspect(unlearned)


def test_lam_is_one_number_per_element_under_a_plate():
    assert ar.Parameterization.centered(ar.inspect(grouped()))["theta"].shape == (3,)
    model, _ = ar.paper.make_vip(grouped())
    trace = handlers.trace(handlers.seed(model, 0)).get_trace()
    assert trace["theta_lam"]["value"].shape == (3,)


def test_rewriting_a_rewritten_model_ends():
    program = ar.inspect(grouped(), sites="all")
    once = ar.reparameterize(grouped(), ar.Parameterization.noncentered(program))
    again = ar.inspect(once, sites="all")
    assert [site.name for site in again.latents] == ["mu_working", "tau_working", "theta_working"]
    assert again.candidates == ()
    twice = ar.reparameterize(once, ar.Parameterization.noncentered(again))
    trace = handlers.trace(handlers.seed(twice, 0)).get_trace()
    assert trace["theta"]["value"].shape == (3,)


def test_an_observed_site_needs_no_change_of_the_parameterization():
    model = grouped()
    lam = ar.Parameterization.noncentered(ar.inspect(model))
    given = {"mu": jnp.array(0.2), "tau": jnp.array(0.9)}
    theta = {"theta": jnp.array([0.1, 0.2, 0.3])}
    found = log_density(ar.reparameterize(model, lam), (), theta, given)[0]
    np.testing.assert_allclose(found, log_density(model, (), theta, given)[0])


def test_initial_values_under_original_names_are_used_or_refused_but_never_ignored():
    values = {"mu": jnp.array(0.2), "tau": jnp.array(0.9), "theta": jnp.array([3.0, -3.0, 1.0])}
    model = ar.reparameterize(grouped(), ar.Parameterization.noncentered(ar.inspect(grouped())))
    with pytest.raises(ParameterizationError, match="site 'theta' is reparameterized"):
        initialize_model(jax.random.key(0), model, init_strategy=init_to_value(values=values))
    start = init_to_value(values=model.initial_values(values))
    info = initialize_model(jax.random.key(0), model, init_strategy=start)
    np.testing.assert_allclose(info.postprocess_fn(info.param_info.z)["theta"], values["theta"])


def test_results_carry_the_models_own_names_only():
    program = ar.inspect(grouped())
    target, lam = Target(program), ar.Parameterization.noncentered(program)
    assert set(target.to_sites(jnp.zeros(target.size), lam)) == {"mu", "tau", "theta"}


def test_student_t_needs_no_list_of_shape_parameters():
    assert_reparameterized(grouped(lambda mu, tau: dist.StudentT(4.0, mu, tau)))
    assert_reparameterized(grouped(lambda mu, tau: dist.StudentT(2.0 + tau, mu, tau)))


def test_log_normal_needs_no_chain_of_strategies():
    assert_reparameterized(grouped(dist.LogNormal))


@pytest.mark.parametrize(
    "family",
    [
        lambda mu, tau: dist.HalfNormal(tau),
        lambda mu, tau: dist.HalfCauchy(tau),
        lambda mu, tau: dist.Gamma(2.0, tau),
        lambda mu, tau: dist.Exponential(tau),
        lambda mu, tau: dist.TruncatedNormal(mu, tau, low=0.0),
        lambda mu, tau: dist.TruncatedNormal(mu, tau, low=-1.0, high=2.0),
    ],
    ids=["half_normal", "half_cauchy", "gamma", "exponential", "truncated", "two_sided"],
)
def test_positive_and_truncated_families_are_reparameterized_too(family):
    assert_reparameterized(grouped(family))


@pytest.mark.parametrize(
    "fn",
    [
        lambda tau: dist.MultivariateNormal(jnp.zeros(3), tau * jnp.eye(3)),
        lambda tau: dist.GaussianRandomWalk(tau, 3),
        lambda tau: dist.CAR(0.0, 0.1, tau, jnp.ones((3, 3)) - jnp.eye(3)),
        lambda tau: dist.ZeroSumNormal(tau, (3,)),
    ],
    ids=["multivariate", "random_walk", "car", "zero_sum"],
)
def test_families_of_dependent_elements_are_reparameterized_too(fn):
    def model():
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        numpyro.sample("x", fn(tau))

    program = ar.inspect(model)
    assert [site.name for site in program.candidates] == ["x"]
    target, lam = Target(program), ar.Parameterization.constant(program, 0.5)
    position = jnp.linspace(-0.5, 0.5, target.size)
    assert np.isfinite(target.logdensity(position, lam))
    trace = handlers.trace(handlers.seed(ar.reparameterize(model, lam), 0)).get_trace()
    assert trace["x"]["value"].shape == (3,)


def test_a_learnable_lam_inside_scan_is_one_number_per_step():
    def model():
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        scan(lambda x, _: (numpyro.sample("x", dist.Normal(x, tau)),) * 2, 0.0, None, length=3)

    learnable, _ = ar.paper.make_vip(model)
    trace = handlers.trace(handlers.seed(learnable, 0)).get_trace()
    assert trace["x_lam"]["value"].shape == (3,)
    assert trace["x"]["type"] == "deterministic"
    assert trace["x_working"]["value"].shape == (3,)
