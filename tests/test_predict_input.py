"""`ar.predict` refuses bad input in a sentence, before it draws, and needs little memory."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import autoreparam as ar
from autoreparam import prediction
from autoreparam.errors import AutoreparamError
from autoreparam.program.blocks import in_blocks

X, GROUP = np.zeros(2), np.array([0, 1])


def groups(x, group, count, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    with numpyro.plate("county", count):
        theta = numpyro.sample("theta", dist.Normal(mu, 1.0))
    with numpyro.plate("obs", len(x)):
        mean = numpyro.deterministic("mean", theta[group] + x)
        numpyro.sample("y", dist.Normal(mean, 0.1), obs=y)


def renamed(x, group, count, y=None):
    level = numpyro.sample("level", dist.Normal(0.0, 5.0))
    with numpyro.plate("obs", len(x)):
        numpyro.sample("y", dist.Normal(level, 0.1), obs=y)


def longer(x, group, count, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    with numpyro.plate("obs", len(x)):
        numpyro.sample("y", dist.Normal(mu[0], 0.1), obs=y)


def bare(y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def run_of(dims=("chain", "draw", "county")):
    values = np.arange(2 * 4 * 3).reshape(2, 4, 3)
    theta = xr.DataArray(values, dims=("chain", "draw", "county"), coords={"county": list("abc")})
    posterior = xr.Dataset({"mu": theta[..., 0] * 0.0, "theta": theta * 1.0})
    return xr.DataTree.from_dict({"posterior": posterior.transpose(*dims)})


RUN = run_of()
ARGS = (X, GROUP, 3)


def predict(model=groups, args=ARGS, kwargs=None, draws=RUN, **keywords):
    return lambda: ar.predict(model, args, kwargs, draws, **keywords)


def words(*found, name="county"):
    return pd.Series(found, name=name)


BAD = [
    (
        predict(args=(X, words("a", "z"), 3)),
        "'county' holds the words 'a', 'z' (2 in all), and plate",
    ),
    (predict(args=(X, words("y", "z"), 3)), "list the words of all elements: pandas.Categorical"),
    (predict(args=(X, words("a", "b", name="where"), 3)), "Give the plate 2, or list the words of"),
    (predict(args=(X, words("a", "b", name=None), 2)), "Name the column 'county', or pass coords="),
    (predict(coords=3), "coords: expected a dict of labels by dimension; found int"),
    (predict(coords={"town": ["a"]}), "coords: no variable has a dimension 'town'"),
    (predict(coords={"county": ["a"]}), "dimension 'county' has 3 elements; found labels of"),
    (predict(coords={"county": []}), "dimension 'county' has 3 elements; found labels of"),
    (predict(coords={"county": "abc"}), "dimension 'county' has 3 elements; found labels of"),
    (predict(coords={"county": [1, 2, 3]}), "labels like 'a' in the draws and 1 here"),
    (predict(dims=3), "dims: expected a dict of dimensions by variable; found int"),
    (predict(dims={"nu": ["a"]}), "dims: no variable 'nu'"),
    (predict(dims={"y": ["a", "b"]}), "dims: 'y' has 1 axes of its own"),
    (predict(var_names=3), "var_names: expected a list of names; found int"),
    (predict(var_names=["nu"]), "var_names: no variable 'nu'; there are 'mean', 'y'"),
    (predict(new=3), "new: expected a list of plates; found int"),
    (predict(new=["town"]), "new: 'town' is not a plate or dimension of the draws"),
    (predict(num_draws=True), "num_draws: expected an integer >= 1; found True"),
    (predict(num_draws=10**12), "num_draws: expected at most 2,147,483,647"),
    (predict(args=X), "expected args as a tuple; found ndarray"),
    (predict(args=RUN), "expected args as a tuple; found DataTree"),
    (predict(kwargs=RUN), "Pass a run as draws=tree"),
    (predict(kwargs=3), "expected kwargs as a dict; found int"),
    (predict(args=(X,)), "missing 2 required positional arguments: 'group' and 'count'"),
    (predict(args=(X,)), "It takes (x, group, count, y=None)."),
    (predict(args=(X, np.arange(3), 3)), "It was called with x of shape (2,), group of shape (3,)"),
    (predict(args=(np.array(["a", "b"]), GROUP, 3)), "'x' holds text"),
    (predict(draws=RUN["posterior"]), "draws: expected the tree of a run"),
    (predict(draws=RUN.isel(chain=0)), "it has no 'chain'. Select with a list"),
    (predict(draws=RUN.isel(draw=slice(0))), "draws: the run has no draws to predict from"),
    (predict(renamed), "they have no 'level', and this model has no 'mu', 'theta'"),
    (predict(longer), "site 'mu' has shape (3,) here and () in the draws"),
    (predict(lambda *_: None), "the model has no sample statement"),
]


@pytest.mark.parametrize(("call", "words"), BAD, ids=[words[:40] for _, words in BAD])
def test_predict_refuses_bad_input_before_it_draws(call, words, monkeypatch):
    monkeypatch.setattr(prediction, "in_blocks", lambda *_: pytest.fail("it began to draw"))
    with pytest.raises(AutoreparamError) as caught:
        call()
    assert words in str(caught.value)


def test_words_of_a_part_of_the_groups_are_placed_by_the_labels_of_the_run():
    for args, coords in (
        ((X, words("c", "z"), 2), None),
        ((X, pd.Categorical(["c", "z"], ["a", "c", "z"]), 3), None),
        ((X, words("c", "z", name=None), 2), {"county": ["c", "z"]}),
    ):
        found = ar.predict(groups, args, draws=RUN, coords=coords)["predictions"]
        np.testing.assert_array_equal(found["mean"][..., 0], RUN["posterior"]["theta"][..., 2])


def test_draws_are_found_in_any_order_of_their_axes():
    shown = [
        ar.predict(groups, ARGS, draws=run_of(dims), var_names="mean")["predictions"]["mean"]
        for dims in (("chain", "draw", "county"), ("county", "draw", "chain"))
    ]
    np.testing.assert_array_equal(*shown)
    np.testing.assert_array_equal(shown[0][1, 2], [18.0, 19.0])


def test_data_outside_plates_are_replicated_in_their_own_shape():
    found = ar.predict(bare, (np.zeros(3),), num_draws=5)["prior_predictive"]["y"]
    assert found.shape == (1, 5, 3)
    assert len(np.unique(found)) == 15


def test_only_what_is_kept_is_computed_and_blocks_do_not_change_it(monkeypatch):
    whole = ar.predict(groups, ARGS, draws=RUN)["predictions"]["y"]
    seen = []

    def watched(call, size, *arrays):
        return in_blocks(
            lambda *block: seen.append(jax.tree.map(np.shape, found := call(*block))) or found,
            size, *arrays,
        )  # fmt: skip

    monkeypatch.setattr(prediction, "in_blocks", watched)
    monkeypatch.setattr(prediction, "NUMBERS", 3 * (1 + 3 + 2 + 2))  # three draws of all sites
    found = ar.predict(groups, ARGS, draws=RUN, var_names="y")["predictions"]
    assert seen == [{"y": (3, 2)}] * 3
    np.testing.assert_array_equal(found["y"], whole)


def test_results_are_joined_without_a_second_copy():
    parts = []

    def call(first, rows):
        parts.append(2 * rows)
        return {"twice": parts[-1]}

    rows = np.arange(7.0)
    joined = in_blocks(call, 3, rows)["twice"]
    np.testing.assert_array_equal(joined, 2 * rows)
    assert [len(part) for part in parts] == [3, 3, 3]
    assert joined.base is None
    assert in_blocks(call, 3, rows[:0])["twice"].shape == (0,)
