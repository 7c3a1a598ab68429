"""What is learned from the draws of a window: λ, metric, step size, integrator, trajectories.

Every function takes the state of a run and returns the next one; nothing is stored here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autoreparam.mcmc.engine import Engine
from autoreparam.mcmc.health import Health, judge, restart
from autoreparam.mcmc.hmc import State
from autoreparam.mcmc.integrator import LEAPFROG, TWO_STAGES
from autoreparam.mcmc.late import Late
from autoreparam.mcmc.metric import fastest, fit_metric, spread
from autoreparam.mcmc.settings import SamplerSettings
from autoreparam.mcmc.state import RunState
from autoreparam.mcmc.step_size import FAR, NEAR, REASONABLE, Search, for_gaussian, settled
from autoreparam.mcmc.trail import Trail, joined_draws
from autoreparam.mcmc.trajectory import best_length
from autoreparam.mcmc.warmup import Step, window_of
from autoreparam.program.move import move

STILL_CLIMBING = (
    "The chains were still on their way to the posterior at the end of warm-up, so that λ, metric "
    "and step size were learned from other places. Use a longer warmup, or give values with init."
)


def retune(engine: Engine, state: RunState, window: Sequence[Trail], last: bool) -> RunState:
    """The run retuned from the draws of a window, ready for the next chunk.

    Chains that are lost go on from where others are. After the last two windows of warm-up, only
    the step size is retuned. The chains are carried to the coordinates of the new λ.
    """
    whole = joined_draws(window)
    health = judge(whole, engine.settings)
    late = Late(whole, health.sound, engine.settings)
    sizes = _step_sizes(engine, state, late, last)
    if engine.policy.careful and _diverges(late, sizes, engine.settings):
        state = replace(state, target_accept=_raised(state.target_accept, engine.settings))
        sizes = _step_sizes(engine, state, late, last)
    state = restart(state, whole, health.sound)
    if not last:
        if _ends_learning(state) and not _learned(engine, state, late, health):
            state = _lengthened(state, health, whole.position.shape[1], engine.settings)
        # Chains that climb show what to do about it, not what λ is best where they will be.
        learns = not health.climbing or _ends_learning(state)
        state, factors = _fit(engine, state, late, learns)
        sizes = sizes * factors
    searches = False
    if last:
        state, searches = _confirmed(state, sizes, whole.position.shape[1], engine.settings)
    state = engine.tuned(state, [{"step_size": size} for size in sizes])
    if not last and _adapts_length(engine, state):
        state = _choose_stages(engine, state)
    if engine.policy.may_change and state.plan and state.plan[0].last_window:
        state = _use_nuts_where_long(engine, state)
    way = NEAR if searches else _search(state, late, health)
    state = engine.fresh(state, searches or None, way)
    return _choose_lengths(engine, state) if _adapts_length(engine, state) else state


def warm_up_again(
    engine: Engine, state: RunState, plan: Sequence[Step], target_accept: float
) -> RunState:
    """The run with another warm-up, for which it has only looked for the posterior so far."""
    state = replace(
        state,
        plan=tuple(plan),
        warmup_until=state.drawn,
        gradients=state.gradients.all_warmup(),
        added_windows=state.added_windows + 1,
        kernel=engine.policy.kernel,
        target_accept=target_accept,
    )
    state = engine.fresh(state)
    return _choose_lengths(engine, state) if _adapts_length(engine, state) else state


def _ends_learning(state: RunState) -> bool:
    """Whether the step size alone, or nothing, is left to be learned."""
    return not state.plan or state.plan[0].last_window or state.plan[0].phase == "sampling"


def _learned(engine: Engine, state: RunState, late: Late, health: Health) -> bool:
    """Whether what a window teaches can be used as it is.

    Draws under λ = 0 may hardly mix, so a λ that nothing was drawn with yet teaches a better one.
    Draws that are much wider than the metric they were made with have not been everywhere yet,
    however well the chains agree.
    """
    first = engine.learner is not None and not state.reports
    if health.climbing or health.apart or first:
        return False
    if state.drawn < engine.settings.fewest_drawn:
        return True
    widths = [
        spread(
            slot.tuning.inverse_mass, *late.usual_at(engine, state, slot.lam), engine.settings
        ).max()
        for slot in state.slots
    ]
    return max(widths) <= engine.settings.most_wider


def _lengthened(state: RunState, health: Health, draws: int, settings: SamplerSettings) -> RunState:
    """The run with one more window of learning, or, after some of these, with a note.

    It is as long as this one, or half as long as all so far.
    """
    if state.added_windows >= settings.most_added_windows:
        return replace(state, notes=(*state.notes, *[STILL_CLIMBING][: health.climbing]))
    return replace(
        state,
        plan=(*window_of(max(draws, state.drawn // 2)), *state.plan),
        added_windows=state.added_windows + 1,
    )


def _adapts_length(engine: Engine, state: RunState) -> bool:
    return engine.policy.adapts_length and state.kernel == "hmc"


# -- step sizes -------------------------------------------------------------------------------


def _step_sizes(engine: Engine, state: RunState, late: Late, last: bool) -> np.ndarray:
    """One step size per slot."""
    fixed = last and not _adapted(state)
    if fixed:
        sizes = _sizes(state)
    else:
        sizes = _middle(state.adaptation.final()[late.sound, : len(state.slots)])
    tried, rates = late["step_size"], late["acceptance_rate"]
    found = [
        settled(
            tried[..., i],
            rates[..., i],
            size,
            state.target_accept,
            int(state.slots[i].tuning.stages),
            engine.settings,
        )
        for i, size in enumerate(sizes)
    ]
    if fixed:
        return np.array(found)
    # Averages lag, and adapting chains take their long steps where that is easy.
    return np.sqrt(sizes * np.array(found))


def _sizes(state: RunState) -> np.ndarray:
    return np.array([tuning.step_size for tuning in state.tunings])


def _adapted(state: RunState) -> bool:
    return bool(np.any(state.adaptation.active))


def _confirmed(
    state: RunState, found: np.ndarray, draws: int, settings: SamplerSettings
) -> tuple[RunState, bool]:
    """The run with another window for step sizes if these are a guess; whether it looks for them.

    Fixed steps that are nearly always accepted say that longer ones are right, not how long. Then
    the next window adapts its steps, and one with the fixed steps that it found follows.
    """
    adapted = _adapted(state)
    longer = bool(np.log(found / _sizes(state)).max() > 0.99 * settings.near)
    may_add = state.added_windows < settings.most_added_windows
    searches = longer and not adapted and may_add
    if not (searches or adapted) or (state.plan and state.plan[0].last_window):
        return state, searches
    window = [step._replace(last_window=True) for step in window_of(draws)]
    plan = (*window, *state.plan)
    return replace(state, plan=plan, added_windows=state.added_windows + 1), searches


def _search(state: RunState, late: Late, health: Health) -> Search:
    """How to look for the next step size: nearby, once chains have arrived and reject enough.

    Steps that are far too short are hardly ever rejected, and chains that take them hardly climb.
    """
    rejected = 1 - np.mean(late["acceptance_rate"])
    known = not health.climbing and rejected > (1 - state.target_accept) / 2
    return NEAR if known else FAR


def _middle(sizes: np.ndarray) -> np.ndarray:
    """The median over chains: one that never accepts does not decide for all."""
    return np.exp(np.median(np.log(np.clip(sizes, *REASONABLE)), axis=0))


def _diverges(late: Late, sizes: np.ndarray, settings: SamplerSettings) -> bool:
    """Whether many draws diverge among those with steps not much longer than `sizes`."""
    if late.draws < settings.fewest_draws:
        return False
    short = late["step_size"][..., : len(sizes)] <= np.exp(settings.near) * sizes
    diverging = late["diverging"][..., : len(sizes)][short]
    return bool(diverging.size) and float(np.mean(diverging)) > settings.divergent_share


def _raised(target_accept: float, settings: SamplerSettings) -> float:
    """The target acceptance where draws diverge: half as many rejections, up to a limit."""
    careful = 1 - (1 - target_accept) / 2
    return max(min(careful, settings.careful_accept), target_accept)


# -- λ and the metric -------------------------------------------------------------------------


def _fit(engine: Engine, state: RunState, late: Late, learns: bool) -> tuple[RunState, np.ndarray]:
    """The run with metrics and, if it `learns`, λ; and factors for the step sizes."""
    settings = engine.settings
    before = [
        fastest(slot.tuning.inverse_mass, *late.usual_at(engine, state, slot.lam), settings)
        for slot in state.slots
    ]
    old = state
    if learns and engine.learner is not None:
        state = _learn(engine, state, late)
    factors = np.ones(len(state.slots))
    metrics, spreads = [], []
    for i, slot in enumerate(state.slots):
        here = late.usual_at(engine, old, slot.lam)
        metrics.append(fit_metric(*here, settings))
        spreads.append(spread(metrics[i], *here, settings))
        with np.errstate(divide="ignore", invalid="ignore"):
            factors[i] = np.divide(before[i], fastest(metrics[i], *here, settings))
    state = engine.tuned(state, [{"inverse_mass": metric} for metric in metrics])
    slots = [slot._replace(spread=found) for slot, found in zip(state.slots, spreads)]
    limit = settings.most_change
    factors = np.nan_to_num(factors, nan=1.0).clip(1 / limit, limit)
    return replace(state, slots=tuple(slots)), factors


def _learn(engine: Engine, state: RunState, late: Late) -> RunState:
    """The run at the λ learned from these draws."""
    (slot,) = state.slots
    assert engine.learner is not None
    began = time.perf_counter()
    fit = engine.learner(engine.target, *late.usual(engine.settings), slot.lam)
    seconds = state.seconds_learning + time.perf_counter() - began
    state = replace(state, reports=(*state.reports, fit.report()), seconds_learning=seconds)
    new = fit.parameterization
    if new == slot.lam:
        return state
    chains = state.chains
    there, slope, gain = move(engine.target, chains.position, chains.score, slot.lam, new)
    chains = State(there, chains.logdensity + gain, slope)
    return replace(state, chains=chains, slots=(slot._replace(lam=new),))


# -- trajectories -----------------------------------------------------------------------------


def _choose_stages(engine: Engine, state: RunState) -> RunState:
    """Two stages if the posterior is nearly Gaussian, judging by the step size.

    Narrow places force short steps, and there leapfrog stays stable for longer ones.
    """
    gaussian = for_gaussian(engine.target.size, state.target_accept)
    enough = engine.settings.nearly_gaussian * gaussian
    stages = [TWO_STAGES if tuning.step_size >= enough else LEAPFROG for tuning in state.tunings]
    return engine.tuned(state, [{"stages": count} for count in stages])


def _use_nuts_where_long(engine: Engine, state: RunState) -> RunState:
    """NUTS if the slowest direction needs trajectories that are too long for HMC."""
    long = any(
        slot.spread.max() > engine.settings.nuts_beyond * float(slot.tuning.step_size)
        for slot in state.slots
    )
    if not long:
        return state
    state = engine.tuned(state, [{"stages": LEAPFROG}] * len(state.slots))
    return replace(state, kernel="nuts")


def _choose_lengths(engine: Engine, state: RunState) -> RunState:
    """Trajectories for the draws to come.

    While the step size settles, trajectories keep their length; afterwards, their number of steps.
    """
    sampling = not state.plan or state.plan[0].phase == "sampling"
    draws = state.draws_left * len(engine.keys) if sampling else 0
    most = engine.settings.first_steps * max(1, state.drawn / 50)
    changes: list[dict[str, Any]] = []
    for slot in state.slots:
        found = best_length(
            slot.spread,
            float(slot.tuning.step_size),
            state.target_accept,
            int(slot.tuning.stages),
            state.gradients.total,
            draws,
            engine.settings,
        )
        if draws:
            change = {"num_steps": found.steps, "length": 0.0, "step_size": found.step_size}
        else:
            change = {"num_steps": most, "length": found.steps * found.step_size}
        changes.append({"jitter": found.jitter, **change})
    return engine.tuned(state, changes)
