"""Every family times the traits that its rule claims."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from families_table import ALL_ROWS
from numpyro.distributions import transforms

from autoreparam.program.families import standardize, unwrap

rows = pytest.mark.parametrize("row", ALL_ROWS, ids=lambda row: row.name)


@rows
def test_a_rule_on_the_whole_line_is_symmetric_just_where_its_noise_is(row):
    rule = standardize(row.centered(0.7, 1.3))
    e = jnp.array([0.1, 0.6, 1.7])
    same = np.allclose(rule.noise.log_prob(e), rule.noise.log_prob(-e), rtol=1e-5)
    plain = isinstance(rule.transform, transforms.IdentityTransform)
    assert rule.symmetric == same or (same and not plain)


@rows
def test_a_rule_that_names_shape_parameters_is_of_a_family_made_from_them_loc_and_scale(row):
    family = unwrap(row.centered(0.7, 1.3))[0]
    rule = standardize(family)
    plain = isinstance(rule.transform, transforms.IdentityTransform)
    if rule.shape_parameters is None:
        assert not plain or isinstance(family, dist.TransformedDistribution)
        return
    shapes = {name: getattr(family, name) for name in rule.shape_parameters}
    moved = type(family)(loc=0.5, scale=2.0, **shapes)
    e = jnp.array([-1.7, 0.1, 0.6])
    expected = rule.noise.log_prob(e) - jnp.log(2.0)
    np.testing.assert_allclose(moved.log_prob(0.5 + 2 * e), expected, rtol=1e-5)
