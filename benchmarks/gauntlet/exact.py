"""Exact moments where all but one or two scales are Gaussian: quadrature over the scales."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SCHOOL_MEANS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SCHOOL_ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
STEPS = 30
SEEN = (np.arange(STEPS) < 10) | (np.arange(STEPS) >= 20)  # the middle ten are not observed
# In standard deviations of the prior: a grid so wide and so fine that doubling either changes
# the moments by less than a millionth.
REACH, POINTS = 6.0, 500

Moments = dict[str, tuple[float, float]]  # of each scalar, its mean and the mean of its square


def simulate_walk() -> np.ndarray:
    """A random walk with steps of 1 seen through noise of 0.5, where it is seen."""
    rng = np.random.default_rng(14)
    walk = np.cumsum(rng.normal(0, 1.0, STEPS))
    return (walk + rng.normal(0, 0.5, STEPS))[SEEN]


def exact_moments(name: str) -> Moments | None:
    """Means and mean squares of the scalars of a known model; None where no formula has them."""
    match name:
        case "random_walk":
            return _walk()
        case "eight_schools":
            return _schools()
        case "opaque_funnel":
            return {"z": (0.0, 9.0)}  # x has tails too heavy for a mean of its squares
    return None


def _walk() -> Moments:
    """All points of the grid at once, in the eigenvectors of what is seen of the walk."""
    times = np.arange(1, STEPS + 1)
    shape = np.minimum(times[:, None], times).astype(float)  # covariance of steps of size one
    values, vectors = np.linalg.eigh(shape[np.ix_(SEEN, SEEN)])
    cross, white = shape[:, SEEN] @ vectors, vectors.T @ simulate_walk()
    grid = 2.0 * np.linspace(-REACH, REACH, POINTS)  # logs of the scales: their prior is N(0, 2)
    log_step, log_noise = (part.ravel() for part in np.meshgrid(grid, grid))
    step, noise = np.exp(log_step), np.exp(log_noise)
    spectrum = np.outer(step**2, values) + noise[:, None] ** 2
    means = step[:, None] ** 2 * ((white / spectrum) @ cross.T)
    variances = np.outer(step**2, np.diag(shape)) - step[:, None] ** 4 * (1 / spectrum @ cross.T**2)
    density = -0.5 * (white**2 / spectrum + np.log(spectrum)).sum(axis=1)
    weights = density - (log_step**2 + log_noise**2) / 8
    squares = np.maximum(variances, 0) + means**2
    moments = _average(weights, means, squares, "walk[{}]".format)
    share = _shares(weights)
    for scalar, value in (("step", step), ("noise", noise)):
        moments[scalar] = (float(share @ value), float(share @ value**2))
    return moments


def _schools() -> Moments:
    """The mean is a ninth Gaussian variable; the log scale is the only one that is not."""
    grid = 5.0 * np.linspace(-REACH, REACH, 8 * POINTS)
    seen = np.arange(9) > 0
    found = []
    for log_tau in grid:
        covariance = np.full((9, 9), 25.0)
        covariance[1:, 1:] += np.exp(2 * log_tau) * np.eye(8)
        found.append(condition_gaussian(covariance, seen, np.diag(SCHOOL_ERRORS**2), SCHOOL_MEANS))
    weights = np.array([one[0] for one in found]) - grid**2 / 50
    means, squares = (np.array([one[i] for one in found]) for i in (1, 2))
    moments = _average(weights, means, squares, lambda i: f"theta[{i - 1}]" if i else "mu")
    share = _shares(weights)
    moments["log_tau"] = (float(share @ grid), float(share @ grid**2))
    return moments


def condition_gaussian(
    covariance: np.ndarray, seen: np.ndarray, noise: np.ndarray, y: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Log density of y, then means and mean squares of Gaussian variables given y.

    Their mean is zero a priori; `y` is what `seen` ones are, with noise of the given covariance.
    """
    cross = covariance[:, seen]
    factor = np.linalg.cholesky(cross[seen] + noise)
    white = np.linalg.solve(factor, y)
    spread = np.linalg.solve(factor, cross.T)
    mean = spread.T @ white
    variance = np.maximum(np.diag(covariance) - (spread**2).sum(axis=0), 0)
    density = -0.5 * white @ white - np.log(np.diag(factor)).sum()
    return float(density), mean, variance + mean**2


def _shares(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def _average(log_weights, means, squares, label: Callable[[int], str]) -> Moments:
    share = _shares(log_weights)
    pairs = zip(share @ means, share @ squares)
    return {label(i): (float(mean), float(square)) for i, (mean, square) in enumerate(pairs)}
