"""The paper's protocol: ESS, chains in lock step, restarts, and the page."""

import dataclasses
import json
import re
import threading
from pathlib import Path

import arviz_stats
import jax
import jax.numpy as jnp
import numpy as np
import pooch
import pytest
import requests
from rich.console import Console

import autoreparam as ar
from autoreparam.errors import AutoreparamError, DataError
from autoreparam.experiments import page, protocol, queue, store
from autoreparam.experiments.budget import BUDGETS, METHODS, MODELS, RADON, batches, checked
from autoreparam.experiments.ess import ess_of_each_chain, longest_stay, r_hat
from autoreparam.experiments.exact import radon_posterior
from autoreparam.experiments.fits import Prepared
from autoreparam.experiments.problem import make_problems, values
from autoreparam.experiments.queue import Job, Lane, run_jobs
from autoreparam.experiments.reproduce import reproduce
from autoreparam.experiments.theory import FunnelFit, funnel_lam
from autoreparam.experiments.threads import in_threads
from autoreparam.program.target import Target
from autoreparam.zoo import election88, radon


def autoregressive(phi, n, chains, seed=0):
    random = np.random.default_rng(seed)
    noise = random.normal(size=(n, chains))
    series = np.zeros((n, chains))
    for t in range(1, n):
        series[t] = phi * series[t - 1] + (1 - phi**2) ** 0.5 * noise[t]
    return series


@pytest.mark.parametrize("phi", [-0.9, -0.3, 0.0, 0.5, 0.97])
@pytest.mark.parametrize("n", [40, 501])
def test_ess_is_that_of_arviz_chain_by_chain(phi, n):
    draws = 5 + 100 * autoregressive(phi, n, 6)
    ours = np.asarray(ess_of_each_chain(draws[:, :, None]).arviz)[0]
    theirs = [float(arviz_stats.ess(draws[None, :, c], method="mean")) for c in range(6)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_ess_in_single_precision_is_that_in_double(float32):
    draws = 1e4 + autoregressive(0.8, 1000, 4)
    ours = np.asarray(ess_of_each_chain(np.float32(draws)[:, :, None]).arviz)[0]
    theirs = [float(arviz_stats.ess(draws[None, :, c], method="mean")) for c in range(4)]
    np.testing.assert_allclose(ours, theirs, rtol=0.02)


def test_the_papers_estimator_counts_antithetic_draws_as_independent():
    smooth, antithetic = autoregressive(0.5, 20000, 4), autoregressive(-0.5, 20000, 4)
    found = ess_of_each_chain(np.stack([smooth, antithetic], axis=-1))
    np.testing.assert_allclose(found.paper[0], found.arviz[0], rtol=0.1)
    np.testing.assert_allclose(found.paper[0].mean(), 20000 / 3, rtol=0.1)
    np.testing.assert_allclose(found.paper[1], 20000, rtol=1e-6)
    assert found.arviz[1].min() > 2 * 20000


def test_a_chain_that_never_moves_has_no_ess():
    draws = np.zeros((100, 2, 1))
    draws[:, 1, 0] = autoregressive(0.0, 100, 1)[:, 0]
    assert ess_of_each_chain(draws).arviz[0, 0] == 0
    assert ess_of_each_chain(draws).paper[0, 0] == 0


def test_the_longest_stay_of_any_chain_is_found():
    draws = np.stack([np.arange(8.0), [0, 1, 1, 1, 2, 2, 3, 4]], axis=1)[:, :, None]
    assert longest_stay(draws) == 3
    assert longest_stay(draws[:, :1]) == 1
    assert longest_stay(np.zeros((8, 1, 2))) == 8


def test_r_hat_tells_chains_that_agree_from_chains_that_do_not():
    draws = np.stack([autoregressive(0.0, 500, 4), autoregressive(0.0, 500, 4)], axis=-1)
    draws[:, 0, 1] += 5
    assert r_hat(draws)[0] < 1.01 < 1.5 < r_hat(draws)[1]


# -- lock step --------------------------------------------------------------------------------


def state_of(sizes, seed):
    """A small state: homes by county, as the loader would give them, grouped."""
    random = np.random.default_rng(seed)
    county = np.repeat(np.arange(len(sizes)), sizes)
    floor = np.arange(county.size) % 2.0
    arrays = {
        "county": county,
        "floor": floor,
        "uranium": random.normal(size=len(sizes)),
        "log_r": 1 + random.normal(size=county.size),
    }
    return arrays, ar.zoo.Entry("radon", radon.radon_grouped, (), radon.group(arrays), "", "", {})


@jax.jit
def slope(target, position, lam):
    return jax.grad(target.logdensity)(position, lam)


def exact_moments(target, arrays):
    covariance = radon_posterior(**arrays).covariance
    lam = ar.Parameterization.centered(target.program)
    mean = covariance @ np.asarray(slope(target, jnp.zeros(target.size), lam))
    return mean, np.sqrt(np.diag(covariance))


def assert_moments_by_chains(draws, mean, sd):
    """Mean and variance within 4.5 standard errors, as the spread of independent chains tells."""
    standard = (draws - mean) / sd
    for power, expected in ((1, 0.0), (2, 1.0)):
        of_chains = (standard**power).mean(axis=0)
        error = of_chains.std(axis=0, ddof=1) / np.sqrt(len(of_chains))
        assert error.max() < 0.06  # a wrong sampler would be seen
        np.testing.assert_array_less(np.abs(of_chains.mean(axis=0) - expected), 4.5 * error)


@pytest.mark.slow
def test_problems_of_different_sizes_run_together_and_each_has_its_posterior():
    arrays, entries = zip(state_of((1, 2, 5), 0), state_of((3, 8), 1))
    problems = make_problems(["one", "other"], entries)
    moments = {p.name: exact_moments(p.target, data) for p, data in zip(problems, arrays)}
    assert problems[0].wide.size == problems[1].wide.size == problems[0].target.size
    lanes = {}
    for problem in problems:
        sd = moments[problem.name][1]
        start = problem.widen(np.zeros((60, problem.target.size)))
        ends = [problem.widen_lam(problem.constant(lam)) for lam in (1.0, 0.0)]
        masses = [problem.widen(sd**2)] * 2
        some = {"CP": [0], "NCP": [1], "iHMC": [0, 1]}
        for method, slots in some.items():
            lanes[problem.name, method] = Lane(
                problem.wide, tuple(ends[i] for i in slots), tuple(masses[i] for i in slots), start
            )
    # Two steps: four of these sizes are half a period, and hardly change how far out a chain is.
    jobs = [Job(name, method, 2, 1 + (method == "iHMC"), 120, 80, 250) for name, method in lanes]
    found = {}

    def finished(job, drawn):
        found[job.lane] = drawn

    assert not run_jobs(jobs, lanes, finished, out_of_time=lambda: True)
    assert not found
    assert run_jobs(jobs, lanes, finished)
    assert set(found) == set(lanes)
    for problem in problems:
        mean, sd = moments[problem.name]
        for method in ("CP", "NCP", "iHMC"):
            drawn, lane = found[problem.name, method], lanes[problem.name, method]
            draws = np.asarray(values(problem.wide, drawn.positions, lane.lams[-1]))
            draws = draws[..., problem.real]
            assert draws.shape == (250, 60, problem.target.size)
            assert_moments_by_chains(draws, mean, sd)
            assert 0 < drawn.acceptance.min() <= drawn.acceptance.max() < 1
            assert abs(drawn.acceptance.mean() - 0.75) < 0.04
            assert drawn.step_size.shape == (len(lane.lams),)


def eight_schools_lane(start, *lams):
    problem = make_problems(["schools"], [ar.zoo.load("eight_schools")])[0]
    start, mass = np.array([start, [9.0, 9.0] + [1.0] * 8], problem.target.program.dtype)
    lams = tuple(map(problem.constant, lams))
    return Lane(problem.wide, lams, (mass,) * len(lams), np.tile(start, (40, 1)))


@pytest.fixture(scope="module")
def schools():
    """Non-centered chains with a tuned step size, and interleaved ones that start at the tip."""
    jobs = [Job("schools", "NCP", 4, 1, 300, 250, 150), Job("schools", "iHMC", 4, 2, 0, 0, 64)]
    found = {}

    def finished(job, drawn):
        found[job.method] = drawn

    with jax.enable_x64(False):
        lanes = {
            jobs[0].lane: eight_schools_lane([5, 1] + [0] * 8, 0.0),
            jobs[1].lane: eight_schools_lane([5, -20] + [5] * 8, 0.0, 1.0),
        }
        run_jobs(jobs, lanes, finished)
    return found


@pytest.mark.slow
def test_the_step_size_makes_the_mean_acceptance_right_though_the_median_is_another(schools):
    assert abs(schools["NCP"].acceptance.mean() - 0.75) < 0.04
    assert schools["NCP"].step_size.shape == (1,)


@pytest.mark.slow
def test_interleaved_chains_leave_the_tip_of_a_funnel_in_single_precision(schools):
    # The standard deviation is 2e-9 there: no difference of 5 and a neighbor is so small.
    log_tau = np.asarray(schools["iHMC"].positions)[:, :, 1]
    assert log_tau.dtype == np.float32
    assert np.mean(np.diff(log_tau, axis=0) == 0) < 0.5
    assert np.mean(log_tau[-1] > -19) > 0.9


@pytest.mark.long
def test_however_runs_are_cut_into_calls_their_draws_are_the_same(monkeypatch):
    jobs = [Job("schools", "NCP", 4, 1, 30, 20, 40), Job("schools", "iHMC", 2, 2, 10, 0, 25)]
    lanes = {
        jobs[0].lane: eight_schools_lane([5, 1] + [0] * 8, 0.0),
        jobs[1].lane: eight_schools_lane([5, 1] + [5] * 8, 0.0, 1.0),
    }
    found = []
    for gradients in (1024, 40):
        monkeypatch.setattr(queue, "GRADIENTS", gradients)
        drawn = {}
        assert run_jobs(jobs, lanes, lambda job, result, all_=drawn: all_.update({job: result}))
        found.append(drawn)
    for job in jobs:
        one, other = (drawn[job] for drawn in found)
        assert one.positions.shape == (job.draws, 40, 10)
        np.testing.assert_allclose(one.positions, other.positions, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(one.acceptance, other.acceptance, atol=1e-6)
        np.testing.assert_allclose(one.step_size, other.step_size, rtol=1e-9)


def test_coordinates_that_fill_up_a_shape_stay_still():
    problem = make_problems(["a", "b"], [state_of((1, 2, 5), 0)[1], state_of((3,), 1)[1]])[1]
    assert list(problem.real) == [0, 1, 2, 3]
    lam = problem.widen_lam(problem.constant(1.0))
    assert lam["m"].tolist() == [1, 0, 0]
    row = np.arange(4.0)
    position = problem.widen(row)
    assert position.tolist() == [0, 1, 2, 3, 0, 0]
    scores = [
        slope(target, jnp.asarray(x), parameterization)
        for target, x, parameterization in (
            (problem.target, row, problem.constant(1.0)),
            (problem.wide, position, lam),
        )
    ]
    np.testing.assert_allclose(scores[1][:4], scores[0], rtol=1e-9)
    np.testing.assert_allclose(scores[1][4:], 0, atol=1e-12)


# -- grouped data -----------------------------------------------------------------------------


def same_but_for_a_constant(whole, grouped):
    targets = [Target(ar.inspect(model, (), data)) for model, data in (whole, grouped)]
    lam = ar.Parameterization.constant(targets[0].program, 0.4, s0=1.0)
    points = np.random.default_rng(0).normal(size=(3, targets[0].size))
    density = jax.jit(Target.logdensity)
    gaps = [float(density(targets[0], x, lam) - density(targets[1], x, lam)) for x in points]
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-9)


def test_grouped_radon_has_the_posterior_of_all_homes():
    arrays, entry = state_of((1, 2, 5, 12), 0)
    assert len(entry.kwargs["n"]) == 7
    same_but_for_a_constant((radon.radon, arrays), (radon.radon_grouped, entry.kwargs))


def test_grouped_votes_have_the_posterior_of_all_respondents():
    random = np.random.default_rng(0)
    content = {key: random.integers(0, 2, 300) for key in ("black", "female", "y")}
    arrays = election88.parse({"state": random.integers(1, 52, 300), **content})
    cells = election88.group(arrays)
    assert cells["n"].sum() == 300
    assert cells["y"].sum() == arrays["y"].sum()
    same_but_for_a_constant((election88.election88, arrays), (election88.election88_grouped, cells))


# -- the protocol -----------------------------------------------------------------------------

TINY = dataclasses.replace(BUDGETS["smoke"], draws=24, warmup=16, adapt=16, num_steps=(4,))


@pytest.mark.slow
def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, float32):
    seen = []

    def note(model, text):
        seen.append(text)

    methods = ("CP", "auto")
    stopped, done = protocol.run_models(
        ["eight_schools"], TINY, methods, tmp_path, note=note, out_of_time=lambda: len(seen) > 0
    )
    assert (done, seen) == (False, ["CP fitted"])
    assert not stopped["eight_schools"].cells
    found, done = protocol.run_models(["eight_schools"], TINY, methods, tmp_path, note=note)
    assert done
    assert sorted(found["eight_schools"].cells) == sorted(methods)
    assert seen.count("CP fitted") == 1
    assert sum("steps" in text for text in seen) == len(methods)
    seen.clear()
    again, done = protocol.run_models(["eight_schools"], TINY, methods, tmp_path, note=note)
    assert (done, seen) == (True, [])
    assert again["eight_schools"].to_json() == found["eight_schools"].to_json()
    cell = again["eight_schools"].best("auto")
    assert cell["num_steps"] == 4
    assert cell["ess"] > 0
    fits = again["eight_schools"].fits
    assert fits["auto"].gradients > fits["pilot"].gradients


def test_results_of_other_settings_are_not_mixed_in(tmp_path):
    store.save(tmp_path, store.Results("eight_schools", BUDGETS["full"].settings()))
    with pytest.raises(AutoreparamError, match=r"budget 'full'.*budget 'quick'"):
        store.load_or_begin(tmp_path, "eight_schools", BUDGETS["quick"])


def test_results_of_an_earlier_protocol_are_not_shown(tmp_path):
    settings = BUDGETS["full"].settings() | {"protocol": 1}
    store.save(tmp_path, store.Results("eight_schools", settings))
    with pytest.raises(AutoreparamError, match=r"earlier protocol.*Remove that file"):
        store.load_all(tmp_path)


def test_numbers_of_steps_that_cannot_win_are_not_run():
    results = store.Results("eight_schools", BUDGETS["full"].settings())
    full = BUDGETS["full"]
    assert protocol.wanted(full.num_steps, "CP", results) == list(full.num_steps)
    assert full.stages() == ((1, 2, 4, 8), (16, 32, 64, 128))
    for method in ("CP", "iHMC"):
        for steps, ess in ((1, 3.0), (2, 20.0), (4, 10.0)):
            results.add(method, steps, {"ess": ess})
    assert protocol.wanted(full.num_steps, "CP", results) == [8, 16, 32]  # 64 steps: at most 15.6
    assert protocol.wanted(full.num_steps, "iHMC", results) == [8, 16]
    results.add("NCP", 1, {"ess": 0.0})
    assert protocol.wanted(full.num_steps, "NCP", results) == [2, 4, 8, 16, 32, 64, 128]


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(AutoreparamError, match=r"no method 'HMC'.*'CP'|no method 'HMC'.*CP"):
        checked(("HMC",), METHODS, "method")
    assert checked(None, METHODS, "method") == METHODS
    assert checked(("VIP", "CP"), METHODS, "method") == ("CP", "VIP")


def test_states_of_radon_run_together_and_other_models_alone():
    assert batches(tuple(MODELS))[:3] == [("german_credit",), ("eight_schools",), RADON]
    assert batches(("electric",)) == [("electric",)]
    assert batches(("radon_MN", "electric")) == [("radon_MN",), ("electric",)]


# -- the page ---------------------------------------------------------------------------------


def made_up(model, ess, lam):
    """Results as if they had been measured."""
    results = store.Results(model, BUDGETS["full"].settings(), {"rows": 1})
    results.machine = {"device": "none", "dtype": "float32"}
    for rank, (method, value) in enumerate(ess.items()):
        results.fits[method] = Prepared(lam, [0.0], [1.0], 10, elbo=-50.0 + value, elbo_error=0.1)
        for steps, share in ((2, 0.8), (4, 1.0), (8, 0.5)):
            results.add(method, steps, {
                "ess": value * share, "error": 0.1, "arviz": value * share, "arviz_error": 0.1,
                "total": value / 2,
                "slowest": "mu", "slowest_ess": 2 * value, "slowest_error": 0.2,
                "longest_stay": 12, "r_hat": 1.0, "acceptance": 0.7,
                "step_size": [0.1 * (1 + rank)],
            })  # fmt: skip
    return results


GOOD = {"CP": 1.2, "NCP": 1.3, "iHMC": 3.0, "VIP": 5.7, "dVIP": 2.0, "auto": 9.0}


def quick_funnel_fits(target):
    """Fits as good as exact at the non-centered end, without fitting."""
    return [
        FunnelFit(funnel_lam(target, lam), lam, -lam, np.zeros(2), np.array([3.0, 1.0]))
        for lam in (1.0, 0.0)
    ]


def without_figures(monkeypatch):
    """Another test draws them."""
    for name in ("draw_theory", "draw_measured"):
        monkeypatch.setattr(page, name, lambda *_: None)


@pytest.mark.slow
def test_the_page_shows_every_claim_beside_its_evidence(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "funnel_fits", quick_funnel_fits)
    german = made_up("german_credit", GOOD, {"log_tau": [0.3, 0.6], "beta": [0.0, 0.5]})
    schools = {"CP": 10.0, "NCP": 40.0, "iHMC": 12.0, "VIP": 41.0, "dVIP": 40.0, "auto": 36.0}
    for results in (german, made_up("eight_schools", schools, {"theta": [0.0] * 8})):
        store.save(tmp_path, results)
    claims = page.write_page(tmp_path)
    verdict = {claim.claim: claim.verdict for claim in claims}
    by_start = lambda start: next(v for c, v in verdict.items() if c.startswith(start))  # noqa: E731
    assert by_start("On German credit VIP-HMC achieves") == "confirmed"
    assert by_start("On German credit iHMC is better") == "confirmed"
    assert by_start("iHMC is always within") == "not confirmed"  # eight schools: 12 of 40
    assert by_start("On radon the ELBO") == "not measured"
    assert by_start("The closed form of κ_NCP") == "not confirmed"
    markdown = (tmp_path / "paper.md").read_text()
    html = (tmp_path / "paper.html").read_text()
    for claim in claims:
        assert claim.claim in markdown
    assert "5.7 ± 0.1" in markdown
    assert "and then the minimum: 11.4 ± 0.2" in markdown
    assert "too few to resonate: Eight schools 0.90 (0.90)." in markdown
    assert "Eight schools 0.3 ± " in markdown
    for name in re.findall(r'src="([^"]+)"', html):
        assert (tmp_path / name).stat().st_size > 1000
        assert (tmp_path / name).with_suffix(".png").stat().st_size > 1000
    assert len(re.findall("<img ", html)) == 5  # all but those of radon
    assert html.count("<em>Figure ") == 5  # a caption under each
    assert "<h1>Automatic Reparameterisation" in html
    assert "<strong>confirmed</strong>" in html
    assert "were left out" not in markdown


def test_a_time_limit_that_is_over_runs_nothing_and_says_so(tmp_path):
    console = Console(record=True, width=100)
    assert reproduce("smoke", ["eight_schools"], out=tmp_path, time_limit=-1.0, page=False,
                     console=console) == []  # fmt: skip
    assert not (tmp_path / "results").exists()


def test_models_run_side_by_side_and_share_the_time(tmp_path, monkeypatch):
    both, ran = threading.Barrier(2), []

    def pretend(names, budget, methods, out, **_):
        both.wait(timeout=10)  # for the other one
        ran.extend(names)
        for name in names:
            store.save(out, store.Results(name, budget.settings()))
        return {name: store.load(out, name) for name in names}, True

    monkeypatch.setattr("autoreparam.experiments.reproduce.without_data", lambda names: {})
    monkeypatch.setattr("autoreparam.experiments.reproduce.run_models", pretend)
    names = ["eight_schools", "electric"]
    for times in (1, 2):
        reproduce("smoke", names, out=tmp_path, page=False, console=Console(quiet=True))
        assert sorted(ran) == sorted(names * times)
        taken = [store.load(tmp_path, name).seconds for name in names]
        assert taken[0] == taken[1]


def test_an_error_in_one_thread_stops_the_others_and_is_raised():
    stopped, ended = threading.Event(), []

    def call(item):
        if item == 0:
            raise ValueError("zero")
        assert stopped.wait(timeout=10)
        ended.append(item)

    with pytest.raises(ValueError, match="zero"):
        in_threads(call, [0, 1, 2, 3], 2, stopped.set)
    assert len(ended) <= 2  # what had begun has ended, and the rest did not begin


@pytest.mark.parametrize("double", [False, True])
def test_threads_have_the_precision_of_the_caller(double):
    found = []
    with jax.enable_x64(double):
        in_threads(lambda _: found.append(jnp.result_type(float)), range(2), 2)
    assert found == [jnp.float64 if double else jnp.float32] * 2


@pytest.fixture
def no_network(tmp_path, monkeypatch):
    """No data on this machine, and no way to download them; the addresses that were tried."""
    tried = []

    def unreachable(url, **_):
        tried.append(url)
        raise requests.ConnectionError("network is unreachable")

    monkeypatch.delenv("AUTOREPARAM_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda _: tmp_path / "cache")
    monkeypatch.setattr(requests, "get", unreachable)
    return tried


def test_without_data_or_network_the_other_models_run_and_the_rest_is_named(
    tmp_path, no_network, monkeypatch
):
    ran = []

    def pretend(names, budget, methods, out, **_):
        ran.extend(names)
        for name in names:
            store.save(out, made_up(name, GOOD, {"theta": [0.0] * 8}))
        return {name: store.load(out, name) for name in names}, True

    monkeypatch.setattr("autoreparam.experiments.reproduce.run_models", pretend)
    monkeypatch.setattr(page, "funnel_fits", quick_funnel_fits)
    without_figures(monkeypatch)
    console = Console(record=True, width=100)
    reproduce("full", out=tmp_path, console=console)
    assert ran == ["eight_schools"]
    assert len(no_network) == 4  # each model's first file is tried once, radon's for all states
    said = console.export_text()
    assert re.search(r"Left out: German credit: .*'german\.data'.*unreachable", said)
    assert re.search(r"Left out: Radon MN, .*, Radon AZ: .*'srrs2\.dat'.*unreachable", said)
    markdown = (tmp_path / "paper.md").read_text()
    for sentence in re.findall(r"Left out: (.*)", said):
        assert f"- {sentence}" in markdown


def test_a_model_that_is_all_that_was_asked_for_and_has_no_data_is_refused(tmp_path, no_network):
    with pytest.raises(DataError, match=r"no model can be run.*Electric: .*unreachable"):
        reproduce("smoke", ["electric"], out=tmp_path)


def test_a_page_of_stored_results_needs_no_data(tmp_path, no_network, monkeypatch):
    monkeypatch.setattr(page, "funnel_fits", quick_funnel_fits)
    without_figures(monkeypatch)
    store.save(tmp_path, made_up("radon_MN", GOOD, {"m": [0.5] * 3}))
    claims = page.write_page(tmp_path)
    assert next(c for c in claims if c.claim.startswith("On radon the ELBO")).found == "-"
    assert re.search(r"not compared.*\n\n- Radon MN: .*unreachable",
                     (tmp_path / "paper.md").read_text())  # fmt: skip


# -- the committed results --------------------------------------------------------------------

COMMITTED = Path(__file__).parents[1] / "docs" / "paper"


@pytest.mark.skipif(not (COMMITTED / "results").is_dir(), reason="no committed results")
def test_the_committed_results_can_be_read_and_are_of_the_full_budget():
    for model, results in store.load_all(COMMITTED).items():
        assert results.settings == BUDGETS["full"].settings(), model
        assert json.loads(results.to_json())["model"] == model
