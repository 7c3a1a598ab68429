"""How the data's hold on the elements of a sequence varies, from draws and their scores.

What is left of the score of an element after the prior's part of it comes from its own data. Where
these are Gaussian, as precise as `P` around `d`, it is `-P (u - d)` in every draw. So

    log P = a + β (η - middle of η)

with the roots `η`, and `a`, `β` and `d` are those with which `P^(-1/2)` times the one and `P^(1/2)`
times the other side agree best. Later elements tell of an element too. With the prior
`u' ~ Normal(f u + r, s'²)` of the next one, about which all that comes later says `P'` around `d'`,

    P + f² / (s'² + 1 / P')

is what holds the element, as in a Kalman smoother, from the last element to the first. Of that the
exponents are taken again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import numpy as np

from autoreparam.learn.informed import with_tails
from autoreparam.learn.objective import Draws
from autoreparam.learn.seen import see
from autoreparam.learn.settings import ScoreSettings
from autoreparam.program.centering import Centering
from autoreparam.program.grip import BASE, roots
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.site import Site
from autoreparam.program.target import Target
from autoreparam.program.traits import Coupling

MOST_DRAWS = 1000  # more than λ is learned from: they cost no gradient and no program of their own
MOST_NUMBERS = 20_000_000  # draws times elements times what is fitted of each
STEPS = 50  # of the least squares, at most: they end where a step gains next to nothing
FARTHEST = 40.0  # logarithm of a precision relative to the prior's


def gripped(
    target: Target,
    draws: Draws,
    given: Parameterization,
    lam: Parameterization,
    settings: ScoreSettings,
) -> Parameterization | None:
    """λ, origins and grips of sequences by what their draws and scores say.

    Draws are in the coordinates of `given`; other sites are as in `lam`, which has no grips. None
    where there are no sequences of single elements with light tails, or where the data's hold on
    none of them varies with the roots.
    """
    program, count = target.program, len(draws.weights)
    draws = draws.where(np.linspace(0, count - 1, min(count, MOST_DRAWS)).astype(int))
    places = np.cumsum([0, *(site.size for site in program.latents)])
    spans = dict(zip((site.name for site in program.latents), pairwise(places)))
    varying = roots(program)
    fewest, most = 4 * (2 + len(varying)), MOST_NUMBERS // (len(draws.weights) * (2 + len(varying)))
    names = [n for n in lam.sites if _may_grip(program[n], lam.of(n)) and program[n].size <= most]
    if not names:
        return None
    plain = with_tails(lam, 0.0)
    log_scales = see(target, draws.positions, given, settings).log_scales
    centered, noise = (
        draws.moved(target, given, plain.map(end)) for end in (np.ones_like, np.zeros_like)
    )
    parts = [centered.positions, centered.scores, noise.positions, *log_scales.values()]
    rows = np.all([np.isfinite(part).reshape(len(part), -1).all(axis=1) for part in parts], axis=0)
    if np.sum(rows) < fewest:
        return None
    centered, noise = centered.where(rows), noise.where(rows)
    columns = [spans[root.site][0] + root.place for root in varying]
    eta = centered.positions[:, columns].astype(float)
    middle = np.median(eta, axis=0)
    sites = {name: lam.of(name) for name in lam.sites}
    for name in names:
        one, own = sites[name], slice(*spans[name])
        shape, dtype = np.shape(one.loc), one.loc.dtype
        reference = np.broadcast_to(np.asarray(one.reference, float), shape).ravel()
        u = centered.positions[:, own].astype(float)
        if name in log_scales:
            s = np.exp(np.asarray(log_scales[name][rows], float).reshape(u.shape))
        else:
            s = np.broadcast_to(program.reference_scales[name], shape).ravel() + np.zeros(u.shape)
        m = u - s * noise.positions[:, own] / reference
        score = centered.scores[:, own].astype(float)
        with np.errstate(all="ignore"), suppress(np.linalg.LinAlgError):
            sequences = _in_turn(program[name])
            held_by = hold(u, m, s, score, eta - middle, sequences, settings.most_left)
            if held_by is None:
                continue
            level, slopes, origin = held_by
            share = 1 / (1 + np.exp(-(level + 2 * np.log(reference))))
            found = [share, origin, -slopes @ middle, *slopes.T]
            if not all(np.isfinite(part).all() for part in found):
                continue
            share, origin, *exponents = (part.reshape(shape).astype(dtype) for part in found)
            grip = dict(zip((BASE, *(root.label for root in varying)), exponents))
            sites[name] = replace(one, loc=share, scale=share, origin=origin, grip=grip)
    changed = any(sites[name].grips for name in names)
    return Parameterization.by_site(sites) if changed else None


def _may_grip(site: Site, one: Centering) -> bool:
    """Whether steps are single elements or independent ones, with light tails."""
    if one.grip is None or one.tail is not None or not site.size:
        return False
    if site.coupling is Coupling.SEQUENCE and site.implied is None:
        return site.event_dim == 1
    return site.coupling is not Coupling.CORRELATED


def _in_turn(site: Site) -> np.ndarray:
    """The places of the elements of each sequence, one row per sequence."""
    if site.loop is not None:
        return np.arange(site.size).reshape(site.unconstrained_shape[0], -1).T
    return site.vectors


def hold(
    u: np.ndarray,
    m: np.ndarray,
    s: np.ndarray,
    score: np.ndarray,
    away: np.ndarray,
    sequences: np.ndarray,
    most_left: float = 1.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """What holds each element: `a`, `β`, and a center, from draws of shape (n, elements).

    That is of everything but the elements before it, whose part is in the prior's location `m` and
    scale `s`. `away` has the roots, relative to their middle, and `sequences` the places of
    elements that follow each other. None where roots explain little of how precise the data are: if
    more than a share of `most_left` of what constant precisions leave is left by varying ones.
    """
    here, later = sequences[:, :-1].ravel(), sequences[:, 1:].ravel()
    passed = np.zeros(u.shape[1])
    passed[here] = _slopes(u[:, here], m[:, later])
    own = score + (u - m) / s**2
    own[:, here] -= passed[here] * (u[:, later] - m[:, later]) / s[:, later] ** 2
    level, slopes, origin, left = own_data(u, own, away)
    before = own_data(u, own, away[:, :0])[3]
    if np.sum(left) > most_left * np.sum(before):
        return None
    precision = np.exp(np.clip(level + away @ slopes.T, -FARTHEST, FARTHEST))
    center = np.broadcast_to(origin, u.shape).copy()
    for now, after in reversed([*pairwise(sequences.T)]):
        f = passed[now]
        rest = m[:, after] - f * u[:, now]
        told = f / (s[:, after] ** 2 + 1 / precision[:, after])  # times f, as a precision
        whole = precision[:, now] + f * told
        about = precision[:, now] * center[:, now] + told * (center[:, after] - rest)
        precision[:, now], center[:, now] = whole, about / whole
    x = np.column_stack([np.ones(len(away)), away])
    found = np.linalg.lstsq(x, np.log(precision), rcond=None)[0]
    # Where the data hold tightly, the center matters most.
    weights = precision**2 / np.sum(precision**2, axis=0)
    return found[0], found[1:].T, np.sum(weights * center, axis=0)


def _slopes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The slope of each column of y with the same one of x."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    return np.sum(x * y, axis=0) / (np.sum(x**2, axis=0) + np.finfo(float).tiny)


def own_data(
    u: np.ndarray, score: np.ndarray, away: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`a`, `β` and `d` of each element's own data, by least squares of scores, and what is left.

    There is a prior worth about one draw: data about as precise as draws are wide, a factor of e
    with usual changes of the roots, a center among the draws.
    """
    home = np.median(u, axis=0)
    width = np.std(u, axis=0) + np.finfo(float).tiny
    unit = np.std(away, axis=0) + np.finfo(float).eps
    x = np.column_stack([np.ones(len(away)), away / unit])  # (n, 1 + K)
    usual, count, size = -2 * np.log(width), x.shape[1] + 1, u.shape[1]
    diagonal = np.arange(count)

    def sides(theta: np.ndarray) -> tuple[np.ndarray, ...]:
        """Both sides of each equation, the loss of each element, and the root of P."""
        root = np.exp(np.clip(x @ theta[:-1] + usual, -2 * FARTHEST, 2 * FARTHEST) / 2)
        told, meant = score / root, (u - home - width * theta[-1]) * root
        loss = np.sum((told + meant) ** 2, axis=0) + np.sum(theta**2, axis=0)
        return told, meant, np.nan_to_num(loss, nan=np.inf), root

    theta = np.zeros((count, size))
    told, meant, loss, root = sides(theta)
    damping = np.ones(size)
    for _ in range(STEPS):
        gap, by_log, by_center = told + meant, (meant - told) / 2, -root * width
        slope = np.concatenate([x.T @ (gap * by_log), np.sum(gap * by_center, axis=0)[None]])
        curved = np.empty((size, count, count))
        curved[:, :-1, :-1] = np.einsum("na,ni,nb->iab", x, by_log**2, x, optimize=True)
        curved[:, :-1, -1] = curved[:, -1, :-1] = (x.T @ (by_log * by_center)).T
        curved[:, -1, -1] = np.sum(by_center**2, axis=0)
        curved = np.nan_to_num(curved)
        curved[:, diagonal, diagonal] = curved[:, diagonal, diagonal] * (1 + damping[:, None]) + 1
        step = np.linalg.solve(curved, np.nan_to_num(slope + theta).T[..., None])
        tried = theta - step[..., 0].T
        better = sides(tried)[2] < loss
        theta, before = np.where(better, tried, theta), loss
        told, meant, loss, root = sides(theta)
        damping = np.clip(np.where(better, damping / 10, damping * 10), 1e-9, 1e9)
        if better.any() and np.max(1 - loss / before) < 1e-4:
            break
    return theta[0] + usual, (theta[1:-1] / unit[:, None]).T, home + width * theta[-1], loss
