"""Where chains come to the posterior only while sampling, the run warms up once more."""

import numpy as np
import pytest
from interrupts import interrupted_at
from test_faults import assert_same
from test_longer import ASKED, run
from test_sampling import Y, groups

import autoreparam as ar
from autoreparam.mcmc.health import found_better
from autoreparam.run import session as session_module
from autoreparam.run.session import Session


def levels(rise, at, draws=200):
    """Log densities of four chains in ten dimensions, one of which comes to a better place."""
    found = -0.5 * np.random.default_rng(0).chisquare(10, size=(4, draws))
    found[2, int(at * draws) :] += rise
    return found


@pytest.mark.parametrize(
    ("rise", "at", "found"), [(44, 0.1, True), (44, 0.7, True), (4, 0.1, False), (-44, 0.1, False)]
)
def test_a_chain_that_rises_far_has_found_a_better_place(rise, at, found):
    before = levels(0, 0, draws=25)
    assert found_better(before, levels(rise, at), 10) == found


@pytest.fixture
def better_once(monkeypatch):
    """Chains of the first sampling phase come to a better place, others do not."""
    looks = []

    def found(before, levels, size):
        looks.append(levels.shape)
        return len(looks) == 1 and before.shape[1] > 0

    monkeypatch.setattr(session_module, "found_better", found)
    return looks


def test_a_second_warmup_replaces_the_first_and_what_was_sampled_after_it(better_once):
    once, tree = run(most_every=1), run(save_warmup=True)
    assert better_once[0] == (2, ASKED)
    assert tree.attrs["added_windows"] == once.attrs["added_windows"] + 1
    assert tree["posterior"].sizes["draw"] == ASKED
    assert tree["warmup_posterior"].sizes["draw"] >= 2 * 60 + ASKED
    spent = once.attrs["gradients_warmup"] + once.attrs["gradients_sampling"]
    assert tree.attrs["gradients_warmup"] > spent
    assert np.isfinite(tree["warmup_posterior"]["theta"].values).all()


@pytest.mark.parametrize("call", [8, 12, 16])
def test_an_interrupt_in_a_second_warmup_loses_nothing(tmp_path, monkeypatch, call):
    monkeypatch.setattr(Session, "_found_better", lambda self: self.state.settled_at == 0)
    whole = run(save_warmup=True)
    with interrupted_at(call):
        tree = run(save_warmup=True, checkpoint=tmp_path / "run")
    assert tree.attrs["interrupted"]
    resumed = ar.resume(tmp_path / "run", groups, (Y,), progress=False)
    assert_same(resumed, whole)
    assert resumed.attrs["gradients_warmup"] == whole.attrs["gradients_warmup"]
    for name in ("mu", "theta"):
        np.testing.assert_array_equal(
            resumed["warmup_posterior"][name].values, whole["warmup_posterior"][name].values
        )
