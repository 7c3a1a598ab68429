"""Flat directions: their map by law, how they are found, and few groups against exact answers."""

import re
import sys
from dataclasses import replace
from functools import partial

import arviz_stats
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import autoreparam as ar
from autoreparam.errors import ParameterizationError
from autoreparam.learn.flat import with_directions
from autoreparam.learn.objective import Draws
from autoreparam.learn.seen import see
from autoreparam.learn.settings import DEFAULTS
from autoreparam.program.flat import Flat, may_be_flat
from autoreparam.program.maps.gain import GEOMETRIC, QUADRATIC
from autoreparam.program.target import Target

GROUP = np.repeat(np.arange(3), 4)
OTHER = np.tile(np.arange(4), 3)
Y = np.random.default_rng(0).normal(size=12)


def crossed():
    """A constant prior, one on top of it, two crossed factors, one with a location, heavy tails."""
    nu = numpyro.sample("nu", dist.Normal(1.0, 2.0))
    mu = numpyro.sample("mu", dist.Normal(nu, 3.0))
    s, t = (numpyro.sample(name, dist.HalfNormal(1.0)) for name in "st")
    a = numpyro.sample("a", dist.Normal(0.5 * nu, s).expand([3]).to_event(1))
    b = numpyro.sample("b", dist.StudentT(4.0, 0.0, t).expand([4]).to_event(1))
    w = numpyro.sample("w", dist.StudentT(4.0, mu, s))
    numpyro.sample("y", dist.Normal(mu + a[GROUP] + b[OTHER] + w, 1.0), obs=Y)


def any_directions(rng, second, turns):
    """One that a constant leads, and a second; they have nothing to do with the data."""
    shapes = {"nu": (), "mu": (), "a": (3,), "b": (4,)}
    leads = {name: np.zeros((2, *shape)) for name, shape in shapes.items()}
    leads["nu"][0] = leads[second].reshape(2, -1)[1, -1] = 1
    apart = {name: rng.normal(size=(2, *shape)) for name, shape in shapes.items()}
    apart["nu"] = leads["nu"]
    apart[second] = np.where(leads[second] == 1, 1.0, apart[second])
    shapes.pop("nu")
    usual = {name: rng.uniform(0.5, 2, shape) for name, shape in shapes.items()}
    borrowed = {name: rng.normal(size=(2, *shape)) for name, shape in shapes.items()}
    return Flat(leads, apart, usual, borrowed, turns)


@pytest.fixture(params=[("a", (2,), QUADRATIC), ("mu", (2,), GEOMETRIC),
                        ("b", (1, 1), QUADRATIC), ("nu", (1, 1), GEOMETRIC)])  # fmt: skip
def anywhere(request):
    """A target, a random λ with random directions, and a position, in double precision."""
    with jax.enable_x64(True):
        rng, (second, turns, gain) = np.random.default_rng(0), request.param
        target = Target(ar.inspect(crossed))
        lam = ar.Parameterization.constant(target.program, 1.0, gain=gain)
        lam = lam.map(lambda one: rng.uniform(size=one.shape))
        lam = lam.replace(tail={"b": 0.7, "w": 0.3})
        yield (
            target,
            lam.with_flat(any_directions(rng, second, turns)),
            rng.normal(size=target.size),
        )


def unconstrained(target, values):
    logs = {name: jnp.log(values[name]) for name in "st"}
    return target.flatten({**values, **logs})


def test_positions_come_back(anywhere):
    target, lam, position = anywhere
    back = target.from_sites(target.to_sites(position, lam), lam)
    np.testing.assert_allclose(back, position, atol=1e-12)


def test_the_log_determinant_is_that_of_the_map(anywhere):
    target, lam, position = anywhere
    values = target.to_sites(position, lam)
    jacobian = jax.jacobian(lambda x: unconstrained(target, target.to_sites(x, lam)))(position)
    wanted = jnp.linalg.slogdet(jacobian)[1] + jnp.log(values["s"] * values["t"])
    assert target.log_determinant(position, lam) == pytest.approx(float(wanted))


def test_the_density_is_that_of_the_model(anywhere):
    target, lam, position = anywhere
    joint = target.log_joint(target.to_sites(position, lam))
    wanted = joint + target.log_determinant(position, lam)
    assert target.logdensity(position, lam) == pytest.approx(float(wanted))


@pytest.mark.parametrize("end", [None, 0.0, 1.0])
@pytest.mark.parametrize("keeps", [True, False])
def test_scores_are_carried(anywhere, end, keeps):
    target, lam, position = anywhere
    new = lam if end is None else lam.map(lambda one: np.full_like(one, end))
    new = new if keeps else new.with_flat(None)
    score = jax.grad(target.logdensity)(position, lam)
    moved, carried, gain = target.carry(position, score, lam, new)
    np.testing.assert_allclose(target.from_sites(target.to_sites(position, lam), new), moved)
    np.testing.assert_allclose(carried, jax.grad(target.logdensity)(moved, new), rtol=1e-9)
    there = target.logdensity(position, lam) + gain
    assert target.logdensity(moved, new) == pytest.approx(float(there))


def test_non_centered_coordinates_stay_as_they_are(anywhere):
    target, lam, position = anywhere
    lam = lam.map(np.zeros_like).replace(tail={"b": 0.0, "w": 0.0})
    bare = lam.with_flat(None)
    np.testing.assert_allclose(target.translate(position, bare, lam)[0], position, atol=1e-12)


def test_a_mask_that_follows_what_moves_changes_nothing():
    def model():
        mu = numpyro.sample("mu", dist.Normal(0, 2.0))
        s = numpyro.sample("s", dist.HalfNormal(1.0))
        seen = mu + np.array([-0.2, 0.0, 0.2]) > 0
        numpyro.sample("a", dist.Normal(mu * jnp.ones(3), s).mask(seen))

    with jax.enable_x64(True):
        target = Target(ar.inspect(model))
        leads = {"mu": np.ones(1), "a": np.zeros((1, 3))}
        apart = {"mu": np.ones(1), "a": -np.ones((1, 3))}
        flat = Flat(leads, apart, {"a": np.ones(3)}, {"a": np.zeros((1, 3))}, (1,))
        lam = (
            ar.Parameterization.constant(target.program, 0.4).with_flat(flat).check(target.program)
        )
        for position in np.random.default_rng(0).normal(size=(20, 5)):
            values = target.to_sites(position, lam)

            def free(x):
                found = target.to_sites(x, lam)
                return target.flatten({**found, "s": jnp.log(found["s"])})

            log_det = jnp.linalg.slogdet(jax.jacobian(free)(position))[1] + jnp.log(values["s"])
            wanted = target.log_joint(values) + log_det
            assert target.logdensity(position, lam) == pytest.approx(float(wanted))


# -- few groups -------------------------------------------------------------------------------

NOISE = 1.0


def few_groups(counts=(200, 200, 200), spread=1.0, seed=0):
    """Observations of a few groups that differ by about `spread`."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(counts)), counts)
    y = 0.5 + spread * rng.normal(size=len(counts))[group] + NOISE * rng.normal(size=len(group))
    return group, y.astype(np.float32)


def added(group, y, groups=3):
    """Effects around zero, added to a mean."""
    mu = numpyro.sample("mu", dist.Normal(0, 100.0))
    s = numpyro.sample("s", dist.Uniform(0, 100.0))
    with numpyro.plate("groups", groups):
        a = numpyro.sample("a", dist.Normal(0, s))
    numpyro.sample("y", dist.Normal((mu + a)[group], NOISE), obs=y)


def around(group, y, groups=3):
    """Groups around a mean."""
    mu = numpyro.sample("mu", dist.Normal(0, 100.0))
    s = numpyro.sample("s", dist.Uniform(0, 100.0))
    with numpyro.plate("groups", groups):
        m = numpyro.sample("m", dist.Normal(mu, s))
    numpyro.sample("y", dist.Normal(m[group], NOISE), obs=y)


def slopes(group, y, groups=3):
    """A covariate of the groups, which their effects can make up for as well."""
    x = np.linspace(-1.0, 2.0, groups)
    mu = numpyro.sample("mu", dist.Normal(0, 100.0))
    beta = numpyro.sample("beta", dist.Normal(0, 100.0))
    s = numpyro.sample("s", dist.Uniform(0, 100.0))
    with numpyro.plate("groups", groups):
        a = numpyro.sample("a", dist.Normal(0, s))
    numpyro.sample("y", dist.Normal((mu + beta * x + a)[group], NOISE), obs=y)


def beside(group, y, groups=3):
    """Something else is observed on its own."""
    added(group, y, groups)
    numpyro.sample("z", dist.Normal(numpyro.sample("other", dist.Normal(0, 100.0)), 1.0), obs=0.3)


def nested(group, y, groups=3):
    """Four groups within each group, known to a tenth of what they differ by."""
    mu = numpyro.sample("mu", dist.Normal(0, 100.0))
    s, t = (numpyro.sample(name, dist.Uniform(0, 100.0)) for name in "st")
    with numpyro.plate("groups", groups):
        a = numpyro.sample("a", dist.Normal(0, s))
    with numpyro.plate("within", 4 * groups):
        b = numpyro.sample("b", dist.Normal(a[np.repeat(np.arange(groups), 4)], t))
    numpyro.sample("y", dist.Normal((mu + b)[group], NOISE), obs=y)


def exact_scale(group, y, parents=None):
    """Values of s and their posterior probabilities, by quadrature; also over t where nested."""
    counts = np.bincount(group)
    means, one = np.bincount(group, y) / counts, np.eye(len(counts))
    s = np.exp(np.linspace(np.log(1e-4), np.log(100), 4001 if parents is None else 161))
    t = s if parents is not None else np.zeros(1)
    alike = one if parents is None else 1.0 * (parents[:, None] == parents)
    fixed = 100.0**2 + np.diag(NOISE**2 / counts)
    log_p = np.zeros((len(s), len(t)))
    for i, width in enumerate(s):
        covariance = fixed + width**2 * alike + (t**2)[:, None, None] * one
        far = np.linalg.solve(covariance, np.broadcast_to(means[:, None], (len(t), len(means), 1)))
        log_p[i] = -(np.linalg.slogdet(covariance)[1] + far[..., 0] @ means) / 2 + np.log(width)
    log_p += np.log(t) if parents is not None else 0.0
    weights = np.exp(log_p - log_p.max()).sum(axis=1)
    return s, weights / weights.sum()


def spread_draws(target, lam, count=300, seed=0):
    """Positions around the prior with their scores, in the coordinates of `lam`."""
    rng = np.random.default_rng(seed)
    positions = rng.normal(size=(count, target.size)).astype(np.float32)
    look = jax.jit(jax.vmap(jax.value_and_grad(target.logdensity), (0, None)))
    values, scores = look(positions, lam)
    return Draws(positions, np.array(scores), np.asarray(values), np.ones(count, np.float32))


def found(model, data=None, **changes):
    program = ar.inspect(model, data or few_groups())
    target, lam = Target(program), ar.Parameterization.constant(program, 0.7)
    best = lam.map(np.ones_like).replace(changes)
    return directions(target, spread_draws(target, lam), lam, best)


def directions(target, draws, lam, best, known=None):
    priors = see(target, draws.positions, lam, DEFAULTS)
    return with_directions(target, draws, priors, lam, best, best, known, DEFAULTS)


@pytest.mark.parametrize(("model", "group", "borrowed"), [(added, "a", 1), (around, "m", 0)])
def test_what_groups_make_up_for_is_found(model, group, borrowed):
    rivals = found(model)
    assert set(rivals) == {"flat", "flat_centered"}
    flat = rivals["flat"].flat
    assert flat.leads.keys() == {"mu", group}
    assert flat.leads["mu"] == flat.apart["mu"] == 1
    assert not flat.leads[group].any()
    np.testing.assert_allclose(flat.apart[group], np.full((1, 3), -1.0), atol=1e-3)
    np.testing.assert_allclose(flat.borrowed[group], np.full((1, 3), borrowed), atol=1e-3)


def test_so_are_slopes_of_what_groups_have_in_common():
    flat = found(slopes)["flat"].flat
    assert flat.count == 2
    both = np.stack([flat.leads["mu"], flat.leads["beta"]])
    np.testing.assert_array_equal(both.sum(axis=0), 1)  # one each
    x = np.linspace(-1.0, 2.0, 3)
    for i in range(2):
        wanted = both[0, i] + both[1, i] * x
        np.testing.assert_allclose(flat.apart["a"][i], -wanted, atol=2e-3)


def test_levels_below_move_with_what_makes_up():
    flat = found(nested, few_groups(SEVERAL))["flat"].flat
    mean = int(np.argmax(flat.leads["mu"]))
    assert flat.leads["mu"].sum() == 1  # with groups alone it would be the same as the others
    np.testing.assert_allclose(flat.apart["a"][mean], -1, atol=1e-3)
    np.testing.assert_allclose(flat.apart["b"][mean], 0, atol=1e-3)
    np.testing.assert_allclose(flat.borrowed["b"][mean], 1, atol=1e-3)
    of_group = [i for i in range(flat.count) if i != mean]
    for i in of_group:
        led = np.repeat(flat.leads["a"][i], 4)
        np.testing.assert_allclose(flat.apart["b"][i], -led, atol=1e-3)
    assert of_group
    assert flat.turns == (flat.count,)


def one_child_each(group, y):
    mu = numpyro.sample("mu", dist.Normal(0, 100.0))
    s, t = (numpyro.sample(name, dist.Uniform(0, 100.0)) for name in "st")
    a = numpyro.sample("a", dist.Normal(mu, s).expand([3]).to_event(1))
    b = numpyro.sample("b", dist.Normal(a, t).to_event(1))
    numpyro.sample("y", dist.Normal(b[group], NOISE), obs=y)


def two_effects_each(group, y):
    mu = numpyro.sample("mu", dist.Normal(0, 100.0))
    s, t = (numpyro.sample(name, dist.Uniform(0, 100.0)) for name in "st")
    a = numpyro.sample("a", dist.Normal(0, s).expand([3]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, t).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal((mu + a + b)[group], NOISE), obs=y)


@pytest.mark.parametrize("model", [one_child_each, two_effects_each])
def test_directions_that_are_the_same_line_are_not_stretched_together(model):
    flat = found(model)["flat"].flat
    assert flat.sound
    with jax.enable_x64(True):
        target = Target(ar.inspect(model, few_groups()))
        lam = ar.Parameterization.centered(target.program).with_flat(flat)
        bare = lam.with_flat(None)
        position = np.random.default_rng(1).normal(size=target.size)
        jacobian = jax.jacobian(lambda x: target.translate(x, lam, bare)[0])(position)
        there, log_det = target.translate(position, lam, bare)
        assert log_det == pytest.approx(float(jnp.linalg.slogdet(jacobian)[1]))
        back = target.translate(there, bare, lam)[0]
        np.testing.assert_allclose(back, position, atol=1e-9)


@pytest.mark.parametrize(("model", "data"), [(added, (200,) * 3), (nested, (30,) * 12)])
def test_small_scales_lose_little_precision(model, data):
    data = few_groups(data)
    target = Target(ar.inspect(model, data))
    lam = found(model, data)["flat"].map(np.ones_like)
    bare = ar.Parameterization.noncentered(target.program)
    names = [site.name for site in target.program.latents for _ in range(site.size)]
    positions = np.random.default_rng(0).normal(size=(20, target.size)).astype(np.float32)
    positions[:, names.index("s")] = -8.0  # s is 0.03
    round_trip = jax.vmap(
        lambda x: target.translate(target.translate(x, bare, lam)[0], lam, bare)[0]
    )
    np.testing.assert_allclose(round_trip(positions), positions, atol=2e-3)


def test_crossed_factors_take_turns():
    def model(group, y):
        mu = numpyro.sample("mu", dist.Normal(0, 100.0))
        s, t = (numpyro.sample(name, dist.Uniform(0, 100.0)) for name in "st")
        a = numpyro.sample("a", dist.Normal(0, s).expand([3]).to_event(1))
        b = numpyro.sample("b", dist.Normal(0, t).expand([4]).to_event(1))
        other = np.arange(len(y)) % 4
        numpyro.sample("y", dist.Normal(mu + a[group] + b[other], NOISE), obs=y)

    flat = found(model)["flat"].flat
    np.testing.assert_array_equal(flat.leads["mu"], 1)
    assert flat.turns == (1, 1)
    lends = [np.any(flat.borrowed["a"][i]) + np.any(flat.borrowed["b"][i]) for i in range(2)]
    assert lends == [1, 0]


def test_what_is_observed_elsewhere_moves_nowhere():
    flat = found(beside)["flat"].flat
    assert flat.leads.keys() == {"mu", "a"}

    def mean_seen(group, y):
        mu = numpyro.sample("mu", dist.Normal(0, 100.0))
        s = numpyro.sample("s", dist.Uniform(0, 100.0))
        with numpyro.plate("groups", 3):
            a = numpyro.sample("a", dist.Normal(0, s))
        numpyro.sample("y", dist.Normal((mu + a)[group], NOISE), obs=y)
        numpyro.sample("z", dist.Normal(mu, 1.0), obs=0.3)

    assert found(mean_seen) == {}


def test_nothing_is_looked_for_where_groups_are_not_centered():
    assert found(added, a=0.0) == {}


@pytest.mark.parametrize(("width", "kept"), [(1.0, True), (0.05, False)])
def test_known_directions_are_kept_as_long_as_their_width_varies(width, kept):
    known = found(added)["flat"].flat
    program = ar.inspect(added, few_groups())
    target, lam = Target(program), ar.Parameterization.centered(program)
    draws = spread_draws(target, lam)
    names = [site.name for site in program.latents for _ in range(site.size)]
    draws.positions[:, names.index("s")] *= width
    draws.scores[:] += np.random.default_rng(1).normal(size=draws.scores.shape)  # none is found
    rivals = directions(target, draws, lam, lam, known)
    assert set(rivals) == ({"flat", "flat_centered"} if kept else set())


def test_large_sites_cost_nothing():
    """All elements against each other would be a matrix of 80 gigabytes."""

    def model(group, y):
        added(group, y)
        m = numpyro.sample("m", dist.Normal(0, 1.0))
        numpyro.sample("many", dist.Normal(m, 1.0).expand([100_000]).to_event(1))

    assert found(model)["flat"].flat.leads.keys() == {"mu", "a"}


def test_draws_without_numbers_teach_nothing():
    program = ar.inspect(added, few_groups())
    target, lam = Target(program), ar.Parameterization.centered(program)
    draws = spread_draws(target, lam)
    draws.scores[:, 0] = np.inf
    assert directions(target, draws, lam, lam) == {}


def test_sites_that_scales_depend_on_are_left_alone():
    def model():
        mu = numpyro.sample("mu", dist.Normal(0, 1.0))
        log_s = numpyro.sample("log_s", dist.Normal(mu, 1.0))
        numpyro.sample("a", dist.Normal(0, jnp.exp(log_s)).expand([3]).to_event(1))

    assert may_be_flat(ar.inspect(model)).keys() == {"a"}


@pytest.mark.slow
def test_files_trees_and_runs_that_go_on_keep_the_directions(tmp_path):
    data = few_groups()
    keywords = {"chains": 2, "warmup": 300, "draws": 100, "progress": False, "seed": 3}
    tree = ar.sample(added, data, checkpoint=tmp_path / "run", **keywords)
    lam = ar.parameterization(tree)
    assert lam.flat is not None
    assert ar.Parameterization.from_json(lam.to_json(), ar.inspect(added, data)) == lam
    lam.save(tmp_path / "lam.json")
    assert ar.Parameterization.load(tmp_path / "lam.json") == lam
    more = ar.resume(tmp_path / "run", added, data, draws=150, progress=False)
    assert ar.parameterization(more) == lam
    np.testing.assert_array_equal(more.posterior["s"][:, :100], tree.posterior["s"])
    again = ar.sample(added, data, parameterization=lam, **keywords)
    assert ar.parameterization(again).flat is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::autoreparam.errors.SamplingWarning")
def test_directions_that_change_from_window_to_window_are_resumed(tmp_path, monkeypatch):
    data, windows = few_groups(), []

    def changing(*args):
        windows.append(found := with_directions(*args))
        return {} if len(windows) == 3 else found

    monkeypatch.setattr(sys.modules["autoreparam.learn.score"], "with_directions", changing)
    keywords = {"chains": 2, "warmup": 300, "progress": False, "seed": 2, "save_warmup": True}
    tree = ar.sample(slopes, data, draws=20, checkpoint=tmp_path / "run", **keywords)
    more = ar.resume(tmp_path / "run", slopes, data, draws=30, progress=False)
    for name in tree.warmup_posterior.data_vars:
        np.testing.assert_array_equal(more.warmup_posterior[name], tree.warmup_posterior[name])


def test_directions_of_another_model_are_refused():
    data = few_groups()
    program, other = ar.inspect(added, data), ar.inspect(around, data)
    flat = found(added)["flat"].flat
    wrong = ar.Parameterization.centered(other).with_flat(flat)
    with pytest.raises(ParameterizationError, match="flat directions"):
        wrong.check(other)
    moved = replace(flat, leads={**flat.leads, "mu": 2 * flat.leads["mu"]})
    with pytest.raises(ParameterizationError, match="flat directions"):
        ar.Parameterization.centered(program).with_flat(moved).check(program)
    text = ar.Parameterization.centered(program).with_flat(flat).to_json()
    broken = [
        text.replace('"apart"', '"part"'),
        text.replace('"leads": {', '"leads": 3, "x": {'),
        text.replace('"leads": {', '"leads": {}, "x": {'),
        text.replace('"turns": [\n', '"turns": [\n 0,'),
        re.sub('"turns": [^]]*]', '"turns": "1"', text),
        re.sub('"turns": [^]]*]', '"turns": [1.0]', text),
        re.sub('("apart".*?"mu": [^0-9]*)1.0', r"\g<1>5.0", text, flags=re.DOTALL),
        text.replace('"usual": {', '"usual": {"s": [0.0], '),
        text.replace('"usual": {', '"usual": {"s": [1' + "0" * 400 + "], "),
    ]
    for text in broken:
        with pytest.raises(ParameterizationError, match="flat directions"):
            ar.Parameterization.from_json(text)


SEVERAL = (30,) * 12
DIFFERENT = (200, 3, 200, 3, 2)


@pytest.mark.slow
def test_a_site_without_a_shape_may_be_part_of_a_direction():
    y = np.random.default_rng(60).normal(size=(3, 200)) + np.array([[0.0], [2.0], [-3.0]])

    def model():
        top = numpyro.sample("top", dist.Normal(0.0, 100.0))
        above, between, noise = (
            numpyro.sample(name, dist.HalfCauchy(25.0)) for name in ("above", "between", "noise")
        )
        mean = numpyro.sample("mean", dist.Normal(top, above))
        group = numpyro.sample("group", dist.Normal(mean, between).expand([3, 1]).to_event(2))
        numpyro.sample("y", dist.Normal(group, noise), obs=y)

    tree = ar.sample(model, warmup=200, draws=50, progress=False)
    flat = ar.parameterization(tree).flat
    assert flat is not None
    assert flat.usual["mean"].shape == ()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::autoreparam.errors.SamplingWarning")
@pytest.mark.parametrize(
    ("model", "data", "least"),
    [
        # Without directions 3 to 6, and large s are found a third as often as they should be.
        (added, few_groups(), 30),
        (around, few_groups(), 30),
        # With directions in which all groups move alike, large s were too rare in these two.
        (partial(added, groups=5), few_groups(DIFFERENT, spread=0.3), 6),
        (nested, few_groups(SEVERAL), 12),  # it was 0.1 to 5
    ],
)
def test_a_vague_scale_of_few_groups_is_right_and_quick(model, data, least):
    parents = np.repeat(np.arange(3), 4) if model is nested else None
    s, weights = exact_scale(*data, parents)
    large = s[np.searchsorted(np.cumsum(weights), 0.95)]
    errors, efficient = [], []
    for seed in range(4):
        tree = ar.sample(model, data, seed=seed, progress=False)
        draws = tree.posterior["s"].values
        for statistic in (np.log, np.sqrt, lambda x: 1.0 * (x > large)):
            mine = statistic(draws)
            error = float(arviz_stats.mcse(mine, chain_axis=0, draw_axis=1))
            errors.append((mine.mean() - weights @ statistic(s)) / error)
        efficient.append(ar.efficiency(tree).ess_per_1000_total)
    assert np.sqrt(np.mean(np.square(errors))) < 1.7
    assert max(map(abs, errors)) < 4
    assert np.median(efficient) > least
