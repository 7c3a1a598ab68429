"""Data as people have them: tables, series, categories, labeled arrays, dicts, wrapped models."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr
from numpyro.handlers import block, condition, do, scope, seed

import autoreparam as ar
from autoreparam.errors import ModelError
from autoreparam.program.foreign import as_arrays, fitting
from autoreparam.program.named import constants

TABLE = pd.DataFrame(
    {
        "x": [1.0, 2.0, 3.0, 4.0, 5.0],
        "county": pd.Categorical(["b", "a", "b", "c", "a"]),
        "y": [1, 2, 3, 4, 5],
    }
)


def by_county(county, x, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("county", 3):
        theta = numpyro.sample("theta", dist.Normal(mu, 1.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(theta[county] + x, 1.0), obs=y)


def by_table(data):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * data["x"] + data.county, 1.0), obs=data["y"])


def by_matrix(design, y):
    with numpyro.plate("feature", design.shape[1]):
        slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(design @ slopes, 1.0), obs=y)


def by_pandas(data):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    centered = data["x"].sub(data["x"].mean()).to_numpy()
    numpyro.sample("y", dist.Normal(slope * centered, 1.0), obs=data["y"].values)


def density(model, *args):
    program = ar.inspect(model, args)
    values = {site.name: np.full(site.shape, 0.3) for site in program.latents}
    return float(ar.log_joint(model, args)(values))


def test_series_and_categories_are_as_good_as_arrays():
    plain = density(by_county, np.array([1, 0, 1, 2, 0]), TABLE["x"].values, TABLE["y"].values)
    assert density(by_county, TABLE["county"], TABLE["x"], TABLE["y"]) == pytest.approx(plain)


def test_a_table_gives_its_columns_and_is_a_matrix():
    codes = np.array([1, 0, 1, 2, 0])
    exact = dist.Normal(0.3 * TABLE["x"].values + codes, 1.0).log_prob(TABLE["y"].values).sum()
    assert density(by_table, TABLE) == pytest.approx(exact + dist.Normal().log_prob(0.3))
    numbers = TABLE[["x", "y"]]
    assert density(by_matrix, numbers, TABLE["y"]) == pytest.approx(
        density(by_matrix, numbers.values, TABLE["y"].values)
    )


def test_a_table_is_a_matrix_on_either_side():
    table, _ = as_arrays(TABLE[["x", "y"]])
    matrix = TABLE[["x", "y"]].values
    np.testing.assert_array_equal(np.ones(5) @ table, np.ones(5) @ matrix)
    np.testing.assert_array_equal((table - 1) / 2 + 2 * table, (matrix - 1) / 2 + 2 * matrix)
    np.testing.assert_array_equal(table[["y"]].to_numpy()[:, 0], TABLE["y"])
    assert (table.shape, table.columns, len(table)) == ((5, 2), ["x", "y"], 5)
    with pytest.raises(AttributeError, match="no column 'z'"):
        _ = table.z


def test_a_model_that_wants_pandas_gets_it():
    assert np.isfinite(density(by_pandas, TABLE))


def test_labels_go_to_the_plate_of_their_name_or_the_only_one_of_their_size():
    labels = as_arrays((TABLE["county"], TABLE[["x", "y"]]))[1]
    found = fitting(labels, {"county": 3, "other": 3, "feature": 2, "row": 5})
    assert {plate: list(own) for plate, own in found.items()} == {
        "county": ["a", "b", "c"],
        "feature": ["x", "y"],
    }
    assert fitting(labels, {"this": 3, "that": 3}) == {}


def test_prior_draws_carry_the_labels_and_constants_the_plates():
    found = ar.predict(by_county, (TABLE["county"], TABLE["x"]), num_draws=2)
    assert list(found["prior"]["county"].values) == ["a", "b", "c"]
    assert found["constant_data"]["x"].dims == ("row",)


def test_labeled_arrays_and_indices_bring_their_names():
    times = xr.DataArray([1.0, 2.0], dims="time", coords={"time": [2020, 2021]})
    values, labels = as_arrays({"t": times, "s": pd.Series([1.0, 2.0], index=["p", "q"])})
    assert [own.name for own in labels] == [None, "time"]
    assert isinstance(values["t"], np.ndarray)
    assert list(labels[0].values) == ["p", "q"]


def test_polars_is_understood():
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({"x": [1.0, 2.0], "word": ["u", "v"]})
    found, labels = as_arrays(table)
    np.testing.assert_array_equal(found["word"], [0, 1])
    assert labels[0].name == "word"
    ordered, _ = as_arrays(polars.Series(["a", "b"], dtype=polars.Enum(["b", "a"])))
    np.testing.assert_array_equal(ordered, [1, 0])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.Categorical(["a", None]), "missing values"),
        (pd.Series(["1.5", "n/a"], name="dose"), "'dose' holds text, but '1.5' among it"),
        (pd.Series(pd.to_datetime(["2020-01-01"]), name="day"), "'day' holds datetime"),
    ],
)
def test_what_has_no_numbers_is_refused(column, message):
    with pytest.raises(ModelError, match=message):
        as_arrays(column)


# -- arguments with parts ---------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    x: np.ndarray
    name: str = "trial"


class Pair(NamedTuple):
    x: np.ndarray
    y: np.ndarray


def test_dicts_dataclasses_and_named_tuples_are_among_the_constants():
    def model(data, record, pair):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        mean = slope * (data["x"] + record.x + pair.x)
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=pair.y)

    x, y = np.ones(2), np.array([3.0, 4.0])
    program = ar.inspect(model, ({"x": x}, Record(x), Pair(x, y)))
    assert set(constants(program, {"y": y.astype(np.float32)})) == {"data.x", "record.x", "pair.x"}


# -- wrapped models ---------------------------------------------------------------------------


def plain(x, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.deterministic("twice", 2 * mu)
    numpyro.sample("y", dist.Normal(mu + x, 1.0), obs=y)


X = np.zeros(2)


@pytest.mark.parametrize(
    ("model", "latents"),
    [
        (seed(plain, 0), ["mu"]),
        (seed(plain, jax.random.key(0)), ["mu"]),
        (scope(seed(plain, 0), "a"), ["a/mu"]),
        (condition(plain, {"y": np.ones(2)}), ["mu"]),
        (do(plain, {"mu": 1.0}), ["mu", "y"]),
        (block(plain, hide=["twice"]), ["mu", "y"]),
    ],
    ids=["seed", "key", "scope", "condition", "do", "block"],
)
def test_a_wrapped_model_is_sampled_like_any_other(model, latents):
    observed = {} if len(latents) > 1 else {"y": np.ones(2)}
    args = (X,) if "y" in latents or isinstance(model, condition) else (X, observed["y"])
    program = ar.inspect(model, args)
    assert [site.name for site in program.latents] == latents
    assert set(constants(program, observed)) == {"x"}


def test_a_seed_around_a_model_does_not_make_all_draws_the_same():
    found = ar.predict(seed(plain, 0), (X,), num_draws=3)["prior"]["mu"].values
    assert len(np.unique(found)) == 3


def test_a_tree_names_scoped_sites_with_a_dot_and_remembers_the_slash():
    found = ar.predict(scope(plain, "a"), (X,), num_draws=3)["prior"]["a.mu"]
    assert found.attrs["site"] == "a/mu"
