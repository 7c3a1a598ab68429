"""The zoo: data are what their sources say, models are what the paper's table says."""

import csv
import functools
import hashlib
import http.server
import re
import sys
import threading

import jax
import numpy as np
import pooch
import pytest
import requests
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats

from autoreparam import zoo
from autoreparam.errors import DataError, ModelError
from autoreparam.zoo import (
    co2_trend,
    election88,
    electric,
    german_credit,
    gp_poisson,
    radon,
    rare_features,
)
from autoreparam.zoo import data as zoo_data
from autoreparam.zoo import stochastic_volatility as volatility

# homes and counties and the digest in our convention, the same as published, and the number of
# counties whose published uranium is another county's.
RADON = {
    "MN": ((919, 85), "e275f0d2762a7eab", (919, 85), "2962e71cf68040cc", 75),
    "IN": ((1869, 91), "150df2cf8ef0ecb9", (1914, 91), "0fd5078b8674c0a5", 10),
    "PA": ((2370, 67), "1f08d8fc57c36975", (2389, 68), "95822601130005a7", 63),
    "MO": ((1848, 115), "aa1a3ec157564488", (1859, 115), "f9529927ce58fef1", 29),
    "ND": ((1596, 53), "3ef4a181fc74ea55", (1596, 53), "f77924b580eb922c", 0),
    "MA": ((1553, 13), "f1ab67d113e3dac1", (1659, 13), "9534503140a9904c", 3),
    "AZ": ((1408, 15), "b83c0663ecbaa350", (1507, 15), "bf9cebb6f350dbe1", 0),
}

# name, options, latent sites before the bar and the observed one after it, counts
HERE = [
    ("eight_schools", {}, "mu log_tau theta[8] | y[8]", {"schools": 8}),
    ("toy", {}, "theta mu | y[10]", {"observations": 10}),
    ("toy", {"n": 3}, "theta mu | y[3]", {"observations": 3}),
    ("funnel", {}, "z x[9] |", {"elements": 9}),
    ("funnel", {"n": 1}, "z x[1] |", {"elements": 1}),
    ("unequal_groups", {}, "mu log_tau theta[20] | y[20]", {"groups": 20, "observations": 20010}),
    (
        "correlated_slopes",
        {},
        "mu[2] tau[2] corr[2][2] sigma beta[50][2] | y[2842]",
        {"groups": 50, "observations": 2842},
    ),
    (
        "horseshoe",
        {},
        "sigma tau local[50] beta[50] | y[100]",
        {"rows": 100, "features": 50, "signals": 5},
    ),
    (
        "horseshoe",
        {"regularized": True, "rows": 20, "features": 3, "signals": 1},
        "sigma tau slab local[3] beta[3] | y[20]",
        {"rows": 20, "features": 3, "signals": 1},
    ),
    (
        "r2d2",
        {},
        "sigma r2 share[50] beta[50] | y[100]",
        {"rows": 100, "features": 50, "signals": 5},
    ),
    ("robust_schools", {}, "mu tau theta[8] | y[8]", {"schools": 8}),
    ("rare_features", {}, "tau beta[20] | y[100]", {"rows": 100, "features": 20}),
    (
        "local_scales",
        {"family": "gamma"},
        "mu tau scale[40] | y[4040]",
        {"groups": 40, "observations": 4040},
    ),
    (
        "sleep_study",
        {},
        "mean[2] spread[2] corr[2][2] noise own[18][2] | reaction[180]",
        {"people": 18, "observations": 180},
    ),
]
TRENDS = [
    ("gdp_growth", {}, "mean phi level sigma h_1 h[201] | growth[202]", {"quarters": 202}),
    (
        "co2_trend",
        {},
        "log_sd_level log_sd_slope log_sd_y level_0 slope_0 level[42] slope[42] | y[42]",
        {"years": 43, "observations": 42},
    ),
    (
        "co2_trend",
        {"plain": True},
        "log_sd_level log_sd_slope log_sd_y "
        + " ".join(f"level_{t} slope_{t}" for t in range(43))
        + " | y[42]",
        {"years": 43, "observations": 42},
    ),
]
_MINNESOTA, _CREDIT = {"homes": 919, "counties": 85}, {"loans": 1000, "features": 62, "good": 700}
_POLL, _SCHOOLS = {"respondents": 11566, "states": 51}, {"classes": 192, "pairs": 96, "grades": 4}
FILES = [
    ("radon", {}, "mu a b m[85] | log_r[919]", _MINNESOTA),
    ("radon", {"grouped": True}, "mu a b m[85] | log_r[145]", {**_MINNESOTA, "cells": 145}),
    ("radon_scales", {}, "mu a b m[85] log_s[85] | log_r[919]", _MINNESOTA),
    ("german_credit", {}, "log_tau0 log_tau[62] beta[62] | y[1000]", _CREDIT),
    ("german_credit_gamma", {}, "log_tau0 g[62] beta[62] | y[1000]", _CREDIT),
    ("election88", {}, "beta[2] mu log_tau alpha[51] | y[11566]", _POLL),
    (
        "election88",
        {"grouped": True},
        "beta[2] mu log_tau alpha[51] | y[161]",
        {**_POLL, "cells": 161},
    ),
    ("electric", {}, "mu[4] b[4] log_sigma[4] a[96] | y[192]", _SCHOOLS),
    ("stochastic_volatility", {}, "phi mu sigma h_1 h[499] | y[500]", {"days": 500}),
    ("gp_poisson", {}, "log_amplitude log_length mean f[157] | counts[157]", {"places": 157}),
]


def digest(arrays):
    """A digest that ignores the platform's integers and the last bits of a logarithm."""
    whole = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        kind = "<i8" if array.dtype.kind == "i" else "<f8"
        whole.update(f"{name}{array.shape}".encode())
        whole.update((np.round(array, 6) + 0).astype(kind).tobytes())
    return whole.hexdigest()[:16]


def describe(sites):
    return " ".join(
        name + "".join(f"[{size}]" for size in site["value"].shape) for name, site in sites
    )


def check_model(name, options, expected, counts):
    entry = zoo.load(name, **options)
    trace = handlers.trace(handlers.seed(entry.model, 0)).get_trace(*entry.args, **entry.kwargs)
    sites = [(key, site) for key, site in trace.items() if site["type"] == "sample"]
    latent = describe((key, site) for key, site in sites if not site["is_observed"])
    observed = describe((key, site) for key, site in sites if site["is_observed"])
    assert f"{latent} | {observed}".strip() == expected
    assert entry.counts == counts
    assert (entry.name, entry.args) == (name, ())
    assert entry.description.endswith(".")
    assert "Source:" in entry.notes
    assert zoo.load(name, **options).model is entry.model


@pytest.mark.parametrize(("name", "options", "sites", "counts"), HERE)
def test_a_model_without_files_has_the_sites_of_the_table(name, options, sites, counts):
    check_model(name, options, sites, counts)


@pytest.mark.parametrize(("name", "options", "sites", "counts"), TRENDS)
def test_a_trend_has_the_sites_of_the_table(name, options, sites, counts):
    pytest.importorskip("statsmodels")
    check_model(name, options, sites, counts)


@pytest.mark.data
@pytest.mark.parametrize(("name", "options", "sites", "counts"), FILES)
def test_a_model_with_files_has_the_sites_of_the_table(name, options, sites, counts):
    check_model(name, options, sites, counts)


def test_every_name_of_the_zoo_has_a_row_in_these_tables():
    assert {row[0] for row in HERE + TRENDS + FILES} == set(zoo.names())


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("german_credit", {}, "c6dab9b5dafdab19"),
        ("election88", {}, "0acda75375201c52"),
        ("election88", {"grouped": True}, "9445b70bf04ff4ab"),
        ("radon", {"grouped": True}, "8df278935b61a0f9"),
        ("electric", {}, "dd587ce92bfd554e"),
        ("stochastic_volatility", {}, "778cee65f48ef0a1"),
        ("gp_poisson", {}, "95eae52fae49986a"),
    ],
)
def test_parsed_arrays_have_their_digest(name, options, expected):
    assert digest(zoo.load(name, **options).kwargs) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("eight_schools", "8134c15c33b931ee"),
        ("unequal_groups", "d937e5c4f3e0a291"),
        ("toy", "dfc52d462715ecbf"),
        ("correlated_slopes", "6b722a1cb6cf03c4"),
        ("horseshoe", "3b7e8708b4175bbf"),
        ("co2_trend", "0756bd0dbb027436"),
        ("sleep_study", "0d6ea1389f483270"),
        ("gdp_growth", "57539af63f55a1b1"),
    ],
)
def test_arrays_that_need_no_file_have_their_digest(name, expected):
    pytest.importorskip("statsmodels")
    assert digest(zoo.load(name).kwargs) == expected


@pytest.mark.data
@pytest.mark.parametrize("state", RADON)
def test_radon_has_the_homes_and_counties_of_each_state_in_both_conventions(state):
    ours, our_digest, published, published_digest, _ = RADON[state]
    for as_published, sizes, expected in (
        (False, ours, our_digest),
        (True, published, published_digest),
    ):
        entry = zoo.load("radon", state=state, as_published=as_published)
        assert (entry.counts["homes"], entry.counts["counties"]) == sizes
        assert sorted(set(entry.kwargs["county"])) == list(range(sizes[1]))
        assert digest(entry.kwargs) == expected


@pytest.mark.data
def test_minnesota_uranium_agrees_with_the_file_of_gelman_and_hill():
    theirs = zoo_data.read_json("radon.data.json")
    ours = zoo.load("radon", state="MN").kwargs
    uranium = np.log(np.exp(theirs["u"]) + 0.1)
    np.testing.assert_allclose(ours["uranium"][ours["county"]], uranium, atol=1e-8)
    np.testing.assert_array_equal(ours["floor"], theirs["x"])
    # They number counties in another order, and replace an activity of 0 by 0.1.
    assert len(set(zip(theirs["county"], ours["county"]))) == 85
    activity = np.where(np.array(theirs["radon"]) == 0, 0.1, np.exp(ours["log_r"]) - 0.1)
    np.testing.assert_allclose(np.log(activity), theirs["y"], atol=1e-6)


@pytest.mark.data
@pytest.mark.parametrize("state", RADON)
def test_published_uranium_is_wrong_for_as_many_counties_as_is_known(state):
    published = zoo.load("radon", state=state, as_published=True).kwargs
    with zoo_data.fetch("cty.dat").open() as file:
        uppm = {(row["stfips"], row["ctfips"]): float(row["Uppm"]) for row in csv.DictReader(file)}
    with zoo_data.fetch("srrs2.dat").open() as file:
        lines = csv.reader(file, skipinitialspace=True)
        header = next(lines)
        homes = [row for line in lines if (row := dict(zip(header, line))).get("state") == state]
    first = np.unique(published["county"], return_index=True)[1]
    codes = [(homes[i]["stfips"].zfill(2), homes[i]["cntyfips"].zfill(3)) for i in first]
    right = [np.log(uppm[code]) if uppm[code] > 0 else 0.0 for code in codes]
    assert int(np.sum(published["uranium"] != right)) == RADON[state][-1]


@pytest.mark.data
def test_floors_of_our_convention_are_0_or_1_and_published_floors_go_to_9():
    assert set(zoo.load("radon", state="IN").kwargs["floor"]) == {0.0, 1.0}
    published = zoo.load("radon", state="IN", as_published=True).kwargs["floor"]
    codes, homes = np.unique(published, return_counts=True)
    assert dict(zip(codes, homes)) == {0: 997, 1: 854, 2: 3, 3: 15, 9: 45}


@pytest.mark.data
def test_german_features_are_an_intercept_seven_standardized_numbers_and_indicators():
    X = zoo.load("german_credit").kwargs["X"]
    np.testing.assert_array_equal(X[:, 0], 1)
    np.testing.assert_allclose(X[:, 1:8].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(X[:, 1:8].std(axis=0, ddof=1), 1)
    edges = np.cumsum([4, 5, 10, 5, 5, 4, 3, 4, 3, 3, 4, 2, 2])
    blocks = np.split(X[:, 8:], edges[:-1], axis=1)
    assert edges[-1] == 54
    assert all((block.sum(axis=1) == 1).all() for block in blocks)


@pytest.mark.data
def test_election_codes_start_at_0_and_two_states_have_no_respondent():
    arrays = zoo.load("election88").kwargs
    respondents = np.bincount(arrays["state"], minlength=51)
    assert list(np.flatnonzero(respondents == 0)) == [1, 11]
    assert respondents[50] == 15
    assert [int(arrays[key].sum()) for key in ("y", "black", "female")] == [6495, 891, 6602]


@pytest.mark.data
def test_electric_codes_start_at_0_and_agree_with_each_other():
    arrays = zoo.load("electric").kwargs
    assert list(np.bincount(arrays["grade"])) == [42, 68, 40, 42]
    assert list(np.bincount(arrays["grade_of_pair"])) == [21, 34, 20, 21]
    assert list(np.bincount(arrays["pair"])) == [2] * 96
    np.testing.assert_array_equal(arrays["grade_of_pair"][arrays["pair"]], arrays["grade"])
    assert arrays["treatment"].tolist() == [1.0] * 96 + [0.0] * 96


def test_the_year_with_too_few_weeks_has_a_level_but_no_observation():
    pytest.importorskip("statsmodels")
    arrays = zoo.load("co2_trend").kwargs
    assert (arrays["year"][0], arrays["year"][-1]) == (1959, 2001)
    assert set(arrays["year"]) - set(arrays["year"][arrays["observed"]]) == {1964}
    assert np.all(np.diff(arrays["y"]) > 0)


def test_the_line_through_all_reaction_times_is_the_known_one():
    arrays = zoo.load("sleep_study").kwargs
    slope, intercept = np.polyfit(arrays["day"], arrays["reaction"], 1)
    np.testing.assert_allclose((intercept, slope), (251.4051, 10.4673), atol=1e-4)  # lme4's


HOMES = """idnum, state, stfips, floor, activity, cntyfips, county
1,XX, 9,0,  0.9,  3,BETA
2,XX, 9,1,  0.0,  1,ALPHA
3,YY, 8,0,  5.0,  1,OTHER
4,XX, 9,9,  1.9,  1,
5,XX, 9,2,  3.9,  5,
6,XX, 9,0,  3.9,  7,UNKNOWN SOIL

"""
COUNTIES = """stfips,ctfips,st,cty,lon,lat,Uppm
09,001,XX,ALPHA, 1.0, 1.0,0.9
09,003,XX,BETA, 1.0, 1.0,1.9
09,003,XX,BETA, 2.0, 2.0,1.9
09,005,XX,GAMMA, 1.0, 1.0,0
08,001,YY,OTHER, 1.0, 1.0,7"""


def test_radon_is_joined_by_fips():
    arrays = radon.parse(HOMES, COUNTIES, "XX")
    assert arrays["county"].tolist() == [1, 0, 2]
    assert arrays["floor"].tolist() == [0, 1, 1]
    np.testing.assert_allclose(arrays["uranium"], np.log([1.0, 2.0, 0.1]))
    np.testing.assert_allclose(arrays["log_r"], np.log([1.0, 0.1, 4.0]))


def test_radon_as_published_is_joined_by_name_and_position():
    arrays = radon.parse(HOMES, COUNTIES, "XX", as_published=True)
    assert arrays["county"].tolist() == [0, 1, 2, 2]
    assert arrays["floor"].tolist() == [0, 1, 9, 2]
    # Levels are those of ALPHA twice (two names), BETA twice (two rows), GAMMA; the homes mention
    # BETA first, ALPHA second and end with the blank name at the fourth pair.
    np.testing.assert_allclose(arrays["uranium"], np.log([0.9, 0.9, 1.9]))


def credit_lines():
    numbers = {1: (6, 8), 4: (1, 3), 7: (2, 4), 10: (0, 1), 12: (30, 40), 15: (1, 2), 17: (1, 3)}
    good = [str(numbers[i][0]) if i in numbers else f"A{i}" for i in range(20)]
    bad = ["A99", *(str(numbers[i][1]) if i in numbers else f"A{i}" for i in range(1, 20))]
    return " ".join([*good, "1"]) + "\n" + " ".join([*bad, "2"]) + "\n"


def test_german_credit_is_parsed_into_one_column_per_category():
    arrays = german_credit.parse(credit_lines())
    assert arrays["X"].shape == (2, 1 + 7 + 14)
    np.testing.assert_allclose(arrays["X"][:, 1:8], [[-(0.5**0.5)] * 7, [0.5**0.5] * 7])
    assert arrays["X"][:, 8:10].tolist() == [[1, 0], [0, 1]]
    assert arrays["y"].tolist() == [1, 0]


def test_weeks_are_averaged_over_full_years():
    year = np.repeat([2000, 2001, 2002, 2003], 50)
    value = np.repeat([1.0, 5.0, 9.0, 3.0], 50)
    value[50:65] = np.nan  # 2001 keeps 35 weeks
    arrays = co2_trend.parse(year, value)
    assert arrays["year"].tolist() == [2000, 2001, 2002, 2003]
    assert arrays["observed"].tolist() == [0, 2, 3]
    mean = np.array([1, 9, 3])
    np.testing.assert_allclose(arrays["y"], (mean - mean.mean()) / mean.std(ddof=1))


# Each model against its density written out with scipy, on small data.

N = stats.norm.logpdf
random = np.random.default_rng(1)
COUNTY = {
    "county": np.array([0, 1, 1]),
    "floor": np.array([0.0, 1.0, 0.0]),
    "uranium": np.array([-0.3, 0.4]),
    "log_r": np.array([1.0, 0.2, -0.5]),
}
CREDIT = {"X": random.normal(size=(4, 3)), "y": np.array([0, 1, 1, 0])}
VOTES = election88.parse({"state": [1, 51], "black": [1, 0], "female": [0, 1], "y": [1, 0]})
SCORES = electric.parse(
    {
        "pair": [1, 2, 1],
        "grade": [4, 1, 4],
        "grade_pair": [4, 1],
        "treatment": [1, 1, 0],
        "post_test": [90, 101, 99],
    }
)
YEARS = {"year": np.arange(4), "observed": np.array([0, 2, 3]), "y": np.array([-1.0, 0.3, 0.9])}
RETURNS = volatility.parse({"y": [0.3, -0.8, 0.1]})
SCHOOLS, GROUPS, FUNNEL = map(zoo.load, ("eight_schools", "unequal_groups", "funnel"))
TOY = zoo.load("toy", sigma_mu=3.0, sigma=0.5)
ROBUST, LOCAL = zoo.load("robust_schools", df=2.0), zoo.load("local_scales", n=3, large=4)
PLACES = gp_poisson.parse('"","X1","X2","data","units.m"\n"1",0,0,7,2\n"2",-100,30,9,3\n')


def bernoulli(logits, y):
    return -np.logaddexp(0, np.where(y == 1, -logits, logits))


def radon_joint(v, scale=1.0):
    m = N(v["m"], v["mu"] + v["a"] * COUNTY["uranium"], 1).sum()
    loc = v["m"][COUNTY["county"]] + v["b"] * COUNTY["floor"]
    return N([v["mu"], v["a"], v["b"]]).sum() + m + N(COUNTY["log_r"], loc, scale).sum()


def radon_scales_joint(v):
    return radon_joint(v, np.exp(v["log_s"])[COUNTY["county"]]) + N(v["log_s"]).sum()


def credit_joint(v):
    tau = N(v["log_tau0"], 0, 10) + N(v["log_tau"], v["log_tau0"], 1).sum()
    beta = N(v["beta"], 0, np.exp(v["log_tau"])).sum()
    return tau + beta + bernoulli(CREDIT["X"] @ v["beta"], CREDIT["y"]).sum()


def credit_gamma_joint(v):
    g = N(v["log_tau0"], 0, 10) + stats.gamma.logpdf(v["g"], 0.5, scale=2).sum()
    beta = N(v["beta"], 0, np.exp(v["log_tau0"]) * v["g"]).sum()
    return g + beta + bernoulli(CREDIT["X"] @ v["beta"], CREDIT["y"]).sum()


def election_joint(v):
    prior = N(v["beta"], 0, 100).sum() + N(v["mu"], 0, 100) + N(v["log_tau"], 0, 10)
    logits = np.array([v["alpha"][0] + v["beta"][0], v["alpha"][50] + v["beta"][1]])
    alpha = N(v["alpha"], v["mu"], np.exp(v["log_tau"])).sum()
    return prior + alpha + bernoulli(logits, VOTES["y"]).sum()


def electric_joint(v):
    prior = N(v["mu"]).sum() + N(v["b"], 0, 100).sum() + N(v["log_sigma"]).sum()
    a = N(v["a"], 100 * v["mu"][[3, 0]], 1).sum()
    loc = v["a"][[0, 1, 0]] + v["b"][[3, 0, 3]] * [1, 1, 0]
    return prior + a + N([90, 101, 99], loc, np.exp(v["log_sigma"][[3, 0, 3]])).sum()


def trend_joint(v):
    level, slope = np.append(v["level_0"], v["level"]), np.append(v["slope_0"], v["slope"])
    prior = N(v["log_sd_level"], -2) + N(v["log_sd_slope"], -2) + N(v["log_sd_y"], -3)
    start = N(level[0], -1.0, 1) + N(slope[0], 0, 0.1)
    levels = N(level[1:], level[:-1] + slope[:-1], np.exp(v["log_sd_level"])).sum()
    slopes = N(slope[1:], slope[:-1], np.exp(v["log_sd_slope"])).sum()
    y = N(YEARS["y"], level[YEARS["observed"]], np.exp(v["log_sd_y"])).sum()
    return prior + start + levels + slopes + y


def volatility_joint(v):
    phi, mu, sigma, h = v["phi"], v["mu"], v["sigma"], np.append(v["h_1"], v["h"])
    prior = stats.beta.logpdf((phi + 1) / 2, 20, 1.5) - np.log(2) + N(mu, -1, 2)
    prior += stats.halfnorm.logpdf(sigma, scale=0.5) + N(h[0], mu, sigma / np.sqrt(1 - phi**2))
    walk = N(h[1:], mu + phi * (h[:-1] - mu), sigma).sum()
    return prior + walk + N(RETURNS["y"], 0, np.exp(h / 2)).sum()


def gp_joint(v):
    prior = N(v["log_amplitude"]) + N(v["log_length"]) + N(v["mean"], 1, 2)
    r = np.sqrt(3) * np.hypot(1.0, 0.3) / np.exp(v["log_length"])
    off = (1 + r) * np.exp(-r)
    cov = np.exp(2 * v["log_amplitude"]) * np.array([[1, off], [off, 1]]) + 1e-5 * np.eye(2)
    f = stats.multivariate_normal.logpdf(v["f"], np.full(2, v["mean"]), cov)
    return prior + f + stats.poisson.logpmf([7, 9], np.array([2, 3]) * np.exp(v["f"])).sum()


def schools_joint(v):
    y, sigma = SCHOOLS.kwargs["y"], SCHOOLS.kwargs["sigma"]
    theta = N(v["theta"], v["mu"], np.exp(v["log_tau"])).sum()
    return N(v["mu"], 0, 5) + N(v["log_tau"], 0, 5) + theta + N(y, v["theta"], sigma).sum()


def groups_joint(v):
    y, sd = GROUPS.kwargs["y"], 5 / np.sqrt(np.repeat([1, 2000], 10))
    theta = N(v["theta"], v["mu"], np.exp(v["log_tau"])).sum()
    return N(v["mu"], 0, 5) + N(v["log_tau"]) + theta + N(y, v["theta"], sd).sum()


def toy_joint(v):
    return N(v["theta"]) + N(v["mu"], v["theta"], 3) + N(TOY.kwargs["y"], v["mu"], 0.5).sum()


def funnel_joint(v):
    return N(v["z"], 0, 3) + N(v["x"], 0, np.exp(v["z"] / 2)).sum()


def robust_joint(v):
    y, sigma, df = (ROBUST.kwargs[name] for name in ("y", "sigma", "df"))
    theta = stats.t.logpdf(v["theta"], df, v["mu"], v["tau"]).sum()
    prior = N(v["mu"], 0, 5) + stats.halfcauchy.logpdf(v["tau"], scale=5)
    return prior + theta + N(y, v["theta"], sigma).sum()


def rare_joint(v):
    prior = stats.halfnorm.logpdf(v["tau"], scale=2.5)
    prior += stats.cauchy.logpdf(v["beta"], scale=v["tau"]).sum()
    return prior + bernoulli(CREDIT["X"] @ v["beta"], CREDIT["y"]).sum()


def local_joint(v):
    prior = N(v["mu"], 0, 5) + stats.lognorm.logpdf(v["tau"], 1)
    prior += stats.halfnorm.logpdf(v["scale"], scale=v["tau"]).sum()
    return prior + N(LOCAL.kwargs["y"], v["mu"], v["scale"][LOCAL.kwargs["group"]]).sum()


JOINTS = [
    (radon.radon, COUNTY, radon_joint),
    (radon.radon_scales, COUNTY, radon_scales_joint),
    (german_credit.german_credit, CREDIT, credit_joint),
    (german_credit.german_credit_gamma, CREDIT, credit_gamma_joint),
    (election88.election88, VOTES, election_joint),
    (electric.electric, SCORES, electric_joint),
    (co2_trend.co2_trend, YEARS, trend_joint),
    (volatility.stochastic_volatility, RETURNS, volatility_joint),
    (gp_poisson.gp_poisson, PLACES, gp_joint),
    (SCHOOLS.model, SCHOOLS.kwargs, schools_joint),
    (GROUPS.model, GROUPS.kwargs, groups_joint),
    (TOY.model, TOY.kwargs, toy_joint),
    (FUNNEL.model, FUNNEL.kwargs, funnel_joint),
    (ROBUST.model, ROBUST.kwargs, robust_joint),
    (rare_features.rare_features, CREDIT, rare_joint),
    (LOCAL.model, LOCAL.kwargs, local_joint),
]


def prior_draw(model, kwargs):
    trace = handlers.trace(handlers.seed(model, 3)).get_trace(**kwargs)
    sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
    return {name: site["value"] for name, site in sites.items() if not site["is_observed"]}


@pytest.mark.parametrize(
    ("model", "kwargs", "joint"), JOINTS, ids=[model.__name__ for model, _, _ in JOINTS]
)
def test_the_log_joint_is_the_one_written_out_by_hand(model, kwargs, joint):
    values = prior_draw(model, kwargs)
    found = log_density(model, (), kwargs, values)[0]
    expected = joint({name: np.asarray(value, dtype=float) for name, value in values.items()})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("model", "kwargs"), [row[:2] for row in JOINTS], ids=[row[0].__name__ for row in JOINTS]
)
def test_data_may_be_arguments_of_a_compiled_gradient(model, kwargs):
    arrays = {name: value for name, value in kwargs.items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in kwargs.items() if name not in arrays}

    @jax.jit
    def gradient(values, arrays):
        return jax.grad(lambda at: log_density(model, (), {**arrays, **rest}, at)[0])(values)

    found = gradient(prior_draw(model, kwargs), arrays)
    assert all(np.isfinite(value).all() for value in found.values())


def test_the_plain_trend_is_the_same_model():
    values = prior_draw(co2_trend.co2_trend, YEARS)
    plain = {name: values[name] for name in values if name not in ("level", "slope")}
    for kind in ("level", "slope"):
        plain |= {f"{kind}_{t + 1}": value for t, value in enumerate(values[kind])}
    scanned = log_density(co2_trend.co2_trend, (), YEARS, values)[0]
    looped = log_density(co2_trend.co2_trend_plain, (), YEARS, plain)[0]
    np.testing.assert_allclose(scanned, looped, rtol=1e-4)


def test_an_unknown_model_is_refused_with_the_known_ones():
    with pytest.raises(ModelError, match=r"no model named 'radom'.*'radon', 'radon_scales'"):
        zoo.load("radom")


def test_an_unknown_option_is_refused_with_the_known_ones():
    with pytest.raises(ModelError, match=r"'radon' has no option 'stat'.*'state', 'as_published'"):
        zoo.load("radon", stat="PA")
    with pytest.raises(ModelError, match=r"no option 'n'\. Its options: none"):
        zoo.load("eight_schools", n=3)


def test_a_state_without_data_is_refused_with_those_that_have_some():
    with pytest.raises(DataError, match=r"state 'R5'.*'MN', 'IN', 'PA', 'MO', 'ND', 'MA', 'AZ'"):
        zoo.load("radon", state="R5")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("funnel", {"n": 0}),
        ("toy", {"sigma": 0.0}),
        ("unequal_groups", {"small": 0}),
        ("robust_schools", {"df": 0.0}),
        ("rare_features", {"share": 1.0}),
        ("local_scales", {"family": "beta"}),
    ],
)
def test_an_impossible_size_is_refused(name, options):
    option, value = next(iter(options.items()))
    with pytest.raises(ModelError, match=f"'{name}' needs .* {option}={value}"):
        zoo.load(name, **options)


def test_an_entry_cannot_be_changed():
    with pytest.raises(AttributeError):
        zoo.load("funnel").name = "other"


NAME, CONTENT = "tiny.dat", b"1 2 3\n"


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A registry of one small file served from this machine, with an empty cache of its own."""
    served, cache = tmp_path / "served", tmp_path / "cache"
    served.mkdir()
    (served / NAME).write_bytes(CONTENT)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=served)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/{NAME}"
        file = zoo_data.DataFile(url, hashlib.sha256(CONTENT).hexdigest())
        monkeypatch.setattr(zoo_data, "FILES", {NAME: file})
        monkeypatch.setattr(pooch, "os_cache", lambda _: cache)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.delenv("AUTOREPARAM_DATA", raising=False)
        yield served, cache
        server.shutdown()


def test_a_file_is_downloaded_once_and_then_found_in_the_cache(tiny, capfd):
    served, cache = tiny
    assert zoo_data.listing()[0].path is None
    assert zoo_data.fetch(NAME) == cache / NAME
    assert "100%" in capfd.readouterr().err
    (served / NAME).unlink()
    assert zoo_data.fetch(NAME).read_bytes() == CONTENT
    assert zoo_data.listing()[0].path == cache / NAME
    assert zoo_data.listing()[0].intact


def test_the_users_folder_comes_before_the_cache(tiny, tmp_path, monkeypatch):
    zoo_data.fetch(NAME)
    monkeypatch.setenv("AUTOREPARAM_DATA", str(tmp_path))
    assert zoo_data.fetch(NAME).parent != tmp_path
    (tmp_path / NAME).write_bytes(CONTENT)
    assert zoo_data.fetch(NAME) == tmp_path / NAME
    assert zoo_data.listing()[0].path == tmp_path / NAME


def test_a_file_with_a_wrong_checksum_is_refused_in_the_users_folder(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOREPARAM_DATA", str(tmp_path))
    (tmp_path / NAME).write_bytes(b"1 2 4\n")
    with pytest.raises(DataError, match=r"tiny\.dat.*SHA-256.*Remove it"):
        zoo_data.fetch(NAME)
    assert not zoo_data.listing()[0].intact


def test_a_damaged_cached_file_is_downloaded_again(tiny):
    _, cache = tiny
    cache.mkdir()
    (cache / NAME).write_bytes(b"half")
    assert zoo_data.fetch(NAME, progress=False).read_bytes() == CONTENT


def test_a_download_with_a_wrong_checksum_is_refused_and_not_kept(tiny):
    served, cache = tiny
    (served / NAME).write_bytes(b"1 2 4\n")
    with pytest.raises(DataError, match=r"'tiny\.dat' from http.*damaged.*AUTOREPARAM_DATA"):
        zoo_data.fetch(NAME)
    assert not (cache / NAME).exists()


def test_a_file_that_is_gone_or_a_network_that_is_down_says_so(tiny, monkeypatch):
    served, _ = tiny
    (served / NAME).unlink()
    with pytest.raises(DataError, match=r"Could not download .*'tiny\.dat'.*404.*AUTOREPARAM_DATA"):
        zoo_data.fetch(NAME)

    def refuse(*_, **__):
        raise requests.ConnectionError("network is unreachable")

    monkeypatch.setattr(requests, "get", refuse)
    with pytest.raises(DataError, match=r"'tiny\.dat'.*unreachable.*AUTOREPARAM_DATA"):
        zoo_data.fetch(NAME)


@pytest.mark.parametrize("package", ["pooch", "tqdm"])
def test_a_missing_package_names_the_extra_and_the_folder(tiny, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DataError, match=rf"'{package}'.*autoreparam\[data\].*AUTOREPARAM_DATA"):
        zoo_data.fetch(NAME)
    assert zoo_data.listing()[0].path is None


def test_missing_statsmodels_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.datasets.co2", None)
    with pytest.raises(DataError, match=r"'statsmodels'.*CO2 series.*autoreparam\[data\]"):
        zoo.load("co2_trend")


def test_a_folder_that_does_not_exist_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOREPARAM_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"nowhere', which is not a folder"):
        zoo_data.fetch("cty.dat")


def test_an_unknown_file_is_refused_with_the_known_ones():
    with pytest.raises(DataError, match=r"no data file named 'iris\.csv'.*'srrs2\.dat'"):
        zoo_data.fetch("iris.csv")


def test_every_file_is_pinned_to_a_commit():
    for file in zoo_data.listing():
        assert re.search(r"raw\.githubusercontent\.com/[^/]+/[^/]+/[0-9a-f]{40}/", file.url)
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
