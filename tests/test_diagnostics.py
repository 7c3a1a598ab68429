"""What is said of a run is true of all its transitions, also of those that were not kept."""

import numpy as np
import pytest

import autoreparam as ar
from autoreparam.mcmc.settings import SamplerSettings
from autoreparam.results.advice import warnings_for
from autoreparam.results.diagnostics import efficiency

# Second tries leave hardly any error of 1000, so that less is called a divergence.
STRICT = ar.Adaptation(SamplerSettings(divergence=2.0))
KEYWORDS = {"parameterization": "centered", "kernel": "hmc", "draws": 400, "warmup": 200,
            "adaptation": STRICT, "progress": False}  # fmt: skip


@pytest.fixture(scope="module")
def funnel():
    """A neck that a centered sampler cannot follow."""
    return ar.zoo.load("funnel")


@pytest.fixture(scope="module")
def whole(funnel):
    return ar.sample(funnel.model, funnel.args, funnel.kwargs, **KEYWORDS)


def test_thinning_forgets_no_divergence(funnel, whole):
    thin = ar.sample(funnel.model, funnel.args, funnel.kwargs, thin=8, **KEYWORDS)
    assert whole.sample_stats.diverging.sum() > thin.sample_stats.diverging.sum()
    every = efficiency(whole)
    kept = efficiency(thin)
    assert kept.divergences == every.divergences == int(whole.sample_stats.diverging.sum()) > 0
    assert kept.e_bfmi == every.e_bfmi


def test_a_centered_funnel_moves_slowly_between_energies_and_is_told_to_learn(whole):
    found = efficiency(whole)
    assert found.e_bfmi < 0.3
    said = " ".join(warnings_for(whole, found))
    assert "E-BFMI is" in said
    assert "try parameterization='auto'" in said


def test_the_log_density_and_squares_are_measured_too(whole):
    found = efficiency(whole)
    assert np.isfinite([found.ess_other, found.r_hat_other]).all()
    names = ["the log density", *(f"the square of {name}" for name in whole.attrs["latents"])]
    assert any(found.worst_ess_other.startswith(name) for name in names)
