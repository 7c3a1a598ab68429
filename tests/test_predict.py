"""Predictions: exact answers for new data, new groups and more steps, and how trees name them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from numpyro.contrib.control_flow import scan
from numpyro.handlers import condition

import autoreparam as ar
from autoreparam.errors import AutoreparamError, ModelError
from autoreparam.program.outline import unobserved
from autoreparam.run.notes import about_call

CHAINS, DRAWS = 2, 1500
COUNT = CHAINS * DRAWS


def groups(x, group, count, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("county", count):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
    with numpyro.plate("obs", len(x)):
        mean = numpyro.deterministic("mean", theta[group] + x)
        numpyro.sample("y", dist.Normal(mean, 0.1), obs=y)


def run_with(values, observed=None, constant=None, coords=None, dims=None):
    """The tree of a run whose draws are all the same, so that answers are exact."""

    def dataset(found, lead=()):
        shape = {"chain": CHAINS, "draw": DRAWS}
        arrays = {}
        for name, value in found.items():
            value = np.asarray(value, float)
            own = (dims or {}).get(name, [f"{name}_dim_{i}" for i in range(value.ndim)])
            full = np.broadcast_to(value, (*(shape[dim] for dim in lead), *value.shape))
            arrays[name] = ((*lead, *own), full)
        used = {dim for own, _ in arrays.values() for dim in own}
        return xr.Dataset(arrays, {k: v for k, v in (coords or {}).items() if k in used})

    return xr.DataTree.from_dict(
        {
            "posterior": dataset(values, ("chain", "draw")),
            "observed_data": dataset(observed or {}),
            "constant_data": dataset(constant or {}),
        }
    )


@pytest.fixture(scope="module")
def counties():
    return run_with(
        {"mu": 2.0, "tau": 0.5, "theta": [0.0, 1.0, 5.0]},
        {"y": [0.0, 1.0, 5.0]},
        {"x": np.zeros(3), "group": [0, 1, 2], "count": 3},
        {"county": ["a", "b", "c"]},
        {"theta": ["county"], "y": ["obs"]},
    )


def flat(variable):
    values = np.asarray(variable)
    return values.reshape(-1, *values.shape[2:])


def close(values, mean, sd):
    """Mean and standard deviation within four Monte Carlo errors."""
    values, mean, sd = flat(values), np.asarray(mean), np.asarray(sd)
    np.testing.assert_array_less(np.abs(values.mean(0) - mean), 4 * sd / COUNT**0.5 + 1e-6)
    np.testing.assert_array_less(np.abs(values.std(0) - sd), 4 * sd / (2 * COUNT) ** 0.5 + 1e-6)


def test_new_data_of_known_groups_follow_their_draws(counties):
    found = ar.predict(groups, (np.array([1.0, 2.0]), np.array([2, 0]), 3), draws=counties)
    assert set(found.children) == {"predictions", "predictions_constant_data"}
    predictions = found["predictions"]
    np.testing.assert_allclose(flat(predictions["mean"])[0], [6.0, 2.0])
    close(predictions["y"], [6.0, 2.0], [0.1, 0.1])
    assert "theta" not in predictions  # all of it is in the posterior
    assert predictions["y"].dims == ("chain", "draw", "obs")


def test_a_group_that_was_not_seen_comes_from_its_prior_given_the_draws(counties):
    x, group = np.zeros(2), np.array([1, 3])
    found = ar.predict(groups, (x, group, 4), draws=counties, seed=1)["predictions"]
    np.testing.assert_allclose(flat(found["theta"])[:, :3] - [0.0, 1.0, 5.0], 0, atol=1e-6)
    close(found["theta"][..., 3], 2.0, 0.5)
    close(found["y"], [1.0, 2.0], [0.1, np.hypot(0.5, 0.1)])
    mean, theta = flat(found["mean"]), flat(found["theta"])
    np.testing.assert_allclose(mean[:, 1], theta[:, 3])  # the same group in every place


def test_labels_say_which_groups_are_the_same(counties):
    labels = {"county": ["c", "z", "a"]}
    arguments = (np.zeros(3), np.arange(3), 3)
    found = ar.predict(groups, arguments, draws=counties, coords=labels)["predictions"]
    assert list(found["theta"].coords["county"].values) == ["c", "z", "a"]
    np.testing.assert_allclose(flat(found["theta"].sel(county=["c", "a"]))[0], [5.0, 0.0])
    close(found["theta"].sel(county="z"), 2.0, 0.5)


def test_new_names_plates_whose_elements_are_all_new(counties):
    arguments = (np.zeros(3), np.arange(3), 3)
    found = ar.predict(groups, arguments, draws=counties, new=["county"])["predictions"]
    close(found["theta"], [2.0] * 3, [0.5] * 3)
    with pytest.raises(AutoreparamError, match=r"new: 'town' is not a plate.*'county'"):
        ar.predict(groups, arguments, draws=counties, new=["town"])


def test_the_arguments_of_the_run_give_replicates_of_its_data(counties):
    arguments = (np.zeros(3), np.arange(3), 3)
    for y in (None, np.array([0.0, 1.0, 5.0])):
        found = ar.predict(groups, arguments, {"y": y}, counties)
        assert set(found.children) == {"posterior_predictive", "constant_data"}
        close(found["posterior_predictive"]["y"], [0.0, 1.0, 5.0], [0.1] * 3)


def test_without_draws_everything_comes_from_the_prior():
    found = ar.predict(groups, (np.zeros(2), np.array([0, 1]), 2), num_draws=COUNT, seed=3)
    assert set(found["prior"].data_vars) == {"mu", "tau", "theta", "mean"}
    assert set(found["prior_predictive"].data_vars) == {"y"}
    close(found["prior"]["mu"], 0.0, 5.0)
    close(found["prior_predictive"]["y"], [0.0, 0.0], [np.sqrt(25 + 1 + 0.01)] * 2)
    given = ar.predict(
        groups, (np.zeros(2), np.array([0, 1]), 2), {"y": np.ones(2)}, num_draws=COUNT, seed=3
    )
    np.testing.assert_array_equal(given["prior_predictive"]["y"], found["prior_predictive"]["y"])


def test_data_that_are_given_leave_nothing_to_predict(counties):
    with pytest.raises(ModelError, match=r"'y' is given.*Leave out what is to be predicted"):
        ar.predict(groups, (np.ones(1), np.array([0]), 3), {"y": np.ones(1)}, counties)


def test_a_model_of_factors_alone_has_nothing_to_predict():
    def model():
        numpyro.factor("f", -(numpyro.sample("x", dist.Normal(0.0, 1.0)) ** 2))

    with pytest.raises(ModelError, match="no observed site, so there is nothing to predict"):
        ar.predict(model, draws=run_with({"x": 1.0}))


# -- rows with latents of their own -----------------------------------------------------------


def schools(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    with numpyro.plate("school", len(sigma)):
        theta = numpyro.sample("theta", dist.Normal(mu, 0.5))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def test_rows_of_other_data_must_be_said_to_be_new_or_the_same():
    run = run_with(
        {"mu": 1.0, "theta": [0.0, 3.0]},
        {"y": [0.0, 0.0]},
        {"sigma": [0.1, 0.1]},
        dims={"theta": ["school"]},
    )
    sigma = np.array([0.2, 0.2])
    with pytest.raises(ModelError, match=r"plate 'school' those of the run.*new=\['school'\]"):
        ar.predict(schools, (sigma,), draws=run)
    fresh = ar.predict(schools, (sigma,), draws=run, new="school")["predictions"]
    close(fresh["y"], [1.0, 1.0], [np.hypot(0.5, 0.2)] * 2)
    same = ar.predict(schools, (sigma,), draws=run, new=[])["predictions"]
    close(same["y"], [0.0, 3.0], [0.2, 0.2])


def test_an_axis_without_a_plate_keeps_its_length():
    def model(count, y=None):
        theta = numpyro.sample("theta", dist.Normal(jnp.zeros(count), 1.0))
        numpyro.sample("y", dist.Normal(theta.sum(), 1.0), obs=y)

    run = run_with({"theta": [1.0, 2.0]}, {"y": 0.0}, {"count": 2})
    with pytest.raises(ModelError, match=r"shape \(3,\) here.*\(2,\) in the draws.*numpyro.plate"):
        ar.predict(model, (3,), draws=run)


# -- steps ------------------------------------------------------------------------------------


def walk(length, y=None):
    def step(x, _):
        x = numpyro.sample("x", dist.Normal(0.5 * x, 0.1))
        numpyro.sample("y", dist.Normal(x, 0.2))
        return x, None

    with condition(data={} if y is None else {"y": y}):
        scan(step, 1.0, jnp.arange(length))


def test_more_steps_go_on_from_the_last_draw():
    run = run_with({"x": [1.0, 2.0, 4.0]}, {"y": [0.0, 0.0, 0.0]}, {"length": 3})
    found = ar.predict(walk, (5,), draws=run)["predictions"]
    np.testing.assert_allclose(flat(found["x"])[0, :3], [1.0, 2.0, 4.0])
    close(found["x"][..., 3:], [2.0, 1.0], [0.1, np.hypot(0.1, 0.05)])
    close(found["y"][..., :3], [1.0, 2.0, 4.0], [0.2] * 3)


def autoregression(length, y=None):
    def step(before, _):
        now = numpyro.sample("y", dist.Normal(0.5 * before, 0.1))
        return now, None

    numpyro.sample("c", dist.Normal(0.0, 1.0))
    with condition(data={} if y is None else {"y": y}):
        scan(step, 1.0, jnp.arange(length))


def test_a_series_that_is_observed_in_part_is_continued():
    y = np.array([1.0, 2.0, 4.0])
    run = run_with({"c": 0.0}, {"y": y}, {"length": 3})
    found = ar.predict(autoregression, (5, y), draws=run)["predictions"]["y"]
    np.testing.assert_allclose(flat(found)[0, :3], y)
    close(found[..., 3:], [2.0, 1.0], [0.1, np.hypot(0.1, 0.05)])
    again = ar.predict(autoregression, (3, y), draws=run)["posterior_predictive"]["y"]
    close(again, [0.5, 0.25, 0.125], 0.1 * np.sqrt([1, 1.25, 1.3125]))


# -- what is kept, what is named --------------------------------------------------------------


def test_latents_that_were_not_kept_are_missed(counties):
    partial = counties.copy()
    partial["posterior"] = xr.DataTree(counties["posterior"].to_dataset().drop_vars("tau"))
    partial.attrs["sites"] = '[{"name": "tau", "kind": "latent"}]'
    with pytest.raises(AutoreparamError, match="sampled 'tau', but its draws were not kept"):
        ar.predict(groups, (np.ones(3), np.arange(3), 3), draws=partial)
    with pytest.raises(AutoreparamError, match="draws: expected the tree of a run"):
        ar.predict(groups, (np.ones(3), np.arange(3), 3), draws={"mu": 1})


def test_var_names_choose_and_seeds_repeat(counties):
    arguments = (np.ones(2), np.array([0, 1]), 3)
    one = ar.predict(groups, arguments, draws=counties, var_names="y")["predictions"]
    assert set(one.data_vars) == {"y"}
    again = ar.predict(groups, arguments, draws=counties)["predictions"]
    np.testing.assert_array_equal(one["y"], again["y"])
    other = ar.predict(groups, arguments, draws=counties, seed=1)["predictions"]
    assert not np.array_equal(one["y"], other["y"])


def test_discrete_data_are_predicted_and_the_precision_is_that_of_the_run():
    def model(count, y=None):
        rate = numpyro.sample("rate", dist.HalfNormal(1.0))
        with numpyro.plate("obs", count):
            numpyro.sample("y", dist.Poisson(rate), obs=y)

    run = run_with({"rate": 3.0}, {"y": [1.0, 2.0]}, {"count": 2})
    run.attrs["precision"] = "single"
    found = ar.predict(model, (1,), draws=run)["predictions"]["y"]
    assert found.dtype == np.int32
    close(found, [3.0], [3**0.5])
    assert jax.config.jax_enable_x64


# -- what a call may not have meant -----------------------------------------------------------


def named_otherwise(x, outcome=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=outcome)


def asks_for_more(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=None if y is None else y - y.mean())


@pytest.mark.parametrize(
    ("model", "kwargs", "found"),
    [
        (named_otherwise, {}, {"y": "outcome"}),
        (named_otherwise, {"outcome": None}, {"y": "outcome"}),
        (named_otherwise, {"outcome": np.ones(3)}, {}),
        (asks_for_more, {}, {"y": "y"}),
    ],
)
def test_the_site_that_an_argument_left_out_would_observe_is_found(model, kwargs, found):
    assert unobserved(model, (np.ones(3),), kwargs) == found


def test_a_forgotten_observation_and_groups_that_stay_empty_are_noticed():
    program = ar.inspect(named_otherwise, (np.ones(3),))
    wanted = {"log_likelihood": True, "posterior_predictive": False}
    notes = about_call(program, named_otherwise, (np.ones(3),), None, wanted)
    assert "'y' is sampled, since argument outcome is None. Was it meant to be observed?" in notes
    assert "nothing to put into 'log_likelihood'" in notes[1]
