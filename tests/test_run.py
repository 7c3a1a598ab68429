"""The state of a run: one frozen value that can be stored, loaded and turned into a tree."""

import json
from dataclasses import FrozenInstanceError, replace

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import autoreparam as ar
from autoreparam.errors import AutoreparamError, CheckpointError
from autoreparam.mcmc.chains import Chains
from autoreparam.mcmc.hmc import Kernel
from autoreparam.mcmc.late import Late
from autoreparam.mcmc.policy import Policy
from autoreparam.mcmc.retune import STILL_CLIMBING, retune
from autoreparam.mcmc.snapshot import WORDS, pack, unpack
from autoreparam.mcmc.step_size import FAR, NEAR
from autoreparam.mcmc.warmup import Step, first_steps, plan, windows
from autoreparam.results.progress import Progress
from autoreparam.run.begin import blank_state, build_engine, first_state
from autoreparam.run.finish import build_tree
from autoreparam.run.session import Session
from autoreparam.run.settings import Adaptation, Settings
from autoreparam.run.shown import Shown

Y = np.array([0.3, -1.0, 2.2, 0.7])
SETTINGS = Settings("auto", "auto", 30, 60, 2, 0, None, 0.8, 10, 1, False, False)


def groups(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("group", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


@pytest.fixture(scope="module")
def session():
    engine = build_engine(ar.inspect(groups, (Y,)), SETTINGS)
    bar = Progress(False)
    session = Session(SETTINGS, engine, first_state(engine, SETTINGS, "auto", None, bar))
    session.go(bar)
    return session


def assert_same(one, other):
    for a, b in zip(jax.tree.leaves(pack(one)), jax.tree.leaves(pack(other)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_state_is_frozen(session):
    with pytest.raises(FrozenInstanceError):
        session.state.drawn = 0


def test_a_state_on_disk_is_the_state(session):
    blank = blank_state(session.engine, SETTINGS)
    assert_same(unpack(pack(session.state), blank), session.state)


def test_a_state_of_other_shapes_or_of_another_release_is_refused(session):
    blank, packed = blank_state(session.engine, SETTINGS), pack(session.state)
    with pytest.raises(CheckpointError, match="another version"):
        unpack({name: array for name, array in packed.items() if name != WORDS}, blank)
    position = next(name for name in packed if "position" in name)
    with pytest.raises(CheckpointError, match="other shapes"):
        unpack({**packed, position: np.zeros(3)}, blank)


def test_retuning_is_a_function_of_the_state_and_the_window(session):
    engine, bar = session.engine, Progress(False)
    state = first_state(engine, SETTINGS, "auto", None, bar)
    before = pack(state)
    after, trail = engine.chunk(state)
    once, twice = (retune(engine, after, [trail], last=False) for _ in range(2))
    assert_same(replace(once, seconds_learning=0), replace(twice, seconds_learning=0))
    for name, array in pack(state).items():
        np.testing.assert_array_equal(array, before[name])


def climb(trail):
    """The same window with chains on their way up."""
    slope = np.linspace(-500.0, 0.0, trail.logdensity.shape[1])
    return trail._replace(logdensity=trail.logdensity + slope)


def part(trail):
    """The same window with every chain in a place of its own."""
    places = 1000.0 * np.arange(len(trail.position))[:, None, None]
    return trail._replace(position=trail.position + places)


@pytest.mark.parametrize("change", [climb, part])
def test_a_last_window_of_learning_that_taught_too_little_is_followed_by_others(session, change):
    engine = session.engine
    state, trail = engine.chunk(first_state(engine, SETTINGS, "auto", None, Progress(False)))
    rest = tuple(step for step in state.plan if step.last_window or step.phase == "sampling")
    for window in range(engine.settings.most_added_windows):
        state = retune(engine, replace(state, plan=rest, drawn=100), [change(trail)], last=False)
        assert state.added_windows == window + 1
        assert [step.draws for step in state.plan if step not in rest] == [25, 25]
    state = retune(engine, replace(state, plan=rest), [change(trail)], last=False)
    assert state.notes.count(STILL_CLIMBING) == (change is climb)  # enough of it
    assert state.plan == rest


@pytest.mark.parametrize(
    ("change", "rate", "search"),
    [(None, 0.8, NEAR), (climb, 0.8, FAR), (None, 0.99, FAR), (None, 0.3, NEAR)],
)
def test_step_sizes_are_looked_for_nearby_once_chains_have_arrived(session, change, rate, search):
    engine = session.engine
    first = first_state(engine, SETTINGS, "auto", None, Progress(False))
    state, trail = replace(first, plan=first.plan[1:]), engine.draw(first, 100)
    rates = np.full_like(trail.info.acceptance_rate, rate)
    trail = trail._replace(info=trail.info._replace(acceptance_rate=rates))
    found = retune(engine, state, [change(trail) if change else trail], last=False)
    np.testing.assert_allclose(found.adaptation.average.shrinkage, search.shrinkage)


def test_a_first_lam_is_drawn_with_before_it_is_settled(session):
    engine = session.engine
    state, trail = engine.chunk(first_state(engine, SETTINGS, "auto", None, Progress(False)))
    rest = tuple(step for step in state.plan if step.last_window or step.phase == "sampling")
    once = retune(engine, replace(state, plan=rest), [trail], last=False)
    assert once.added_windows == 1
    assert len(once.reports) == 1
    assert retune(engine, replace(once, plan=rest), [trail], last=False).added_windows == 1


def test_draws_far_wider_than_their_metric_are_not_the_last_to_learn_from(session):
    engine = session.engine
    first = first_state(engine, SETTINGS, "auto", None, Progress(False))
    rest = tuple(step for step in first.plan if step.last_window or step.phase == "sampling")
    once = replace(retune(engine, first, [engine.draw(first, 100)], last=False), plan=rest)
    trail = engine.draw(once, 100)
    wide = trail._replace(position=1000.0 * trail.position)  # in all chains alike
    for drawn, added in ((90, [0, 0]), (100, [0, 1])):
        after = [
            retune(engine, replace(once, drawn=drawn), [one], last=False) for one in (trail, wide)
        ]
        assert [state.added_windows for state in after] == added


def test_a_draw_that_is_extreme_only_under_the_new_lam_does_not_decide_its_metric(session):
    """Where a scale is tiny, noise is as usual and the centered score is not."""
    engine = session.engine
    first = first_state(engine, SETTINGS, "auto", None, Progress(False))
    program, (slot,) = engine.target.program, first.slots
    free = ar.Parameterization.noncentered(program)
    centered = ar.Parameterization.centered(program)
    first = replace(first, slots=(slot._replace(lam=free),))
    trail = engine.draw(first, 100)
    position, score = np.array(trail.position), np.array(trail.score)
    place = 1  # of log tau, behind mu
    position[0, 70, place] = -12.0
    late = Late(trail._replace(position=position, score=score), np.ones(2, bool), engine.settings)
    rows = len(late.rows("position"))
    assert len(late.usual_at(engine, first, free)[0]) == rows
    there, slope = late.usual_at(engine, first, centered)
    assert 0.9 * rows < len(there) < rows
    assert np.abs(slope).max() < 1e3  # where tau is e^-12, it is e^12


@pytest.mark.parametrize(
    ("rates", "searches_next"),
    [
        ((0.8, 0.8), (False, False)),
        ((0.3, 0.8), (False, False)),
        ((1.0, 0.8, 0.8), (True, False, False)),
        ((0.8, 1.0, 0.8, 0.8), (False, True, False, False)),
    ],
)
def test_steps_that_are_all_accepted_are_followed_by_a_search_for_longer_ones(
    session, rates, searches_next
):
    """After the window that searches, one with fixed steps checks what it found."""
    engine = session.engine
    first = first_state(engine, SETTINGS, "auto", None, Progress(False))
    trail, sampling = engine.draw(first, 100), Step("sampling", 60)
    window = Step("warmup", 100, window_ends=True, last_window=True)
    state = engine.fresh(replace(first, plan=(window, window, sampling)))
    for rate, searches in zip(rates, searches_next, strict=True):
        assert state.plan[0].last_window
        size, average = state.tunings[0].step_size, state.adaptation.average
        average = average._replace(log_step_size_avg=average.log_step_size)
        state = replace(state, adaptation=state.adaptation._replace(average=average))
        seen = trail._replace(
            step_size=np.full_like(trail.step_size, size),
            info=trail.info._replace(
                acceptance_rate=np.full_like(trail.logdensity, rate)[..., None]
            ),
        )
        ends = next(i for i, step in enumerate(state.plan) if step.window_ends)
        state = retune(engine, replace(state, plan=state.plan[ends + 1 :]), [seen], last=True)
        assert np.any(state.adaptation.active) == searches
    assert state.plan == (sampling,)


def test_the_tree_of_a_run_can_be_built_twice_and_at_any_time(session):
    first, second = (build_tree(session, Shown()) for _ in range(2))
    assert first.equals(second)
    assert first.attrs["notes"] == second.attrs["notes"]
    early = replace_chunks(session, 4)
    assert build_tree(early, Shown()).posterior.sizes["draw"] == 0


def replace_chunks(session, count):
    return Session(session.settings, session.engine, session.state, None, session.chunks[:count])


def test_a_checkpoint_of_an_earlier_release_is_refused_in_a_sentence(tmp_path):
    run = tmp_path / "run"
    ar.sample(groups, (Y,), draws=5, warmup=10, chains=1, progress=False, checkpoint=run)
    from autoreparam.results import storage

    manifest = json.loads((run / "manifest.json").read_text())
    manifest.pop("sha256")
    for chunk in manifest["chunks"]:
        chunk["info"] = {"phase": "sampling", "window_ends": False, "notes": []}
    storage._replace_manifest(run, manifest)
    with pytest.raises(CheckpointError, match="earlier release"):
        ar.resume(run, groups, (Y,), progress=False)


@pytest.mark.parametrize(
    ("kernel", "num_steps", "expected"),
    [
        ("auto", None, Policy("hmc", True, True, True)),
        ("hmc", None, Policy("hmc", True, False, False)),
        ("nuts", None, Policy("nuts", False, False, False)),
        ("auto", 3, Policy("hmc", False, False, True, 3)),
        ("hmc", 3, Policy("hmc", False, False, False, 3)),
    ],
)
def test_what_a_kernel_may_do_is_one_value(kernel, num_steps, expected):
    assert Policy.of(kernel, num_steps) == expected


def test_settings_survive_json():
    through = json.loads(json.dumps(SETTINGS.to_dict()))
    back = Settings.from_dict(through)
    assert back == SETTINGS
    # A tuple is equal to a value with names, but has none.
    assert back.adaptation.sampler.again.patience == SETTINGS.adaptation.sampler.again.patience


def test_adaptation_of_another_type_is_refused():
    with pytest.raises(AutoreparamError, match="adaptation: expected an Adaptation"):
        ar.sample(groups, (Y,), adaptation={"settling": 0.5})
    assert ar.Adaptation is Adaptation


def test_first_steps_of_a_plan_are_joined_up_to_the_end_of_a_window():
    steps, draws = plan(500, 230), []
    while steps:
        first, *steps = first_steps(steps, 100)
        draws.append(first.draws)
        assert first.draws <= 100
        assert not first.window_ends or first.phase == "warmup"
    assert sum(draws) == 730
    assert draws[-3:] == [100, 100, 30]
    whole = plan(500, 230)
    assert first_steps(whole, 25) == whole
    ends = [step.window_ends for step in whole].count(True)
    assert ends == len(windows(500))


def test_a_stored_run_has_the_draws_of_one_that_is_not(tmp_path):
    def run(**keywords):
        return ar.sample(groups, (Y,), draws=120, warmup=120, chains=2, progress=False, **keywords)

    np.testing.assert_array_equal(
        run(checkpoint=tmp_path / "run").posterior["theta"], run().posterior["theta"]
    )


def test_calls_are_long_only_where_a_draw_of_all_their_chains_is_little_work(session):
    few, many = (
        Chains(Kernel("hmc"), session.engine.target, np.zeros((chains, 2), np.uint32), work=100)
        for chains in (2, 10_000)
    )
    assert (few.at_once, many.at_once) == (100, 25)
    assert replace(few, work=10_000).at_once == 25


def test_steps_are_not_looked_for_where_no_window_is_left_to_check_them(session):
    engine = session.engine
    first = first_state(engine, SETTINGS, "auto", None, Progress(False))
    trail = engine.draw(first, 50)
    window = Step("warmup", 50, window_ends=True, last_window=True)
    state = engine.fresh(replace(first, plan=(window,), added_windows=3))
    easy = trail.info._replace(acceptance_rate=np.ones_like(trail.logdensity)[..., None])
    steps = np.full_like(trail.step_size, state.tunings[0].step_size)
    state = retune(engine, state, [trail._replace(step_size=steps, info=easy)], last=True)
    assert state.plan == (window,)
    assert not np.any(state.adaptation.active)
