"""Every family times every law of a reparameterization."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from families_table import ALL_ROWS, COUPLED, ROWS
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro.distributions import transforms
from numpyro.handlers import seed, trace
from numpyro.infer.util import log_density, potential_energy

import autoreparam as ar
from autoreparam.program.families import registered, standardize, unwrap
from autoreparam.program.target import Target

rows = pytest.mark.parametrize("row", ALL_ROWS, ids=lambda row: row.name)
hand_rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def parents():
    m = numpyro.sample("m", dist.Normal(0.3, 1.0))
    t = numpyro.sample("t", dist.LogNormal(-0.2, 0.5))
    return m, t


def centered_model(row):
    def model(scale=0.8, size=3):
        m, t = parents()
        with numpyro.plate("group", size):
            x = numpyro.sample("x", row.centered(m, t))
            numpyro.sample("y", dist.Normal(jnp.tanh(x), scale), obs=jnp.linspace(-1, 1, size))
        numpyro.deterministic("sum", x.sum())

    return model


def noncentered_model(row):
    def model(scale=0.8, size=3):
        m, t = parents()
        with numpyro.plate("group", size):
            w = numpyro.sample("w", row.noise(m, t))
            x = row.value(m, t, w)
            numpyro.sample("y", dist.Normal(jnp.tanh(x), scale), obs=jnp.linspace(-1, 1, size))

    return model


def prior_values(model, key, *args, **kwargs):
    sites = trace(seed(model, key)).get_trace(*args, **kwargs).values()
    return {s["name"]: s["value"] for s in sites if s["type"] == "sample" and not s["is_observed"]}


def random_lam(program, key, untied):
    lam = ar.Parameterization.constant(program, 0.5)
    draw = {n: jax.random.uniform(jax.random.fold_in(key, i), lam[n].shape)
            for i, n in enumerate(lam.sites)}  # fmt: skip
    other = {n: jnp.flip(v) ** 2 for n, v in draw.items()} if untied else None
    return lam.replace(draw, scale=other, tail={n: 1 - draw[n] ** 2 for n in lam.tail})


@cache
def place(row, untied=False):
    """A target of the row's model, a random λ and a position drawn from the prior."""
    model = centered_model(row)
    program = ar.inspect(model)
    target = Target(program)
    lam = random_lam(program, jax.random.key(0), untied)
    values = prior_values(model, jax.random.key(100))
    return model, target, lam, target.from_sites(values, lam), values


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


@rows
def test_inspect_finds_the_family_the_row_names(row):
    site = ar.inspect(centered_model(row))["x"]
    assert site.distribution == row.family.__name__
    assert site.candidate
    assert site.loc_parents + site.scale_parents
    assert {*site.loc_parents, *site.scale_parents} <= {"m", "t"}


def test_the_table_has_a_row_for_every_registered_family():
    assert {row.family for row in [*ALL_ROWS, *COUPLED]} >= set(registered())


@rows
def test_values_survive_the_round_trip(row):
    _, target, lam, position, values = place(row, untied=True)
    found = target.to_sites(position, lam)
    for name, value in values.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(target.from_sites(found, lam), position, rtol=1e-8, atol=1e-10)


@rows
def test_log_determinant_equals_autodiff(row):
    _, target, lam, position, _ = place(row, untied=True)

    def values(position):
        found = target.to_sites(position, lam)
        return jnp.concatenate([jnp.ravel(found[site.name]) for site in target.program.latents])

    expected = jnp.linalg.slogdet(jax.jacobian(values)(position))[1]
    np.testing.assert_allclose(target.log_determinant(position, lam), expected, rtol=1e-8)


@rows
@pytest.mark.parametrize("untied", [False, True], ids=["tied", "untied"])
def test_density_minus_log_determinant_is_the_models_own_log_joint(row, untied):
    model, target, lam, position, values = place(row, untied)
    own = log_density(model, (), {}, values)[0]
    identity = target.logdensity(position, lam) - target.log_determinant(position, lam)
    np.testing.assert_allclose(identity, own, rtol=1e-8)
    np.testing.assert_allclose(target.log_joint(values), own, rtol=1e-12)


@rows
def test_lam_one_is_the_model_as_written(row):
    model, target, _, _, values = place(row)
    lam = ar.Parameterization.centered(target.program)
    position = target.from_sites(values, lam)
    if row.same_coordinates:
        free = numpyro.infer.util.unconstrain_fn(model, (), {}, values)
        own = -potential_energy(model, (), {}, free)
        np.testing.assert_allclose(position, target.flatten(free), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(target.logdensity(position, lam), own, rtol=1e-9)
    else:  # the same density, in coordinates that differ by a constant
        own = log_density(model, (), {}, values)[0]
        gap = target.logdensity(position, lam) - target.log_determinant(position, lam) - own
        np.testing.assert_allclose(gap, 0, atol=1e-9)


@hand_rows
def test_lam_zero_is_the_hand_written_noncentered_model(row):
    hand, model = noncentered_model(row), centered_model(row)
    target = Target(ar.inspect(model))
    lam = ar.Parameterization.noncentered(target.program, s0=1.0)
    gaps = []
    for number in range(3):
        values = prior_values(hand, jax.random.key(number))
        free = numpyro.infer.util.unconstrain_fn(hand, (), {}, values)
        position = target.flatten({"m": free["m"], "t": free["t"], "x": free["w"]})
        x = row.value(values["m"], values["t"], values["w"])
        np.testing.assert_allclose(target.to_sites(position, lam)["x"], x, rtol=1e-8)
        own = -potential_energy(hand, (), {}, free)
        gaps.append(target.logdensity(position, lam) - own)
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-8)


@rows
def test_jit_and_vmap_change_nothing(row):
    _, target, lam, position, _ = place(row)
    positions = position + 0.1 * jnp.arange(4)[:, None]
    single = jnp.stack([target.logdensity(p, lam) for p in positions])
    batched = jax.jit(jax.vmap(Target.logdensity, (None, 0, None)))(target, positions, lam)
    np.testing.assert_allclose(batched, single, rtol=1e-10)


@rows
def test_changing_lam_or_data_does_not_retrace(row):
    model, count = centered_model(row), []

    @jax.jit
    def density(target, position, lam):
        count.append(1)
        return target.logdensity(position, lam)

    for scale, number in [(0.8, 0), (0.8, 1), (1.7, 2)]:
        target = Target(ar.inspect(model, (scale,)))
        lam = random_lam(target.program, jax.random.key(number), untied=number == 1)
        values = prior_values(model, jax.random.key(number))
        position = target.from_sites(values, lam)
        own = log_density(model, (scale,), {}, values)[0]
        found = density(target, position, lam) - target.log_determinant(position, lam)
        np.testing.assert_allclose(found, own, rtol=1e-8)
    assert len(count) == 1


@rows
def test_a_carried_score_is_the_gradient_in_the_new_coordinates(row):
    _, target, lam, position, _ = place(row, untied=True)
    new = random_lam(target.program, jax.random.key(9), untied=False)
    density, score = jax.value_and_grad(target.logdensity)(position, lam)
    moved, carried, gain = target.carry(position, score, lam, new)
    expected_density, expected = jax.value_and_grad(target.logdensity)(moved, new)
    np.testing.assert_allclose(carried, expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(density + gain, expected_density, rtol=1e-9)
    np.testing.assert_allclose(
        target.to_sites(moved, new)["x"], target.to_sites(position, lam)["x"], rtol=1e-9
    )


@rows
def test_the_rewritten_numpyro_model_has_the_same_density(row):
    model, target, lam, position, values = place(row, untied=True)
    rewritten = ar.reparameterize(model, lam)
    working = target.unflatten(position)
    given = {"m": values["m"], "t": values["t"], "x_working": working["x"]}
    found, sites = log_density(rewritten, (), {}, given)
    jacobian = jnp.log(values["t"])  # `t` is sampled as itself there, on the log scale here
    np.testing.assert_allclose(found + jacobian, target.logdensity(position, lam), rtol=1e-9)
    np.testing.assert_allclose(sites["x"]["value"], values["x"], rtol=1e-9)
    assert sites["x"]["type"] == "deterministic"


@rows
def test_single_precision_agrees_with_double(row):
    _, target, lam, position, _ = place(row)
    expected = float(target.logdensity(position, lam))
    with jax.enable_x64(False):
        target = Target(ar.inspect(centered_model(row)))
        lam = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), lam)
        found = target.logdensity(jnp.asarray(np.asarray(position), jnp.float32), lam)
        assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_draws_from_the_working_distribution_are_draws_from_the_prior(row):
    def model():
        numpyro.sample("x", row.centered(0.4, 1.3))

    lam = ar.Parameterization.constant(ar.inspect(model, sites="all"), 0.6, tail=0.8)
    moved = ar.reparameterize(model, lam)
    draw = jax.jit(jax.vmap(lambda key: trace(seed(moved, key)).get_trace()["x"]["value"]))
    found = np.asarray(draw(jax.random.split(jax.random.key(1), 4000)))
    expected = np.asarray(row.centered(0.4, 1.3).sample(jax.random.key(2), (4000,)))
    quantiles = [0.1, 0.3, 0.5, 0.7, 0.9]
    at = np.quantile(expected, quantiles)
    ranks = (found[:, None] < at).mean(0)
    np.testing.assert_allclose(ranks, quantiles, atol=0.04)


SHAPES = st.sampled_from([(), (1,), (4,), (2, 3), (3, 1)])


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    plates=SHAPES,
    event=st.sampled_from([(), (2,), (2, 2)]),
    scalar_scale=st.booleans(),
    first_dim=st.sampled_from([-1, -2]),
    lam_seed=st.integers(0, 1000),
    untied=st.booleans(),
    masked=st.booleans(),
    scale=st.sampled_from([None, 0.3]),
)
def test_laws_hold_for_any_shape_plate_mask_scale_and_lam(
    plates, event, scalar_scale, first_dim, lam_seed, untied, masked, scale
):
    size = plates + event

    def model():
        m = numpyro.sample("m", dist.Normal(0.0, 1.0).expand(event).to_event(len(event)))
        t = numpyro.sample("t", dist.LogNormal(0.0, 0.5))
        fn = dist.StudentT(4.0, m, t if scalar_scale else t * jnp.ones(event))
        fn = fn.expand(event).to_event(len(event))
        with numpyro.handlers.scale(scale=scale or 1.0):
            dims = range(first_dim, first_dim - len(plates), -1)
            frames = [numpyro.plate(f"p{i}", n, dim=d) for i, (n, d) in
                      enumerate(zip(reversed(plates), dims))]  # fmt: skip
            for frame in frames:
                frame.__enter__()
            if masked:
                fn = fn.mask(jnp.arange(plates[-1] if plates else 1)[-1:].sum() > 0)
            x = numpyro.sample("x", fn)
            for frame in reversed(frames):
                frame.__exit__(None, None, None)
        numpyro.factor("likelihood", -0.5 * jnp.sum((x - 1) ** 2))

    program = ar.inspect(model)
    target = Target(program)
    lam = random_lam(program, jax.random.key(lam_seed), untied)
    assert np.prod(program["x"].shape) == np.prod(size)
    assert lam["x"].shape == program["x"].shape
    values = prior_values(model, jax.random.key(lam_seed + 1))
    position = target.from_sites(values, lam)
    found = target.to_sites(position, lam)
    np.testing.assert_allclose(found["x"], values["x"], rtol=1e-9, atol=1e-12)
    own = log_density(model, (), {}, values)[0]
    identity = target.logdensity(position, lam) - target.log_determinant(position, lam)
    np.testing.assert_allclose(identity, own, rtol=1e-8, atol=1e-9)
    rewritten = ar.reparameterize(model, lam)
    given = {"m": values["m"], "t": values["t"], "x_working": target.unflatten(position)["x"]}
    total = log_density(rewritten, (), {}, given)[0] + jnp.log(values["t"])
    np.testing.assert_allclose(total, target.logdensity(position, lam), rtol=1e-8, atol=1e-9)
