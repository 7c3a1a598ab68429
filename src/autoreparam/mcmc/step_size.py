"""Step sizes adapted to a target acceptance by dual averaging, and the final one."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import erfc

from autoreparam.mcmc.settings import DEFAULTS, SamplerSettings

REASONABLE = (1e-15, 1e15)  # step sizes; beyond them only arithmetic that overflows
POWERS = (2, 4)  # of the step size, with which errors grow
# Of dual averaging (Hoffman and Gelman 2014): early errors count less; how soon averages forget.
DELAY, FORGETTING = 10, 0.75


class Search(NamedTuple):
    """How dual averaging looks for a step size."""

    shrinkage: float  # the smaller, the further an error moves the step
    factor: float  # times the first step size: what steps are drawn toward


# For chains on their way to the posterior, where the right step changes by orders of magnitude:
# Hoffman and Gelman's numbers.
FAR = Search(shrinkage=0.05, factor=10.0)
# For chains that have arrived. By the numbers above, log steps scatter with a standard deviation of
# 0.5 after 50 to 100 draws, and steps that are too short cost gradients; by these, of 0.2.
NEAR = Search(shrinkage=0.2, factor=1.0)


class Average(NamedTuple):
    """The state of dual averaging."""

    log_step_size: Any
    log_step_size_avg: Any
    step: Any  # draws so far, and one
    avg_error: Any
    shrinkage: Any  # of its `Search`
    mu: Any  # what log step sizes shrink towards


class Adaptation(NamedTuple):
    """One chain's step-size adaptation, with one entry per slot."""

    active: Any  # whether step sizes adapt; otherwise they stay as they are
    target: Any
    average: Average

    def step_size(self) -> Array:
        """The step sizes to use for the next draw."""
        return jnp.exp(self.average.log_step_size)

    def final(self) -> np.ndarray:
        """The step sizes to settle on, in numpy."""
        return np.exp(self.average.log_step_size_avg)


def begin(
    step_sizes: np.ndarray, active: bool, target_accept: float, search: Search = FAR
) -> Adaptation:
    """Fresh adaptation that starts at the given step sizes, of any shape.

    In numpy: eager JAX would compile a program for each of these operations.
    """
    log_step = np.log(step_sizes)
    average = Average(
        log_step_size=log_step,
        log_step_size_avg=np.zeros_like(log_step),
        step=np.ones(log_step.shape, np.int32),
        avg_error=np.zeros_like(log_step),
        shrinkage=np.full_like(log_step, search.shrinkage),
        mu=log_step + np.log(search.factor).astype(log_step.dtype),
    )
    target = np.full_like(log_step, target_accept)
    return Adaptation(np.full(log_step.shape, active), target, average)


def adapt(state: Adaptation, acceptance: Array) -> Adaptation:
    """The adaptation after a draw with these acceptance rates, one per slot."""
    log_step, log_average, step, error, shrinkage, mu = state.average
    delayed, weight = step + DELAY, step**-FORGETTING
    missed = state.target - jnp.nan_to_num(acceptance)
    error = (1 - 1 / delayed) * error + missed / delayed
    log_average = weight * log_step + (1 - weight) * log_average
    log_step = mu - jnp.sqrt(step) / shrinkage * error
    average = Average(log_step, log_average, step + 1, error, shrinkage, mu)
    return state._replace(average=average)


def settled(
    tried: np.ndarray,
    acceptance: np.ndarray,
    guess: float,
    target: float,
    stages: int = 1,
    settings: SamplerSettings = DEFAULTS,
) -> float:
    """The step size with the target acceptance, from those tried near a guess and their acceptance.

    A leapfrog trajectory of step size ε is accepted with probability `erfc(k ε²)` for a Gaussian
    of many dimensions; `k` makes the mean over the tries right. In two stages errors grow faster,
    so the shorter of two answers is taken. With too few tries it is the guess, and it is never
    longer than that by more than `near`: tries say little about much longer steps.
    """
    used = (tried > 0) & np.isfinite(tried)
    tried, acceptance = tried[used], acceptance[used]
    near = np.abs(np.log(tried / guess)) < settings.near
    tries, rates = tried[near] / guess, np.nan_to_num(acceptance[near])
    if len(rates) < settings.fewest_draws:
        return guess
    # One standard error lower: steps that are too long cost more than ones that are too short.
    mean = np.clip(rates.mean() - rates.std() / np.sqrt(len(rates)), 0.05, 0.999)
    powers = POWERS[:stages]
    ratios = [_ratio(tries**power, mean, target) ** (1 / power) for power in powers]
    size = guess * min(*ratios, np.exp(settings.near))
    return min(size, settings.longest_two_stage) if stages > 1 else size


def _ratio(errors: np.ndarray, mean: float, target: float) -> float:
    """The error that gives the target acceptance, if these errors give this mean acceptance."""
    low, high = -10.0, 5.0
    different, counts = np.unique(errors, return_counts=True)  # chains may share their step sizes
    for _ in range(40):  # importing SciPy's root finders would take longer than all of this
        log_k = (low + high) / 2
        expected = counts @ erfc(np.exp(log_k) * different) / len(errors)
        low, high = (log_k, high) if expected > mean else (low, log_k)
    return _depth(target) / np.exp(log_k)


def for_gaussian(size: int, target: float) -> float:
    """The leapfrog step size with the target acceptance for a standard Gaussian.

    Trajectories of random length lose `size ε⁴ / 64` of their energy on average.
    """
    return (256 * _depth(target) ** 2 / size) ** 0.25


def accepted(target: float, factor: float) -> float:
    """The acceptance of steps longer by a factor than those that give the target acceptance."""
    return float(erfc(_depth(target) * factor**2))


def _depth(target: float) -> float:
    """Where `erfc` has this value."""
    return -NormalDist().inv_cdf(target / 2) / sqrt(2)
