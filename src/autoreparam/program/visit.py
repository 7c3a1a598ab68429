"""Runs of the model that place every latent and add up the terms of the log density."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array
from numpyro.distributions import biject_to
from numpyro.primitives import Messenger

from autoreparam.errors import ModelError
from autoreparam.program.enumeration import first_value, log_density
from autoreparam.program.families import Standardized, standardize, unwrap
from autoreparam.program.flat import Flat, Part, Shift, stretched
from autoreparam.program.held import held
from autoreparam.program.implicit.inside import noise_inside
from autoreparam.program.loops import (
    Give,
    enter_steps,
    given_values,
    in_order,
    is_scan,
    place_in_steps,
    whatever,
)
from autoreparam.program.maps import Point, SiteMap
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.site import ONE_AT_A_TIME
from autoreparam.program.trace import Program, Site
from autoreparam.program.working import per_element, site_map, temper


class Visit(Messenger, ABC):
    """Runs the model once, placing every latent and adding up the terms of the log density."""

    def __init__(self, program: Program):
        super().__init__()
        self.program = program
        self.site = program.structure.by_name
        self.values: dict[str, Array] = {}
        self.working: dict[str, Array] = {}
        self.terms: list[Array] = []
        self.log_dets: dict[str, Array] = {}
        self.observed: dict[str, Array] = {}
        self.likelihoods: dict[str, Array] = {}
        self.loops = 0
        self.known: dict[int, Any] = {}  # what the model implies, as far as it was computed

    def run(self) -> None:
        """Runs the model; afterwards all of its latents are placed."""
        with ONE_AT_A_TIME, self:
            self.program.run()
        for site in self.program.latents:
            if site.name not in self.values:
                raise ModelError(
                    f"site '{site.name}' was there when the model was inspected but is missing "
                    "now: the model's structure changes between runs. Make it depend only on the "
                    "arguments."
                )

    def total(self) -> Array:
        """The log density, with all values of discrete latents summed out."""
        return sum(self.summands(), jnp.zeros((), self.program.dtype))

    def summands(self) -> list[Array]:
        """The terms of the log density."""
        if self.program.structure.discrete:
            return [log_density(self)]
        self.run()
        return self.terms

    def process_message(self, msg) -> None:
        """Places a latent, or notes what a statement adds."""
        if msg["type"] == "control_flow":
            self.enter(msg)
        elif msg["type"] == "deterministic":
            if not self.site[msg["name"]].discrete_parents:
                self.values[msg["name"]] = msg["value"]
        elif msg["type"] == "sample":
            self._sample(msg)

    def enter(self, msg, settle: bool = True) -> None:
        """Gives the sites of a scan or cond their values; discrete ones only to settle them."""
        inside = [site for site in self.program.sites if site.loop and site.loop[0] == self.loops]
        here = [site for site in inside if site.kind == "latent"]
        free = {s.name: first_value for s in inside if settle and s.kind == "discrete"}
        self.loops += 1
        if is_scan(msg):
            here = self.place_inside(msg, here)
            series = {site.name: self.series(site) for site in in_order(here)}
            enter_steps(msg, series, lambda own: Give({**self.step(own).values, **free}))
        else:
            values = {site.name: self.scanned(site) for site in here}
            msg["kwargs"]["substitute_stack"].append(("substitute", values))

    def _sample(self, msg) -> None:
        site = self.site.get(msg["name"])
        if site is None:
            raise ModelError(
                f"site '{msg['name']}' was not there when the model was inspected: the model's "
                "structure changes between runs. Make it depend only on the arguments."
            )
        if site.kind == "latent":
            value, log_prob = self.place(site, msg)
            msg["value"] = self.values[site.name] = value
        elif site.kind == "discrete":
            msg["value"] = first_value(msg["fn"]) if site.loop is None else msg["value"]
            return
        elif site.kind == "deterministic":  # a point mass
            base = unwrap(msg["fn"])[0]
            msg["value"] = self.values[site.name] = jnp.broadcast_to(base.v, site.shape)
            log_prob = jnp.asarray(base.log_density)
        else:
            log_prob = msg["fn"].log_prob(msg["value"])
            if site.kind == "observed":
                self.observed[site.name] = jnp.asarray(msg["value"])
                self.likelihoods[site.name] = log_prob
            log_prob = log_prob if msg["scale"] is None else msg["scale"] * log_prob
        self.terms.append(jnp.sum(log_prob))

    def place_inside(self, msg, sites: list[Site]) -> list[Site]:
        """Has the steps of a `scan` place those of its latents that they can; the others."""
        return sites

    @abstractmethod
    def place(self, site: Site, msg) -> tuple[Array, Array]:
        """The value of a latent, and its share of the log density."""

    @abstractmethod
    def scanned(self, site: Site) -> Array:
        """The value of a latent inside `cond`, or of one that stays centered inside `scan`."""

    def scanned_log_det(self, site: Site) -> Array | None:
        """The log-determinant of a site inside `scan` that stays centered."""
        return None

    def rule(self, site: Site, fn: Any, values: Mapping[str, Any]) -> Standardized:
        """The rule of a candidate, at the values of the latents that it depends on."""
        if site.implied is None:
            return standardize(fn, sequential=site.loop is not None)
        return site.implied.rule(standardize(fn), values, self.program.data, self.known)

    def series(self, site: Site) -> Any:
        """What each step of `scan` needs to compute the value of a latent."""
        return self.scanned(site)

    def step(self, here: dict[str, Any]) -> Give:
        """The handler that gives the latents of one step their values."""
        return given_values(here)


class AtWorking(Visit):
    """Latents at working coordinates under λ; densities include the Jacobian.

    What a latent was made into by hand may depend on latents that come after it. Their values are
    found by running the model before, with anything in its place: they do not depend on it. Where
    λ has flat directions, a run before finds where everything would be without them.
    """

    def __init__(
        self,
        program: Program,
        working: Mapping[str, Array],
        lam: Parameterization,
        rounds: int | None = None,
    ):
        super().__init__(program)
        self.lam = held(lam, program, working)
        self.working = dict(working)
        self.maps: dict[str, tuple[SiteMap, Point]] = {}
        self.priors: dict[str, Any] = {}  # of sites without a λ
        self.rounds = program.structure.rounds if rounds is None else rounds
        self.ahead: dict[str, Array] = {}
        self.shift: Shift | None = None

    def run(self) -> None:
        """Runs the model, ahead as often as needed; afterwards all of its latents are placed."""
        if self.rounds:
            before = AtWorking(self.program, self.working, self.lam, self.rounds - 1)
            before.run()
            self.ahead = before.values
        if self.lam.flat is None:
            super().run()
        else:
            self._run_along(self.lam.flat, self.lam.with_flat(None))

    def _run_along(self, flat: Flat, bare: Parameterization) -> None:
        """Runs the model as λ alone would have it, then stretched along flat directions."""
        lent = flat.lent(self.working, bare)
        self.working |= {name: self.working[name] - own for name, own in lent.items()}
        before = AtWorking(self.program, self.working, bare, self.rounds)
        before.run()
        self.shift = stretched(flat, before.parts(flat.leads))
        super().run()
        # How much a tail or a mask makes of λ depends on where λ alone would have everything.
        more = self._varying_stretch(flat.usual) - before._varying_stretch(flat.usual)
        self.shift = self.shift._replace(log_det=self.shift.log_det + more)
        self.terms.append(self.shift.log_det)

    def _varying_stretch(self, names: Iterable[str]) -> Array:
        found = (self.maps[name] for name in names)
        vary = [one for one in found if one[0].tail is not None or one[0].mask is not None]
        stretch = (jnp.broadcast_to(m.log_stretch(x), jnp.shape(x.noise)) for m, x in vary)
        return sum(map(jnp.sum, stretch), jnp.zeros(()))

    def parts(self, names: Iterable[str]) -> dict[str, Part]:
        """What flat directions need to know of some sites."""

        def part(name: str) -> Part:
            if name in self.maps:
                return Part.of(*self.maps[name])
            return Part.constant(standardize(self.priors[name]), self.values[name])

        return {name: part(name) for name in names}

    def log_scales(self, names: Iterable[str]) -> dict[str, Array]:
        """`log |du / de|` of the elements of some candidates: their scales before constraints."""
        found = {name: self.maps[name] for name in names}
        return {n: jnp.broadcast_to(m.log_scale(x), x.noise.shape) for n, (m, x) in found.items()}

    def place(self, site: Site, msg) -> tuple[Array, Array]:
        """The value of a latent at its working coordinates, and its share with the Jacobian."""
        working, scale = self.working[site.name], msg["scale"]
        if not site.candidate:
            self.priors[site.name] = msg["fn"]
            if self.shift is not None:
                working = working + self.shift.free.get(site.name, 0.0)
            transform = biject_to(msg["fn"].support)
            value = transform(working)
            log_det = transform.log_abs_det_jacobian(working, value)
            log_prob = msg["fn"].log_prob(value)
            log_prob = log_prob if scale is None else scale * log_prob
            self.log_dets[site.name] = log_det
            return value, jnp.sum(log_prob) + jnp.sum(log_det)
        mask = unwrap(msg["fn"])[1]
        if site.name not in self.maps and not self._find(site, msg["fn"], mask):
            return jnp.full(site.shape, 0.5), jnp.zeros(())
        map_, point = self.maps[site.name]
        log_det = jnp.broadcast_to(map_.log_det(point), site.unconstrained_shape)
        self.log_dets[site.name] = log_det
        if scale is None and mask is None:
            return map_.value(point), map_.total_log_prob(point)
        scale = per_element(scale, msg["fn"].event_dim)
        return map_.value(point), temper(map_.log_prob(point), log_det, scale, mask)

    def _find(self, site: Site, fn: Any, mask: Any) -> bool:
        """Finds the map and the point of a candidate; not yet where what it needs comes later."""
        values = {**self.ahead, **self.values}
        if site.implied is not None and not site.implied.names <= values.keys():
            return False
        map_ = site_map(self.rule(site, fn, values), self.lam.of(site.name), mask)
        noise = None if self.shift is None else self.shift.noise.get(site.name)
        point = map_.point(self.working[site.name]) if noise is None else map_.point_of_noise(noise)
        self.maps[site.name] = (map_, point)
        return True

    def place_inside(self, msg, sites: list[Site]) -> list[Site]:
        """Has the steps of a `scan` place what was made by hand in it; the other latents."""
        made = {site.name: site.implied for site in in_order(sites) if site.implied is not None}
        names, values = [site.name for site in sites], {**self.ahead, **self.values}
        inside = noise_inside(made, names, values, self.program.data, self.known)
        if inside is None:
            return sites

        def keep(kept: dict[str, Any]) -> None:
            for name, became in kept.items():
                map_ = site_map(inside.noises[name].rule(became), self.lam.of(name))
                self.maps[name] = (map_, map_.point(self.working[name]))

        own = {name: (self.working[name], self.lam.of(name).spread()) for name in made}
        place_in_steps(msg, (inside.each, own), inside.place, keep)
        return [site for site in sites if site.name not in made]

    def scanned(self, site: Site) -> Array:
        """The value of a latent that stays centered."""
        return biject_to(site.scanned)(self.working[site.name])

    def scanned_log_det(self, site: Site) -> Array | None:
        """The log-determinant of a latent that stays centered."""
        working = self.working[site.name]
        return biject_to(site.scanned).log_abs_det_jacobian(working, self.scanned(site))

    def series(self, site: Site) -> Any:
        """What each step of `scan` needs to compute the value of a latent."""
        if not site.candidate:
            return self.scanned(site)
        if site.implied is None:
            return self.working[site.name], self.lam.of(site.name).spread()
        if not self._find(site, site.implied.prior(), None):
            return jnp.full(site.shape, 0.5)
        map_, point = self.maps[site.name]
        self.values[site.name] = map_.value(point)
        return self.values[site.name]

    def step(self, here: dict[str, Any]) -> Give:
        """The handler that computes the values of one step's latents."""

        def give(name: str, found: Any):
            if not self.site[name].candidate or self.site[name].implied is not None:
                return partial(whatever, found)
            working, lam = found

            def value(fn):
                rule = standardize(fn, sequential=True)
                map_ = site_map(rule, lam, unwrap(fn)[1])
                return map_.value(map_.point(working))

            return value

        return Give({name: give(name, found) for name, found in here.items()})
