"""What is drawn from the prior, and how: reference scales and ranges for starts."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import Distribution
from scipy.stats import norm

import autoreparam as ar
from autoreparam.mcmc.chains import chain_keys
from autoreparam.program.prior import MOST_LEVELS


def two_levels(scale_prior, size=3):
    scale = numpyro.sample("scale", scale_prior)
    mean = numpyro.sample("mean", dist.Normal(3.0, 2.0))
    numpyro.sample("theta", dist.StudentT(4.0, mean, scale).expand([size]).to_event(1))


@pytest.mark.parametrize(
    ("prior", "median"),
    [
        (dist.HalfCauchy(5.0), 5.0),
        (dist.LogNormal(1.0, 2.0), np.exp(1.0)),
        (dist.Exponential(0.5), 2 * np.log(2)),
        (dist.Uniform(0.0, 100.0), 50.0),
        (dist.HalfNormal(3.0), 3 * 0.67449),
    ],
    ids=["HalfCauchy", "LogNormal", "Exponential", "Uniform", "HalfNormal"],
)
def test_reference_scales_are_exact_medians_where_there_are_quantiles(prior, median):
    program = ar.inspect(two_levels, (prior,))
    np.testing.assert_allclose(program.reference_scales["theta"], median, rtol=1e-4)
    center, width = program.prior_ranges["mean"]
    np.testing.assert_allclose(center, 3.0, atol=1e-5)
    # The quantiles at 5% and 95% of 101 draws are the sixth from below and from above.
    np.testing.assert_allclose(width, 2 * norm.ppf(1 - 5.5 / 101), rtol=1e-4)


def test_where_there_are_none_the_median_is_that_of_draws():
    program = ar.inspect(two_levels, (dist.Gamma(2.0, 1.0),))
    np.testing.assert_allclose(program.reference_scales["theta"], 1.678, rtol=0.25)


def test_elements_are_drawn_apart_from_each_other():
    def model():
        own = numpyro.sample("own", dist.Normal(0.0, 1.0).expand([50]).to_event(1))
        numpyro.sample("x", dist.Normal(0.0, jnp.abs(own.sum())))

    # The median of the sum's size is 4.8 for independent ones, 34 for equal ones.
    assert 3.0 < ar.inspect(model).reference_scales["x"] < 7.0


def test_quantiles_that_a_users_family_inherits_are_not_its_own():
    class Hundredfold(dist.HalfNormal):
        def sample(self, key, sample_shape=()):
            return 100 * super().sample(key, sample_shape)

    program = ar.inspect(two_levels, (Hundredfold(1.0),))
    np.testing.assert_allclose(program.reference_scales["theta"], 67.4, rtol=0.25)


@pytest.mark.parametrize(("size", "sampled"), [(3, 0), (MOST_LEVELS + 1, 1)])
def test_what_nothing_depends_on_is_not_drawn(monkeypatch, size, sampled):
    """Nor are random numbers needed where there are quantiles, unless constants would be large."""
    drawn = []
    for family in (dist.StudentT, dist.Normal, dist.HalfCauchy):
        monkeypatch.setattr(family, "sample", _noting(family.sample, family.__name__, drawn))

    def model():
        many = numpyro.sample("many", dist.Normal(0.0, 1.0).expand([size]).to_event(1))
        two_levels(dist.HalfCauchy(jnp.exp(many[0])))

    program = ar.inspect(model)
    drawn.clear()
    assert program.reference_scales["theta"] > 0
    assert drawn == ["Normal"] * sampled


def _noting(sample, name, drawn):
    def noting(self: Distribution, *args, **kwargs):
        drawn.append(name)
        return sample(self, *args, **kwargs)

    return noting


def test_what_scales_depend_on_is_drawn_however_far_away():
    def model():
        far = numpyro.sample("far", dist.LogNormal(2.0, 1e-4))
        near = numpyro.sample("near", dist.LogNormal(jnp.log(far), 1e-4))
        numpyro.sample("x", dist.Normal(0.0, near).expand([3]).to_event(1))

    np.testing.assert_allclose(ar.inspect(model).reference_scales["x"], np.exp(2.0), rtol=1e-3)


def test_chains_have_keys_of_their_own():
    keys = chain_keys(7, 1000)
    assert len(np.unique(keys, axis=0)) == 1000
    np.testing.assert_array_equal(keys[:4], chain_keys(7, 4))
    assert not (keys == chain_keys(8, 1000)).all(axis=1).any()
