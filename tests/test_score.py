"""λ learned from draws and scores: its optimum, its guards, and the default that uses it."""

import json

import arviz_stats
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from exact import surveys
from numpyro.contrib.control_flow import scan

import autoreparam as ar
from autoreparam.errors import AutoreparamError
from autoreparam.learn.descent import descends
from autoreparam.learn.informed import informed
from autoreparam.learn.necks import depths_of, out_of_necks
from autoreparam.learn.objective import Cost, Draws, coupled, inflations, saved
from autoreparam.learn.score import fit_draws, fit_score
from autoreparam.learn.seen import see
from autoreparam.learn.settings import ScoreSettings
from autoreparam.program.target import Target


def exact_draws(target, lam, n, seed=0):
    """Draws, scores and log densities of a linear-Gaussian target, in the coordinates of `lam`."""
    origin = jnp.zeros(target.size)
    slope = jax.grad(target.logdensity)(origin, lam)
    precision = -jax.hessian(target.logdensity)(origin, lam)
    covariance = jnp.linalg.inv(precision)
    factor = jnp.linalg.cholesky(covariance)
    noise = jax.random.normal(jax.random.key(seed), (n, target.size))
    positions = covariance @ slope + noise @ factor.T
    scores = slope - positions @ precision
    values = positions @ slope - jnp.einsum("ni,ij,nj->n", positions, precision, positions) / 2
    return tuple(map(np.asarray, (positions, scores, values)))


@jax.jit
def exact_objective(target, lam):
    """Σ ½ log(Σ_ii P_ii): the objective with infinitely many draws."""
    precision = -jax.hessian(target.logdensity)(jnp.zeros(target.size), lam)
    return 0.5 * jnp.sum(jnp.log(jnp.diag(jnp.linalg.inv(precision)) * jnp.diag(precision)))


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.3, 1.0, 10.0])
def test_the_gaussian_toy_is_left_with_almost_no_inflation(sigma):
    problem = ar.zoo.load("toy", sigma=sigma)
    target = Target(ar.inspect(problem.model, problem.args, problem.kwargs))
    start = ar.Parameterization.constant(target.program, 0.5)
    draws = exact_draws(target, start, 2000)
    fit = fit_score(target, *draws, start)
    best = min(exact_objective(target, start.replace({"mu": lam}))
               for lam in np.linspace(0, 1, 101))  # fmt: skip
    assert exact_objective(target, fit.parameterization) < best + 0.02


@pytest.mark.slow
@surveys
def test_a_survey_of_radon_is_within_reach_of_the_exact_minimum(survey):
    problem = survey()
    target = Target(ar.inspect(problem.model, problem.args, problem.kwargs))
    start = ar.Parameterization.constant(target.program, 0.5)
    draws = exact_draws(target, start, 16000)
    fit = fit_score(target, *draws, start, most=16000)
    sizes = np.bincount(problem.kwargs["county"])
    near = start.replace({"m": sizes / (sizes + 1)})  # the optimum of the ELBO, close by
    found = exact_objective(target, fit.parameterization)
    assert found < exact_objective(target, near) + 0.05
    ends = (ar.Parameterization.centered(target.program),
            ar.Parameterization.noncentered(target.program))  # fmt: skip
    assert found < min(exact_objective(target, end) for end in ends)


@pytest.mark.slow
def test_what_the_data_tell_of_each_element_is_found_from_few_draws():
    size = np.array([0.0, 1.0, 4.0, 100.0])

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
        with numpyro.plate("group", 4):
            theta = numpyro.sample("theta", dist.Normal(mu, 1.0))
        numpyro.factor("data", -0.5 * jnp.sum(size * (y - theta) ** 2))

    target = Target(ar.inspect(model, (np.arange(4.0),)))
    for lam in (0.2, 1.0):
        start = ar.Parameterization.constant(target.program, lam)
        draws = Draws(*exact_draws(target, start, 200), np.ones(200))
        found = informed(target, draws, start)
        # Its error falls with the part of the score that the data leave to the prior.
        np.testing.assert_allclose(found["theta"], size / (size + 1), atol=0.1)
        assert found["theta"][0] < 1e-12  # no data at all
        assert found["theta"][3] > 0.98


def groups(y, spread):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    log_tau = numpyro.sample("log_tau", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", y.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, jnp.exp(log_tau)))
        numpyro.sample("y", dist.Normal(theta, spread), obs=y)


Y = np.array([0.3, -1.0, 2.2, 0.7, 1.4, -0.2])
SPREAD = np.array([0.05, 0.05, 0.05, 5.0, 5.0, 5.0])


def assert_centered_where_known(lam):
    """λ is near τ² / (τ² + SPREAD²), with τ about 1: 0.998 and 0.04.

    Over seeds the learned ones are 0.994 to 1 and 0.02 to 0.15.
    """
    assert lam[:3].min() > 0.98
    assert lam[3:].max() < 0.25


@pytest.mark.slow
def test_the_default_centers_what_is_known_and_not_what_is_unknown():
    tree = ar.sample(groups, (Y, SPREAD), draws=100, progress=False)
    assert_centered_where_known(tree["parameterization"]["theta"].values)


def test_what_was_compared_and_chosen_is_in_the_tree():
    tree = ar.sample(groups, (Y, SPREAD), draws=20, progress=False)
    learning = tree["learning"].to_dataset()
    windows = json.loads(learning.attrs["windows"])
    # Five windows; the first may still climb to the posterior, and then it teaches nothing.
    assert len(windows) == learning.sizes["window"]
    assert len(windows) in (4, 5)
    for number, window in enumerate(windows):
        objectives = {
            name.removeprefix("objective_"): float(values[number])
            for name, values in learning.data_vars.items()
            if name.startswith("objective_") and np.isfinite(values[number])
        }
        assert objectives.keys() >= {"informed", "kept", "centered", "noncentered"}
        assert window["chosen"] == min(objectives, key=objectives.get)
    np.testing.assert_array_equal(
        learning["lam_theta"][-1], tree["parameterization"]["theta"].values
    )
    assert json.loads(learning.attrs["sites"]) == ["theta"]
    assert learning["inflation_after"] < learning["inflation_before"]


def heavy(y, spread):
    mu, tau = numpyro.sample("mu", dist.Normal(0.0, 5.0)), numpyro.sample("tau", dist.HalfNormal(5))
    theta = numpyro.sample("theta", dist.StudentT(4.0, mu, tau).expand([len(y)]).to_event(1))
    numpyro.sample("y", dist.Normal(theta, spread), obs=y)


def nested(y, spread):
    mu, tau = numpyro.sample("mu", dist.Normal(0.0, 5.0)), numpyro.sample("tau", dist.HalfNormal(5))
    upper = numpyro.sample("upper", dist.Normal(mu, tau).expand([2]).to_event(1))
    theta = numpyro.sample("theta", dist.Normal(upper[np.arange(len(y)) % 2], tau).to_event(1))
    numpyro.sample("y", dist.Normal(theta, spread), obs=y)


@pytest.mark.parametrize(
    ("model", "inflations", "expected"),
    [
        (groups, [0.1, 0.8], False),  # as much as chance may make of 64 draws
        (groups, [0.1, 1.2], True),
        (heavy, [0.1, 0.1], True),
        (nested, [0.1, 0.1], True),
    ],
)
def test_there_is_a_descent_where_something_may_be_gained(model, inflations, expected):
    target = Target(ar.inspect(model, (Y, SPREAD)))
    cost = Cost(np.array(inflations), 1.0)
    assert descends(target, None, cost, 64, ScoreSettings()) == expected
    assert descends(target, 20, cost, 64, ScoreSettings())
    assert descends(target, None, None, 64, ScoreSettings())


def test_draws_of_warmup_are_mapped_back_with_the_lam_of_their_window(tmp_path):
    keywords = {"draws": 30, "warmup": 200, "save_warmup": True, "chains": 2, "progress": False}
    tree = ar.sample(groups, (Y, SPREAD), **keywords)
    ar.sample(groups, (Y, SPREAD), checkpoint=tmp_path / "run", **{**keywords, "draws": 5})
    resumed = ar.resume(tmp_path / "run", groups, (Y, SPREAD), draws=30, progress=False)
    density = jax.vmap(jax.vmap(ar.log_joint(groups, (Y, SPREAD))))
    for run in (tree, resumed):
        values = {name: run["warmup_posterior"][name].values for name in ("mu", "log_tau", "theta")}
        lp = run["warmup_sample_stats"]["lp"].values
        np.testing.assert_allclose(lp, density(values), rtol=1e-6, atol=1e-6)
    # The first windows ran at λ = 0, the last elsewhere: a single map cannot fit them all.
    assert tree["parameterization"]["theta"].values.max() > 0.1
    np.testing.assert_array_equal(
        tree["warmup_posterior"]["theta"].values, resumed["warmup_posterior"]["theta"].values
    )


def test_the_default_is_deterministic_and_works_with_one_chain():
    runs = [ar.sample(groups, (Y, SPREAD), draws=20, warmup=100, chains=1, progress=False)
            for _ in range(2)]  # fmt: skip
    first, again = (run["posterior"]["theta"].values for run in runs)
    np.testing.assert_array_equal(first, again)


@pytest.mark.slow
def test_single_precision_learns_about_the_same(float32):
    tree = ar.sample(groups, (Y.astype("f"), SPREAD.astype("f")), draws=50, progress=False)
    assert_centered_where_known(tree["parameterization"]["theta"].values)


def test_too_few_draws_change_nothing_and_say_so():
    target = Target(ar.inspect(groups, (Y, SPREAD)))
    start = ar.Parameterization.constant(target.program, 0.4)
    few = np.random.default_rng(0).normal(size=(5, target.size))
    fit = fit_score(target, few, few, few[:, 0], start)
    assert fit.parameterization == start
    assert "too few draws (5)" in fit.note


def test_draws_that_are_not_finite_are_left_out():
    target = Target(ar.inspect(groups, (Y, SPREAD)))
    start = ar.Parameterization.constant(target.program, 0.4)
    draws = np.random.default_rng(0).normal(size=(200, target.size))
    draws[::3, 0] = np.nan
    fit = fit_score(target, draws, -draws, -np.sum(draws**2, axis=1) / 2, start)
    assert np.isfinite(fit.objective)


def test_wild_scores_never_leave_a_worse_choice_than_the_present_one():
    target = Target(ar.inspect(groups, (Y, SPREAD)))
    start = ar.Parameterization.constant(target.program, 0.4)
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(200, target.size))
    scores = rng.standard_cauchy(size=draws.shape) * 1e6
    fit = fit_score(target, draws, scores, scores[:, 0], start)
    assert fit.objective <= fit.objectives["kept"]


def test_learning_from_an_earlier_run_pays_one_gradient_a_draw():
    tree = ar.sample(groups, (Y, SPREAD), parameterization="centered", draws=250, progress=False)
    fit = ar.learn(groups, (Y, SPREAD), objective="score", draws=tree)
    assert fit.gradients == 1000
    assert fit.elbo is None
    assert_centered_where_known(fit.parameterization["theta"])
    with pytest.raises(AutoreparamError, match="pass draws=tree"):
        ar.learn(groups, (Y, SPREAD), objective="score")
    with pytest.raises(AutoreparamError, match="objective: expected"):
        ar.learn(groups, (Y, SPREAD), objective="magic")


@pytest.mark.slow
def test_mean_and_spread_of_a_fit_to_draws_are_in_the_coordinates_of_its_lam():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(3.0, 0.1))
        x = numpyro.sample("x", dist.Normal(mu, 2.0))
        numpyro.sample("y", dist.Normal(x, 0.01), obs=y)

    target = Target(ar.inspect(model, (5.0,)))
    start = ar.Parameterization.noncentered(target.program)
    positions, *_ = exact_draws(target, start, 400)
    rows = jax.vmap(target.to_sites, (0, None))(positions, start)
    fit = fit_draws(target, rows, start)
    assert fit.parameterization["x"] > 0.9
    there = jax.vmap(target.from_sites, (0, None))(rows, fit.parameterization)
    np.testing.assert_allclose(fit.loc, there.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(fit.scale, there.std(axis=0), rtol=1e-6)
    assert abs(fit.loc[1] - 5) < 0.3  # centered, x is where its data are


def test_a_model_without_candidates_is_sampled_as_it_is():
    def model():
        numpyro.sample("x", dist.Normal(3.0, 2.0))

    tree = ar.sample(model, draws=200, warmup=100, progress=False)
    x = tree["posterior"]["x"]
    assert abs(float(x.mean()) - 3) < 4.5 * float(arviz_stats.mcse(x))
    assert float(arviz_stats.mcse(x)) < 0.2
    assert not tree["parameterization"].data_vars


@pytest.mark.parametrize("shared", [False, True], ids=["own scales", "one scale"])
def test_elements_stay_out_of_the_necks_of_their_scales(shared):
    spread = np.array([0.01] * 40 + [1.0, 2.0, 4.0])

    def model():
        with numpyro.plate("i", 43):
            own = numpyro.sample("own", dist.Normal(0.0, spread))
        one = numpyro.sample("one", dist.Normal(0.0, 2.0))
        with numpyro.plate("i", 43):
            numpyro.sample("x", dist.Normal(0.0, jnp.exp(one if shared else own)))

    target = Target(ar.inspect(model))
    rng = np.random.default_rng(0)
    own, one = rng.normal(size=(500, 43)) * spread, 2 * rng.normal(size=(500, 1))
    x = rng.normal(size=(500, 43)) * np.exp(one if shared else own)
    rows, lost = np.concatenate([own, one, x], axis=1), np.arange(500) % 5 == 0
    rows[lost, :44] -= 20  # of no weight
    draws = Draws(rows, None, None, np.where(lost, 0.0, 1.0))
    centered, settings = ar.Parameterization.centered(target.program), ScoreSettings()
    priors = see(target, draws.positions, centered, settings)
    depths = depths_of(target, priors.log_scales, draws.weights > 0, settings, np)
    nothing = centered.map(np.zeros_like)
    found = out_of_necks(target, centered, depths, nothing, settings, np)["x"]
    # How far the lowest twentieth is from the median; then its square, relative to the median's.
    below = 1.645 * (np.full(43, 2.0) if shared else spread)
    np.testing.assert_allclose(depths["x"], below, rtol=0.2)
    low = np.exp(-2 * depths["x"])
    deep = low < 1 / 9
    least = (1 / 9 - low) / (1 - low)  # of `1 - λ`: the width there is a third
    np.testing.assert_allclose(1 - found[deep], least[deep])
    assert (found[~deep] == 1).all()
    # Of an element that the data know well, the width follows the scale only below its own error.
    known = centered.map(lambda lam: np.full_like(lam, 0.9))
    known = out_of_necks(target, centered, depths, known, settings, np)["x"]
    least = ((1 - 0.9 * (1 - low)) / 9 - low) / (1 - low)
    np.testing.assert_allclose(1 - known, np.maximum(least, 0), atol=1e-12)


def test_what_a_metric_with_directions_removes_costs_nothing():
    rng = np.random.default_rng(0)
    positions = rng.normal(size=(4000, 8)) @ rng.normal(size=(8, 8))
    block = positions[:, :6]
    gaussian = -np.linalg.solve(np.cov(block.T, bias=True), block.T).T
    scores, weights = np.concatenate([gaussian, -positions[:, 6:]], axis=1), np.ones(4000)
    diagonal = inflations(positions, scores, weights, np)[:6].sum()
    assert diagonal > 1
    blocks = (np.arange(6)[None],)
    np.testing.assert_allclose(saved(positions, scores, weights, blocks, np), -diagonal, 0.01)
    traced = jax.jit(saved)(positions, scores, weights, blocks)
    np.testing.assert_allclose(traced, -diagonal, 0.01)
    assert saved(positions, scores, weights, (), np) == 0
    few = positions[:5], scores[:5], weights[:5]
    assert saved(*few, blocks, np) == 0  # five draws say nothing about six directions
    each = [saved(positions, scores, weights, (np.array([pair]),), np) for pair in ([0, 3], [4, 1])]
    both = saved(positions, scores, weights, (np.array([[0, 3], [4, 1]]),), np)
    np.testing.assert_allclose(both, sum(each), rtol=1e-6)


def _vectors():
    factor = numpyro.sample("factor", dist.LKJCholesky(2))
    with numpyro.plate("group", 3):
        numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(2), scale_tril=factor))


def _vectors_in_rows():
    factor = numpyro.sample("factor", dist.LKJCholesky(2))
    x = numpyro.sample("x", dist.Normal(0, 1).expand([3, 2]).to_event(2))
    numpyro.sample("y", dist.Normal(x @ factor.T, 1).to_event(2), obs=np.ones((3, 2)))


def _vectors_in_columns():
    factor = numpyro.sample("factor", dist.LKJCholesky(2))
    x = numpyro.sample("x", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    numpyro.sample("y", dist.Normal(factor @ x, 1).to_event(2), obs=np.ones((2, 3)))


def _walks():
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("series", 3):
        numpyro.sample("x", dist.GaussianRandomWalk(scale, 2))


def _walks_in_columns():
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    x = numpyro.sample("x", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    mean = jnp.cumsum(scale * x, axis=0)
    numpyro.sample("y", dist.Normal(mean, 1).to_event(2), obs=np.ones((2, 3)))


@pytest.mark.parametrize(
    "model", [_vectors, _vectors_in_rows, _vectors_in_columns, _walks, _walks_in_columns]
)
def test_coupled_elements_are_found_within_each_vector_or_sequence(model):
    target = Target(ar.inspect(model))
    assert [site.name for site in target.program.latents][1] == "x"
    (found,) = coupled(target, directions=6)
    columns = model in (_vectors_in_columns, _walks_in_columns)
    places = [[0, 3], [1, 4], [2, 5]] if columns else [[0, 1], [2, 3], [4, 5]]
    np.testing.assert_array_equal(found, 1 + np.array(places))
    assert coupled(target, directions=5) == ()


def test_sequences_learn_where_they_are():
    level, steps = 50.0, 12
    path = level + np.arange(steps)

    def model():
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        _, x = scan(
            lambda x, _: (numpyro.sample("x", dist.Normal(x, scale)),) * 2, level, None, steps
        )
        numpyro.sample("y", dist.Normal(x, 1.0), obs=path)

    target = Target(ar.inspect(model))
    lam = ar.Parameterization.constant(target.program, 0.5)
    draw = np.random.default_rng(0)
    scales, steps_of = draw.gamma(9.0, 1 / 9, 400), np.eye(steps) - np.eye(steps, k=-1)
    before = level * np.eye(steps)[0]
    covariances = np.linalg.inv(np.eye(steps) + steps_of.T @ steps_of / scales[:, None, None] ** 2)
    middles = path + steps_of.T @ before / scales[:, None] ** 2
    middles = np.einsum("nij,nj->ni", covariances, middles)
    noise = np.linalg.cholesky(covariances) @ draw.normal(size=(400, steps, 1))
    values = {"scale": scales, "x": middles + noise[..., 0]}
    positions = jax.vmap(target.from_sites, (0, None))(values, lam)
    density, scores = jax.vmap(jax.value_and_grad(target.logdensity), (0, None))(positions, lam)
    found = fit_score(target, *map(np.asarray, (positions, scores, density)), lam)
    origin = found.parameterization.of("x").origin
    np.testing.assert_allclose(origin, np.median(values["x"], axis=0), atol=0.2)
    # Otherwise every element would follow the scale.
    for new, tied in ((lam, True), (found.parameterization.replace({"x": 0.5}), False)):
        working = jax.vmap(target.from_sites, (0, None))(values, new)
        correlation = np.corrcoef(np.asarray(working).T)[0, 1:]
        assert np.all(np.abs(correlation) > 0.9) if tied else np.all(np.abs(correlation) < 0.5)
