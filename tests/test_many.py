"""Many data sets in one call: exact posteriors, λ of their own, calibration, refusals."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_stats.base import array_stats
from exact import eight_schools, gaussian
from scipy import stats

import autoreparam as ar
from autoreparam.errors import AutoreparamError, ModelError, SamplingWarning
from autoreparam.learn.many import fit_inside
from autoreparam.learn.score import fit_score
from autoreparam.mcmc.many import run_window
from autoreparam.mcmc.many_retune import retune
from autoreparam.program.maps.gain import QUADRATIC
from autoreparam.program.target import Target
from autoreparam.results.many import warnings_about, worst

GROUPS = 4
NOISE = np.array([0.1, 1.0, 1.0, 8.0])  # by data set: rich data to poor data
Y = np.random.default_rng(3).normal(1.0, 2.0, (len(NOISE), GROUPS))
SHORT = {"draws": 300, "warmup": 150, "chains": 3, "progress": False}


def groups(noise, y, width):
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    with numpyro.plate("group", GROUPS):
        theta = numpyro.sample("theta", dist.Normal(mu, width))
        numpyro.sample("y", dist.Normal(theta, noise), obs=y)
    numpyro.deterministic("twice", 2 * mu)


def quietly(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        return ar.sample_many(*args, **options)


@pytest.fixture(scope="module")
def tree():
    return quietly(groups, (NOISE, Y), {"width": 1.5}, shared=["width"], **SHORT)


# -- one compiled run -------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(NOISE)))
def test_each_data_set_has_its_own_exact_posterior(tree, number):
    drawn = tree.isel(dataset=number)["posterior"]
    for name, (mean, sd) in gaussian(groups, (NOISE[number], Y[number], 1.5), None).items():
        draws = drawn[name].values.reshape(3 * 300, -1)
        effective = np.array([array_stats.ess(x.reshape(3, 300)) for x in draws.T])
        error = draws.std(axis=0) / np.sqrt(effective)
        np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean), 5 * error)
        np.testing.assert_array_less(np.abs(draws.std(axis=0) / sd - 1), 5 / np.sqrt(effective))


def test_rich_data_are_centered_and_poor_data_are_not(tree):
    lam = tree["parameterization"]["theta"].values.mean(axis=1)
    assert lam[0] > 0.8
    assert lam[3] < 0.3


def test_the_tree_has_an_axis_of_data_sets_everywhere(tree):
    assert tree["posterior"]["theta"].dims == ("dataset", "chain", "draw", "group")
    assert tree["posterior"]["theta"].shape == (4, 3, 300, GROUPS)
    np.testing.assert_allclose(tree["posterior"]["twice"], 2 * tree["posterior"]["mu"])
    wanted = {"acceptance_rate", "diverging", "energy", "lp", "n_steps", "step_size"}
    assert set(tree["sample_stats"].data_vars) == wanted
    assert tree["parameterization"]["theta"].dims == ("dataset", "group")
    np.testing.assert_allclose(tree["observed_data"]["y"], Y)
    spent = tree["diagnostics"]["gradients_sampling"].values
    np.testing.assert_array_equal(spent, tree["sample_stats"]["n_steps"].sum(("chain", "draw")))
    assert tree.attrs["all_gradients_sampling"] == spent.sum()
    assert tree.attrs["all_gradients_warmup"] > 0
    assert (tree["diagnostics"]["r_hat"] < 1.05).all()
    assert (tree["diagnostics"]["ess"] > 100).all()


def test_the_log_density_is_that_of_the_model(tree):
    one = tree.isel(dataset=2, chain=1, draw=7)
    joint = ar.log_joint(groups, (NOISE[2], Y[2], 1.5))
    there = joint({name: one["posterior"][name].values for name in ("mu", "theta")})
    np.testing.assert_allclose(one["sample_stats"]["lp"], there, rtol=1e-6)


def wild(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Poisson(jnp.exp(slope * x)), obs=y)


def test_covariates_in_wild_units_are_begun_as_narrowly_as_they_ask_for():
    x = 1e5 * np.random.default_rng(0).normal(size=(5, 20))
    tree = quietly(wild, (x, np.ones((5, 20))), **SHORT)
    # Slopes of a hundredth of the prior's width have a density of -exp(1000).
    assert (tree["diagnostics"]["r_hat"] < 1.05).all()
    assert (np.abs(tree["posterior"]["slope"]) < 1e-4).all()


def test_one_data_set_of_the_tree_is_a_run(tree):
    one = tree.isel(dataset=1)
    assert len(ar.summary(one).labels) == 2 + GROUPS
    lam = ar.parameterization(one)
    np.testing.assert_allclose(lam["theta"], tree["parameterization"]["theta"][1])
    lam.check(ar.inspect(groups, (NOISE[1], Y[1], 1.5)))
    with pytest.raises(AutoreparamError, match="isel"):
        ar.summary(tree)


def test_the_same_seed_gives_the_same_draws_without_compiling_again(tree):
    before = run_window.programs(), retune.programs()
    again = quietly(groups, (NOISE, Y), {"width": 1.5}, shared=["width"], **SHORT, var_names="mu")
    assert (run_window.programs(), retune.programs()) == before
    assert list(again["posterior"].data_vars) == ["mu"]
    np.testing.assert_array_equal(again["posterior"]["mu"], tree["posterior"]["mu"])


def test_a_data_set_without_a_finite_density_is_named():
    broken = Y.copy()
    broken[2, 1] = np.nan
    with pytest.raises(ModelError, match="data set 2: observed site 'y'"):
        ar.sample_many(groups, (NOISE, broken), {"width": 1.5}, shared=["width"], **SHORT)


# -- parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("correlation", [-0.4, 0.0, 0.8])
@pytest.mark.parametrize("shape", [(5, 4, 1000), (5, 2, 300)])
def test_r_hat_is_that_of_arviz_and_ess_close_to_it(shape, correlation):
    x = np.random.default_rng(1).normal(size=shape)
    for draw in range(1, shape[2]):
        x[:, :, draw] += correlation * x[:, :, draw - 1]
    x[:, :, 5::7] = x[:, :, 4 : 4 + 7 * x[:, :, 5::7].shape[2] : 7]  # as if rejected
    r_hat, ess = worst({"x": x})
    np.testing.assert_allclose(r_hat, array_stats.rhat(x, method="rank"), rtol=1e-9)
    tails = array_stats.ess(x, method="tail", prob=(0.05, 0.95))
    np.testing.assert_allclose(ess, np.minimum(array_stats.ess(x, method="bulk"), tails), rtol=0.2)


def test_the_worst_scalar_of_each_data_set_is_found():
    x = np.random.default_rng(2).normal(size=(3, 2, 200, 5))
    x[1, 0, :, 3] += 2
    agreement, effective = worst({"a": x[..., :2], "b": x[..., 2:]})
    assert np.argmax(agreement) == 1
    assert agreement[1] > 1.1
    assert effective[1] < 50 < effective[[0, 2]].min()


def test_data_sets_that_cannot_be_trusted_are_counted_and_named():
    bad = np.array([1.0, 1.2, np.nan, 1.0])
    said = warnings_about({"r_hat": bad, "divergences": np.array([0, 0, 0, 3])}, 4)
    assert "in 2 of 4 data sets (1, 2)" in said[0]
    assert "diverged in 1 of 4 data sets (3)" in said[1]
    fine = {"r_hat": np.ones(3), "divergences": np.zeros(3, int)}
    assert warnings_about(fine, 4) == []
    many = {"r_hat": np.full(30, 2.0), "divergences": np.zeros(30, int)}
    assert "(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...)" in warnings_about(many, 4)[0]


@pytest.mark.slow
def test_lam_fitted_inside_a_compiled_program_is_that_of_a_single_run():
    target = Target(ar.inspect(groups, (1.0, Y[1], 1.5)))
    lam = ar.Parameterization.constant(target.program, 0.0, gain=QUADRATIC)  # as it is learned
    rng = np.random.default_rng(0)
    exact = gaussian(groups, (1.0, Y[1], 1.5), None)
    rows = {n: m + s * rng.normal(size=(128, *np.shape(m))) for n, (m, s) in exact.items()}
    position = jax.jit(jax.vmap(target.from_sites, (0, None)))(rows, lam)
    look = jax.jit(jax.vmap(jax.value_and_grad(target.logdensity), (0, None)))
    value, score = look(position, lam)
    draws = tuple(map(np.asarray, (position, score, value)))
    alone = fit_score(target, *draws, lam, most=128).parameterization
    inside = jax.jit(fit_inside)(target, *draws, np.ones(128), lam)
    np.testing.assert_allclose(inside["theta"], alone["theta"], atol=0.1)


# -- long runs --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["single", pytest.param("double", marks=pytest.mark.long)])
def test_eight_schools_with_other_data_agree_with_quadrature(precision):
    problem, rng = ar.zoo.load("eight_schools"), np.random.default_rng(0)
    sigma, y = problem.kwargs["sigma"], problem.kwargs["y"]
    y = np.stack([y, -2 * y, rng.normal(0, 60, 8), rng.normal(0, 5, 8)])
    found = quietly(
        problem.model,
        kwargs={"sigma": sigma, "y": y},
        shared=["sigma"],
        draws=2000,
        precision=precision,
        progress=False,
    )
    for number, here in enumerate(y):
        drawn = found.isel(dataset=number)["posterior"]
        assert drawn["mu"].dtype == {"single": np.float32, "double": np.float64}[precision]
        for name, (mean, sd) in eight_schools(here, sigma).items():
            draws = drawn[name].values.astype(float).reshape(4, 2000, -1)
            for values, wanted in ((draws, mean), ((draws - mean) ** 2, sd**2)):
                effective = np.array([array_stats.ess(x) for x in np.moveaxis(values, 2, 0)])
                error = values.std(axis=(0, 1)) / np.sqrt(effective)
                assert (np.abs(values.mean(axis=(0, 1)) - wanted) < 5 * error).all(), (number, name)
    lam = found["parameterization"]["theta"].values.mean(axis=1)
    assert lam[2] > lam[0] + 0.2


@pytest.mark.slow
def test_chains_that_begin_far_away_get_there():
    problem, rng = ar.zoo.load("eight_schools"), np.random.default_rng(0)
    sigma, width = problem.kwargs["sigma"], np.exp(np.linspace(8, 11, 12))[:, None]
    y = rng.normal(0, width, (12, 8))
    data = {"sigma": sigma, "y": y}
    found = quietly(problem.model, (), data, shared=["sigma"], precision="double", progress=False)
    paid = found["diagnostics"]["gradients_warmup"].values
    # Some have another warm-up, which begins nearer and so may cost less than the first.
    assert paid.max() > 1.5 * paid.min()
    assert (found["diagnostics"]["r_hat"] < 1.01).all()
    for number, here in enumerate(y):
        mean, sd = eight_schools(here, sigma)["log_tau"]
        drawn = found["posterior"]["log_tau"].values[number]
        assert abs(drawn.mean() - mean) < 5 * sd / np.sqrt(array_stats.ess(drawn)), number


@pytest.mark.slow
def test_the_posterior_is_that_of_sample():
    problem = ar.zoo.load("eight_schools")
    y = problem.kwargs["y"] * np.array([[1.0], [-1.0], [3.0]])
    data = {"sigma": problem.kwargs["sigma"], "y": y}
    found = quietly(problem.model, (), data, shared=["sigma"], progress=False)
    for number in range(len(y)):
        alone = ar.sample(problem.model, (), data | {"y": y[number]}, progress=False, seed=1)
        many = found.isel(dataset=number)
        for one, other in zip(*(ar.summary(t).to_dataframe().iterrows() for t in (many, alone))):
            error = np.hypot(one[1]["mcse_mean"], other[1]["mcse_mean"])
            assert abs(one[1]["mean"] - other[1]["mean"]) < 5 * error, one[0]


def hierarchy(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    log_tau = numpyro.sample("log_tau", dist.Normal(-0.5, 0.5))
    with numpyro.plate("group", 3):
        theta = numpyro.sample("theta", dist.Normal(mu, jnp.exp(log_tau)))
        numpyro.sample("y", dist.Normal(theta, 0.7), obs=y)


@pytest.mark.long
def test_ranks_of_the_truth_are_uniform_over_data_sets_from_the_prior():
    rng, count = np.random.default_rng(5), 400
    truth = {"mu": rng.normal(size=count), "log_tau": rng.normal(-0.5, 0.5, count)}
    spread = np.exp(truth["log_tau"])[:, None]
    truth["theta"] = truth["mu"][:, None] + spread * rng.normal(size=(count, 3))
    y = truth["theta"] + 0.7 * rng.normal(size=(count, 3))
    found = quietly(hierarchy, (y,), draws=310, warmup=250, chains=2, progress=False)
    for name, true in truth.items():
        draws = found["posterior"][name].values[:, :, ::20].reshape(count, 32, -1)[:, :31]
        ranks = (draws < true.reshape(count, 1, -1)).sum(axis=1)
        for column in ranks.T:
            counts = np.bincount(column // 4, minlength=8)
            assert stats.chisquare(counts).pvalue > 1e-4, (name, counts)


def mixture(y):
    gap = numpyro.sample("gap", dist.HalfNormal(5.0))
    with numpyro.plate("row", 8):
        kind = numpyro.sample("kind", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(gap * kind, 1.0), obs=y)


@pytest.mark.slow
def test_discrete_latents_are_summed_out():
    y = np.array([[0, 3.0] * 4, [0, 6.0] * 4])
    found = quietly(mixture, (y,), **SHORT)
    means = found["posterior"]["gap"].mean(("chain", "draw")).values
    np.testing.assert_allclose(means, [3, 6], atol=0.3)
