"""Flat directions: what moves together without the data noticing.

A constant that is added to `mu` and taken from every `a[g]` leaves `mu + a[g]` as it was. Only the
priors say how far that can go, and where `a` has a scale `s`, they say about `s / √G`. The data may
well know each `mu + a[g]`; then `a` is best centered, and its common part is as wide as `s` allows.
No λ per element serves both. Nor does one where `mu` is the location of `a`.

Where `mu` has a constant prior, `a` borrows it as its location: the working coordinate has `λ mu`
added, so that at λ = 1 it is that of `mu + a`. A step along the direction is one of `mu`, which
leads, while the working coordinates of what follows stay as they are at usual scales. With these
for `s0`, their noise moves by

    J = λ / gain

times what they have to make up for. An element that the data say nothing about, at λ = 0, does not
follow; where they know each as well as its λ says, the precision of `mu` given the others goes like
`J'J`, in which the leader has its own `1 / s`. So what λ gives is stretched along `J`,

    e  ->  e + J (Φ - 1) t,    t = (J'J)⁻¹ J'e,    Φ = R⁻¹ R0 H

with one column of `J` per direction, `R'R = J'J`, `R0` the same at usual scales, `H` what the
leaders' coordinates make of a step, relative to usual, and the log-determinant `log det Φ`. Then
`mu` is as wide whatever the scales are. At λ = 0, `Φ` is 1.

`J` has full rank, whatever λ and the scales are, as long as each direction has a leader of its own
and no leader follows itself, through others. Directions that the same element leads (against one
factor, and against another that is crossed with it) take turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.errors import ParameterizationError, known
from autoreparam.program.families import Standardized
from autoreparam.program.maps import Point, SiteMap
from autoreparam.program.maps.gain import relative_gain
from autoreparam.program.program import Program
from autoreparam.program.site import Site


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Flat:
    """Directions of the unconstrained values, by site, (direction, *shape).

    `leads` is 1 for the element that a direction is of, and `apart` how far each element moves from
    its location along it. The others are for sites with a λ: `usual` scales, and how much of what
    leads without a λ the elements borrow as their location. `turns` says how many directions are
    stretched together; then come as many as its next number says.
    """

    leads: dict[str, Any]
    apart: dict[str, Any]
    usual: dict[str, Any]  # (*shape)
    borrowed: dict[str, Any]
    turns: tuple[int, ...] = field(metadata={"static": True})

    @property
    def count(self) -> int:
        """The number of directions."""
        return len(next(iter(self.leads.values())))

    def refuse_other(self, program: Program, varies: bool = False) -> None:
        """Raises where these cannot be directions of a program's values.

        Nor can they be where the data's hold `varies`, perhaps with what a direction moves.
        """
        if varies:
            raise ParameterizationError(
                "a parameterization has flat directions or a grip that varies, not both"
            )
        sites, count = may_be_flat(program), self.count
        with_lam = {name for name in self.leads if name in sites and sites[name].candidate}
        whole = self.leads.keys() == self.apart.keys() and self.leads.keys() <= sites.keys()
        whole &= self.usual.keys() == self.borrowed.keys() == with_lam
        shaped = whole and all(
            np.shape(part[name]) == (*lead, *sites[name].unconstrained_shape)
            for part, lead in zip(self.parts, [(count,), (count,), (), (count,)])
            for name in part
        )
        shaped &= sum(self.turns) == count
        fixed = shaped and all(
            np.array_equal(self.leads[name], self.apart[name])
            for name in self.leads
            if name not in with_lam
        )
        if not fixed:
            raise ParameterizationError(
                f"flat directions of this parameterization, of {known(self.leads)}, are none of "
                "this model's. Was it made for another one?"
            )

    @property
    def sound(self) -> bool:
        """Whether these are one-to-one maps, each led by one element, that take turns."""
        counts = {len(x) for own in (self.leads, self.apart, self.borrowed) for x in own.values()}
        whole = self.leads and self.leads.keys() == self.apart.keys() and len(counts) == 1
        if not whole or min(self.turns, default=0) < 1 or {sum(self.turns)} != counts:
            return False
        leads, apart = (
            np.concatenate([np.reshape(own[name], (self.count, -1)) for name in self.leads], axis=1)
            for own in (self.leads, self.apart)
        )
        if leads.shape != apart.shape or not np.isin(leads, (0, 1)).all():
            return False
        single = (leads.sum(axis=1) == 1).all() and (apart[leads == 1] == 1).all()
        ends = np.cumsum(self.turns)
        turns = [slice(end - count, end) for end, count in zip(ends, self.turns)]
        leaders = leads.argmax(axis=1)
        return bool(single) and all(is_regular(list(leaders[one]), apart[one]) for one in turns)

    @property
    def parts(self) -> tuple[dict[str, Any], ...]:
        """Everything by site."""
        return self.leads, self.apart, self.usual, self.borrowed

    def lent(self, working: Mapping[str, Array], lam: Any) -> dict[str, Array]:
        """What has been added to the working coordinates of sites that borrow, with this λ."""
        alone = [name for name in self.leads if name not in self.borrowed]
        values = sum(_inner(self.leads[name], working[name]) for name in alone)
        return {n: lam[n] * jnp.tensordot(values, x, 1) for n, x in self.borrowed.items() if alone}


def _inner(leads: Any, values: Array) -> Array:
    """A sum over all elements for every direction."""
    return jnp.sum(leads * values, axis=tuple(range(1, jnp.ndim(leads))))


class Part(NamedTuple):
    """What the directions need to know of one site."""

    rule: Standardized
    noise: Any
    map: SiteMap | None = None

    @classmethod
    def of(cls, map_: SiteMap, point: Point) -> Part:
        """That of a site with a λ."""
        return cls(map_.rule, point.noise, map_)

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
    free: dict[str, Array]  # how far the unconstrained values move of what leads without a λ
    log_det: Array


def stretched(flat: Flat, parts: Mapping[str, Part], back: bool = False) -> Shift:
    """The steps from what λ gives to the values, or, with `back`, the other way."""
    rates, usual, units = _rates(flat, parts)
    noise = jnp.concatenate([jnp.ravel(part.noise) for part in parts.values()])
    steps, log_det = jnp.zeros(flat.count), jnp.sum(jnp.log(units))
    ends = np.cumsum(flat.turns).tolist()
    turns = [slice(end - count, end) for end, count in zip(ends, flat.turns)]
    for turn in reversed(turns) if back else turns:
        now, then = _Triangle(rates[turn]), _Triangle(usual[turn])
        there = now.coefficients(noise)
        if back:
            moved = then.solve(now.times(there)) / units[turn] - there
        else:
            moved = now.solve(then.times(units[turn] * there)) - there
        noise = noise + moved @ rates[turn]
        steps = steps.at[turn].set(moved)
        log_det += then.log_det - now.log_det
    ends = np.cumsum([np.size(part.noise) for part in parts.values()])
    split = dict(zip(parts, jnp.split(noise, ends[:-1])))
    alone = [name for name, part in parts.items() if part.map is None]
    return Shift(
        {name: own.reshape(np.shape(parts[name].noise)) for name, own in split.items()},
        {name: jnp.tensordot(steps, flat.leads[name], 1) for name in alone},
        -log_det if back else log_det,
    )


def _rates(flat: Flat, parts: Mapping[str, Part]) -> tuple[Array, Array, Array]:
    """How far noise moves along each direction, the same at usual scales, and units of leaders."""
    rates, usual, units = [], [], jnp.ones(flat.count)
    for name, part in parts.items():
        leads, scale = flat.leads[name], part.rule.scale
        now = then = leads / scale
        if part.map is not None:
            usual_scale, relative = flat.usual[name], scale / flat.usual[name]
            gain = relative_gain(part.map.gain, part.map.lam_scale, relative)
            follows = (1 - leads) * flat.apart[name] * part.map.lam_loc
            now = now + follows / (usual_scale * gain)
            then = (leads + follows) / usual_scale
            units += _inner(leads, gain / relative - 1)
        rates.append(jnp.reshape(now, (flat.count, -1)))
        usual.append(jnp.reshape(then, (flat.count, -1)))
    return jnp.concatenate(rates, axis=1), jnp.concatenate(usual, axis=1), units


class _Triangle:
    """`R` with `R'R = J'J`, of a few directions; and `Q` of `J = Q R`, a row per direction.

    By Gram and Schmidt: no call of LAPACK per gradient, and no `J'J`, which would be rounded more.
    """

    def __init__(self, directions: Array) -> None:
        self.rows: list[Array] = []
        self.columns: list[list[Array]] = []
        for rest in directions:
            column = []
            for row in self.rows:
                column.append(jnp.sum(row * rest))
                rest = rest - column[-1] * row
            column.append(jnp.sqrt(jnp.sum(rest**2)))
            self.rows.append(rest / column[-1])
            self.columns.append(column)

    @property
    def log_det(self) -> Array:
        """Of `R`."""
        return sum((jnp.log(column[-1]) for column in self.columns), jnp.zeros(()))

    def coefficients(self, noise: Array) -> Array:
        """Those of `J` closest to the noise."""
        found = []
        for row in self.rows:
            found.append(jnp.sum(row * noise))
            noise = noise - found[-1] * row
        return self.solve(found)

    def times(self, vector: Array) -> list[Array]:
        """`R v`."""
        found = [jnp.zeros(())] * len(self.rows)
        for one, column in zip(vector, self.columns):
            found = [*(own + x * one for own, x in zip(found, column)), *found[len(column) :]]
        return found

    def solve(self, vector: list[Array]) -> Array:
        """`R⁻¹ v`."""
        left = list(vector)
        for i, column in reversed(list(enumerate(self.columns))):
            left[i] = left[i] / column[-1]
            left[:i] = [one - own * left[i] for one, own in zip(left, column[:-1])]
        return jnp.stack(left)


def is_regular(leaders: list[int], apart: np.ndarray) -> bool:
    """Whether directions can be stretched together: their leaders, and what each does to all."""
    pulls = apart[:, leaders] != 0
    np.fill_diagonal(pulls, False)
    in_circles = np.linalg.matrix_power(pulls.astype(float), len(leaders)).any()
    return len(set(leaders)) == len(leaders) and not in_circles


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
