"""ESS and R-hat of a few chains are ArviZ's."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from autoreparam.results.split import split

TAILS = (0.05, 0.95)


def draws_of_all_kinds(chains, length):
    noise = np.random.default_rng(length).normal(size=(chains, length))
    lags = np.subtract.outer(np.arange(length), np.arange(length))
    slow, alternating = (noise @ np.tril(phi ** np.abs(lags)).T for phi in (0.9, -0.8))
    apart = noise + 3 * np.arange(chains)[:, None]
    missing = np.where(np.arange(length) == 1, np.nan, noise)
    endless = np.where(np.arange(length) == 1, np.inf, noise)
    tied, heavy = noise.round(), noise**9
    return np.stack([noise, slow, alternating, apart, tied, heavy, missing, endless])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chains", [1, 2, 5])
@pytest.mark.parametrize("length", [4, 5, 6, 7, 9, 60, 301])
def test_ess_and_r_hat_are_those_of_arviz(chains, length):
    scalars = draws_of_all_kinds(chains, length)
    found = split(scalars, TAILS)
    theirs = {
        "bulk": array_stats.ess(scalars, method="bulk"),
        "tail": array_stats.ess(scalars, method="tail", prob=TAILS),
        "means": array_stats.ess(scalars, method="mean"),
        "r_hat": array_stats.rhat(scalars) if chains > 1 else np.full(len(scalars), np.nan),
    }
    for name, expected in theirs.items():
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-9, err_msg=name)


@pytest.mark.filterwarnings("ignore")
def test_r_hat_is_known_where_all_distances_from_the_median_are_equal():
    balanced = np.random.default_rng(0).permuted(np.tile([0.0, 1.0], (4, 250)), axis=1)
    stuck = np.repeat([[0.0], [1.0], [0.0], [1.0]], 500, axis=1)
    found = split(np.stack([balanced, stuck]), TAILS).r_hat
    assert 0.99 < found[0] < 1.01
    assert found[1] > 100


def test_the_order_of_numbers_in_memory_does_not_matter():
    scalars = draws_of_all_kinds(4, 50)[:4]
    turned = np.asfortranarray(scalars)
    np.testing.assert_allclose(split(turned, TAILS), split(scalars, TAILS), rtol=1e-12)


def test_fewer_than_four_draws_say_nothing():
    assert np.isnan(split(np.zeros((2, 4, 3)), TAILS)).all()
