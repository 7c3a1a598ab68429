"""Every number that steers the sampler and its warm-up, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from autoreparam.mcmc.delayed import Again


@dataclass(frozen=True)
class SamplerSettings:
    """The numbers of `mcmc`; `python -m benchmarks.ablation` halves and doubles each.

    >>> from dataclasses import replace
    >>> replace(SamplerSettings(), settling=0.5)
    """

    # -- starts (start.py) --
    candidates: int = 32  # per chain, of which the start is chosen
    radius: float = 2.0  # of the uniform noise of the widest; Stan's and NumPyro's
    least_radius: float = 0.01  # share of it for the narrowest: practically the center

    # -- windows (warmup.py) --
    first_window: int = 10  # draws; each window is twice as long as the one before
    last_window: float = 0.1  # share of the warm-up of each window for the step size only
    most_added_windows: int = 3  # where others taught too little: up to four times as long
    # Factor by which draws may be wider than the metric they were made with, in the last window of
    # learning: at most 3.7 in 14 posteriors where that went well, 9 and more where it did not. With
    # 3.5 or 8, 10 runs of 5 posteriors were much the same.
    most_wider: float = 5.0
    fewest_drawn: int = 100  # draws; shorter warm-ups are not meant to find that out

    # -- chains of a window (health.py) --
    # R-hat of half a window, from which chains are apart. In the last window of learning it was at
    # most 1.6 where that went well, 2.0 on motorcycle splines, and above 3 where λ was of no use.
    # With 1.4, of 24 runs of 8 models one was longer, and neither better nor worse.
    apart: float = 2.0
    settled: int = 25  # draws of a chain after which their width says something
    negligible: float = 1e-3  # the probability of a place, relative to where other chains are
    beyond_chance: float = 2.0  # standard deviations of a chain's level that chance accounts for

    # -- more draws where chains mix slowly (longer.py) --
    most_every: int = 8  # draws per kept one; with 10 to 15 gradients each, about a tree of NUTS
    fewest_extended: int = 400  # draws; shorter runs are not meant to have 100 effective ones

    # -- what a window is used for (retune.py) --
    settling: float = 0.3  # share of a window in which chains settle under its new tuning
    fewest_draws: int = 20  # from which anything but scales is learned
    outlying: float = 30.0  # median deviations beyond which a score counts as an outlier
    most_outliers: float = 0.3  # the largest share of draws that may be left out as outliers
    most_change: float = 10.0  # factor by which a new metric may change the step size
    divergent_share: float = 0.005  # of draws, above which steps should be smaller
    careful_accept: float = 0.95  # the highest target acceptance used in that case

    # -- step sizes (step_size.py) --
    near: float = 0.4  # distance in log step size up to which tries are evidence
    longest_two_stage: float = 1.0  # half of a two-stage step; beyond it errors no longer cancel

    # -- the integrator and trajectories (retune.py, trajectory.py) --
    first_length: float = 1.2  # mean length of a trajectory before anything is known: 3/4 of π/2
    first_steps: int = 16  # the most steps it may take in the first 50 draws; then in proportion
    nuts_beyond: float = 100.0  # steps for the slowest direction; beyond that NUTS takes over
    nearly_gaussian: float = 0.75  # of a Gaussian's leapfrog step; above it two stages are better
    jitters: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)  # that compete
    smear: float = 1.25  # factor by which frequencies vary where a posterior is not Gaussian
    shrink: tuple[float, ...] = (1.0, 0.9, 0.8, 0.7)  # so that a whole number of steps fits
    most_leapfrog: int = 1024  # steps of a trajectory, as many as a NUTS tree of depth 10
    divergence: float = 1000.0  # energy error on the way that is called divergent; Stan's
    again: Again = Again(patience=2.0, finer=4.0, longer=2.0)  # noqa: RUF009 - the second try

    # -- the metric (metric.py) --
    most_directions: int = 64  # in addition to the diagonal
    most_numbers: int = 400_000  # in all directions; more cost more than most models' gradients
    metric_ridge: float = 30.0  # weight of the diagonal mixed into covariances, in draws
    worth: float = 1.3  # stretches within this factor of 1 are dropped
    most_draws: int = 2000  # used for a decomposition
    fewer_draws: int = 200  # from 10,000 dimensions on
    most_uneven: float = 0.6  # the largest share of a score's spread, not linear, that is believed
    noise: float = 2.0  # standard errors by which scales are moved toward 1
    most_principal: int = 500  # dimensions up to which all principal directions are considered


DEFAULTS = SamplerSettings()
