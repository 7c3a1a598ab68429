"""Discrete latents are summed out exactly, and drawn again where data are given."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from numpyro.contrib.control_flow import scan
from scipy.special import logsumexp

import autoreparam as ar
from autoreparam.errors import ModelError
from autoreparam.program import enumeration
from autoreparam.program.target import Target

MARK = {"enumerate": "parallel"}
Y = np.array([-1.5, 0.3, 2.0, 2.5])


def mixture(y, mark=MARK):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    center = numpyro.sample("center", dist.Normal(0.0, 3.0))
    spread = numpyro.sample("spread", dist.HalfNormal(2.0))
    with numpyro.plate("component", 2):
        mean = numpyro.sample("mean", dist.Normal(center, spread))
    with numpyro.plate("obs", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights), infer=mark)
        numpyro.deterministic("own", mean[z])
        shift = numpyro.sample("shift", dist.Normal(mean[z], 1.0))
        numpyro.sample("y", dist.Normal(shift, 0.5), obs=y)


def mixture_density(v):
    terms = [
        np.log(v["weights"][k])
        + dist.Normal(v["mean"][k], 1.0).log_prob(v["shift"])
        + dist.Normal(v["shift"], 0.5).log_prob(Y)
        for k in range(2)
    ]
    prior = dist.Dirichlet(jnp.ones(2)).log_prob(v["weights"])
    prior += dist.Normal(0.0, 3.0).log_prob(v["center"]) + dist.HalfNormal(2.0).log_prob(
        v["spread"]
    )
    prior += dist.Normal(v["center"], v["spread"]).log_prob(v["mean"]).sum()
    return prior + logsumexp(np.stack(terms), axis=0).sum()


def hidden_markov(y):
    with numpyro.plate("state", 2):
        mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(2)))

    def step(state, now):
        state = numpyro.sample("x", dist.Categorical(rows[state]), infer=MARK)
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.sample("y", dist.Normal(mean[state], scale), obs=now)
        return state, None

    scan(step, 0, y)


def hidden_markov_density(v):
    paths = []
    for path in itertools.product(range(2), repeat=len(Y)):
        steps = zip((0, *path), path, v["scale"], Y)
        paths.append(
            sum(
                np.log(v["rows"][a, b]) + dist.Normal(v["mean"][b], scale).log_prob(y)
                for a, b, scale, y in steps
            )
        )
    prior = dist.Normal(0.0, 3.0).log_prob(v["mean"]).sum()
    prior += dist.Dirichlet(jnp.ones(2)).log_prob(v["rows"]).sum()
    return prior + dist.HalfNormal(1.0).log_prob(v["scale"]).sum() + logsumexp(paths)


@pytest.mark.parametrize(
    ("model", "exact"), [(mixture, mixture_density), (hidden_markov, hidden_markov_density)]
)
def test_the_density_is_the_sum_over_all_values(model, exact):
    target = Target(ar.inspect(model, (Y,)))
    lam = ar.Parameterization.constant(target.program, 0.3)
    position = np.random.default_rng(1).normal(size=target.size)

    @jax.jit
    def everything(position):
        values = target.to_sites(position, lam)
        found = target.logdensity(position, lam) - target.log_determinant(position, lam)
        return values, found, target.log_joint(values), target.from_sites(values, lam)

    values, working, own, back = jax.device_get(everything(position))
    np.testing.assert_allclose(working, exact(values), rtol=1e-10)
    np.testing.assert_allclose(own, exact(values), rtol=1e-10)
    np.testing.assert_allclose(back, position, atol=1e-10)


def test_continuous_latents_around_discrete_ones_are_reparameterized():
    program = ar.inspect(mixture, (Y,))
    assert [site.name for site in program.candidates] == ["mean"]
    assert program["z"].kind == "discrete"
    assert "summed out" in str(program)
    assert program["shift"].note == "depends on the discrete z; stays centered"
    inside = ar.inspect(hidden_markov, (Y,))["scale"]
    assert inside.note == "inside a scan with discrete latents; stays centered"


def test_what_depends_on_a_discrete_latent_is_not_among_the_draws():
    target = Target(ar.inspect(mixture, (Y,)))
    lam = ar.Parameterization.centered(target.program)
    found = jax.eval_shape(lambda x: target.to_sites(x, lam), jnp.zeros(target.size))
    assert set(found) == {"weights", "center", "spread", "mean", "shift"}


def test_a_discrete_latent_without_the_mark_is_refused_with_the_mark_to_set():
    with pytest.raises(ModelError, match=r'mark it with.*infer=\{"enumerate": "parallel"\}'):
        ar.inspect(mixture, (Y, {}))


def test_an_axis_without_a_plate_is_refused():
    def model():
        z = numpyro.sample("z", dist.Bernoulli(0.3), infer=MARK)
        numpyro.sample("x", dist.Normal(jnp.zeros(3), 1.0 + z))

    with pytest.raises(ModelError, match=r"site 'x' has shape \(3,\), and axis 0 belongs to no"):
        ar.inspect(model)


def test_without_funsor_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(enumeration, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r'pip install "autoreparam\[discrete\]"'):
        ar.inspect(mixture, (Y,))


def two_groups(y):
    share = numpyro.sample("share", dist.Uniform(0.0, 1.0))
    with numpyro.plate("obs", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(share), infer=MARK)
        numpyro.deterministic("center", 2.0 * z)
        numpyro.sample("y", dist.Normal(2.0 * z, 1.0), obs=y)


def test_predictions_draw_discrete_latents_given_the_data():
    draws = xr.Dataset({"share": (("chain", "draw"), np.full((2, 2000), 0.3))})
    run = xr.DataTree.from_dict({"posterior": draws})
    y = np.array([-0.5, 1.0, 1.5])
    found = ar.predict(two_groups, (y,), draws=run)["predictions"]
    odds = 0.3 / 0.7 * np.exp(dist.Normal(2.0, 1.0).log_prob(y) - dist.Normal().log_prob(y))
    exact = odds / (1 + odds)
    share = found["z"].mean(("chain", "draw")).values
    np.testing.assert_allclose(share, exact, atol=4 * 0.5 / 4000**0.5)
    np.testing.assert_array_equal(found["center"], 2 * found["z"])


def chain(y):
    stay = numpyro.sample("stay", dist.Uniform(0.0, 1.0))

    def step(state, now):
        state = numpyro.sample("x", dist.Bernoulli(jnp.where(state, stay, 1 - stay)), infer=MARK)
        numpyro.sample("y", dist.Normal(2.0 * state, 1.0), obs=now)
        return state, None

    scan(step, 1, y)


def test_hidden_states_inside_scan_are_drawn_jointly():
    draws = xr.Dataset({"stay": (("chain", "draw"), np.full((2, 2000), 0.8))})
    found = ar.predict(chain, (Y,), draws=xr.DataTree.from_dict({"posterior": draws}))
    drawn = found["predictions"]["x"].values.reshape(-1, len(Y))
    paths = np.array(list(itertools.product((0, 1), repeat=len(Y))))
    before = np.concatenate([np.ones((len(paths), 1)), paths[:, :-1]], axis=1)
    log = np.log(np.where(paths == before, 0.8, 0.2)).sum(1) - ((Y - 2 * paths) ** 2).sum(1) / 2
    exact = np.exp(log - logsumexp(log))
    share = (drawn[:, None, :] == paths).all(-1).mean(0)
    np.testing.assert_allclose(share, exact, atol=4 * 0.5 / 4000**0.5)


def test_nothing_is_taken_as_made_by_hand_beside_discrete_latents():
    """A location that depends on what is summed out has no value that noise could be moved to."""

    def by_hand(y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
        spread = numpyro.sample("spread", dist.HalfNormal(2.0))
        with numpyro.plate("component", 2):
            noise = numpyro.sample("noise", dist.Normal(0.0, 1.0))
        mean = numpyro.deterministic("mean", spread * noise)
        with numpyro.plate("obs", len(y)):
            z = numpyro.sample("z", dist.Categorical(weights), infer=MARK)
            numpyro.sample("y", dist.Normal(mean[z], 0.5), obs=y)

    target = Target(ar.inspect(by_hand, (Y,)))
    assert target.program["noise"].implied is None
    values = {"weights": np.array([0.3, 0.7]), "spread": 1.5, "noise": np.array([-0.4, 1.1])}
    terms = [
        np.log(values["weights"][k])
        + np.asarray(dist.Normal(1.5 * values["noise"][k], 0.5).log_prob(Y))
        for k in range(2)
    ]
    own = dist.HalfNormal(2.0).log_prob(1.5) + dist.Normal(0, 1).log_prob(values["noise"]).sum()
    own += dist.Dirichlet(jnp.ones(2)).log_prob(values["weights"])
    found = target.log_joint(jax.tree.map(jnp.asarray, values))
    np.testing.assert_allclose(found, own + logsumexp(terms, axis=0).sum(), rtol=1e-10)
