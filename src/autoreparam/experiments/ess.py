"""Effective sample sizes of many chains at once, compiled.

Two estimators, chain by chain as the paper measures: the paper's, that of TensorFlow Probability,
which sums autocorrelations up to the first negative one and never exceeds the number of draws; and
ArviZ's ESS of the mean (each chain split in halves, Geyer's initial monotone sequence), which
exceeds it where draws are antithetic. ArviZ takes milliseconds per series; the paper's runs have
25,000 series of 10,000 draws per cell, and hundreds of cells.
"""

from __future__ import annotations

from functools import partial
from math import log10
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Ess(NamedTuple):
    """Both estimates, of shape (variable, chain)."""

    paper: Array
    arviz: Array


@jax.jit
def ess_of_each_chain(draws: Array) -> Ess:
    """ESS of the mean by variable and chain, from draws of shape (draw, chain, variable)."""
    series = jnp.moveaxis(draws, 0, -1).swapaxes(0, 1)
    return jax.lax.map(jax.vmap(lambda one: Ess(_truncated(one), _geyer(one))), series)


@jax.jit
def r_hat(draws: Array) -> Array:
    """R-hat of each variable, from draws of shape (draw, chain, variable)."""
    n = draws.shape[0]
    within = jnp.mean(jnp.var(draws, axis=0, ddof=1), axis=0)
    between = jnp.var(jnp.mean(draws, axis=0), axis=0, ddof=1)
    return jnp.sqrt((n - 1) / n + between / within)


@jax.jit
def longest_stay(draws: Array) -> Array:
    """The longest run of draws that any chain spent at one point, from (draw, chain, variable)."""
    number = jnp.arange(draws.shape[0])[:, None]
    moves = jnp.any(draws[1:] != draws[:-1], axis=-1)
    arrived = jnp.where(jnp.pad(moves, ((1, 0), (0, 0)), constant_values=True), number, 0)
    return 1 + jnp.max(number - jax.lax.cummax(arrived))


def _truncated(series: Array) -> Array:
    n = series.shape[0]
    covariance = _autocovariance(n, _standardized(series))
    rho = covariance / covariance[0]
    before = jnp.cumsum(rho < 0) == 0
    tau = 2 * jnp.sum(jnp.where(before, rho, 0)) - 1
    return jnp.where(_moves(series), n / tau, 0.0)


def _geyer(series: Array) -> Array:
    half = series.shape[0] // 2
    # Split as ArviZ does: with an odd number of draws the middle one is dropped.
    standardized = _standardized(series)
    halves = jnp.stack([standardized[:half], standardized[-half:]])
    means = jnp.mean(halves, axis=1, keepdims=True)
    covariance = jnp.mean(jax.vmap(partial(_autocovariance, half))(halves - means), axis=0)
    within = covariance[0] * half / (half - 1)
    total = covariance[0] + jnp.var(means, ddof=1)
    rho = (1 - (within - covariance) / total).at[0].set(1.0)
    even, odd = rho[0 : half - half % 2 : 2], rho[1::2]
    pairs = even + odd
    last = (half - 3) // 2  # as in ArviZ, the last pair that is considered
    ends = (pairs <= 0) | (jnp.arange(pairs.size) >= last)
    stop = jnp.argmax(ends)
    inside = jnp.arange(pairs.size) < stop
    tau = -1 + 2 * jnp.sum(jnp.where(inside, jax.lax.cummin(pairs), 0)) + jnp.maximum(even[stop], 0)
    size = 2 * half
    return jnp.where(_moves(series), size / jnp.maximum(tau, 1 / log10(size)), 0.0)


def _standardized(series: Array) -> Array:
    """Scaled so that squares stay finite in single precision."""
    return (series - jnp.mean(series)) / jnp.maximum(jnp.std(series), 1e-30)


def _moves(series: Array) -> Array:
    """Zero for a chain that never moves (ArviZ would call it perfect)."""
    return jnp.max(series) > jnp.min(series)


def _autocovariance(n: int, centered: Array) -> Array:
    size = 1 << (2 * n - 1).bit_length()
    power = jnp.abs(jnp.fft.rfft(centered, size)) ** 2
    return jnp.fft.irfft(power, size)[:n] / n
