"""Flat directions from draws and their scores: which the data say nothing about.

In the coordinates of the model as written, the score of a draw along a direction is the slope of
the prior, which is known, and that of everything else. Where the latter is next to nothing in all
draws, the direction is flat. Two kinds are looked for: a single element, which only others' priors
depend on, and a single element against all of a site, with the coefficients that make the rest of
its score a combination of theirs. What is around the elements of that site moves with them: levels
below, in a nested model.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from autoreparam.learn.informed import with_tails
from autoreparam.learn.objective import Draws
from autoreparam.learn.seen import Seen, of_groups, traded
from autoreparam.learn.settings import ScoreSettings
from autoreparam.program.flat import Flat, is_regular
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.site import Site
from autoreparam.program.target import Target


def with_directions(
    target: Target,
    draws: Draws,
    seen: Seen,
    lam: Parameterization,
    informed: Parameterization,
    best: Parameterization,
    known: Flat | None,
    settings: ScoreSettings,
) -> dict[str, Parameterization]:
    """The best λ with flat directions; what they move is as the data tell it, or centered.

    Nothing where there are none that matter, nor any that are `known` from draws before and still
    do. Draws are in the coordinates of `lam`, without directions; `seen` is what
    priors say of them. λ by the data is `informed`.
    """
    sites = traded(target, settings)
    groups = [site for site in sites.values() if of_groups(site)]
    groups = [s for s in groups if float(np.mean(informed[s.name])) >= settings.rather_centered]
    if not groups:
        return {}
    with_lam = [name for name in sites if name in lam]
    plain = with_tails(lam, 0.0).replace(dict.fromkeys(with_lam, 1.0))
    rows = draws.weights > 0
    used = draws.where(rows).moved(target, lam, plain)
    with np.errstate(all="ignore"):
        elements = _Elements(target, used, seen.where(rows), sites, settings)
        flat = elements.directions(groups, known)
    if flat is None:
        return {}
    moving = [name for name in flat.usual if np.any(flat.apart[name])]
    moved = {
        "flat": {n: informed[n] for n in moving},
        "flat_centered": dict.fromkeys(moving, 1.0),
    }
    return {name: best.replace(own).with_flat(flat) for name, own in moved.items()}


class _Direction(NamedTuple):
    leader: int
    apart: np.ndarray  # how far elements move from their locations; the leader by 1
    spread: float  # how much its width varies, in its logarithm

    def is_like(self, other: _Direction) -> bool:
        """Whether the same elements move."""
        same = np.array_equal(self.apart != 0, other.apart != 0)
        return self.leader == other.leader and same


def _turns(directions: list[_Direction]) -> list[int]:
    """The turn of each: those with the same leader come one after the other."""
    leaders = [one.leader for one in directions]
    return [leaders[:i].count(leader) for i, leader in enumerate(leaders)]


def _regular(ranked: list[_Direction]) -> list[_Direction]:
    """The first ones with which the map is one-to-one, whatever λ is."""
    chosen: list[_Direction] = []
    for one in ranked:
        turns = _turns([*chosen, one])
        turn = [other for other, own in zip([*chosen, one], turns) if own == turns[-1]]
        if is_regular([other.leader for other in turn], np.stack([own.apart for own in turn])):
            chosen.append(one)
    return chosen


class _Elements:
    """The elements of some sites side by side: one column each, one row per draw."""

    def __init__(
        self,
        target: Target,
        draws: Draws,
        seen: Seen,
        sites: dict[str, Site],
        settings: ScoreSettings,
    ) -> None:
        latents = target.program.latents
        ends = np.cumsum([0, *(site.size for site in latents)])
        places = {s.name: np.arange(ends[i], ends[i + 1]) for i, s in enumerate(latents)}
        at = np.concatenate([places[name] for name in sites])
        self.sites, self.settings, self.dtype = sites, settings, draws.positions.dtype
        self.free, self.score = (np.asarray(x, float)[:, at] for x in draws[:2])
        self.loc, self.scale, self.slope = (np.asarray(x, float) for x in seen.columns)
        ends = np.cumsum([0, *(site.size for site in sites.values())])
        self.columns = {name: np.arange(ends[i], ends[i + 1]) for i, name in enumerate(sites)}
        small = [n for n, site in sites.items() if site.size <= settings.most_single]
        self.slopes, unknown = self._slopes()
        self.single = [p for n in small if n not in unknown for p in self.columns[n]]
        prior = self.slope / self.scale
        self.rest = self.score - (prior - prior @ self.slopes)  # without the priors' slopes

    def _slopes(self) -> tuple[np.ndarray, set[str]]:
        """The derivatives of all locations; the sites that they depend on in unknown ways."""
        slopes, unknown = np.zeros((self.loc.shape[1],) * 2), set[str]()
        for name, site in self.sites.items():
            if not site.loc_parents:
                continue
            own, known = self.columns[name], [p for p in site.loc_parents if p in self.sites]
            causes = [column for p in known for column in self.columns[p]]
            x, y = (z - z.mean(axis=0) for z in (self.free[:, causes], self.loc[:, own]))
            found = self._solved(x, y)
            exact = np.abs(y - x @ found).max() <= self.settings.exact * np.abs(y).max()
            exact &= len(x) >= 2 * len(causes)
            if not exact or len(known) < len(site.loc_parents):
                unknown.update(site.loc_parents)
            slopes[np.ix_(own, causes)] = found.T
        return slopes, unknown

    def _moves(self, apart: np.ndarray) -> np.ndarray:
        """How far elements move in all, (element, ...): apart from locations, and with them."""
        moves = more = apart
        for _ in self.sites:  # the longest chain of locations
            if not more.any():
                break
            more = self.slopes @ more
            moves = moves + more
        return moves

    def directions(self, groups: list[Site], known: Flat | None) -> Flat | None:
        """The flat directions whose width varies most, if it does for any.

        Those `known` from draws before if the first of these is among them, or if they are not seen
        in these draws but still matter: others would have to be compiled.
        """
        found = [self.alone(p) for p in self.single]
        others = [p for p, one in zip(self.single, found) if one is None]
        names = {site.name for site in groups}
        highest = [site for site in groups if not names.intersection(site.loc_parents)]
        found += [self.against(p, site) for site in highest for p in others]
        ranked = sorted((one for one in found if one is not None), key=lambda one: -one.spread)
        chosen = [one for one in ranked if one.spread > self.settings.uneven]
        before = [] if known is None else self.known(known)
        if chosen:
            again = _regular([one for one in ranked if any(map(one.is_like, before))])
            kept = any(one is chosen[0] for one in again) and len(again) == len(before)
            return self.flat(again if kept else _regular(chosen)[: self.settings.most_flat])
        varies = any(one.spread > self.settings.uneven for one in before)
        return self.flat(before) if varies else None

    def known(self, flat: Flat) -> list[_Direction]:
        """Directions by site, as elements of these draws."""
        leads, apart = np.zeros((2, flat.count, self.free.shape[1]))
        for name, own in self.columns.items():
            if name in flat.leads:
                leads[:, own] = np.reshape(flat.leads[name], (flat.count, -1))
                apart[:, own] = np.reshape(flat.apart[name], (flat.count, -1))
        return [self.direction(int(np.argmax(led)), own) for led, own in zip(leads, apart)]

    def alone(self, leader: int) -> _Direction | None:
        """That of an element that others' locations depend on, if it is flat."""
        if not self.slopes[:, leader].any():
            return None
        apart = -self.slopes[:, leader]
        apart[leader] = 1
        return self._judged(leader, apart, self.score[:, leader])

    def against(self, leader: int, site: Site) -> _Direction | None:
        """That of an element that the elements of a site make up for, if they do."""
        own = self.columns[site.name]
        around = self.slopes[leader, own].any()  # then it is the site's elements that lead
        if leader in own or around or len(self.rest) < 2 * len(own):
            return None
        alone = np.eye(self.free.shape[1])[:, own]
        found = self._solved(self.rest @ self._moves(alone), self.rest[:, leader])
        apart = np.zeros(self.free.shape[1])
        apart[leader], apart[own] = 1, -found
        return self._judged(leader, apart, self.rest[:, leader])

    def _judged(self, leader: int, apart: np.ndarray, scores: np.ndarray) -> _Direction | None:
        """The direction, if it is flat.

        Next to these scores, and to the prior's precision, nothing else is left along it.
        """
        left = np.mean((self.rest @ self._moves(apart)) ** 2)
        exact, flat = self.settings.exact**2 * np.mean(scores**2), self.settings.flat
        least = min(exact, flat * np.mean(self._precision(apart)))
        return self.direction(leader, apart) if left <= least else None

    def _precision(self, apart: np.ndarray) -> np.ndarray:
        """That of the priors along a direction, for each draw."""
        return ((apart / self.scale) ** 2).sum(axis=1)

    def direction(self, leader: int, apart: np.ndarray) -> _Direction:
        """A direction, with how much its width varies over the draws."""
        return _Direction(leader, apart, float(np.std(np.log(self._precision(apart))) / 2))

    def flat(self, directions: list[_Direction]) -> Flat:
        """The directions by site, those with the same leader one turn after the other."""
        turns = _turns(directions)
        directions = [directions[i] for i in np.argsort(turns, kind="stable")]
        apart = np.stack([one.apart for one in directions])
        moves, leads, rows = self._moves(apart.T).T, np.zeros_like(apart), np.arange(len(apart))
        moves[np.abs(moves) < self.settings.exact] = 0
        leads[rows, [one.leader for one in directions]] = 1
        some = ((apart != 0) | (moves != 0)).any(axis=0)
        names = [name for name, own in self.columns.items() if some[own].any()]
        with_lam = [name for name in names if self.sites[name].candidate]
        alone = [c for name in names if name not in with_lam for c in self.columns[name]]
        # Of directions that the same element leads, the first lends it.
        first = [
            bool(leads[i, alone].any()) and not (leads[:i, alone] * leads[i, alone]).any()
            for i in rows
        ]

        def by_site(names: list[str], values: np.ndarray) -> dict[str, np.ndarray]:
            shapes = {name: self.sites[name].unconstrained_shape for name in names}
            own = {name: values[..., self.columns[name]].astype(self.dtype) for name in names}
            return {n: x.reshape((*values.shape[:-1], *shapes[n])) for n, x in own.items()}

        usual = np.exp(np.median(np.log(self.scale), axis=0))
        return Flat(
            by_site(names, leads),
            by_site(names, apart),
            by_site(with_lam, usual),
            by_site(with_lam, np.where(np.asarray(first)[:, None], -moves, 0)),
            tuple(np.bincount(turns).tolist()),
        )

    def _solved(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Coefficients by least squares; zeros where numbers are missing: much is left over."""
        with suppress(np.linalg.LinAlgError):
            if np.isfinite(x).all() and np.isfinite(y).all():
                found = np.linalg.lstsq(x, y, rcond=None)[0]
                rounded = np.abs(found) < self.settings.exact * np.abs(found).max(initial=0)
                return np.where(rounded, 0, found)
        return np.zeros((x.shape[1], *y.shape[1:]))
