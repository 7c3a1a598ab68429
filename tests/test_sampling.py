"""Every kernel in every parameterization against exact answers; one compiled program."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_stats.base import array_stats
from exact import eight_schools, gaussian, surveys

import autoreparam as ar
from autoreparam.errors import AutoreparamError, SamplingWarning
from autoreparam.learn.elbo import fit_elbo
from autoreparam.mcmc import chains as chains_module
from autoreparam.mcmc.chains import Chains, chain_keys, from_rows, run_chunk
from autoreparam.mcmc.hmc import Kernel, tuning_like
from autoreparam.mcmc.interleaved import draw, stack_slots
from autoreparam.mcmc.step_size import begin
from autoreparam.program.target import Target

# What holds for one kernel is not likely to fail for the other; a long run shows both.
ONE_IN_CI = ["hmc", pytest.param("nuts", marks=pytest.mark.slow)]
METHODS = ["centered", "noncentered", "interleaved", "vip", "auto"]
AUTO_IN_CI = [pytest.param(name, marks=pytest.mark.slow) for name in METHODS[:-1]] + ["auto"]


def worst_z(tree, expected, sites):
    """The largest deviation of a posterior mean or standard deviation, in Monte Carlo errors."""
    worst = 0.0
    for name in sites:
        mean, sd = (np.ravel(part) for part in expected[name])
        draws = tree["posterior"][name].values
        draws = draws.reshape(*draws.shape[:2], -1)
        for i in range(draws.shape[-1]):
            x = draws[..., i]
            ess = float(array_stats.ess(x, chain_axis=0, draw_axis=1, method="mean"))
            ess_square = float(
                array_stats.ess((x - mean[i]) ** 2, chain_axis=0, draw_axis=1, method="mean")
            )
            worst = max(worst, abs(x.mean() - mean[i]) / (x.std() / np.sqrt(ess)))
            error = ((x - mean[i]) ** 2).std() / np.sqrt(ess_square)
            worst = max(worst, abs(((x - mean[i]) ** 2).mean() - sd[i] ** 2) / error)
    return worst


@pytest.mark.parametrize("kernel", ONE_IN_CI)
@pytest.mark.parametrize("method", AUTO_IN_CI)
def test_the_gaussian_toy_is_met(kernel, method):
    problem = ar.zoo.load("toy")
    expected = gaussian(problem.model, problem.args, problem.kwargs)
    tree = ar.sample(problem.model, problem.args, problem.kwargs, parameterization=method,
                     kernel=kernel, draws=1500, warmup=300, progress=False)  # fmt: skip
    assert worst_z(tree, expected, ["theta", "mu"]) < 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "method"),
    [
        ("nuts", "noncentered"),
        ("nuts", "vip"),
        ("nuts", "auto"),
        ("hmc", "auto"),
        ("hmc", "noncentered"),
        ("hmc", "vip"),
        ("auto", "auto"),
        # The centered slot follows the neck of the funnel with trees of the greatest depth.
        pytest.param("hmc", "interleaved", marks=pytest.mark.long),
        pytest.param("nuts", "interleaved", marks=pytest.mark.long),
    ],
)
def test_eight_schools_is_met(kernel, method):
    problem = ar.zoo.load("eight_schools")
    expected = eight_schools(problem.kwargs["y"], problem.kwargs["sigma"])
    tree = ar.sample(problem.model, problem.args, problem.kwargs, parameterization=method,
                     kernel=kernel, draws=2000, warmup=500, seed=1, target_accept=0.9,
                     progress=False)  # fmt: skip
    assert worst_z(tree, expected, ["mu", "theta", "log_tau"]) < 4.5


@pytest.mark.slow
@surveys
@pytest.mark.parametrize("kernel", ["hmc", pytest.param("nuts", marks=pytest.mark.long)])
@pytest.mark.parametrize("method", METHODS)
def test_a_survey_of_radon_is_met(kernel, method, survey):
    problem = survey()
    expected = gaussian(problem.model, problem.args, problem.kwargs)
    tree = ar.sample(problem.model, problem.args, problem.kwargs, parameterization=method,
                     kernel=kernel, draws=500, warmup=300, progress=False)  # fmt: skip
    # 88 means and 88 variances: the largest of so many is expected near 3.
    assert worst_z(tree, expected, ["mu", "a", "b", "m"]) < 5


def groups(y, spread=1.0):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    log_tau = numpyro.sample("log_tau", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", y.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, jnp.exp(log_tau)))
        numpyro.sample("y", dist.Normal(theta, spread), obs=y)


Y = np.array([0.3, -1.0, 2.2, 0.7])


def test_what_is_compiled_before_the_run_is_what_runs():
    def model(y):  # names that are not in the order of the alphabet
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0).expand([4]).to_event(1))
        numpyro.sample("effect", dist.Normal(0.0, scale).to_event(1))
        numpyro.sample("y", dist.Normal(scale.sum(), 1.0), obs=y)

    before = len(chains_module.traces)
    ar.sample(model, (1.0,), kernel="hmc", draws=10, warmup=50, progress=False)
    assert len(chains_module.traces) - before == 1


@pytest.mark.parametrize("kernel", ONE_IN_CI)
def test_all_runs_and_data_share_a_compiled_chunk_but_for_interleaved_ones(kernel):
    def model(y):  # no other test has compiled it, and it has no flat directions
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with numpyro.plate("group", y.shape[0]):
            theta = numpyro.sample("theta", dist.Normal(0.0, scale))
            numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)

    before = len(chains_module.traces)
    for y in (Y, Y + 1):
        for method in ("centered", "auto", "interleaved"):
            ar.sample(model, (y,), parameterization=method, kernel=kernel, draws=30, warmup=50,
                      progress=False)  # fmt: skip
    assert len(chains_module.traces) - before == 2


def test_the_same_seed_gives_the_same_draws_and_another_seed_does_not():
    runs = [ar.sample(groups, (Y,), draws=40, warmup=50, seed=seed, progress=False)
            for seed in (3, 3, 4)]  # fmt: skip
    first, again, other = (run["posterior"]["theta"].values for run in runs)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("kernel", ONE_IN_CI)
def test_chains_together_equal_chains_one_by_one(kernel):
    target = Target(ar.inspect(groups, (Y,)))
    lam = ar.Parameterization.constant(target.program, 0.3)
    tuning = tuning_like(target, step_size=0.3, num_steps=5.0)
    keys = np.asarray(chain_keys(0, 4))
    positions = 0.1 * jax.random.normal(jax.random.key(1), (4, target.size))
    states = jax.vmap(lambda p: Kernel(kernel).init(target, p, lam))(positions)
    adaptation = begin(np.full((4, 1), 0.3), False, 0.8)
    slots = stack_slots([lam], [tuning])
    chunk = jax.jit(run_chunk, static_argnames=("kernel", "length"))

    def run(which):
        take = jax.tree.map(lambda leaf: leaf[which], (keys, states, adaptation))
        rows = chunk(Kernel(kernel), 20, target, take[0], 0, 20, take[1], slots, take[2])[2]
        return from_rows(np.asarray(rows), target, 1)

    together = run(np.arange(4)).position[:, :20]
    alone = np.concatenate([run(np.array([i])).position[:, :20] for i in range(4)])
    np.testing.assert_allclose(together, alone, rtol=1e-6, atol=1e-8)


def test_the_ledger_counts_every_leapfrog_step():
    # With steps so short that no trajectory overflows, which would end it early.
    tree = ar.sample(groups, (Y,), kernel="hmc", num_steps=7, draws=50, warmup=100,
                     target_accept=0.95, progress=False)  # fmt: skip
    steps = tree["sample_stats"]["n_steps"].values
    assert tree.attrs["gradients_sampling"] == steps.sum()
    # A second try takes twice as many, and the way back from it as many as the first.
    assert set(np.unique(steps)) <= {7, 7 + 14, 7 + 14 + 7}
    assert np.mean(steps == 7) > 0.9
    assert tree.attrs["gradients_warmup"] > 4 * 100 * 7  # and the search for a start
    assert tree.attrs["gradients_learning"] == 0
    vip = ar.sample(groups, (Y,), parameterization="vip", draws=30, warmup=25, progress=False)
    assert vip.attrs["gradients_learning"] > 0


def test_lp_is_the_models_own_log_joint_whatever_lam():
    for method in ("centered", "noncentered", "interleaved"):
        tree = ar.sample(groups, (Y,), parameterization=method, draws=10, warmup=25,
                         progress=False)  # fmt: skip
        density = ar.log_joint(groups, (Y,))
        one = {name: tree["posterior"][name].values[1, 7] for name in ("mu", "log_tau", "theta")}
        lp = tree["sample_stats"]["lp"].values[1, 7]
        np.testing.assert_allclose(lp, density(one), rtol=1e-8)


def test_init_values_are_where_chains_start():
    start = {"mu": 500.0, "theta": np.full(4, 500.0)}  # log_tau is drawn
    tree = ar.sample(groups, (Y,), init=start, draws=1, warmup=0, kernel="hmc", num_steps=1,
                     progress=False)  # fmt: skip
    assert float(tree["posterior"]["mu"].min()) > 100


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"parameterization": "centred"}, "parameterization: expected one of 'auto'"),
        ({"kernel": "gibbs"}, "kernel: expected one of"),
        ({"draws": 0}, "draws: expected an integer >= 1; found 0"),
        ({"chains": 2.5}, "chains: expected an integer"),
        ({"target_accept": 1.5}, "target_accept: expected a number between 0 and 1"),
        ({"num_steps": 0}, "num_steps: expected an integer >= 1"),
        ({"parameterization": ["centered"]}, "parameterization: expected one of 'auto'"),
        ({"target_accept": "high"}, "target_accept: expected a number"),
        ({"seed": 2**70}, "seed: expected an integer from 0"),
        ({"init": [1.0]}, "init: expected a dict"),
        ({"init": {"mu": "one"}}, "init: site 'mu' expects numbers"),
        ({"init": {"mu": np.nan}}, "init: site 'mu' of chain 0 is not finite"),
        ({"draws": 10, "thin": 11}, r"thin: expected at most the number of draws \(10\)"),
        ({"init": {"nu": 1.0}}, "init: 'nu' is not a latent site"),
        ({"init": {"theta": np.ones(3)}}, r"init: site 'theta' expects shape \(4,\)"),
    ],
)
def test_a_bad_keyword_is_refused_in_words(keywords, message):
    with pytest.raises(AutoreparamError, match=message):
        ar.sample(groups, (Y,), progress=False, **keywords)


@pytest.mark.parametrize(
    "keywords", [{"var_names": ["nu"]}, {"coords": {"group": [1]}}, {"dims": {"nu": ["a"]}}]
)
def test_labels_that_do_not_fit_are_refused_before_anything_is_drawn(keywords, monkeypatch):
    monkeypatch.setattr("autoreparam.run.session.Session.go", lambda *_: pytest.fail("it sampled"))
    with pytest.raises(AutoreparamError, match=r"var_names|coords|dims"):
        ar.sample(groups, (Y,), kernel="hmc", progress=False, **keywords)


def test_a_count_may_be_an_integer_of_numpy():
    tree = ar.sample(groups, (Y,), draws=np.int64(3), warmup=np.int32(2), kernel="hmc",
                     progress=False)  # fmt: skip
    assert tree["posterior"].sizes["draw"] == tree.attrs["draws"] == 3


def test_a_fit_that_has_not_converged_is_warned_about(monkeypatch):
    def impatient(*args, **keywords):
        return replace(fit_elbo(*args, **keywords), converged=False)

    monkeypatch.setattr("autoreparam.run.begin.fit_elbo", impatient)
    with pytest.warns(SamplingWarning, match="fit of the parameterization did not converge"):
        ar.sample(groups, (Y,), parameterization="vip", draws=5, warmup=0, progress=False)


def test_an_unknown_keyword_fails():
    with pytest.raises(TypeError, match="drawz"):
        ar.sample(groups, (Y,), drawz=10)


def test_missing_observations_are_refused_by_name():
    with pytest.raises(AutoreparamError, match=r"observed site 'y'.*1 of 4 elements.*mask"):
        ar.sample(groups, (np.array([0.1, np.nan, 1.0, 2.0]),), progress=False)


def test_a_given_parameterization_is_used_and_reported():
    lam = ar.Parameterization.constant(ar.inspect(groups, (Y,)), 0.25)
    tree = ar.sample(groups, (Y,), parameterization=lam, draws=20, warmup=25, progress=False)
    np.testing.assert_allclose(tree["parameterization"]["theta"].values, 0.25)


def test_thinning_keeps_every_nth_draw_of_the_same_run():
    whole = ar.sample(groups, (Y,), draws=60, warmup=25, progress=False)
    thin = ar.sample(groups, (Y,), draws=60, warmup=25, thin=3, progress=False)
    np.testing.assert_array_equal(
        thin["posterior"]["mu"].values, whole["posterior"]["mu"].values[:, 2::3]
    )


def test_chains_run_in_groups_that_cover_them_once():
    target = Target(ar.inspect(groups, (Y,)))
    for count in (1, 3, 4, 9, 1000):
        keys = chain_keys(0, count)
        covered = [i for g in Chains(Kernel("hmc"), target, keys).groups for i in range(count)[g]]
        assert covered == list(range(count))


def test_the_log_likelihood_is_there_on_request():
    tree = ar.sample(groups, (Y,), draws=20, warmup=25, log_likelihood=True, progress=False)
    found = tree["log_likelihood"]["y"]
    expected = dist.Normal(tree["posterior"]["theta"].values, 1.0).log_prob(Y)
    assert found.dims == ("chain", "draw", "group")
    np.testing.assert_allclose(found.values, expected, rtol=1e-8)


@pytest.mark.usefixtures("own_compilation_cache")
def test_a_session_can_reuse_programs_compiled_by_another(tmp_path):
    ar.compilation_cache(tmp_path / "cache")
    ar.sample(lambda y: groups(y), (Y,), draws=5, warmup=0, kernel="hmc", progress=False)
    assert any((tmp_path / "cache").iterdir())


def test_a_number_of_steps_is_refused_by_nuts_and_makes_the_default_hmc():
    with pytest.raises(AutoreparamError, match="num_steps: NUTS chooses its own"):
        ar.sample(groups, (Y,), kernel="nuts", num_steps=5, progress=False)
    tree = ar.sample(groups, (Y,), num_steps=5, draws=20, warmup=25, progress=False)
    assert tree.attrs["kernel"] == "hmc"


def test_a_warmup_too_short_to_learn_from_says_so():
    with pytest.warns(SamplingWarning, match="too short to learn from"):
        ar.sample(groups, (Y,), num_steps=5, draws=20, warmup=0, progress=False)


def test_a_point_that_stays_keeps_its_coordinates(float32):
    problem = ar.zoo.load("eight_schools")
    target = Target(ar.inspect(problem.model, problem.args, problem.kwargs))
    ends = [ar.Parameterization.noncentered(target.program),
            ar.Parameterization.centered(target.program)]  # fmt: skip
    # At the tip of the funnel, where single precision cannot map theta to noise and back.
    tip = np.array([4.0, -18.0, *np.linspace(4 - 3e-8, 4 + 3e-8, 8)], np.float32)
    state = Kernel("hmc").init(target, jnp.asarray(tip), ends[1])
    tuning = tuning_like(target, step_size=np.float32(1e3), num_steps=np.float32(1))
    slots = stack_slots(ends, [tuning] * 2)
    sizes = np.full(2, 1e3, np.float32)
    there, _ = jax.jit(draw, static_argnums=0)(
        Kernel("hmc"), jax.random.key(0), target, state, slots, sizes
    )
    for before, after in zip(state, there):
        np.testing.assert_array_equal(before, after)
