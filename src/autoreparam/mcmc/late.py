"""The later part of a window: its draws and scores, in any coordinates, without outliers."""

from __future__ import annotations

import numpy as np

from autoreparam.mcmc.engine import Engine
from autoreparam.mcmc.settings import DEFAULTS, SamplerSettings
from autoreparam.mcmc.state import RunState
from autoreparam.mcmc.trail import Trail
from autoreparam.program.move import move
from autoreparam.program.parameterization import Parameterization

MOST_ROWS = 10_000  # of all chains: more would teach nothing more, and take time
MOST_NUMBERS = 2**26  # in these rows: what is computed with them takes several times as much memory


class Late:
    """What the sound chains of a window left behind, but for its first part.

    Where there are very many, evenly spread ones stand for them.
    """

    def __init__(self, window: Trail, sound: np.ndarray, settings: SamplerSettings) -> None:
        self._parts = {**window._asdict(), **window.info._asdict()}
        self.sound, self.draws = sound, window.position.shape[1]
        first = int(settings.settling * self.draws)
        rows = (self.draws - first) * int(np.sum(sound))
        most = min(MOST_ROWS, MOST_NUMBERS // max(window.position.shape[-1], 1))
        self._kept = slice(first, None, max(1, rows // max(most, 1)))

    def __getitem__(self, name: str) -> np.ndarray:
        return self._parts[name][self.sound, self._kept]

    def rows(self, name: str) -> np.ndarray:
        """All chains pooled."""
        found = self[name]
        return found.reshape(-1, *found.shape[2:])

    def usual(self, settings: SamplerSettings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions, scores and log densities, but for those with outlying scores."""
        kept = not_outlying(self.rows("score"), settings)
        position, score, logdensity = map(self.rows, ("position", "score", "logdensity"))
        return position[kept], score[kept], logdensity[kept]

    def usual_at(
        self, engine: Engine, drawn: RunState, lam: Parameterization
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions and scores in the coordinates of `lam`, but for those that are outlying there.

        `drawn` is the run that made them: they are in its last slot's coordinates. A draw that is
        like the others in these may have an extreme score in others.
        """
        position, score = self.rows("position"), self.rows("score")
        own = drawn.slots[-1].lam
        if lam is not own:
            position, score, _ = move(engine.target, position, score, own, lam)
        kept = not_outlying(score, engine.settings) & np.isfinite(position).all(axis=1)
        return position[kept], score[kept]


def not_outlying(score: np.ndarray, settings: SamplerSettings = DEFAULTS) -> np.ndarray:
    """Which draws do not have scores that are extreme outliers, which are at most three in ten.

    Otherwise a single draw where the posterior is steep would dominate every variance. Those that
    are no numbers are outliers, however many.
    """
    finite = np.isfinite(score).all(axis=1)
    if not finite.any():
        return finite
    distance = np.abs(score[finite] - np.median(score[finite], axis=0))
    usual = np.median(distance, axis=0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        worst = np.max(distance / usual, axis=1, where=usual > 0, initial=0)
    most = max(settings.outlying, np.quantile(worst, 1 - settings.most_outliers))
    kept = np.zeros(len(score), bool)
    kept[finite] = worst <= most
    return kept
