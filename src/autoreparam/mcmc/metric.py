"""The metric: diagonal, with directions stretched or shrunk where draws and scores call for it.

With `σ` the square roots of the diagonal, `U` orthonormal columns and `Λ` their stretches,

    M⁻¹ = diag(σ) (I + U (Λ - I) Uᵀ) diag(σ)

In small dimensions `U` can be square, and the metric is dense.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.mcmc.settings import DEFAULTS, SamplerSettings
from autoreparam.program.compiled import accelerated
from autoreparam.program.move import held_out

if TYPE_CHECKING:
    from blackjax.mcmc import metrics

LARGE = 1e30  # whitened draws are about 1
TINY = float(np.finfo(float).tiny)
MOST_ROWS = 512  # of a square matrix to multiply by
QUICK = 0.25  # share of the draws: one number needs fewer than a matrix


class Metric(NamedTuple):
    """An inverse mass matrix; the shapes depend on the dimension only."""

    diagonal: Any  # σ²
    directions: Any  # U, (dim, rank), orthonormal or zero columns
    stretch: Any  # Λ, one per direction; 1: not used

    @classmethod
    def of(cls, diagonal: np.ndarray, settings: SamplerSettings = DEFAULTS) -> Metric:
        """The diagonal metric."""
        diagonal = np.asarray(diagonal)
        rank = most_directions(len(diagonal), settings)
        zeros = np.zeros((len(diagonal), rank), diagonal.dtype)
        return cls(diagonal, zeros, np.ones(rank, diagonal.dtype))

    @property
    def rank(self) -> int:
        """How many directions are used."""
        return int(np.sum(np.asarray(self.stretch) != 1))

    def plain(self) -> Metric:
        """The diagonal alone."""
        return Metric(self.diagonal, self.directions[..., :0], self.stretch[..., :0])

    def whiten(self, position: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of positions and scores in the coordinates where this metric is the identity."""
        scale = np.sqrt(self.diagonal)
        x, s = position / scale, score * scale
        root = np.sqrt(self.stretch)
        x = x + (x @ self.directions) * (1 / root - 1) @ self.directions.T
        s = s + (s @ self.directions) * (root - 1) @ self.directions.T
        return x, s

    def halves(self) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
        """`S` with `M⁻¹ = S Sᵀ`, and its transpose, as functions of a vector.

        With momenta `r = Sᵀ p` of unit variance, positions move by `S r` and momenta by `Sᵀ` times
        the score, and an energy is a sum of squares. Directions cost nothing while none is used.
        """
        sigma = jnp.sqrt(self.diagonal)
        turned = self._turning(jnp.sqrt(self.stretch))
        return lambda vector: sigma * turned(vector), lambda vector: turned(sigma * vector)

    def build(self) -> metrics.Metric:
        """The metric in BlackJAX's form.

        Energies are sums of squares of `root(momentum)`. Written as differences, as a stretch below
        1 would suggest, they could round to below zero, and a trajectory that blew up would be
        accepted.
        """
        from blackjax.mcmc import metrics

        sigma, dtype = jnp.sqrt(self.diagonal), self.diagonal.dtype
        half, root = jnp.sqrt(self.stretch), self.halves()[1]
        back = self._turning(1 / half)

        def sample_momentum(key: Array, position: Array) -> Array:
            return back(jax.random.normal(key, position.shape, dtype)) / sigma

        def kinetic_energy(momentum: Array, position: Array | None = None) -> Array:
            return 0.5 * jnp.sum(root(momentum) ** 2)

        def check_turning(left, right, total, position_left=None, position_right=None) -> Array:
            middle = root(total - (left + right) / 2)
            return (root(left) @ middle <= 0) | (root(right) @ middle <= 0)

        def scale(position, element, *, inv, trans) -> Array:
            raise NotImplementedError("only Riemannian integrators ask for it")

        return metrics.Metric(sample_momentum, kinetic_energy, check_turning, scale)

    def _turning(self, stretch: Array) -> Callable[[Array], Array]:
        """The function that stretches a vector along the directions, if any is used."""
        if self.stretch.shape[-1] == 0:
            return lambda vector: vector

        def along(vector: Array) -> Array:
            return vector + self.directions @ ((stretch - 1) * (self.directions.T @ vector))

        if accelerated():  # where one product takes less time than two, or than a branch
            if len(self.directions) > MOST_ROWS:
                return along
            whole = jnp.eye(len(self.directions), dtype=stretch.dtype)
            whole += (self.directions * (stretch - 1)) @ self.directions.T
            return lambda vector: whole @ vector
        # Here and not below, where it would be repeated at every leapfrog step.
        used = jnp.any(self.stretch != 1)
        return lambda vector: jax.lax.cond(used, along, lambda same: same, vector)


def most_directions(size: int, settings: SamplerSettings = DEFAULTS) -> int:
    """Columns of `U` for a dimension."""
    return min(size, settings.most_directions, settings.most_numbers // max(size, 1))


def diagonal_metric(position: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Diagonal of the inverse mass matrix from draws and scores of shape (n, dim).

    It is `sqrt(Var u / Var g)`, exact for a Gaussian with any number of draws (the
    Fisher-divergence optimum).
    """
    if len(position) < 2:
        return np.ones(position.shape[1])
    # Entries that overflow, or have no spread, are replaced.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        variance, spread = (rows.var(axis=0, ddof=1, dtype=float) for rows in (position, score))
        return _sound(np.sqrt(variance / spread), position.dtype)


def _sound(metric: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The metric, with 1 for what is not positive and finite in this precision."""
    info = np.finfo(dtype)
    usable = (metric > info.tiny) & (metric < info.max)
    return np.where(usable, metric, 1).astype(dtype)


def fit_metric(
    position: np.ndarray, score: np.ndarray, settings: SamplerSettings = DEFAULTS
) -> Metric:
    """The metric for draws and scores of shape (n, dim).

    In coordinates scaled by the best diagonal it is the geometric mean of the draws' covariance
    and the inverse of the scores', the Fisher-divergence optimum, in the span of the strongest
    directions of both (nutpie's recipe). It competes with the plain diagonal on held-out stretches
    of draws.
    """
    diagonal = Metric.of(diagonal_metric(position, score), settings)
    if diagonal.stretch.size == 0 or len(position) < settings.fewest_draws:
        return diagonal
    x, s = diagonal.whiten(*_few(position, score, settings))
    if not _squarable(x, s):
        return diagonal
    held = held_out(len(x))
    with suppress(np.linalg.LinAlgError):
        trial = _stretched(diagonal, x[~held], s[~held], settings)
        before, after = (_divergence(m, x[held], s[held]) for m in (None, trial))
        if trial.rank and after < before:
            return _stretched(diagonal, x, s, settings)
    return diagonal


def _squarable(*parts: np.ndarray) -> bool:
    """Whether covariances of these rows, and products of such, are finite."""
    return all(bool(np.abs(rows).max(initial=0) < LARGE) for rows in parts)


def _stretched(diagonal: Metric, x: np.ndarray, s: np.ndarray, settings: SamplerSettings) -> Metric:
    rank = diagonal.stretch.size
    x, s = x - x.mean(axis=0), s - s.mean(axis=0)
    strongest = [_principal(rows)[:rank] for rows in (x, s)]
    span = np.linalg.qr(np.concatenate(strongest).T)[0]
    eye, n = np.eye(span.shape[1]), len(x)
    ridge = settings.metric_ridge
    covariances = [(rows.T @ rows + ridge * eye) / (n + ridge) for rows in (x @ span, s @ span)]
    stretch, vectors = np.linalg.eigh(_mean_with_inverse(*covariances))
    # What rounding leaves of a direction is no stretch.
    stretch = np.where(stretch > stretch.max() * np.finfo(float).eps, stretch, 1)
    order = np.argsort(-np.abs(np.log(stretch)))[:rank]
    order = order[np.abs(np.log(stretch[order])) > np.log(settings.worth)]
    metric = Metric(
        diagonal.diagonal, np.zeros_like(diagonal.directions), np.ones_like(diagonal.stretch)
    )
    metric.directions[:, : len(order)] = span @ vectors[:, order]
    metric.stretch[: len(order)] = stretch[order]
    return metric


def _principal(rows: np.ndarray, most: int = 0) -> np.ndarray:
    """The principal directions of the rows, the strongest first.

    They are at most as many as there are rows, but all of the dimension's up to `most`. By the
    eigenvalues of products: singular values would take several times as long.
    """
    count, size = rows.shape
    if size <= max(count, most):
        return np.linalg.eigh(rows.T @ rows)[1].T[::-1]
    span, inside = np.linalg.qr(rows.T)
    return (span @ np.linalg.eigh(inside @ inside.T)[1]).T[::-1]


def _mean_with_inverse(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The geometric mean of `a` and `b⁻¹`: the `m` with `m b m = a`."""
    values, vectors = np.linalg.eigh(b)
    values = np.maximum(values, values.max() * np.finfo(values.dtype).eps)  # not below by rounding
    root, back = ((vectors * values**power) @ vectors.T for power in (0.5, -0.5))
    values, vectors = np.linalg.eigh(root @ a @ root)
    return back @ ((vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T) @ back


def _divergence(metric: Metric | None, x: np.ndarray, s: np.ndarray) -> float:
    """Mean squared difference between draws and negative scores, whitened and centered."""
    if metric is not None:
        unit = metric._replace(diagonal=np.ones_like(metric.diagonal))
        x, s = unit.whiten(x, s)
    return float(np.mean(np.sum((x - x.mean(axis=0) + s - s.mean(axis=0)) ** 2, axis=1)))


def spread(
    metric: Metric, position: np.ndarray, score: np.ndarray, settings: SamplerSettings = DEFAULTS
) -> np.ndarray:
    """The remaining scales along the coordinates and the principal directions.

    Directions come from the first half of the draws and scales from the second, so that chance does
    not look like correlation; alternating draws would not do, since neighbors in a chain are alike.
    For a Gaussian the scores cancel the draws, `x / σ² + s = 0`; the remainder tells how much
    slower than average a direction can be.
    """
    x, s = metric.whiten(*_few(position, score, settings))
    size = x.shape[1]
    if len(x) < settings.fewest_draws or not _squarable(x, s):
        return np.ones(2 * size)
    half = len(x) // 2
    rows = x[:half] - x[:half].mean(axis=0)
    directions = _principal(rows, settings.most_principal)
    x, s = (rows[half:] - rows[half:].mean(axis=0) for rows in (x, s))
    x, s = (np.concatenate([rows, rows @ directions.T], axis=1) for rows in (x, s))
    scale, square = x.std(axis=0), np.mean(x**2, axis=0)
    slope = np.divide(np.mean(x * s, axis=0), square, out=np.zeros_like(square), where=square > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        uneven = np.std(s - slope * x, axis=0) / np.std(s, axis=0)
    slower = 1 / np.sqrt(1 - np.minimum(np.nan_to_num(uneven), settings.most_uneven))
    return np.resize(_less_noise(scale, x, settings.noise) * slower, 2 * size)


def _less_noise(scale: np.ndarray, x: np.ndarray, errors: float) -> np.ndarray:
    """Scales of the columns of `x`, moved toward 1 by how much two halves of the rows differ.

    The worst direction decides, and among many equal ones noise alone makes one the worst.
    """
    halves = [rows.std(axis=0) for rows in np.array_split(x, 2)]
    # A direction without any spread has no logarithm.
    first, second, log_scale = (np.log(np.maximum(part, TINY)) for part in (*halves, scale))
    size, sign = np.abs(log_scale), np.sign(log_scale)
    return np.exp(sign * np.maximum(size - errors * np.std(first - second) / 2, 0))


def fastest(
    metric: Metric, position: np.ndarray, score: np.ndarray, settings: SamplerSettings = DEFAULTS
) -> float:
    """The highest frequency in these coordinates: it limits the step size. NaN without draws."""
    if not len(position):
        return np.nan
    _, rows = metric.whiten(*_few(position, score, settings, QUICK))
    rows = rows - rows.mean(axis=0)
    if not _squarable(rows):
        return float(np.linalg.norm(rows, ord=2) / np.sqrt(len(rows)))
    products = rows.T @ rows if len(rows) > rows.shape[1] else rows @ rows.T
    return float(np.sqrt(max(np.linalg.eigvalsh(products)[-1], 0.0) / len(rows)))


def _few(
    position: np.ndarray, score: np.ndarray, settings: SamplerSettings, share: float = 1.0
) -> list[np.ndarray]:
    """Evenly spread draws and their scores in double precision, fewer in high dimensions.

    A decomposition costs the square of their number times the dimension.
    """
    count, size = position.shape
    limit = max(settings.fewer_draws, settings.most_draws * 1000 // size)
    most = min(count, int(share * settings.most_draws), limit)
    take = np.linspace(0, count - 1, most).astype(int)
    return [rows[take].astype(np.float64) for rows in (position, score)]
