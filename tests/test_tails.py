"""Heavy tails: a coordinate in which they are light, exact far out, and learned with λ."""

import json
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer.util import log_density
from scipy import stats

import autoreparam as ar
from autoreparam.errors import ParameterizationError
from autoreparam.learn.objective import Draws, cost
from autoreparam.learn.score import fit_score
from autoreparam.program.families import standardize
from autoreparam.program.maps.tails import LogGamma, Student
from autoreparam.program.target import Target

FAR = [0.0, 1e-9, 1e-3, 0.3, 0.33, 1.0, -7.0, 1e4, -1e8, 2e9, 1e18]
WEIGHTS = [0.0, 1e-17, 1e-5, 0.1, 1.0]
precisions = pytest.mark.parametrize("x64", [True, False], ids=["float64", "float32"])


def effects(y=None):
    """Student-t effects of four groups, two of them with data that say nothing."""
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    t = numpyro.sample("t", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("groups", 4):
        x = numpyro.sample("x", dist.Cauchy(m, t))
        numpyro.sample("y", dist.Normal(x, jnp.array([0.1, 0.1, 1e6, 1e6])), obs=y)


Y = np.array([1.0, -2.0, 0.0, 0.0])


@pytest.fixture
def program():
    return ar.inspect(effects, (Y,))


# -- the map ----------------------------------------------------------------------------------


@cache
def facts(x64):
    """What the laws compare, at every weight (rows) and noise (columns)."""

    def measure(noise, q):
        tails = Student(1.0)
        light = tails.lighten(noise, q)
        up = jax.grad(tails.restore)(light, q)
        slopes = [jax.grad(f, (0, 1))(noise, q) for f in (tails.lighten, tails.log_slope)]
        return {
            "back": tails.restore(light, q),
            "log_slope": tails.log_slope(noise, q),
            "autodiff": (jnp.log(slopes[0][0]), -jnp.log(up)),
            "slopes": slopes,
        }

    with jax.enable_x64(x64):
        grid = jax.jit(jax.vmap(jax.vmap(measure, (0, None)), (None, 0)))
        return jax.device_get(grid(jnp.array(FAR), jnp.array(WEIGHTS)))


@precisions
def test_noise_survives_the_round_trip_far_out(x64):
    back = facts(x64)["back"]
    np.testing.assert_allclose(
        back, np.tile(FAR, (len(WEIGHTS), 1)), rtol=1e-11 if x64 else 2e-4, atol=1e-20
    )
    np.testing.assert_array_equal(back[0], np.asarray(FAR, back.dtype))


@precisions
def test_the_slope_is_autodiffs_far_out(x64):
    for autodiff in facts(x64)["autodiff"]:
        np.testing.assert_allclose(facts(x64)["log_slope"], autodiff, atol=1e-10 if x64 else 2e-4)


@precisions
def test_gradients_are_finite_at_a_hundred_million_scales(x64):
    near = np.abs(FAR) < 1e9
    assert all(np.isfinite(slope[:, near]).all() for slope in jax.tree.leaves(facts(x64)["slopes"]))


def variance_inflation(grid, log_density):
    """Variance times the variance of the score, 1 for a Normal; the density must have mass 1."""
    density = np.exp(log_density) * (grid[1] - grid[0])
    assert density.sum() == pytest.approx(1, abs=1e-6)
    score = np.gradient(log_density, grid)
    return (density @ (grid - density @ grid) ** 2) * (density @ score**2)


@pytest.mark.parametrize("df", [1.0, 2.0, 4.0, 30.0])
def test_a_student_t_becomes_nearly_normal(df):
    light = np.linspace(-9.0, 9.0, 20001)
    tails = Student(1 / df)
    noise = np.asarray(tails.restore(light, 1.0))
    log_density = stats.t.logpdf(noise, df) - np.asarray(tails.log_slope(noise, 1.0))
    assert 1 <= variance_inflation(light, log_density) < 1.03


SHAPES = [0.02, 0.25, 0.5, 3.0, 50.0]
SHARES = [0.0, 1e-3, 0.1, 0.5, 1.0]


@cache
def log_gamma(x64):
    """The same for the logarithm of a Gamma variable: shares, shapes, and noise as columns."""

    def measure(noise, shape, share):
        def light(noise, shape, share):
            return LogGamma(shape).lighten(noise, share)

        def log_slope(noise, shape, share):
            return LogGamma(shape).log_slope(noise, share)

        there = light(noise, shape, share)
        return {
            "back": LogGamma(shape).restore(there, share),
            "log_slope": (log_slope(noise, shape, share),
                          LogGamma(shape).log_slope(noise, share, there)),
            "autodiff": jnp.log(jax.grad(light)(noise, shape, share)),
            "up": jnp.log(jax.grad(LogGamma(shape).restore)(there, share)),
            "slopes": [jax.grad(f, (0, 1, 2))(noise, shape, share) for f in (light, log_slope)],
            "bumped": (light(noise, shape * 1.001, share) - light(noise, shape * 0.999, share))
            / (0.002 * shape),
        }  # fmt: skip

    with jax.enable_x64(x64):
        for axes in ((0, None, None), (None, 0, None), (None, None, 0)):
            measure = jax.vmap(measure, axes)
        return jax.device_get(jax.jit(measure)(*map(jnp.array, (LEFT, SHAPES, SHARES))))


LEFT = [-1e4, -300.0, -20.0, -1.0, -1e-3, 0.0, 0.5, 3.0, 20.0]


@precisions
def test_log_gamma_noise_survives_the_round_trip_far_out(x64):
    back = log_gamma(x64)["back"]
    wanted = np.broadcast_to(LEFT, back.shape)
    np.testing.assert_allclose(back, wanted, rtol=1e-11 if x64 else 1e-4, atol=1e-4)
    np.testing.assert_allclose(back[0], wanted[0], rtol=1e-6)


@precisions
def test_the_slope_of_log_gamma_tails_is_autodiffs(x64):
    facts = log_gamma(x64)
    for slope in facts["log_slope"]:
        np.testing.assert_allclose(slope, facts["autodiff"], atol=1e-9 if x64 else 2e-3)
        np.testing.assert_allclose(slope, -facts["up"], atol=1e-9 if x64 else 2e-3)
    assert all(np.isfinite(slope).all() for slope in jax.tree.leaves(facts["slopes"]))
    if x64:
        by_shape = facts["slopes"][0][1]
        np.testing.assert_allclose(by_shape, facts["bumped"], rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "most"),
    [(0.25, 1.25), (0.5, 1.01), (1.0, 1.02), (5.0, 1.02), (50.0, 1.02)],
)
def test_the_log_of_a_gamma_becomes_nearly_normal(shape, most):
    light = np.linspace(-9.0, 9.0, 20001)
    rule = standardize(dist.Gamma(shape, 1.0))
    noise = rule.tails.restore(light, 1.0)
    log_density = np.asarray(rule.noise.log_prob(noise) - rule.tails.log_slope(noise, 1.0, light))
    assert 1 <= variance_inflation(light, log_density) < most


@precisions
def test_the_density_of_a_site_is_finite_at_a_hundred_million_scales(x64):
    with jax.enable_x64(x64):
        target = Target(ar.inspect(effects, (Y,)))
        lam = ar.Parameterization.constant(target.program, 0.3, tail=1.0)
        values = {"m": 0.0, "t": 1.0, "x": jnp.array([1e8, -1e8, 1e8, 0.0])}

        @jax.jit
        def measure(values):
            position = target.from_sites(values, lam)
            density = jax.value_and_grad(target.logdensity)(position, lam)
            return density, target.to_sites(position, lam)["x"]

        density, back = measure(values)
    assert all(np.isfinite(part).all() for part in density)
    np.testing.assert_allclose(back, values["x"], rtol=1e-10 if x64 else 2e-4)


# -- the site ---------------------------------------------------------------------------------


def test_light_tails_at_lam_zero_are_the_hand_written_model(program):
    target = Target(program)
    lam = ar.Parameterization.constant(program, 0.0, s0=1.0, tail=1.0)

    def by_hand():
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        t = numpyro.sample("t", dist.LogNormal(0.0, 0.5))
        flat = dist.ImproperUniform(dist.constraints.real, (4,), ())
        v = numpyro.sample("v", flat)
        e = jnp.sign(v) * jnp.sqrt(jnp.expm1(v**2))
        numpyro.factor("noise", dist.Cauchy(0, 1).log_prob(e) + jnp.log(v * jnp.exp(v**2) / e))
        numpyro.sample("y", dist.Normal(m + t * e, jnp.array([0.1, 0.1, 1e6, 1e6])), obs=Y)

    v = jnp.array([0.4, -1.3, 2.5, -0.2])
    position = target.flatten({"m": jnp.array(0.2), "t": jnp.log(0.7), "x": v})
    own = log_density(by_hand, (), {}, {"m": 0.2, "t": 0.7, "v": v})[0] + jnp.log(0.7)
    np.testing.assert_allclose(jax.jit(target.logdensity)(position, lam), own, rtol=1e-10)


def test_inspect_says_which_sites_have_heavy_tails(program):
    assert program["x"].heavy
    assert program["x"].note.endswith("heavy tails")
    assert not program["m"].heavy


# -- learning ---------------------------------------------------------------------------------


@cache
def prior_draws():
    """Draws of a model without data, and their scores, in the coordinates of a parameterization."""

    def prior():
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        t = numpyro.sample("t", dist.LogNormal(0.0, 0.5))
        with numpyro.plate("groups", 3):
            numpyro.sample("x", dist.Cauchy(m, t))

    target = Target(ar.inspect(prior))
    start = ar.Parameterization.constant(target.program, 0.5, tail=0.5)
    random = np.random.default_rng(0)
    m, t = random.normal(size=400), np.exp(0.5 * random.normal(size=400))
    x = m[:, None] + t[:, None] * random.standard_cauchy((400, 3))

    @jax.jit
    @jax.vmap
    def draw(values):
        position = target.from_sites(values, start)
        value, score = jax.value_and_grad(target.logdensity)(position, start)
        return position, score, value

    return target, *map(np.asarray, draw({"m": m, "t": t, "x": x})), start


def test_the_objective_asks_for_light_tails_where_the_posterior_has_heavy_ones():
    target, *found, start = prior_draws()
    draws = Draws(*found, np.ones(400))
    sizes = [
        cost(draws.moved(target, start, start.replace({"x": 0}, tail=tail))).inflations
        for tail in ({"x": 1.0}, {"x": 0.0})
    ]
    assert np.max(sizes[0]) < 0.1
    assert np.min(sizes[1][2:]) > 0.5


@pytest.mark.slow
def test_tails_are_learned_with_lam():
    fit = fit_score(*prior_draws())
    assert fit.chosen == "fitted"
    assert fit.parameterization.tail["x"].min() > 0.5
    assert fit.objectives["fitted"] < fit.objectives["tailless"] - 1
    assert set(fit.report()["tail"]) == {"x"}


@pytest.mark.slow
def test_the_default_lightens_tails_and_finds_the_same_posterior(tmp_path):
    tree = ar.sample(effects, (Y,), draws=2000, progress=False)
    lam = ar.parameterization(tree)
    # 0.48 with a standard deviation of 0.08 for each of the unknown elements, over 12 runs; the
    # known ones have 0.01 to 0.05.
    assert lam.tail["x"][2:].mean() > 0.48 - 3 * 0.08 / np.sqrt(2)
    assert lam.tail["x"][:2].max() < 0.1
    assert lam["x"][:2].min() > 0.8  # 0.85 to 0.92 over seeds
    plain = ar.Parameterization.noncentered(ar.inspect(effects, (Y,)))
    # NUTS: with heavy tails, shorter trajectories of one length may stay in one for long.
    other = ar.sample(effects, (Y,), draws=8000, parameterization=plain, kernel="nuts",
                      target_accept=0.9, progress=False)  # fmt: skip
    for name in ("m", "t", "x"):
        found, expected = tree["posterior"][name].values, other["posterior"][name].values
        for level in (0.1, 0.5, 0.9):
            at = np.quantile(expected, level, axis=(0, 1))
            both = [(draws < at).astype(float) for draws in (found, expected)]
            error = np.sqrt(sum(b.var((0, 1)) / effective_sample_size(b) for b in both))
            assert np.all(error < 0.02)  # a wrong sampler would be seen
            np.testing.assert_array_less(
                np.abs(both[0].mean((0, 1)) - both[1].mean((0, 1))), 4.5 * error
            )
    assert "tail " in ar.report(tree, tmp_path / "page.html").read_text()


# -- the value --------------------------------------------------------------------------------


def test_tails_are_set_by_hand_and_left_alone_otherwise(program):
    lam = ar.Parameterization.constant(program, 0.5)
    assert np.all(lam.tail["x"] == 0)
    light = lam.replace(tail={"x": [0, 0, 1, 1]})
    assert light != lam
    assert light.replace({"x": 0.2}).tail["x"].tolist() == [0, 0, 1, 1]
    assert "(tail 0 to 1)" in repr(light)
    with pytest.raises(ParameterizationError, match=r"site 'm' has no tail.*heavy tails: 'x'"):
        lam.replace(tail={"m": 0.5})
    with pytest.raises(ParameterizationError, match=r"site 'x': expected a tail between 0 .* 2"):
        lam.replace(tail={"x": 2.0})


def test_tails_survive_a_file_and_a_file_without_them_leaves_tails_alone(program, tmp_path):
    light = ar.Parameterization.constant(program, 0.5, tail=1 / 3)
    light.save(tmp_path / "lam.json")
    assert ar.Parameterization.load(tmp_path / "lam.json", program) == light
    document = json.loads((tmp_path / "lam.json").read_text())
    del document["sites"]["x"]["tail"]
    old = ar.Parameterization.from_json(json.dumps(document), program)
    assert old == light.replace(tail={"x": 0.0})


def test_a_tail_for_a_family_without_heavy_ones_is_refused(program):
    def light():
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        with numpyro.plate("groups", 4):
            numpyro.sample("x", dist.Normal(m, 1.0))

    lam = ar.Parameterization.constant(program, 0.5, tail=1.0)
    with pytest.raises(ParameterizationError, match=r"'x'.*has a tail.*\(Normal\) no heavy ones"):
        lam.check(ar.inspect(light))


# -- local scales -----------------------------------------------------------------------------


def rates(y=None):
    """Gamma rates of eight groups with constant parameters; Gamma again given their counts."""
    with numpyro.plate("groups", 8):
        g = numpyro.sample("g", dist.Gamma(0.5, 0.25))
        numpyro.sample("y", dist.Poisson(g), obs=y)


COUNTS = np.array([0, 0, 0, 1, 2, 0, 7, 0])


@jax.jit
def in_coordinates(target, values, lam, there):
    """Values taken to working coordinates and on to others, and all that should agree."""
    position = target.from_sites(values, lam)
    density, score = jax.value_and_grad(target.logdensity)(position, lam)
    parts = target.log_joint(values) + target.log_determinant(position, lam)
    moved, carried, gain = target.carry(position, score, lam, there)
    wanted, slope = jax.value_and_grad(target.logdensity)(moved, there)
    return target.to_sites(position, lam)["g"], density, parts, gain, carried, wanted, slope


@precisions
@pytest.mark.parametrize("tail", [0.0, 0.4, 1.0])
def test_gamma_sites_keep_their_density_in_every_coordinate(x64, tail):
    with jax.enable_x64(x64):
        target = Target(ar.inspect(rates, (COUNTS,)))
        lam = ar.Parameterization.constant(target.program, 0.3, tail=tail)
        values = {"g": jnp.array([1e-30, 1e-9, 1e-3, 0.1, 0.5, 2.0, 9.0, 40.0])}
        there = lam.replace(tail={"g": 0.7})
        back, density, parts, gain, carried, wanted, slope = in_coordinates(
            target, values, lam, there
        )
    exact = {"rtol": 1e-9} if x64 else {"rtol": 2e-3, "atol": 2e-3}
    np.testing.assert_allclose(back, values["g"], **(exact | {"atol": 0}))
    np.testing.assert_allclose(density, parts, **exact)
    np.testing.assert_allclose(density + gain, wanted, **exact)
    np.testing.assert_allclose(carried, slope, **exact)


@pytest.mark.slow
def test_local_scales_are_sampled_exactly():
    program = ar.inspect(rates, (COUNTS,))
    assert program["g"].note.endswith("heavy tails")
    tree = ar.sample(rates, (COUNTS,), draws=1500, warmup=500, seed=3, progress=False)
    g = tree.posterior["g"].values.reshape(-1, 8)
    exact = stats.gamma(0.5 + COUNTS, scale=1 / 1.25)
    probability = exact.cdf(g)  # uniform, if the draws are the posterior's
    np.testing.assert_allclose(probability.mean(axis=0), 0.5, atol=0.03)
    np.testing.assert_allclose((probability < 0.05).mean(axis=0), 0.05, atol=0.02)
    assert tree["parameterization"]["g_tail"].values.mean() > 0.3


def test_one_gamma_number_with_constant_parameters_is_left_alone():
    def model():
        numpyro.sample("g", dist.Gamma(0.5, 0.5))

    assert not ar.inspect(model).candidates
