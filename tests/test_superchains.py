"""Many short chains: R-hat of superchains, and ESS, where the answers are known."""

import re
import time
import warnings
from dataclasses import replace

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from arviz_stats.base import array_stats
from test_start import SETTINGS, Y, groups

import autoreparam as ar
from autoreparam.mcmc.engine import Engine
from autoreparam.results.advice import NESTED_LIMIT, suffice, warnings_for
from autoreparam.results.diagnostics import e_bfmi, efficiency, summary
from autoreparam.results.pooled import ess, pooled
from autoreparam.results.progress import Progress
from autoreparam.results.scalars import TAILS, ess_of, measure, slowest, squares
from autoreparam.results.superchains import nested_r_hat, superchains
from autoreparam.run.begin import build_engine, first_state


def autoregressive(chains, draws, rho, seed=0):
    """Stationary chains of unit variance."""
    x = np.random.default_rng(seed).normal(size=(chains, draws))
    for i in range(1, draws):
        x[:, i] = rho * x[:, i - 1] + np.sqrt(1 - rho**2) * x[:, i]
    return x


def r_hat_of(draws):
    return float(pooled(draws[None], TAILS).r_hat[0])


def variable(draws, name="x"):
    return xr.DataArray(draws, dims=["chain", "draw", "element"][: draws.ndim], name=name)


# -- superchains ------------------------------------------------------------------------------


@pytest.mark.parametrize("chains", [64, 97, 256, 4096])
def test_many_chains_are_sixteen_superchains_of_neighbors(chains):
    found = superchains(chains)
    assert (np.diff(found) >= 0).all()
    sizes = np.bincount(found)
    assert len(sizes) == 16
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("chains", [0, 1, 4, 63])
def test_each_of_a_few_chains_is_its_own(chains):
    np.testing.assert_array_equal(superchains(chains), np.arange(chains))


# -- nested R-hat -----------------------------------------------------------------------------


def by_definition(draws, groups):
    """Equations 6 to 8 of the paper, term by term."""
    chains = [[row for row, k in zip(draws, groups) if k == group] for group in set(groups)]
    centers = [np.mean([np.mean(row) for row in superchain]) for superchain in chains]
    within = []
    for superchain in chains:
        means = [np.mean(row) for row in superchain]
        between_chains = np.var(means, ddof=1) if len(means) > 1 else 0.0
        each = [np.var(row, ddof=1) if len(row) > 1 else 0.0 for row in superchain]
        within.append(between_chains + np.mean(each))
    return np.sqrt(1 + np.var(centers, ddof=1) / np.mean(within))


@pytest.mark.parametrize(("chains", "draws"), [(64, 1), (70, 1), (70, 2), (70, 9), (5, 9)])
def test_nested_r_hat_is_the_papers(chains, draws):
    x, own = np.random.default_rng(draws).normal(size=(chains, draws)), superchains(chains)
    assert nested_r_hat(x, own) == pytest.approx(by_definition(x, own.tolist()))


def test_nested_r_hat_is_arviz_s_without_ranks_and_halves():
    x, own = autoregressive(64, 9, 0.5), superchains(64)
    theirs = array_stats.rhat_nested(x, own, method="identity", chain_axis=0, draw_axis=1)
    assert nested_r_hat(x, own) == pytest.approx(float(theirs))


@pytest.mark.parametrize("draws", [1, 2, 5, 8])
def test_ranks_are_normalized_and_folded_and_superchains_halved(draws):
    x = np.random.default_rng(3).gamma(2.0, size=(70, draws)).round(1)  # with ties
    own, half = superchains(70).tolist(), draws // 2

    def halved(z):
        if not half:
            return by_definition(z, own)
        parts = np.concatenate([z[:, :half], z[:, draws - half :]])
        return by_definition(parts, own + [16 + k for k in own])

    plain, folded = (array_stats._z_scale(z) for z in (x, abs(x - np.median(x))))
    assert r_hat_of(x) == pytest.approx(max(halved(plain), halved(folded)))


@pytest.mark.parametrize(("chains", "draws"), [(64, 25), (256, 7), (1024, 2), (4096, 1)])
def test_independent_draws_are_below_the_limit_if_superchains_have_a_hundred(chains, draws):
    x = np.random.default_rng(0).normal(size=(40, chains, draws))
    found = pooled(x, TAILS).r_hat
    assert (found > 1).all()
    assert (found < NESTED_LIMIT).all()
    # The Monte Carlo error of half a superchain, of a whole one where chains have one draw.
    of_means = 16 * (1 + (draws > 1)) / (chains * (draws - draws % 2 * (draws > 1)))
    assert np.median(found**2 - 1) == pytest.approx(of_means, rel=0.5)


def _modes(x):
    x[superchains(len(x)) % 2 == 0] += 5


def _scales(x):
    x[superchains(len(x)) % 2 == 0] *= 3


def _drift(x):
    x += np.linspace(0, 2, x.shape[1])


def _one_away(x):
    x[superchains(len(x)) == 3] += 2


@pytest.mark.parametrize(
    # Ranks bound it: with two modes it is sqrt(1 / (1 - 2 / π)), 1.66, however far they are apart.
    ("spoil", "least"),
    [(_modes, 1.6), (_scales, 1.1), (_drift, 1.1), (_one_away, 1.05)],
)
def test_superchains_that_disagree_and_chains_that_drift_together_are_seen(spoil, least):
    x = autoregressive(512, 20, 0.5)
    assert r_hat_of(x) < NESTED_LIMIT
    spoil(x)
    assert r_hat_of(x) > least


def test_what_is_left_of_starts_is_seen_because_superchains_share_them():
    x, left = autoregressive(512, 20, 0.5), np.linspace(-1, 1, 16)[:, None]
    shared = left[superchains(512)]
    assert r_hat_of(x + shared) ** 2 - 1 == pytest.approx(left.var(ddof=1), rel=0.15)
    # If every chain had a start of its own, superchains would average over them.
    assert r_hat_of(x + np.random.default_rng(0).permutation(shared)) < NESTED_LIMIT


def test_r_hat_of_single_chains_would_have_been_noise():
    x = autoregressive(512, 20, 0.5)
    assert array_stats.rhat(x, chain_axis=0, draw_axis=1) > 1.05


# -- ESS --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6])
def test_ess_of_a_hundred_long_chains_is_near_arviz_s(rho):
    x = autoregressive(100, 800, rho)
    found = pooled(x[None], TAILS)
    for mine, options in (
        (found.bulk, {"method": "bulk"}),
        (found.tail, {"method": "tail", "prob": TAILS}),
        (found.means, {"method": "mean"}),
    ):
        theirs = array_stats.ess(x, chain_axis=0, draw_axis=1, **options)
        assert mine[0] == pytest.approx(float(theirs), rel=0.04)


@pytest.mark.parametrize("draws", [1, 2, 3, 4, 20, 61, 300])
@pytest.mark.parametrize("rho", [-0.4, 0.0, 0.5, 0.9])
def test_ess_of_two_thousand_autoregressive_chains_is_known(rho, draws):
    lags = np.arange(1, draws)
    variance = 1 + 2 * np.sum((1 - lags / draws) * rho**lags)
    found = ess(autoregressive(2000, draws, rho, seed=draws))
    assert found == pytest.approx(2000 * draws / variance, rel=0.06)


def test_ess_of_chains_that_are_stuck_is_their_number():
    x = autoregressive(200, 50, 0.0) * 0.01 + np.random.default_rng(1).normal(size=(200, 1))
    assert ess(x) == pytest.approx(200, rel=0.02)


def test_many_chains_are_measured_in_seconds():
    x = np.random.default_rng(0).normal(size=(4096, 60, 20))
    began = time.process_time()
    found = measure(variable(x))
    assert time.process_time() - began < 4  # a fifth of what is asked for takes about 1.2 s
    assert np.isfinite([found.bulk, found.tail, found.means, found.r_hat]).all()


def test_fewer_than_64_chains_are_measured_as_arviz_measures_them():
    x = autoregressive(63, 30, 0.5)
    found = measure(variable(x))
    scalars = {"chain_axis": 0, "draw_axis": 1}
    theirs = [
        array_stats.ess(x, method="bulk", **scalars),
        array_stats.ess(x, method="tail", prob=TAILS, **scalars),
        array_stats.ess(x, method="mean", **scalars),
        array_stats.rhat(x, method="rank", **scalars),
    ]
    ours = [found.bulk[0], found.tail[0], found.means[0], found.r_hat[0]]
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


# -- draws that cannot be measured ------------------------------------------------------------


def test_what_is_not_a_number_does_not_vary_or_is_not_there_has_no_measures():
    x = np.random.default_rng(0).normal(size=(64, 6, 4))
    x[3, 2, 1] = np.nan
    x[..., 2] = 7.0
    x[5, 0, 3] = np.inf
    found = measure(variable(x))
    np.testing.assert_array_equal(found.varies, [True, True, False, True])
    np.testing.assert_array_equal(np.isnan(found.r_hat), [False, True, True, False])
    np.testing.assert_array_equal(np.isnan(found.bulk), [False, True, True, False])
    np.testing.assert_array_equal(np.isnan(found.means), [False, True, True, True])
    assert np.isnan(measure(variable(np.empty((64, 0, 2)))).r_hat).all()


def test_two_values_have_no_folded_ranks_but_an_r_hat():
    x = np.random.default_rng(0).choice([-1.0, 1.0], size=(64, 30))
    assert 1 < measure(variable(x)).r_hat[0] < NESTED_LIMIT


def test_one_draw_per_chain_is_enough_if_chains_are_many():
    found = measure(variable(np.random.default_rng(0).normal(size=(2048, 1))))
    assert 1 < found.r_hat[0] < NESTED_LIMIT
    assert found.bulk[0] == 2048


# -- what is said -----------------------------------------------------------------------------


def tree_of(x):
    draws = variable(x, "mu").to_dataset()
    stats = xr.Dataset({
        "diverging": variable(np.zeros(x.shape, bool)),
        "energy": variable(np.random.default_rng(5).normal(size=x.shape)),
    })  # fmt: skip
    return xr.DataTree.from_dict({"posterior": draws, "sample_stats": stats})


def test_good_short_chains_bring_no_warning_and_bad_ones_one_that_names_nested_r_hat():
    x = autoregressive(256, 30, 0.3)
    found = efficiency(tree_of(x))
    assert (found.nested, found.superchains, found.r_hat_name) == (True, 16, "nested R-hat")
    assert warnings_for(tree_of(x)) == []
    _one_away(x)
    said = warnings_for(tree_of(x))
    assert re.match(r"Nested R-hat is 1\.\d+ for mu \(it should be below 1.02\)", said[0])


def test_a_superchain_should_have_a_hundred_effective_draws():
    said = warnings_for(tree_of(autoregressive(64, 20, 0.0)))
    assert "should be at least 1600, 100 per superchain" in said[-1]


def test_the_summary_says_that_r_hat_is_nested():
    tree = tree_of(autoregressive(64, 30, 0.3))
    assert "r_hat is nested R-hat, of 16 superchains." in repr(summary(tree))
    few = tree_of(autoregressive(63, 30, 0.3))
    assert "nested" not in repr(summary(few))
    assert not efficiency(few).nested


def test_energies_of_short_chains_are_pooled():
    x = autoregressive(1024, 20, 0.0)
    assert e_bfmi(x) > 1.8  # 2 for independent energies; of single chains it would be about 0.8
    assert array_stats.bfmi(x).min() < 1
    assert e_bfmi(autoregressive(1024, 20, 0.95)) < 0.15


def test_draws_of_many_chains_suffice_by_superchains():
    x = autoregressive(128, 60, 0.3)
    assert suffice({"x": x}, autoregressive(128, 60, 0.0, seed=1))
    _one_away(x)
    assert not suffice({"x": x}, autoregressive(128, 60, 0.0, seed=1))


def test_the_progress_bar_pools_too():
    assert ess_of(autoregressive(200, 20, 0.0)) == pytest.approx(4000, rel=0.05)
    assert ess_of(autoregressive(200, 7, 0.0)) is None


# -- starts -----------------------------------------------------------------------------------


@pytest.fixture
def starts(monkeypatch):
    """Working positions at which chains begin, found without compiling what comes after."""
    monkeypatch.setattr(Engine, "compile", lambda *_: None)

    def call(chains, init=None, parameterization="auto"):
        settings = replace(SETTINGS, chains=chains, parameterization=parameterization)
        engine = build_engine(ar.inspect(groups, (Y,)), settings)
        state = first_state(engine, settings, parameterization, init, Progress(False))
        assert len(np.unique(engine.keys, axis=0)) == chains
        return np.asarray(state.chains.position)

    return call


def test_chains_of_a_superchain_share_their_start_and_superchains_do_not(starts):
    position, own = starts(70), superchains(70)
    assert len(np.unique(position, axis=0)) == 16
    for group in range(16):
        assert len(np.unique(position[own == group], axis=0)) == 1


def test_given_values_are_kept_and_the_rest_is_shared(starts):
    position = starts(64, {"mean": np.linspace(-1, 1, 64)}, "centered")
    assert len(np.unique(position[:, 0])) == 64
    assert len(np.unique(position[:, 1])) == 16


@pytest.fixture(scope="module")
def many():
    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return ar.sample(model, (Y,), chains=64, draws=80, warmup=40, progress=False)


def test_a_run_of_many_short_chains_is_trusted_and_its_report_names_what_it_saw(many, tmp_path):
    assert many.attrs["superchains"] == 16
    ar.report(many, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "These draws can be used" in page
    assert re.search(r"nested R-hat is at most 1\.0\d\d and none diverged", page)
    assert "largest nested R-hat" in page
    assert "Trace of mean: 16 chains of 80 draws" in page


def test_a_nan_in_a_chain_that_is_left_out_is_seen_and_what_is_constant_is_not_slow():
    x = np.random.default_rng(0).normal(size=(4096, 60, 3))
    x[1, 0, 0] = np.nan
    x[..., 2] = -np.inf
    variable = xr.DataArray(x, dims=["chain", "draw", "k"], name="x", coords={"k": range(3)})
    (chosen,) = slowest([variable], 1)
    np.testing.assert_array_equal(chosen, [True, False, False])
    measured = measure(variable, chosen)
    assert np.isnan([measured.bulk, measured.r_hat]).all()
    assert measured.varies.all()


def test_squares_of_some_chains_stand_for_those_of_all():
    x = np.random.default_rng(0).normal(size=(4096, 60))
    x[3840:] *= 2.0  # the last superchain
    (square,) = squares([xr.DataArray(x, dims=["chain", "draw"], name="x")])
    measured, whole = measure(square), measure(square.assign_attrs(of_chains=square.sizes["chain"]))
    assert square.sizes["chain"] < 4096 / 2
    assert measured.r_hat > NESTED_LIMIT
    assert abs(measured.bulk - 4096 / square.sizes["chain"] * whole.bulk) < 1e-6 * measured.bulk
    (chosen,) = slowest([square], 1)
    np.testing.assert_array_equal(measure(square, chosen).bulk, measured.bulk)
