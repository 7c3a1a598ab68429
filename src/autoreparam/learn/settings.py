"""Every number that steers the learning of λ from draws and scores, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScoreSettings:
    """Numbers of `score.py`; `python -m benchmarks.ablation` halves and doubles each."""

    steps: int = 8  # of the descent in a window, which goes on where the last one ended
    steps_in_turn: int = 5  # where elements depend on each other and each step costs more
    steps_alone: int = 20  # of a fit that no other one follows
    rate: float = 0.5  # of Adam's first step, in logits of λ
    ridge: float = 5.0  # divided by the number of draws: it vanishes as they grow
    learned_from: int = 256  # draws, spread over the window; more cost time and teach little
    fewest_learned_from: int = 16  # draws; with fewer λ stays
    neck: float = 3.0  # factor by which an element's width may shrink in working coordinates
    neck_quantile: float = 0.05  # of its scale, where the width is looked at
    edge: float = 2.2  # of the logits to start from: further out the objective is flat


DEFAULTS = ScoreSettings()
