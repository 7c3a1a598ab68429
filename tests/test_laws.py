"""Every family times every law of a reparameterization."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from families_table import ALL_ROWS, COUPLED, ROWS
from gains import rows_by_gain
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro.handlers import seed, trace
from numpyro.infer.util import log_density, potential_energy
from scipy import stats

import autoreparam as ar
from autoreparam.program.families import registered
from autoreparam.program.maps.gain import GAINS
from autoreparam.program.target import Target

# The same map as other rows, from other parameters.
ALIKE = ("gamma", "student_t_latent_df", "asymmetric_laplace_quantile", "affine_normal",
         "left_truncated_logistic", "right_truncated_moving", "folded_moving")  # fmt: skip
# One for each way in which rules differ: heavy tails, a transform, a width, an edge that moves.
PAPERS = ("student_t", "log_normal", "gamma_latent_shape", "left_truncated_moving")
rows = rows_by_gain("row", ALL_ROWS, alike=ALIKE, papers=PAPERS)
hand_rows = rows_by_gain("row", ROWS, alike=ALIKE, papers=PAPERS)


def parents():
    m = numpyro.sample("m", dist.Normal(0.3, 1.0))
    t = numpyro.sample("t", dist.LogNormal(-0.2, 0.5))
    return m, t


@cache  # a program is compiled for its model
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


def random_lam(program, seed, untied, gain):
    lam = ar.Parameterization.constant(program, 0.5, gain=gain)
    random = np.random.default_rng(seed)
    draw = {n: random.uniform(size=lam[n].shape) for n in lam.sites}
    other = {n: np.flip(v) ** 2 for n, v in draw.items()} if untied else None
    return lam.replace(draw, scale=other, tail={n: 1 - draw[n] ** 2 for n in lam.tail})


SCALES = (0.8, 1.7)  # two data sets
TIED, UNTIED, CENTERED = range(3)  # cases of `facts`; those after them are non-centered
DRAWS = 3


def measure(row, target, scale, lam, new, values):
    """All that the laws compare, at `values` of the sites, in the coordinates of `lam`."""
    model = centered_model(row)
    both = jax.tree.map(lambda *parts: jnp.stack(parts), lam, new)
    # One compiled gradient for two places: at `lam`, and carried to `new`.
    position, elsewhere = places = jax.lax.map(lambda lam: target.from_sites(values, lam), both)
    (density, there), (score, there_score) = jax.lax.map(
        lambda place: jax.value_and_grad(target.logdensity)(*place), (places, both)
    )

    def flat(position):
        found = target.to_sites(position, lam)
        latents = [jnp.ravel(found[site.name]) for site in target.program.latents]
        return jnp.concatenate(latents), found

    jacobian, found = jax.jacfwd(flat, has_aux=True)(position)
    moved, carried, gain = target.carry(position, score, lam, new)
    working = {"m": values["m"], "t": values["t"], "x_working": target.unflatten(position)["x"]}
    rewritten, sites = log_density(ar.reparameterize(model, lam), (scale,), {}, working)
    assert sites["x"]["type"] == "deterministic"
    free = numpyro.infer.util.unconstrain_fn(model, (scale,), {}, values)

    def inside(shift):
        far = target.to_sites(position + shift, lam)
        return row.centered(far["m"], far["t"]).support(far["x"]).all()

    return {
        "inside": jax.vmap(inside)(jnp.array([-1.0, 1.0])),
        "position": position,
        "working": target.unflatten(position)["x"],
        "values": {name: found[name] for name in values},
        "back": target.from_sites(found, lam),
        "density": density,
        "log_determinant": target.log_determinant(position, lam),
        "autodiff": jnp.linalg.slogdet(jacobian)[1],
        "log_joint": target.log_joint(values),
        "own": log_density(model, (scale,), {}, values)[0],
        "free": target.flatten(free),
        "own_free": -potential_energy(model, (scale,), {}, free),
        "carried": (density + gain, carried, target.to_sites(moved, new)["x"]),
        "moved": (moved, elsewhere),
        "there": (there, there_score, found["x"]),
        # `t` is sampled as itself there, on the log scale here.
        "rewritten": (rewritten + jnp.log(values["t"]), sites["x"]["value"]),
    }


def by_hand(row, key):
    """Values of the sites, the noise behind `x`, and the density by the hand-written model.

    Operation by operation: what draws random numbers is then compiled once for all families.
    """
    hand = noncentered_model(row)
    values = prior_values(hand, key)
    free = numpyro.infer.util.unconstrain_fn(hand, (), {}, values)
    x = row.value(values["m"], values["t"], values["w"])
    own = -potential_energy(hand, (), {}, free)
    return {"m": values["m"], "t": values["t"], "x": x}, free["w"], own


class Facts(NamedTuple):  # what one compiled program found, case by case
    target: Target
    lams: list
    values: dict
    found: list
    hand: list
    traces: int

    def case(self, number, data=0):
        return self.found[data][number]


@cache
def facts(row, gain):
    """Every case with both data sets: λ random, tied or not; centered; non-centered at unit scale.

    The non-centered ones are at values drawn by the hand-written model, where there is one.
    """
    targets = [Target(ar.inspect(centered_model(row), (scale,))) for scale in SCALES]
    program, traces = targets[0].program, []

    @jax.jit
    def run(target, scale, *case):
        traces.append(1)
        return measure(row, target, scale, *case)

    key = jax.random.key(100)
    values = prior_values(centered_model(row), key)
    hand = [by_hand(row, each) for each in jax.random.split(key, DRAWS)] if row.noise else []
    lams = [random_lam(program, 0, untied, gain) for untied in (False, True)]
    lams += [ar.Parameterization.constant(program, 1.0, gain=gain)]
    lams += [ar.Parameterization.constant(program, 0.0, s0=1.0, gain=gain)] * DRAWS
    new = random_lam(program, 9, untied=False, gain=gain)
    places = [values] * 3 + ([drawn for drawn, *_ in hand] or [values] * DRAWS)
    found = [[jax.device_get(run(target, scale, lam, new, place))
              for lam, place in zip(lams, places)]
             for target, scale in zip(targets, SCALES)]  # fmt: skip
    return Facts(targets[0], lams, values, found, hand, len(traces))


@rows
def test_inspect_finds_the_family_the_row_names(row, gain):
    site = facts(row, gain).target.program["x"]
    assert site.distribution == row.family.__name__
    assert site.candidate
    assert site.loc_parents + site.scale_parents
    assert {*site.loc_parents, *site.scale_parents} <= {"m", "t"}


def test_the_table_has_a_row_for_every_registered_family():
    own = {family for family in registered() if family.__module__.startswith("numpyro.")}
    assert {row.family for row in [*ALL_ROWS, *COUPLED]} >= own


@rows
def test_values_survive_the_round_trip(row, gain):
    found = facts(row, gain).case(UNTIED)
    for name, value in facts(row, gain).values.items():
        np.testing.assert_allclose(found["values"][name], value, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["back"], found["position"], rtol=1e-8, atol=1e-10)


@rows
def test_every_working_position_is_a_value_in_the_support(row, gain):
    for found in facts(row, gain).found[0]:
        assert found["inside"].all()


@rows
def test_log_determinant_equals_autodiff(row, gain):
    found = facts(row, gain).case(UNTIED)
    np.testing.assert_allclose(found["log_determinant"], found["autodiff"], rtol=1e-8)


@rows
@pytest.mark.parametrize("case", [TIED, UNTIED], ids=["tied", "untied"])
def test_density_minus_log_determinant_is_the_models_own_log_joint(row, gain, case):
    for data in range(len(SCALES)):
        found = facts(row, gain).case(case, data)
        identity = found["density"] - found["log_determinant"]
        np.testing.assert_allclose(identity, found["own"], rtol=1e-8)
        np.testing.assert_allclose(found["log_joint"], found["own"], rtol=1e-12)


@rows
def test_lam_one_is_the_model_as_written(row, gain):
    found = facts(row, gain).case(CENTERED)
    if row.same_coordinates:
        np.testing.assert_allclose(found["position"], found["free"], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found["density"], found["own_free"], rtol=1e-9)
    else:  # the same density, in coordinates that differ by a constant
        gap = found["density"] - found["log_determinant"] - found["own"]
        np.testing.assert_allclose(gap, 0, atol=1e-9)


@hand_rows
def test_lam_zero_is_the_hand_written_noncentered_model(row, gain):
    gaps = []
    for number, (values, noise, own) in enumerate(facts(row, gain).hand):
        found = facts(row, gain).case(CENTERED + 1 + number)
        np.testing.assert_allclose(found["working"], noise, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(found["values"]["x"], values["x"], rtol=1e-8)
        gaps.append(found["density"] - own)
    assert len(gaps) == DRAWS
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-8)


@rows
def test_jit_and_vmap_change_nothing(row, gain):
    target, lam = facts(row, gain).target, facts(row, gain).lams[TIED]
    positions = np.stack([facts(row, gain).case(case)["position"] for case in (TIED, UNTIED)])
    batched = jax.jit(jax.vmap(Target.logdensity, (None, 0, None)))(target, positions, lam)
    single = [target.logdensity(position, lam) for position in positions]
    np.testing.assert_allclose(batched, single, rtol=1e-10)
    np.testing.assert_allclose(batched[0], facts(row, gain).case(TIED)["density"], rtol=1e-10)


@rows
def test_changing_lam_or_data_does_not_retrace(row, gain):
    first, second = (facts(row, gain).case(TIED, data)["density"] for data in range(len(SCALES)))
    assert first != second
    assert facts(row, gain).traces == 1


@rows
def test_a_carried_score_is_the_gradient_in_the_new_coordinates(row, gain):
    found = facts(row, gain).case(UNTIED)
    density, score, x = found["carried"]
    expected_density, expected, same_x = found["there"]
    np.testing.assert_allclose(*found["moved"], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(score, expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(density, expected_density, rtol=1e-9)
    np.testing.assert_allclose(x, same_x, rtol=1e-9)


@rows
def test_the_rewritten_numpyro_model_has_the_same_density(row, gain):
    found = facts(row, gain).case(UNTIED)
    density, x = found["rewritten"]
    np.testing.assert_allclose(density, found["density"], rtol=1e-9)
    np.testing.assert_allclose(x, facts(row, gain).values["x"], rtol=1e-9)


@rows
def test_single_precision_agrees_with_double(row, gain):
    found, lam = facts(row, gain).case(TIED), facts(row, gain).lams[TIED]
    with jax.enable_x64(False):
        target = Target(ar.inspect(centered_model(row)))
        lam = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), lam)
        density = jax.jit(Target.logdensity)(target, np.asarray(found["position"], "f"), lam)
        assert density.dtype == jnp.float32
    np.testing.assert_allclose(density, found["density"], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@hand_rows
def test_draws_from_the_working_distribution_are_draws_from_the_prior(row, gain):
    def model():
        numpyro.sample("x", row.centered(0.4, 1.3))

    program = ar.inspect(model, sites="all")
    lam = ar.Parameterization.constant(program, 0.6, tail=0.8, gain=gain)
    moved = ar.reparameterize(model, lam)

    @jax.jit
    @jax.vmap
    def draw(key):
        one, other = jax.random.split(key)
        found = trace(seed(moved, one)).get_trace()["x"]["value"]
        return found, row.centered(0.4, 1.3).sample(other)

    found, expected = draw(jax.random.split(jax.random.key(1), 4000))
    assert stats.ks_2samp(found, expected).pvalue > 1e-4


SHAPES = st.sampled_from([(), (1,), (4,), (2, 3), (3, 1)])


@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    plates=SHAPES,
    event=st.sampled_from([(), (2,), (2, 2)]),
    scalar_scale=st.booleans(),
    first_dim=st.sampled_from([-1, -2]),
    lam_seed=st.integers(0, 1000),
    gain=st.sampled_from(GAINS),
    untied=st.booleans(),
    masked=st.booleans(),
    scale=st.sampled_from([None, 0.3]),
)
def test_laws_hold_for_any_shape_plate_mask_scale_and_lam(
    plates, event, scalar_scale, first_dim, lam_seed, gain, untied, masked, scale
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
    lam = random_lam(program, lam_seed, untied, gain)
    assert np.prod(program["x"].shape) == np.prod(size)
    assert lam["x"].shape == program["x"].shape
    rewritten = ar.reparameterize(model, lam)

    @jax.jit
    def measure(key):
        values = prior_values(model, key)
        position = target.from_sites(values, lam)
        working = {**values, "x_working": target.unflatten(position)["x"]}
        del working["x"]
        return (
            (values["x"], target.to_sites(position, lam)["x"]),
            (log_density(model, (), {}, values)[0],
             target.logdensity(position, lam) - target.log_determinant(position, lam)),
            (log_density(rewritten, (), {}, working)[0] + jnp.log(values["t"]),
             target.logdensity(position, lam)),
        )  # fmt: skip

    for expected, found in measure(jax.random.key(lam_seed + 1)):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)
