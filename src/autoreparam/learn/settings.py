"""Every number that steers the learning of λ, by the ELBO or from scores, each with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real

from autoreparam.errors import AutoreparamError


@dataclass(frozen=True)
class ScoreSettings:
    """Numbers of `score.py`; `python -m benchmarks.ablation` halves and doubles each."""

    steps: int = 12  # of the descent in a window; with 8, heavy tails were given up in 3 of 9 runs
    steps_in_turn: int = 5  # where elements depend on each other and each step costs more
    steps_alone: int = 20  # of a fit that is not followed by another
    # Term of J, beyond chance, from which a descent may gain enough: an inflation of 2.7. Compared
    # with descending always, but not varied yet.
    worth_fitting: float = 0.5
    rate: float = 0.5  # of Adam's first step, in logits of λ
    ridge: float = 5.0  # divided by the number of draws, so it vanishes as they grow
    learned_from: int = 256  # draws, spread over the window; more would take time and add little
    fewest_learned_from: int = 16  # draws; with fewer, λ is kept
    # Factor by which energy may need more draws than with another λ. Of 28 posteriors, good λ were
    # within 1.3 of the best; those that hid a neck began at 2.4. Not varied yet.
    most_energy: float = 2.0
    neck: float = 3.0  # factor by which an element's width may shrink in working coordinates
    neck_quantile: float = 0.05  # of its scale, at which the width is measured
    # Of flat directions; but for `worth`, which gave them up too often at 0.5, not varied yet.
    flat: float = 0.01  # share of a direction's precision that may come from elsewhere than priors
    exact: float = 0.01  # relative error of what is exact but for rounding
    rather_centered: float = 0.25  # mean λ of a site from which they are looked for
    most_flat: int = 4  # directions: what they cost goes by the square of their number
    most_single: int = 8  # elements of a site that are tried one by one: each is a linear fit
    most_traded: int = 50  # elements of a site that is traded against; of more, scales vary little
    uneven: float = 0.3  # standard deviation of a direction's log width from which it matters
    worth: float = 0.1  # by which they must lower J, unless they are compiled already
    # Share of what constant precisions of the data leave that may be left by varying ones. Normal
    # noise of unknown scale left 0.001 to 0.2 after the first window; Bernoulli and Poisson data
    # 0.4 to 0.9, and grips cost some of these two thirds of their efficiency. Not varied yet.
    most_left: float = 0.3
    edge: float = 2.2  # bound on the starting logits; further out the objective is flat


DEFAULTS = ScoreSettings()


@dataclass(frozen=True)
class ElboSettings:
    """Numbers of `elbo.py`."""

    steps: int = 900  # at most, in whole chunks, equally many for each stage of `decay`
    samples: int = 8  # per step, in antithetic pairs; Adam averages over steps as well
    learning_rates: Sequence[float] = (0.1, 0.3)  # all are tried; the best ELBO decides
    early_stop: bool = True  # once the ELBO has stopped rising, gradients buy nothing
    chunk: int = 50  # steps in one call of the compiled program, and in one estimate of the gain
    decay: tuple[float, ...] = (1.0, 1 / 5, 1 / 20)  # of the rates, by stage: near, then precise
    start_scale: float = 0.1  # σ at the start, in reference scales: small, so densities are finite
    margin: float = 0.02  # λ starts at least this far from 0 and 1, where its gradient vanishes
    memory: float = 0.99  # Adam's b2: 0.999 remembers steep early gradients too long
    settling: int = 2  # chunks before any stage may end early: in the first λ is held
    stalled: float = 1.0  # a stage ends at a gain of at most so many Monte Carlo errors
    rising: float = 2.0  # a last gain of more errors than this is no noise: the fit ended too early
    clear: float = 3.0  # times the error where `q` fits; above that, noise hides any gain
    better: float = 2.0  # errors by which an end must lead to replace a learned λ
    negligible: float = 0.01  # nats: next to an end, where the logit creeps, λ is as good as it

    def __post_init__(self):
        rates = self.learning_rates
        counts = (self.steps, self.samples)
        if (
            not all(isinstance(count, Integral) and count >= 1 for count in counts)
            or not isinstance(rates, Sequence)
            or not rates
            or not all(isinstance(rate, Real) and rate > 0 for rate in rates)
        ):
            raise AutoreparamError(
                "expected at least one step, one sample and one positive learning rate; found "
                f"steps={self.steps!r}, samples={self.samples!r}, learning_rates={rates!r}"
            )


ELBO_DEFAULTS = ElboSettings()
