"""How the data's hold on a sequence varies: its coordinates, and what is learned of it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import autoreparam as ar
from autoreparam.errors import ParameterizationError
from autoreparam.learn.grips import hold, own_data
from autoreparam.program.families.registry import Sequential
from autoreparam.program.flat import Flat
from autoreparam.program.grip import BASE, MOST_ROOTS, roots, tightness
from autoreparam.program.held import held, loose, varies
from autoreparam.program.maps.element import SteadyMap
from autoreparam.program.maps.gain import QUADRATIC
from autoreparam.program.move import move
from autoreparam.program.target import Target

Y = np.array([0.3, 1.1, 0.8, 2.0, 1.7, 2.9])


def walk(y=Y):
    step = numpyro.sample("step", dist.LogNormal(0.0, 1.0))
    x = numpyro.sample("x", dist.GaussianRandomWalk(step, len(Y)))
    noise = numpyro.sample("noise", dist.LogNormal(0.0, 1.0))  # after what it holds
    numpyro.sample("y", dist.Normal(x, noise), obs=y)


def of_walk(**grip):
    program = ar.inspect(walk)
    lam = ar.Parameterization.constant(program, 0.6, gain=QUADRATIC)
    shape = lam["x"].shape
    grip = {label: np.full(shape, grip.get(label, 0.0)) for label in (BASE, "noise", "step")}
    return program, lam.by_site({"x": replace(lam.of("x"), grip=grip)})


@pytest.mark.parametrize("loc", [-1.3, 0.4])
def test_gaussian_data_leave_an_element_equally_wide_and_in_place_at_every_scale_and_noise(loc):
    reference, width, center = 0.7, 0.4, 2.5
    lam = reference**2 / (reference**2 + width**2)
    wide, middle = [], []
    for scale in (1e-3, 0.3, 5.0):
        for tight in (0.2, 1.0, 50.0):
            rule = Sequential(jnp.asarray(loc), jnp.asarray(scale), dist.Normal(0.0, 1.0))
            map_ = SteadyMap(rule, lam, lam, reference, None, None, center, tight, QUADRATIC)
            precision = (tight / width) ** 2
            sd = (scale**-2 + precision) ** -0.5
            mean = sd**2 * (loc / scale**2 + precision * center)
            ends = [map_.working(map_.point_of_free(mean + k * sd)) for k in (-1, 1)]
            wide.append(ends[1] - ends[0])
            middle.append((ends[0] + ends[1]) / 2)
    np.testing.assert_allclose(wide, wide[0], rtol=1e-9)
    np.testing.assert_allclose(middle, lam * center, atol=1e-9)


def test_the_hold_varies_with_latents_that_come_later():
    program, lam = of_walk(noise=-2.0)
    target, values = Target(program), {"step": 0.5, "noise": 0.1, "x": jnp.asarray(Y)}
    position = target.from_sites(values, lam)
    tight = held(lam, program, target.unflatten(position)).of("x").tight
    np.testing.assert_allclose(tight, 10.0, rtol=1e-12)
    np.testing.assert_allclose(target.to_sites(position, lam)["x"], Y, atol=1e-12)
    there = target.from_sites(values, loose(lam))
    assert not np.allclose(there, position)
    moved, _ = target.translate(position, lam, loose(lam))
    np.testing.assert_allclose(moved, there, atol=1e-12)


def test_roots_are_single_latents_that_depend_on_nothing_scales_first():
    def model():
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        many = numpyro.sample("many", dist.Normal(0.0, 1.0).expand([9]).to_event(1))
        two = numpyro.sample("two", dist.Normal(mean, 1.0).expand([2]).to_event(1))
        sd = numpyro.sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        x = numpyro.sample("x", dist.GaussianRandomWalk(sd[0], 3))
        numpyro.sample("y", dist.Normal(x + mean + many.sum() + two.sum(), sd[1]), obs=Y[:3])

    assert [root.label for root in roots(ar.inspect(model))] == ["sd[0]", "sd[1]", "mean"]
    assert len(roots(ar.inspect(model))) <= MOST_ROOTS

    def no_sequence():
        sd = numpyro.sample("sd", dist.HalfNormal(1.0))
        numpyro.sample("x", dist.Normal(0.0, sd).expand([3]).to_event(1))

    assert roots(ar.inspect(no_sequence)) == ()


def test_a_hold_never_overflows():
    found = tightness({BASE: np.array([0.0, 0.0]), "a": np.array([-2.0, 2.0])}, {"a": 1e6})
    assert np.isfinite(np.asarray(found, np.float32) ** 2).all()
    assert (found > 0).all()


def test_grips_of_another_model_are_refused_in_words():
    program, lam = of_walk(noise=-2.0)
    one = lam.of("x")
    other = lam.by_site({"x": replace(one, grip={BASE: one.loc, "sigma": one.loc})})
    with pytest.raises(ParameterizationError, match=r"varies with .*sigma.* and can vary with"):
        other.check(program)
    with pytest.raises(ParameterizationError, match="a grip of finite numbers"):
        lam.by_site({"x": replace(one, grip={**one.grip, "step": np.full(6, np.nan)})})
    with pytest.raises(ParameterizationError, match="the grip has shape"):
        lam.by_site({"x": replace(one, grip={**one.grip, "step": np.zeros(2)})})
    text = lam.to_json().replace('"": ', '"base": ')
    with pytest.raises(ParameterizationError, match="a grip with an entry per root"):
        ar.Parameterization.from_json(text)


def test_a_grip_that_never_varies_fits_any_model():
    def fewer():
        step = numpyro.sample("step", dist.LogNormal(0.0, 1.0))
        numpyro.sample("x", dist.GaussianRandomWalk(step, len(Y)))

    _, lam = of_walk()
    assert {*lam.check(ar.inspect(fewer)).of("x").grip} == {BASE, "step"}
    _, varying = of_walk(noise=-2.0)
    with pytest.raises(ParameterizationError, match=r"can vary with 'step' here"):
        varying.check(ar.inspect(fewer))


def crossed():
    """A root that leads a flat direction, and that a walk's hold varies with."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    between = numpyro.sample("between", dist.HalfNormal(1.0))
    group = numpyro.sample("group", dist.Normal(0.0, between).expand([2]).to_event(1))
    step = numpyro.sample("step", dist.LogNormal(0.0, 1.0))
    x = numpyro.sample("x", dist.GaussianRandomWalk(step, 3))
    numpyro.sample("y", dist.Normal(mu + group[0] + x, 1.0), obs=Y[:3])


def test_points_and_scores_move_between_grips_and_flat_directions():
    program, draw = ar.inspect(crossed), np.random.default_rng(0)
    target = Target(program)
    bare = ar.Parameterization.constant(program, 0.7, gain=QUADRATIC)
    one = bare.of("x")
    grip = {label: draw.normal(size=3) for label in one.grip}
    gripped = bare.by_site({name: bare.of(name) for name in bare} | {"x": replace(one, grip=grip)})
    leads = {"mu": np.ones((1,)), "group": np.zeros((1, 2))}
    apart = {"mu": np.ones((1,)), "group": -np.ones((1, 2))}
    usual, lent = {"group": np.full(2, 0.6)}, {"group": np.zeros((1, 2))}
    flat = bare.with_flat(Flat(leads, apart, usual, lent, (1,)))
    assert flat.check(program) is not None
    position = draw.normal(size=target.size) * 0.5
    values = target.to_sites(position, gripped)
    score = jax.grad(target.logdensity)(position, gripped)
    for lam in (bare, flat):
        there, carried, _ = move(target, position[None], score[None], gripped, lam)
        for name, value in target.to_sites(there[0], lam).items():
            np.testing.assert_allclose(value, values[name], rtol=1e-9, atol=1e-12)
        expected = jax.grad(target.logdensity)(jnp.asarray(there[0]), lam)
        np.testing.assert_allclose(carried[0], expected, rtol=1e-8, atol=1e-9)
        back, again, _ = move(target, there, carried, lam, gripped)
        np.testing.assert_allclose(back[0], position, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(again[0], score, rtol=1e-8, atol=1e-9)


def test_names_with_slashes_go_through_a_run():
    def scoped():
        step = numpyro.sample("part/step", dist.LogNormal(0.0, 1.0))
        x = numpyro.sample("part/x", dist.GaussianRandomWalk(step, len(Y)))
        numpyro.sample("part/y", dist.Normal(x, 1.0), obs=Y)

    tree = ar.sample(scoped, chains=1, warmup=20, draws=5, progress=False)
    lam = ar.parameterization(tree)
    assert {*lam.of("part/x").grip} == {BASE, "part/step"}
    assert lam.check(ar.inspect(scoped)) == lam


# -- learned from draws -----------------------------------------------------------------------


def test_gaussian_data_are_found_exactly_from_their_scores():
    draw = np.random.default_rng(0)
    away = draw.normal(size=(400, 2)) * [0.3, 1.5]
    level, slopes = np.array([-1.0, 2.0, 0.0]), np.array([[0.0, -2.0], [1.0, -0.5], [0.0, 0.0]])
    center = np.array([3.0, -50.0, 0.1])
    precision = np.exp(level + away @ slopes.T)
    u = center + draw.normal(size=(400, 3)) / np.sqrt(precision + 0.5)
    found = own_data(u, -precision * (u - center), away)
    for one, expected in zip(found[:3], (level, slopes, center), strict=True):
        np.testing.assert_allclose(one, expected, atol=0.05)  # with a prior worth one draw of 400


def test_what_holds_an_element_of_a_walk_is_what_a_smoother_says():
    draw, count, length = np.random.default_rng(1), 500, 8
    away = draw.normal(size=(count, 2)) * 0.2
    step, noise = 0.8 * np.exp(away[:, :1]), 0.3 * np.exp(away[:, 1:])
    y = np.cumsum(draw.normal(size=length))
    seen = np.array([1, 1, 0, 0, 1, 1, 1, 0], bool)
    precisions, means = [seen[-1] / noise**2 + 1e-12], [np.full((count, 1), y[-1])]
    for i in range(length - 2, -1, -1):
        told = 1 / (step**2 + 1 / precisions[0])
        whole = seen[i] / noise**2 + told
        means.insert(0, (seen[i] / noise**2 * y[i] + told * means[0]) / whole)
        precisions.insert(0, whole)
    u, before = np.empty((count, length)), np.zeros((count, 1))
    for i in range(length):
        both = step**-2 + precisions[i]
        mean = (before / step**2 + precisions[i] * means[i]) / both
        before = mean + draw.normal(size=(count, 1)) / np.sqrt(both)
        u[:, i : i + 1] = before
    m = np.column_stack([np.zeros(count), u[:, :-1]])
    score = -(u - m) / step**2 - seen * (u - y) / noise**2
    score[:, :-1] += (u[:, 1:] - u[:, :-1]) / step**2
    s = np.broadcast_to(step, u.shape)
    level, slopes, _ = hold(u, m, s, score, away, np.arange(length)[None])
    x = np.column_stack([np.ones(count), away])
    for i in range(length - 1):  # nothing holds the last one
        expected = np.linalg.lstsq(x, np.log(precisions[i][:, 0]), rcond=None)[0]
        np.testing.assert_allclose([level[i], *slopes[i]], expected, atol=0.1)


def test_there_is_no_grip_where_roots_explain_little():
    draw = np.random.default_rng(2)
    away, u = draw.normal(size=(300, 1)), draw.normal(size=(300, 5))
    around = np.exp(draw.normal(size=(300, 5)))  # how precise the data are, which no root explains
    args = np.zeros_like(u), np.ones_like(u), -u - around * u, away, np.arange(5)[:, None]
    assert hold(u, *args, 0.3) is None
    assert hold(u, *args) is not None


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_walk_through_unknown_noise_has_no_neck_left(seed):
    from benchmarks.gauntlet.exact import exact_moments
    from benchmarks.gauntlet.methods import load

    model, data, _ = load("random_walk")
    tree = ar.sample(model, (), data, seed=seed, progress=False)
    assert varies(ar.parameterization(tree))
    found = ar.efficiency(tree)
    assert found.ess_per_1000_total > 15  # below 1 without
    assert found.divergences == 0
    assert found.e_bfmi > 0.5
    exact, draws = exact_moments("random_walk"), tree["posterior"]
    assert exact is not None
    for name in ("step", "noise"):
        error = np.std(draws[name]) / np.sqrt(found.ess)
        assert abs(float(draws[name].mean()) - exact[name][0]) < 4 * error
