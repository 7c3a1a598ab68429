"""The gain: which mean of scale and reference scale noise is multiplied by, and who keeps it."""

import itertools
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autoreparam as ar
from autoreparam.errors import ParameterizationError
from autoreparam.learn.seen import see
from autoreparam.learn.settings import ScoreSettings
from autoreparam.learn.usual import at_usual_scales
from autoreparam.program.centering import Centering
from autoreparam.program.families import standardize
from autoreparam.program.maps import ElementMap, SteadyMap
from autoreparam.program.maps.gain import GAINS, GEOMETRIC, QUADRATIC, relative_gain
from autoreparam.program.target import Target

SIGMA = np.array([0.1, 0.5, 1.0, 5.0])


Y = np.array([-1.0, 0.0, 2.0, 1.0])


def groups():
    mu, tau = numpyro.sample("mu", dist.Normal(0, 2)), numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("group", 4):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, SIGMA), obs=Y)


@settings(deadline=None, derandomize=True)
@given(gain=st.sampled_from(GAINS), lam=st.floats(0, 1), log_ratio=st.floats(-80, 80))
def test_it_is_a_mean_of_both_scales_however_far_apart(gain, lam, log_ratio):
    scale, lam = np.float32(np.exp(log_ratio)), np.float32(lam)

    def stretch(scale, lam):
        map_ = standardize(dist.Normal(0.0, scale)).map(lam, lam, np.float32(1.0))
        map_ = replace(map_, gain=gain)
        noise = map_.point(jnp.zeros(3)).noise
        return -map_.total_log_prob(map_.point_of_noise(noise)), map_.log_stretch(None)

    (_, found), slope = jax.value_and_grad(stretch, has_aux=True)(scale, lam)
    assert min(0, log_ratio) - 1e-4 <= found <= max(0, log_ratio) + 1e-4
    assert np.isfinite(slope)
    assert stretch(scale, np.float32(0.0))[1] == 0
    if gain == GEOMETRIC or abs(log_ratio) < 43:
        assert stretch(scale, np.float32(1.0))[1] == pytest.approx(log_ratio, abs=1e-4)


@pytest.mark.parametrize("kind", [ElementMap, SteadyMap])
def test_what_data_leave_of_an_element_is_equally_wide_at_every_scale(kind):
    width, usual = 0.7, 1.3  # of the data, and the reference scale
    lam = usual**2 / (usual**2 + width**2)
    found = []
    for loc, scale in ((0.0, 1e-3), (2.0, 0.4), (-1.0, 1.3), (0.5, 1e3)):
        rule = standardize(dist.Normal(loc, scale), sequential=kind is SteadyMap)
        map_ = replace(rule.map(lam, lam, usual), gain=QUADRATIC, origin=3.0)
        assert type(map_) is kind
        # Mean and spread of the noise, with data at 3.
        noise = (3.0 - loc) * scale / (scale**2 + width**2)
        spread = width / np.sqrt(scale**2 + width**2)
        middle, upper = (
            map_.working(map_.point_of_noise(jnp.float32(e))) for e in (noise, noise + spread)
        )
        found.append((upper - middle, middle))
    widths, middles = np.array(found).T
    np.testing.assert_allclose(widths, widths[0], rtol=1e-4)
    if kind is SteadyMap:  # nor does location or scale leave a trace in its middle
        np.testing.assert_allclose(middles, lam * 3.0, rtol=1e-4)


FACTOR = np.linalg.cholesky(np.array([[1, 0.5, 0.2], [0.5, 2, -0.3], [0.2, -0.3, 0.5]]))


def element(scale, sequential=False):
    return standardize(dist.Normal(jnp.zeros(3), scale), sequential=sequential)


FAMILIES = {
    "element": element,
    "sequence": lambda scale: element(scale, sequential=True),
    "correlated": lambda scale: standardize(
        dist.MultivariateNormal(jnp.zeros(3), scale_tril=scale * jnp.float32(FACTOR))
    ),
    "walk": lambda scale: standardize(dist.GaussianRandomWalk(scale, 3)),
}


@pytest.mark.parametrize("lam", [0.0, 1e-6, 0.37, 1.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_density_and_slopes_hold_where_scales_are_beyond_all_measure(family, lam):
    lams = jnp.full(3, lam, jnp.float32)
    noise = jnp.array([-5.0, 0.3, 2.0])

    def made(scale):
        return replace(FAMILIES[family](scale).map(lams, lams, jnp.float32(1.0)), gain=QUADRATIC)

    def working(log_scale, noise):
        map_ = made(jnp.exp(log_scale))
        return map_.working(map_.point_of_noise(noise))

    def total(log_scale, working):
        map_ = made(jnp.exp(log_scale))
        point = map_.point(working)
        return map_.total_log_prob(point), point.noise

    @jax.jit
    @jax.vmap
    def found_at(log_scale):
        there, stretch = working(log_scale, noise), jax.jacfwd(working, 1)(log_scale, noise)
        (density, found), slopes = jax.value_and_grad(total, (0, 1), has_aux=True)(log_scale, there)
        own = dist.Normal().log_prob(found).sum() - jnp.log(jnp.diag(stretch)).sum()
        return density, own, found, slopes

    log_scales = np.linspace(-60, 60, 25, dtype=np.float32)
    density, own, found, slopes = found_at(log_scales)
    np.testing.assert_allclose(density, own, rtol=1e-4, atol=1e-3)
    measurable = found[np.abs(log_scales) < 43]
    np.testing.assert_allclose(measurable, np.tile(noise, (len(measurable), 1)), 1e-3, 1e-3)
    assert all(np.isfinite(slope).all() for slope in slopes)


@pytest.mark.parametrize("gain", GAINS)
def test_at_usual_scales_coordinates_differ_by_constant_factors_from_those_before(gain):
    target = Target(ar.inspect(groups))
    old = ar.Parameterization.constant(target.program, 0.3, s0=20.0, gain=gain)
    rng = np.random.default_rng(0)
    values = {
        "mu": rng.normal(size=101),
        "tau": np.exp(rng.normal(size=101)),
        "theta": rng.normal(size=(101, 4)),
    }
    rows = np.asarray(jax.vmap(target.from_sites, (0, None))(values, old))
    seen = see(target, rows, old, ScoreSettings())
    new = at_usual_scales(old, seen.log_scales, np.ones(101, bool), np)
    assert new.of("theta").gain == QUADRATIC
    assert np.ndim(new.reference["theta"]) == np.ndim(old.reference["theta"])
    np.testing.assert_allclose(new.reference["theta"], np.median(values["tau"]), rtol=1e-5)
    if gain == QUADRATIC:
        moved = np.asarray(jax.vmap(target.from_sites, (0, None))(values, new))
        gains = [
            relative_gain(gain, p["theta"][0], values["tau"] / p.reference["theta"])
            for p in (old, new)
        ]
        np.testing.assert_allclose(gains[1] / gains[0], gains[1][0] / gains[0][0], rtol=1e-4)
        np.testing.assert_allclose(moved[:, :2], rows[:, :2], rtol=1e-5)


def test_no_scale_of_draws_makes_lam_anything_but_a_number():
    with np.errstate(all="ignore"):
        for own, reference in itertools.product(
            (-100.0, -20.0, 0.0, 60.0, 200.0), (1e-30, 1, 1e30)
        ):
            one = Centering(*[np.float32([0.0, 0.5, 1.0])] * 2, np.full(3, reference, np.float32))
            lam = ar.Parameterization.by_site({"x": one})
            found = at_usual_scales(lam, {"x": np.full((9, 3), own)}, np.ones(9, bool), np)
            assert ((found["x"] >= 0) & (found["x"] <= 1)).all()
            assert (found.reference["x"] > np.finfo(np.float32).tiny ** 0.9).all()


def test_scores_are_carried_from_one_gain_to_the_other():
    with jax.enable_x64(True):
        target = Target(ar.inspect(groups))
        old, new = (
            ar.Parameterization.constant(target.program, lam, gain=gain)
            for lam, gain in ((0.3, GEOMETRIC), (0.6, QUADRATIC))
        )
        position = np.random.default_rng(0).normal(size=target.size)
        density, score = jax.value_and_grad(target.logdensity)(position, old)
        moved, carried, gain = target.carry(position, score, old, new)
        there, expected = jax.value_and_grad(target.logdensity)(moved, new)
        np.testing.assert_allclose(density + gain, there)
        np.testing.assert_allclose(carried, expected, rtol=1e-9)


def test_what_is_learned_is_quadratic_and_the_papers_geometric():
    short = {"warmup": 100, "draws": 50, "progress": False}
    assert ar.parameterization(ar.sample(groups, **short)).of("theta").gain == QUADRATIC
    assert ar.learn(groups, steps=50).parameterization.of("theta").gain == GEOMETRIC
    assert ar.Parameterization({"theta": np.full(4, 0.5)}).of("theta").gain == GEOMETRIC


@pytest.mark.parametrize("gain", GAINS)
def test_files_trees_and_runs_that_go_on_keep_it(tmp_path, gain):
    program = ar.inspect(groups)
    lam = ar.Parameterization.constant(program, 0.5, gain=gain)
    lam.save(tmp_path / "lam.json")
    assert ar.Parameterization.load(tmp_path / "lam.json", program) == lam
    short = {"parameterization": lam, "warmup": 50, "chains": 2, "progress": False}
    place = tmp_path / "run.zarr"
    ar.sample(groups, draws=20, checkpoint=place, **short)
    tree = ar.resume(place, groups, draws=40, progress=False)
    assert ar.parameterization(tree).of("theta").gain == gain
    whole = ar.sample(groups, draws=40, **short)["posterior"]
    np.testing.assert_array_equal(tree["posterior"]["theta"], whole["theta"])


def test_files_without_it_are_the_papers_and_other_words_are_refused():
    text = ar.Parameterization({"theta": np.full(4, 0.5)}).to_json()
    document = json.loads(text)
    assert "gain" not in document["sites"]["theta"]
    document["sites"]["theta"]["gain"] = "harmonic"
    with pytest.raises(ParameterizationError, match=r"'theta'.*'harmonic'"):
        ar.Parameterization.from_json(json.dumps(document))
