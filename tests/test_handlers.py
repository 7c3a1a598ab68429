"""A reparameterized model is an ordinary NumPyro model with the same posterior."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Predictive, Trace_ELBO, init_to_value
from numpyro.infer.util import initialize_model, log_density

import autoreparam as ar
from autoreparam.errors import ModelError, ParameterizationError
from autoreparam.program.guide import mean_field
from autoreparam.program.target import Target

Y = np.array([1.1, -0.4, 2.0, 0.3])


def two_level(y=Y, context=nullcontext, theta=None):
    """Random location and scale, with room for a handler around the group effects."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    tau = numpyro.sample("tau", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("groups", 4):
        with context():
            theta = numpyro.sample("theta", dist.Normal(mu, tau), obs=theta)
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)
    return theta


def partly(model, *args, **kwargs):
    """A parameterization with a different λ for every element."""
    program = ar.inspect(model, args, kwargs)
    spread = {s.name: np.linspace(0.1, 0.9, s.size).reshape(s.shape) for s in program.candidates}
    return ar.Parameterization.constant(program, 0.5).replace(spread)


LAM = partly(two_level)
VALUES = {"mu": jnp.array(0.4), "tau": jnp.array(1.7), "theta": jnp.array([0.1, -0.5, 2.0, 0.9])}


# -- NumPyro's tools --------------------------------------------------------------------------


def test_predictive_draws_from_the_prior():
    found = Predictive(ar.reparameterize(two_level, LAM), num_samples=4000)(
        jax.random.key(0), y=None
    )
    expected = Predictive(two_level, num_samples=4000)(jax.random.key(1), y=None)
    for name in ("theta", "y"):
        assert found[name].shape == expected[name].shape
        quantiles = np.quantile(np.asarray(expected[name]), [0.1, 0.5, 0.9])
        np.testing.assert_allclose(
            (np.asarray(found[name])[..., None] < quantiles).mean((0, 1)),
            [0.1, 0.5, 0.9],
            atol=0.02,
        )


def test_initial_values_follow_the_reparameterization():
    model = ar.reparameterize(two_level, LAM)
    start = model.initial_values(VALUES)
    assert set(start) == {"mu", "tau", "theta_working"}
    info = initialize_model(jax.random.key(0), model, init_strategy=init_to_value(values=start))
    found = info.postprocess_fn(info.param_info.z)
    for name, value in VALUES.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10)


def test_initial_values_of_some_sites_leave_the_others_free():
    model = ar.reparameterize(two_level, LAM)
    assert model.initial_values({"tau": jnp.array(2.0)}) == {"tau": jnp.array(2.0)}
    with pytest.raises(ModelError, match="initial value for 'theta' needs one for 'mu' too"):
        model.initial_values({"theta": VALUES["theta"]})
    with pytest.raises(ModelError, match=r"'y' is not a latent site.*'mu', 'tau', 'theta'"):
        model.initial_values({"y": 0.0})
    with pytest.raises(ModelError, match=r"site 'theta': expected a value of shape \(4,\)"):
        model.initial_values({**VALUES, "theta": jnp.zeros(3)})


def test_it_keeps_the_name_the_words_and_the_result_of_the_model():
    model = ar.reparameterize(two_level, LAM)
    assert model.__name__ == "two_level"
    assert model.__doc__ == two_level.__doc__
    result = handlers.substitute(model, data=model.initial_values(VALUES))()
    np.testing.assert_allclose(result, VALUES["theta"], rtol=1e-10)


# -- composition with handlers ----------------------------------------------------------------


def test_the_original_site_is_a_deterministic_of_its_own_shape_in_its_plate():
    found = handlers.trace(handlers.seed(ar.reparameterize(two_level, LAM), 0)).get_trace()
    assert found["theta"]["type"] == "deterministic"
    assert found["theta"]["value"].shape == (4,)
    assert [frame.name for frame in found["theta_working"]["cond_indep_stack"]] == ["groups"]
    assert list(found) == ["mu", "tau", "groups", "theta_working", "theta", "y"]


def test_a_seed_decides_the_draw():
    model = ar.reparameterize(two_level, LAM)
    draws = [handlers.seed(model, seed)() for seed in (0, 0, 1)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.allclose(draws[0], draws[2])


def log_jacobian(model, lam):
    """`log |d theta / d working|` at VALUES, by autodiff through the rewritten model."""
    rewritten = ar.reparameterize(model, lam)
    start = rewritten.initial_values(VALUES)

    def theta(working):
        given = {**start, "theta_working": working}
        return handlers.substitute(rewritten, data=given)()

    return jnp.linalg.slogdet(jax.jacobian(theta)(start["theta_working"]))[1]


HALF = jnp.array([True, False, True, True])
CONTEXTS = {
    "scale": lambda: handlers.scale(scale=0.3),
    "scale by array": lambda: handlers.scale(scale=jnp.array([0.3, 1.0, 2.0, 0.5])),
    "mask": lambda: handlers.mask(mask=HALF),
    "mask all": lambda: handlers.mask(mask=False),
    "both": lambda: _Both(handlers.scale(scale=0.3), handlers.mask(mask=HALF)),
}


class _Both:
    def __init__(self, *contexts):
        self.contexts = contexts

    def __enter__(self):
        for context in self.contexts:
            context.__enter__()

    def __exit__(self, *error):
        for context in reversed(self.contexts):
            context.__exit__(*error)


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_scale_and_mask_inside_the_model_keep_their_meaning(context):
    def model():
        return two_level(context=context)

    own = log_density(model, (), {}, VALUES)[0]
    rewritten = ar.reparameterize(model, LAM)
    found = log_density(rewritten, (), {}, rewritten.initial_values(VALUES))[0]
    jacobian = log_jacobian(model, LAM)
    np.testing.assert_allclose(found, own + jacobian, rtol=1e-10)
    program = ar.inspect(model)
    target, lam = Target(program), LAM.check(program)
    position = target.from_sites(VALUES, lam)
    np.testing.assert_allclose(target.to_sites(position, lam)["theta"], VALUES["theta"])
    constrain = jnp.log(VALUES["tau"])
    np.testing.assert_allclose(target.logdensity(position, lam), own + jacobian + constrain)


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_scale_and_mask_outside_the_model_keep_their_meaning(context):
    def only_theta(msg):
        return msg["name"] not in ("theta", "theta_working", "theta_jacobian")

    rewritten = ar.reparameterize(two_level, LAM)
    working = rewritten.initial_values(VALUES)

    def outside(model):
        def run():
            with context(), handlers.block(hide_fn=only_theta):
                return model()

        return run

    def density(model, values):  # `block` hides all but theta from the handler and from the trace
        return log_density(outside(model), (), {}, values)[0]

    found = density(handlers.substitute(rewritten, data=working), {})
    own = density(handlers.substitute(two_level, data=VALUES), {})
    np.testing.assert_allclose(found, own + log_jacobian(two_level, LAM), rtol=1e-10)


@pytest.mark.parametrize("name", ["scale", "mask"])
def test_scale_and_mask_around_the_whole_model_keep_their_meaning(name):
    context = {"scale": lambda: handlers.scale(scale=0.3), "mask": lambda: handlers.mask(mask=True)}

    def outside(model):
        def run():
            with context[name]():
                return model()

        return run

    rewritten = ar.reparameterize(two_level, LAM)
    own = log_density(outside(two_level), (), {}, VALUES)[0]
    found = log_density(outside(rewritten), (), {}, rewritten.initial_values(VALUES))[0]
    np.testing.assert_allclose(found, own + log_jacobian(two_level, LAM), rtol=1e-10)


def test_an_array_of_scales_multiplies_whole_events():
    weights = jnp.array([0.5, 2.0, 1.0])

    def model():
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        tau = numpyro.sample("tau", dist.LogNormal(0.0, 0.5))
        with numpyro.plate("rows", 3), handlers.scale(scale=weights):
            return numpyro.sample("theta", dist.Normal(mu, tau).expand([3]).to_event(1))

    program = ar.inspect(model)
    lam = partly(model)
    values = {"mu": jnp.array(0.4), "tau": jnp.array(1.7), "theta": jnp.arange(9.0).reshape(3, 3)}
    own = log_density(model, (), {}, values)[0]
    target = Target(program)
    position = target.from_sites(values, lam)
    identity = target.logdensity(position, lam) - target.log_determinant(position, lam)
    np.testing.assert_allclose(identity, own, rtol=1e-10)
    rewritten = ar.reparameterize(model, lam)
    found = log_density(rewritten, (), {}, rewritten.initial_values(values))[0]
    expected = target.logdensity(position, lam) - jnp.log(values["tau"])
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_masked_elements_stay_centered_and_do_not_pull_the_scale():
    def model():
        return two_level(context=CONTEXTS["mask"])

    lam = ar.Parameterization.noncentered(ar.inspect(model))
    working = ar.reparameterize(model, lam).initial_values(VALUES)["theta_working"]
    np.testing.assert_allclose(working[~HALF], VALUES["theta"][~HALF], rtol=1e-12)
    assert not np.any(np.isclose(working[HALF], VALUES["theta"][HALF]))


def test_block_hides_the_working_site():
    hidden = handlers.block(ar.reparameterize(two_level, LAM), hide=["theta_working"])
    found = handlers.trace(handlers.seed(hidden, 0)).get_trace()
    assert "theta_working" not in found
    assert "theta" in found


def test_substituted_working_values_give_the_targets_density():
    model = ar.reparameterize(two_level, LAM)
    given = model.initial_values(VALUES)
    found = log_density(handlers.substitute(model, data=given), (), {}, {})[0]
    target = Target(ar.inspect(two_level))
    expected = target.logdensity(target.from_sites(VALUES, LAM), LAM) - jnp.log(VALUES["tau"])
    np.testing.assert_allclose(found, expected, rtol=1e-10)


# -- observed, conditioned, partly observed ---------------------------------------------------


def test_a_site_observed_in_this_call_is_left_as_it_is():
    model = ar.reparameterize(two_level, LAM)
    given = {"mu": VALUES["mu"], "tau": VALUES["tau"]}
    found, sites = log_density(model, (), {"theta": VALUES["theta"]}, given)
    own = log_density(two_level, (), {"theta": VALUES["theta"]}, given)[0]
    np.testing.assert_allclose(found, own)
    assert sites["theta"]["is_observed"]
    assert "theta_working" not in sites


@pytest.mark.parametrize("fix", [handlers.condition, handlers.substitute])
def test_a_site_conditioned_inside_keeps_its_value(fix):
    inside = fix(two_level, data={"theta": VALUES["theta"]})
    found = handlers.trace(handlers.seed(ar.reparameterize(inside, LAM), 0)).get_trace()
    np.testing.assert_array_equal(found["theta"]["value"], VALUES["theta"])
    assert "theta_working" not in found


def test_a_partly_observed_site_has_the_same_density_and_its_own_values():
    there = np.array([True, False, True, False])

    def model():
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        tau = numpyro.sample("tau", dist.LogNormal(0.0, 0.5))
        with numpyro.plate("rows", 4):
            return numpyro.sample("y", dist.Normal(mu, tau), obs=Y, obs_mask=there)

    lam = partly(model)
    assert lam.sites == ("y_unobserved",)
    rewritten = ar.reparameterize(model, lam)
    values = {"mu": VALUES["mu"], "tau": VALUES["tau"], "y_unobserved": VALUES["theta"]}
    working = rewritten.initial_values(values)
    found, sites = log_density(rewritten, (), {}, working)
    np.testing.assert_allclose(sites["y"]["value"], np.where(there, Y, VALUES["theta"]))
    own = log_density(model, (), {}, values)[0]
    free = (1 - lam["y_unobserved"][~there]) * np.log(1.7 / lam.reference["y_unobserved"])
    np.testing.assert_allclose(found, own + free.sum(), rtol=1e-10)


# -- refusals ---------------------------------------------------------------------------------


def test_setting_a_reparameterized_site_from_outside_is_an_error_that_names_it():
    model = ar.reparameterize(two_level, LAM)
    data = {"theta": VALUES["theta"]}
    original = handlers.trace(handlers.seed(two_level, 0)).get_trace()
    outsiders = [
        handlers.condition(model, data=data),
        handlers.substitute(model, data=data),
        handlers.do(model, data=data),
        handlers.replay(model, trace=original),
    ]
    message = r"site 'theta' is reparameterized.*Condition the model first.*initial_values"
    for outside in outsiders:
        with pytest.raises(ParameterizationError, match=message):
            handlers.seed(outside, 0)()
    with pytest.raises(ParameterizationError, match=message):
        Predictive(model, {"theta": VALUES["theta"][None]})(jax.random.key(0))


def test_other_sites_may_be_set_from_outside():
    model = handlers.condition(ar.reparameterize(two_level, LAM), data={"tau": jnp.array(0.5)})
    found = handlers.trace(handlers.seed(model, 0)).get_trace()
    assert found["tau"]["value"] == 0.5
    assert found["theta"]["type"] == "deterministic"


def test_another_models_parameterization_is_an_error_that_names_the_sites():
    with pytest.raises(
        ParameterizationError, match=r"no latent site 'theta'.*sampled 'a'.*another"
    ):
        handlers.seed(
            ar.reparameterize(lambda: numpyro.sample("a", dist.Normal(0.0, 1.0)), LAM), 0
        )()


def test_a_lam_of_another_shape_is_an_error_that_names_the_site():
    lam = ar.Parameterization({"theta": np.ones(3)})
    with pytest.raises(ParameterizationError, match=r"site 'theta': λ has shape \(3,\).*\(4,\)"):
        handlers.seed(ar.reparameterize(two_level, lam), 0)()


def test_a_lam_for_an_unregistered_family_is_an_error_that_names_the_site():
    lam = ar.Parameterization({"p": 0.5})
    with pytest.raises(
        ParameterizationError, match=r"site 'p' cannot be .*Kumaraswamy family. Leave it out"
    ):
        handlers.seed(
            ar.reparameterize(lambda: numpyro.sample("p", dist.Kumaraswamy(1.0, 2.0)), lam), 0
        )()


def test_what_is_no_model_or_no_parameterization_is_refused():
    with pytest.raises(ParameterizationError, match="expected a Parameterization, found float"):
        ar.reparameterize(two_level, 0.5)
    with pytest.raises(ModelError, match="expected a NumPyro model, a callable; found NoneType"):
        ar.reparameterize(None, LAM)


# -- log joint --------------------------------------------------------------------------------


def test_log_joint_of_own_values_is_numpyros_log_density():
    joint = ar.log_joint(two_level, (Y + 1,))
    own = log_density(two_level, (Y + 1,), {}, VALUES)[0]
    np.testing.assert_allclose(jax.jit(joint)(VALUES), own, rtol=1e-12)


def test_log_joint_of_working_values_includes_the_jacobian():
    joint = ar.log_joint(two_level, parameterization=LAM)
    working = ar.reparameterize(two_level, LAM).initial_values(VALUES)
    given = {"mu": VALUES["mu"], "tau": jnp.log(VALUES["tau"]), "theta": working["theta_working"]}
    own = log_density(two_level, (), {}, VALUES)[0]
    expected = own + jnp.log(VALUES["tau"]) + log_jacobian(two_level, LAM)
    np.testing.assert_allclose(joint(given), expected, rtol=1e-10)


def test_log_joint_names_missing_values_and_wrong_shapes():
    for joint in (ar.log_joint(two_level), ar.log_joint(two_level, parameterization=LAM)):
        with pytest.raises(ModelError, match=r"'theta'.*every latent needs one"):
            joint({"mu": VALUES["mu"], "tau": VALUES["tau"]})
        with pytest.raises(ModelError, match=r"site 'theta': expected a value of shape \(4,\)"):
            joint({**VALUES, "theta": jnp.zeros(3)})


# -- mean field -------------------------------------------------------------------------------


def test_the_mean_field_guide_covers_every_latent_on_its_own_support():
    def model():
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
        with numpyro.plate("rows", 2), handlers.scale(scale=0.5):
            numpyro.sample("x", dist.Normal(weights.sum(), tau))
        numpyro.deterministic("twice", 2 * tau)
        numpyro.sample("y", dist.Normal(tau, 1.0), obs=1.0)

    found = handlers.trace(handlers.seed(mean_field(model), 0)).get_trace()
    samples = {name: site for name, site in found.items() if site["type"] == "sample"}
    assert set(samples) == {"tau", "weights", "x"}
    assert samples["tau"]["value"] > 0
    np.testing.assert_allclose(samples["weights"]["value"].sum(), 1.0)
    assert samples["x"]["scale"] is None  # tempering is of the model, not of its approximation
    assert found["weights_loc"]["value"].shape == (2,)
    assert "twice" not in found


# -- the paper's vocabulary -------------------------------------------------------------------


def mixed_model():
    mu = numpyro.sample("mu", dist.Normal(1.0, 2.0))
    tau = numpyro.sample("tau", dist.HalfNormal(3.0))
    p = numpyro.sample("p", dist.Kumaraswamy(2.0, 2.0))
    theta = numpyro.sample("theta", dist.Normal(mu, tau))
    numpyro.deterministic("both", theta + p)
    numpyro.sample("y", dist.Normal(theta, 1.0), obs=0.3)


def working_by_name(found):
    """Values of the rewritten model's latents under the original names."""
    return {
        name.removesuffix("_working"): site["value"]
        for name, site in found.items()
        if site["type"] == "sample" and not site["is_observed"]
    }


def test_make_ncp_gives_the_noncentered_model_and_the_map_back():
    model, to_original = ar.paper.make_ncp(mixed_model)
    found = handlers.trace(handlers.seed(model, 0)).get_trace()
    values = working_by_name(found)
    assert set(values) == {"mu", "tau", "p", "theta"}
    original = to_original(values)
    assert set(original) == {"mu", "tau", "p", "theta", "both"}
    for name, value in original.items():
        np.testing.assert_allclose(value, found[name]["value"], rtol=1e-12)
    mu, tau = original["mu"], original["tau"]
    np.testing.assert_allclose(original["theta"], mu + tau * values["theta"], rtol=1e-12)
    np.testing.assert_allclose(mu, 1 + 2 * values["mu"], rtol=1e-12)
    with pytest.raises(ModelError, match="no value for 'mu'"):
        to_original({name: value for name, value in values.items() if name != "mu"})


def test_make_vip_has_params_that_start_at_a_half_and_the_map_back():
    model, to_original = ar.paper.make_vip(mixed_model)
    found = handlers.trace(handlers.seed(model, 0)).get_trace()
    params = {name: site["value"] for name, site in found.items() if site["type"] == "param"}
    assert params == {"mu_lam": 0.5, "tau_lam": 0.5, "theta_lam": 0.5}
    lam = {name.removesuffix("_lam"): value for name, value in params.items()}
    for name, value in to_original(working_by_name(found), lam).items():
        np.testing.assert_allclose(value, found[name]["value"], rtol=1e-12)


def test_make_log_joint_is_log_joint():
    own = log_density(two_level, (), {}, VALUES)[0]
    np.testing.assert_allclose(ar.paper.make_log_joint(two_level)(VALUES), own, rtol=1e-12)


@pytest.mark.slow
def test_vip_fitted_by_svi_learns_the_lam_that_decorrelates_the_toy():
    entry = ar.zoo.load("toy", n=3)
    model, _ = ar.paper.make_vip(entry.model, entry.args, entry.kwargs)
    guide = ar.paper.make_variational(model)
    svi = SVI(model, guide, numpyro.optim.Adam(0.03), Trace_ELBO(num_particles=8))
    result = svi.run(jax.random.key(0), 2000, progress_bar=False, **entry.kwargs)
    # In these coordinates the posterior precision of (theta, mu) is diagonal at λ = n / (1 + n).
    np.testing.assert_allclose(result.params["mu_lam"], 0.75, atol=0.06)
    assert result.losses[-200:].mean() < result.losses[:200].mean()
