"""The posterior of a reparameterized model is the original's, by NumPyro's own tools."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import autoreparam as ar
from autoreparam.program.guide import mean_field

SIGMA = np.array([0.3, 0.8, 1.0, 2.5])
Y = np.array([1.1, -0.4, 2.0, 0.3])


def gaussian(sigma=SIGMA, y=Y):
    """Everything Normal with known scales: the posterior is too."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("groups", len(sigma)):
        theta = numpyro.sample("theta", dist.Normal(mu, 0.7))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def partly(model, *args, **kwargs):
    """A parameterization with a different λ for every element."""
    program = ar.inspect(model, args, kwargs)
    spread = {s.name: np.linspace(0.1, 0.9, s.size).reshape(s.shape) for s in program.candidates}
    return ar.Parameterization.constant(program, 0.5).replace(spread)


def nuts(model, *args, draws=2000, **kwargs):
    """Draws by NumPyro's own sampler, with the chain on the first axis."""
    sampler = MCMC(NUTS(model), num_warmup=400, num_samples=draws, progress_bar=False)
    sampler.run(jax.random.key(1), *args, **kwargs)
    return sampler.get_samples(group_by_chain=True)


def assert_moments(draws, mean, sd):
    """Mean and standard deviation within 4.5 Monte Carlo standard errors."""
    draws = np.asarray(draws)
    ess = effective_sample_size(draws)
    assert np.all(ess > 200)
    np.testing.assert_array_less(np.abs(draws.mean((0, 1)) - mean), 4.5 * sd / np.sqrt(ess))
    second = (draws - mean) ** 2
    error = second.std((0, 1)) / np.sqrt(effective_sample_size(second))
    np.testing.assert_array_less(np.abs(second.mean((0, 1)) - sd**2), 4.5 * error)


@pytest.fixture(scope="module")
def gaussian_moments():
    """Mean and standard deviation of (mu, theta) given y, by linear algebra."""
    prior = np.full((5, 5), 1.0) + np.diag([0.0] + [0.49] * 4)
    to_y = np.eye(5)[1:]
    gain = prior @ to_y.T @ np.linalg.inv(to_y @ prior @ to_y.T + np.diag(SIGMA**2))
    return gain @ Y, np.sqrt(np.diag(prior - gain @ to_y @ prior))


@pytest.fixture(scope="module")
def gaussian_draws():
    return nuts(ar.reparameterize(gaussian, partly(gaussian)))


@pytest.mark.slow
def test_nuts_finds_the_exact_moments_of_a_gaussian_hierarchy(gaussian_draws, gaussian_moments):
    mean, sd = gaussian_moments
    assert_moments(gaussian_draws["mu"], mean[0], sd[0])
    assert_moments(gaussian_draws["theta"], mean[1:], sd[1:])


@pytest.mark.slow
def test_nuts_finds_the_exact_moments_of_a_conjugate_model():
    a, b, m0, k = 4.0, 3.0, 0.5, 0.8

    def conjugate(y):
        v = numpyro.sample("v", dist.InverseGamma(a, b))
        m = numpyro.sample("m", dist.Normal(m0, jnp.sqrt(v / k)))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(m, jnp.sqrt(v)), obs=y)

    n, mean = len(Y), Y.mean()
    kn, an = k + n, a + n / 2
    mn = (k * m0 + n * mean) / kn
    bn = b + 0.5 * np.sum((Y - mean) ** 2) + 0.5 * k * n * (mean - m0) ** 2 / kn
    draws = nuts(ar.reparameterize(conjugate, partly(conjugate, Y).replace({"m": 0.4})), Y)
    assert_moments(draws["m"], mn, np.sqrt(bn / (an - 1) / kn))
    assert_moments(draws["v"], bn / (an - 1), bn / (an - 1) / np.sqrt(an - 2))


def eight_schools_moments(sigma, y):
    """Mean and sd of log_tau, mu and theta by quadrature over log_tau; the rest is Gaussian."""
    grid = np.linspace(-30.0, 15.0, 20_001)
    tau2 = np.exp(2 * grid)[:, None]
    weight = 1 / (sigma**2 + tau2)
    precision = 1 / 25 + weight.sum(1)
    mu, mu_var = (weight * y).sum(1) / precision, 1 / precision
    log_p = -0.5 * (grid / 5) ** 2 + 0.5 * np.log(weight).sum(1) - 0.5 * np.log(precision)
    log_p += -0.5 * (weight * y**2).sum(1) + 0.5 * precision * mu**2
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    shrink = sigma**2 * weight  # of theta towards mu
    theta = (1 - shrink) * y + shrink * mu[:, None]
    theta_var = (1 - shrink) * sigma**2 + shrink**2 * mu_var[:, None]

    def mixed(mean, var):
        center = p @ mean
        return center, np.sqrt(p @ (var + (mean - center) ** 2))

    return mixed(grid, 0 * grid), mixed(mu, mu_var), mixed(theta, theta_var)


@pytest.mark.slow
def test_nuts_finds_the_moments_of_eight_schools_by_quadrature():
    entry = ar.zoo.load("eight_schools")
    lam = partly(entry.model, **entry.kwargs).replace({"theta": np.linspace(0.0, 0.06, 8)})
    draws = nuts(ar.reparameterize(entry.model, lam), draws=4000, **entry.kwargs)
    exact = eight_schools_moments(entry.kwargs["sigma"], entry.kwargs["y"])
    for name, (mean, sd) in zip(("log_tau", "mu", "theta"), exact):
        assert_moments(draws[name], mean, sd)


def test_draws_come_under_the_original_names_and_shapes(gaussian_draws):
    assert set(gaussian_draws) == {"mu", "theta", "theta_working"}
    assert gaussian_draws["theta"].shape == (1, 2000, 4)


def test_predictive_replays_the_posterior_and_predicts(gaussian_draws, gaussian_moments):
    model = ar.reparameterize(gaussian, partly(gaussian))
    flat = {name: value.reshape(2000, *value.shape[2:]) for name, value in gaussian_draws.items()}
    found = Predictive(model, flat)(jax.random.key(3), y=None)
    assert found["y"].shape == (2000, 4)
    again = Predictive(model, flat, return_sites=["theta"])(jax.random.key(3), y=None)
    np.testing.assert_allclose(again["theta"], flat["theta"], rtol=1e-9, atol=1e-12)
    mean, sd = gaussian_moments
    assert_moments(found["y"][None], mean[1:], np.hypot(sd[1:], SIGMA))


@pytest.mark.slow
@pytest.mark.parametrize("make_guide", [AutoNormal, mean_field], ids=["AutoNormal", "mean_field"])
def test_svi_with_a_mean_field_guide_finds_the_gaussian_means(make_guide, gaussian_moments):
    model = ar.reparameterize(gaussian, partly(gaussian))
    guide = make_guide(model)
    svi = SVI(model, guide, numpyro.optim.Adam(0.02), Trace_ELBO(num_particles=4))
    result = svi.run(jax.random.key(0), 1500, progress_bar=False)
    draws = Predictive(guide, params=result.params, num_samples=2000)(jax.random.key(1))
    draws = {name: draws[name] for name in ("mu", "theta_working")}
    theta = Predictive(model, draws, return_sites=["theta"])(jax.random.key(2))["theta"]
    mean, sd = gaussian_moments  # a mean-field fit of a Gaussian has its means
    np.testing.assert_allclose(draws["mu"].mean(), mean[0], atol=0.2 * sd[0])
    np.testing.assert_allclose(theta.mean(0), mean[1:], atol=0.2 * sd[1:].max())
