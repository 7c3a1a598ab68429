"""More draws for chains that mix slowly, so that what is kept of them suffices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoreparam.mcmc.engine import Engine
from autoreparam.mcmc.state import RunState
from autoreparam.mcmc.trail import Trail
from autoreparam.mcmc.warmup import chunks_of
from autoreparam.results.advice import suffice
from autoreparam.run.mapping import by_rows, map_back


def extended(engine: Engine, state: RunState, drawn: Sequence[Trail], asked: int) -> RunState:
    """The run at the end of its plan, with as many draws again to come where these are too few.

    A transition can be far cheaper than one of NUTS and worth less. Of twice as many draws every
    other one is kept, so that the result has as many as were asked for.
    """
    settings = engine.settings
    if (
        not engine.policy.careful
        or asked < settings.fewest_extended
        or state.every >= settings.most_every
        or _suffice(engine, state, drawn)
    ):
        return state
    more = asked * state.every
    return replace(state, every=2 * state.every, plan=tuple(chunks_of("sampling", more)))


def _suffice(engine: Engine, state: RunState, drawn: Sequence[Trail]) -> bool:
    """Whether the draws that would be kept pass the checks of every run's end."""
    every = slice(state.every - 1, None, state.every)
    position = np.concatenate([trail.position for trail in drawn], axis=1)[:, every]
    logdensity = np.concatenate([trail.logdensity for trail in drawn], axis=1)[:, every]
    values, log_determinant = by_rows(map_back, engine.target, position, state.lams[-1])
    latents = {site.name: values[site.name] for site in engine.target.program.latents}
    return suffice(latents, logdensity - log_determinant)
