"""Flat directions: what moves together without the data noticing.

A constant that is added to `mu` and taken from every `a[g]` leaves `mu + a[g]` as it was. Only the
priors say how far that can go, and where `a` has a scale `s`, they say about `s / √G`. The data may
well know each `mu + a[g]`; then `a` is best centered, and its common part is as wide as `s` allows.
No λ per element serves both. Nor does one where `mu` is the location of `a`.

Where `mu` has a constant prior, `a` borrows it as its location: the working coordinate has `λ mu`
added, so that at λ = 1 it is that of `mu + a`. Then `mu` alone moves along the direction, and with
it the noise `e` of every element, by `J`: as far as it must for the working coordinates of the rest
to stay, with `s0` usual scales

    J = λ (s / s0)^(1 - λ) / s

times what the element has to make up for. Where the data know each element as well as λ says, the
precision of `mu` given the others goes like `J'J`. So what λ gives is stretched along `J`, about
the center where `J'e = 0`,

    e  ->  e + J (φ - 1) (J'e) / (J'J),    φ² = J0'J0 / J'J

with `J0` at the usual scales and the log-determinant `log φ`; then `mu` is as wide whatever the
scales are. An element that the data say nothing about, at λ = 0, takes no part. What moves
rigidly, as `mu` does, has `J = 1 / s`; where that has a λ too, `φ` has a factor for what its own
coordinate makes of a step. At λ = 0, `φ` is 1. Several directions are taken in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.errors import ParameterizationError, known
from autoreparam.program.families import Standardized
from autoreparam.program.maps import Point, SiteMap
from autoreparam.program.program import Program
from autoreparam.program.site import Site


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Flat:
    """Directions of the unconstrained values, by site, (direction, *shape).

    `moves` is how far each element moves, `apart` how far from its location, which may move too.
    The others are for sites with a λ: `usual` scales, how much of what moves without a λ along a
    direction the elements borrow as their location, and which elements follow as far as λ says; the
    others move rigidly.
    """

    moves: dict[str, Any]
    apart: dict[str, Any]
    usual: dict[str, Any]  # (*shape)
    borrowed: dict[str, Any]
    follows: dict[str, Any]  # 1 or 0

    @property
    def count(self) -> int:
        """The number of directions."""
        return len(next(iter(self.moves.values())))

    def refuse_other(self, program: Program) -> None:
        """Raises where these cannot be directions of a program's values."""
        sites, count = may_be_flat(program), self.count
        with_lam = {name for name in self.moves if name in sites and sites[name].candidate}
        whole = self.moves.keys() == self.apart.keys() and self.moves.keys() <= sites.keys()
        whole &= self.usual.keys() == self.borrowed.keys() == self.follows.keys() == with_lam
        shaped = whole and all(
            np.shape(part[name]) == (*(() if part is self.usual else (count,)), *shape)
            for part in self.parts
            for name, shape in ((name, sites[name].unconstrained_shape) for name in part)
        )
        fixed = shaped and all(
            np.array_equal(self.moves[name], self.apart[name])
            for name in self.moves
            if name not in with_lam
        )
        leading = {one for name in self.moves if fixed for one in sites[name].loc_parents}
        if not fixed or any(np.any(self.follows[name]) for name in with_lam & leading):
            raise ParameterizationError(
                f"flat directions of this parameterization, of {known(self.moves)}, are none of "
                "this model's. Was it made for another one?"
            )

    @property
    def parts(self) -> tuple[dict[str, Any], ...]:
        """Everything by site."""
        return self.moves, self.apart, self.usual, self.borrowed, self.follows

    def lent(self, working: Mapping[str, Array], lam: Any) -> dict[str, Array]:
        """What has been added to the working coordinates of sites that borrow, with this λ."""
        alone = [name for name in self.moves if name not in self.borrowed]
        values = sum(_inner(self.moves[name], working[name]) for name in alone)
        return {n: lam[n] * jnp.tensordot(values, x, 1) for n, x in self.borrowed.items() if alone}


def _inner(moves: Any, values: Array) -> Array:
    """A sum over all elements for every direction."""
    return jnp.sum(moves * values, axis=tuple(range(1, jnp.ndim(moves))))


class Part(NamedTuple):
    """What the directions need to know of one site."""

    rule: Standardized
    noise: Any
    lam: tuple[Any, Any] | None = None  # of location and scale

    @classmethod
    def of(cls, map_: SiteMap, point: Point) -> Part:
        """That of a site with a λ."""
        return cls(map_.rule, point.noise, (map_.lam_loc, map_.lam_scale))

    @classmethod
    def constant(cls, rule: Standardized, free: Array) -> Part:
        """That of a site without one, whose location and scale are constant."""
        return cls(rule, (free - rule.loc) / rule.scale)

    @property
    def slope(self) -> Array:
        """The derivative of the log density of the noise."""
        return jax.grad(lambda noise: jnp.sum(self.rule.noise.log_prob(noise)))(self.noise)


class Shift(NamedTuple):
    """Where steps along all directions lead, by site, and the log-determinant of the map."""

    noise: dict[str, Array]  # afterwards
    free: dict[str, Array]  # how far unconstrained values move
    loc: dict[str, Array]  # how far locations do
    log_det: Array


def stretched(flat: Flat, parts: Mapping[str, Part], back: bool = False) -> Shift:
    """The steps from what λ gives to the values, or, with `back`, the other way."""
    noise = {name: part.noise for name, part in parts.items()}
    free, loc = ({name: jnp.zeros(()) for name in parts} for _ in range(2))
    log_det = jnp.zeros(())
    for i in reversed(range(flat.count)) if back else range(flat.count):
        rates = {name: _rate(flat, i, name, part) for name, part in parts.items()}
        precision = sum(jnp.sum(rate**2) for rate in rates.values())
        log_gain = (_log_seen(flat, i, parts) - jnp.log(precision)) / 2
        center = sum(jnp.sum(rate * noise[name]) for name, rate in rates.items()) / precision
        step = jnp.expm1(-log_gain if back else log_gain) * center
        noise = {name: noise[name] + rate * step for name, rate in rates.items()}
        loc = {n: loc[n] + (flat.moves[n][i] - flat.apart[n][i]) * step for n in parts}
        free = {n: free[n] + flat.moves[n][i] * step for n in parts}
        log_det = log_det + (-log_gain if back else log_gain)
    return Shift(noise, free, loc, log_det)


def _rate(flat: Flat, i: int, name: str, part: Part) -> Array:
    """How far the noise of a site moves along a direction."""
    rigid = flat.apart[name][i] / part.rule.scale
    if part.lam is None:
        return rigid
    (loc, scale), usual = part.lam, flat.usual[name]
    share = loc * (part.rule.scale / usual) ** (1 - scale)
    return jnp.where(flat.follows[name][i] > 0, share, 1.0) * rigid


def _log_seen(flat: Flat, i: int, parts: Mapping[str, Part]) -> Array:
    """The log of the precision along a direction at usual scales, as its own coordinate has it."""
    seen, rigid, following = jnp.zeros(()), jnp.zeros(()), jnp.zeros(())
    for name, part in parts.items():
        away = flat.apart[name][i]
        if part.lam is None:
            alike = jnp.sum((away / part.rule.scale) ** 2)
            seen, rigid = seen + alike, rigid + alike
            continue
        (loc, scale), usual, follows = part.lam, flat.usual[name], flat.follows[name][i]
        pulled = flat.moves[name][i] - away + flat.borrowed[name][i]
        moved = loc * pulled + (part.rule.scale / usual) ** (scale - 1) * away
        seen += jnp.sum((1 - follows) * (moved / usual) ** 2)
        rigid += jnp.sum((1 - follows) * (away / usual) ** 2)
        following += jnp.sum(follows * (loc * away / usual) ** 2)
    return jnp.log(seen) + jnp.log1p(following / rigid)


def before_stretch(map_: SiteMap, shift: Shift, name: str) -> tuple[SiteMap, Point]:
    """The map and the point of a site where λ alone would have it."""
    loc, noise = map_.rule.loc + shift.loc[name], shift.noise[name]
    map_ = replace(map_, rule=replace(map_.rule, loc=loc))
    return map_, Point(noise, loc + map_.rule.scale * noise)


def may_be_flat(program: Program) -> dict[str, Site]:
    """The sites that can be part of a direction: their scales do not depend on each other."""
    if program.structure.discrete or program.structure.rounds:
        return {}
    found = {site.name: site for site in program.latents if _simple(site)}
    structure = program.structure
    while True:
        causes = {name for site in found.values() for name in site.scale_parents}
        scaled = causes | structure.ancestors(causes)
        left = {name: site for name, site in found.items() if name not in scaled}
        if len(left) == len(found):
            return found
        found = left


def _simple(site: Site) -> bool:
    plain = site.alone and site.implied is None
    known = site.candidate or not (site.loc_parents or site.scale_parents)
    known &= set(site.parents) <= {*site.loc_parents, *site.scale_parents}  # the shape is constant
    real = site.candidate or site.support == "real"
    return plain and known and real and site.standardizable
