"""More draws for chains that mix slowly, so that what is kept of them suffices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from autoreparam.mcmc.engine import Engine
from autoreparam.mcmc.state import RunState
from autoreparam.mcmc.trail import Trail, joined_draws
from autoreparam.mcmc.warmup import chunks_of
from autoreparam.program.parameterization import Parameterization
from autoreparam.results.advice import suffice
from autoreparam.run.mapping import by_rows, map_back

MOST_NUMBERS = 2**26  # of the draws that are looked at: of larger sites, some elements


def extended(
    engine: Engine,
    state: RunState,
    drawn: Iterable[tuple[Parameterization, Trail]],
    asked: int,
    names: tuple[str, ...] | None = None,
) -> RunState:
    """The run at the end of its plan, with as many draws again to come where these are too few.

    A transition can be far cheaper than one of NUTS and worth less. Of twice as many draws every
    other one is kept, so that the result has as many as were asked for. `drawn` are those that
    would be kept, in stretches; `names` the latents, where other variables would take much memory.
    """
    settings = engine.settings
    if (
        not engine.policy.careful
        or asked < settings.fewest_extended
        or state.every >= settings.most_every
        or _suffice(engine, drawn, asked, names)
    ):
        return state
    more = asked * state.every
    return replace(state, every=2 * state.every, plan=tuple(chunks_of("sampling", more)))


def _suffice(
    engine: Engine,
    drawn: Iterable[tuple[Parameterization, Trail]],
    asked: int,
    names: tuple[str, ...] | None,
) -> bool:
    """Whether the draws that would be kept pass the checks of every run's end."""
    target, parts = engine.target, []
    latents = [site.name for site in target.program.latents]
    most = max(1, MOST_NUMBERS // (asked * len(engine.keys) * max(len(latents), 1)))
    for lam, trail in drawn:
        values, log_determinant = by_rows(map_back, target, trail.position, lam, names=names)
        some = {name: _some(values[name], most) for name in latents}
        parts.append((some, trail.logdensity - log_determinant))
    return suffice(*joined_draws(parts))


def _some(values: np.ndarray, most: int) -> np.ndarray:
    """Draws of shape (chain, draw, *shape) of all elements, or of as many, evenly spread."""
    size = int(np.prod(values.shape[2:]))
    if size <= most:
        return values
    chosen = np.linspace(0, size - 1, most).astype(int)
    return values.reshape(*values.shape[:2], size)[..., chosen]
