"""The log density over a flat working vector, with λ as an argument, and the maps around it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import biject_to
from numpyro.primitives import Messenger

from autoreparam.errors import ModelError
from autoreparam.program.enumeration import first_value, log_density
from autoreparam.program.families import Standardized, standardize, unwrap
from autoreparam.program.loops import Give, enter_steps, is_scan
from autoreparam.program.maps import Point, SiteMap
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.site import ONE_AT_A_TIME
from autoreparam.program.trace import Program, Site
from autoreparam.program.working import per_element, site_map, temper


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Target:
    """A program's log density in working coordinates: `position` is flat, `lam` an argument.

    A pytree whose leaves are the data: a function compiled with a target as its argument serves
    every λ and every data set of the same shapes.
    """

    program: Program

    @property
    def size(self) -> int:
        """Length of the flat working vector."""
        return sum(site.size for site in self.program.latents)

    # -- density ------------------------------------------------------------------------------

    def logdensity(self, position: Array, lam: Parameterization) -> Array:
        """`log p(z, x) + log |dz / d working|` at a working position."""
        return _AtWorking(self.program, self.unflatten(position), lam).total()

    def log_joint(self, values: Mapping[str, Array]) -> Array:
        """`log p(z, x)` at the model's own values, without any Jacobian."""
        return _AtValues(self.program, values, None).total()

    def log_determinant(self, position: Array, lam: Parameterization) -> Array:
        """`log |dz / d working|`: what `logdensity` adds to the model's own log joint."""
        return self.map_back(position, lam)[1]

    def observed(self) -> dict[str, Array]:
        """The values of the observed sites."""
        visit = _AtWorking(self.program, self.unflatten(jnp.zeros(self.size)), self._plain())
        visit.run()
        return visit.observed

    def log_likelihood(self, position: Array, lam: Parameterization) -> dict[str, Array]:
        """The log density of every element of the observed sites."""
        visit = _AtWorking(self.program, self.unflatten(position), lam)
        visit.run()
        return visit.likelihoods

    def _plain(self) -> Parameterization:
        return Parameterization(
            {s.name: np.ones(s.unconstrained_shape) for s in self.program.candidates}
        )

    # -- coordinates --------------------------------------------------------------------------

    def to_sites(self, position: Array, lam: Parameterization) -> dict[str, Array]:
        """Every latent and deterministic under its own name, in the model's own space."""
        return self.map_back(position, lam)[0]

    def map_back(self, position: Array, lam: Parameterization) -> tuple[dict[str, Array], Array]:
        """The results of `to_sites` and `log_determinant` from a single run of the model."""
        visit = _AtWorking(self.program, self.unflatten(position), lam)
        visit.run()
        log_dets = map(jnp.sum, visit.log_dets.values())
        return visit.values, sum(log_dets, jnp.zeros((), position.dtype))

    def from_sites(self, values: Mapping[str, Any], lam: Parameterization) -> Array:
        """The working position of the latents' values; other names are ignored."""
        visit = _AtValues(self.program, values, lam)
        visit.run()
        return self.flatten(visit.working)

    def carry(
        self, position: Array, score: Array, lam: Parameterization, new_lam: Parameterization
    ) -> tuple[Array, Array, Array]:
        """Position and score in the coordinates of `new_lam`, and the change of the log density.

        `score` is the gradient of `logdensity` at `position`. Only the locations and scales of the
        candidate sites are evaluated, not the likelihood and no new gradient of the target.
        """
        new_position, log_det = self.translate(position, lam, new_lam)

        def back(new_position: Array) -> Array:
            old, gain = self.translate(new_position, new_lam, lam)
            return jnp.vdot(score, old) + gain

        return new_position, jax.grad(back)(new_position), -log_det

    def translate(self, position, lam, new_lam) -> tuple[Array, Array]:
        """The same point in the coordinates of `new_lam`, and `log |d new / d old|`."""
        visit = _AtWorking(self.program, self.unflatten(position), lam)
        visit.run()
        moved, log_det = dict(visit.working), jnp.zeros((), position.dtype)
        for name, (old, point) in visit.maps.items():
            new, there = site_map(old.rule, new_lam.of(name), old.mask), point._replace(light=None)
            moved[name] = new.working(there)
            stretch = new.log_stretch(there) - old.log_stretch(point)
            log_det += jnp.sum(jnp.broadcast_to(stretch, jnp.shape(point.noise)))
        return self.flatten(moved), log_det

    def log_scales(self, position: Array, lam: Parameterization) -> dict[str, Array]:
        """`log |du / de|` of the elements of each candidate: their scales before constraints."""
        visit = _AtWorking(self.program, self.unflatten(position), lam)
        visit.run()
        return {
            name: jnp.broadcast_to(map_.log_scale(point), jnp.shape(point.noise))
            for name, (map_, point) in visit.maps.items()
        }

    # -- layout -------------------------------------------------------------------------------

    def flatten(self, working: Mapping[str, Array]) -> Array:
        """One flat vector from an array per latent, in the order of the model."""
        parts = [jnp.ravel(working[site.name]) for site in self.program.latents]
        return jnp.concatenate(parts).astype(self.program.dtype)

    def unflatten(self, position: Array) -> dict[str, Array]:
        """The inverse of `flatten`."""
        latents = self.program.latents
        # The transpose of `split` is one concatenation; slices would pad and add once per site.
        parts = jax.lax.split(position, [site.size for site in latents])
        return {
            site.name: part.reshape(site.unconstrained_shape) for site, part in zip(latents, parts)
        }


class _Visit(Messenger, ABC):
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

    def run(self) -> None:
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
        """The sum of all terms of the log density, and over all values of discrete latents."""
        if self.program.structure.discrete:
            return log_density(self)
        self.run()
        return sum(self.terms, jnp.zeros((), self.program.dtype))

    def process_message(self, msg) -> None:
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
            series = {site.name: self.series(site) for site in here}
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

    @abstractmethod
    def place(self, site: Site, msg) -> tuple[Array, Array]:
        """The value of a latent, and its share of the log density."""

    @abstractmethod
    def scanned(self, site: Site) -> Array:
        """The value of a latent inside `cond`, or of one that stays centered inside `scan`."""

    def scanned_log_det(self, site: Site) -> Array | None:
        """The log-determinant of a site inside `scan` that stays centered."""
        return None

    def series(self, site: Site) -> Any:
        """What each step of `scan` needs to compute the value of a latent."""
        return self.scanned(site)

    def step(self, here: dict[str, Any]) -> Give:
        """The handler that gives the latents of one step their values."""
        return Give({name: partial(_constant, value) for name, value in here.items()})


class _AtWorking(_Visit):
    """Latents at working coordinates under λ; densities include the Jacobian."""

    def __init__(self, program: Program, working: Mapping[str, Array], lam: Parameterization):
        super().__init__(program)
        self.lam = lam
        self.working = dict(working)
        self.maps: dict[str, tuple[SiteMap, Point]] = {}

    def place(self, site: Site, msg) -> tuple[Array, Array]:
        working, scale = self.working[site.name], msg["scale"]
        if not site.candidate:
            transform = biject_to(msg["fn"].support)
            value = transform(working)
            log_det = transform.log_abs_det_jacobian(working, value)
            log_prob = msg["fn"].log_prob(value)
            log_prob = log_prob if scale is None else scale * log_prob
            self.log_dets[site.name] = log_det
            return value, jnp.sum(log_prob) + jnp.sum(log_det)
        mask = unwrap(msg["fn"])[1]
        map_ = site_map(_rule(site, msg), self.lam.of(site.name), mask)
        point = map_.point(working)
        self.maps[site.name] = (map_, point)
        log_det = jnp.broadcast_to(map_.log_det(point), site.unconstrained_shape)
        self.log_dets[site.name] = log_det
        if scale is None and mask is None:
            return map_.value(point), map_.total_log_prob(point)
        scale = per_element(scale, msg["fn"].event_dim)
        return map_.value(point), temper(map_.log_prob(point), log_det, scale, mask)

    def scanned(self, site: Site) -> Array:
        return biject_to(site.scanned)(self.working[site.name])

    def scanned_log_det(self, site: Site) -> Array | None:
        working = self.working[site.name]
        return biject_to(site.scanned).log_abs_det_jacobian(working, self.scanned(site))

    def series(self, site: Site) -> Any:
        if not site.candidate:
            return self.scanned(site)
        return self.working[site.name], self.lam.of(site.name).spread()

    def step(self, here: dict[str, Any]) -> Give:
        def give(name: str, found: Any):
            if not self.site[name].candidate:
                return partial(_constant, found)
            working, lam = found

            def value(fn):
                rule = standardize(fn, sequential=True)
                map_ = site_map(rule, lam, unwrap(fn)[1])
                return map_.value(map_.point(working))

            return value

        return Give({name: give(name, found) for name, found in here.items()})


class _AtValues(_Visit):
    """Latents at the model's own values; densities without the Jacobian."""

    def __init__(self, program: Program, values: Mapping, lam: Parameterization | None):
        super().__init__(program)
        self.given, self.lam = values, lam

    def place(self, site: Site, msg) -> tuple[Array, Array]:
        value = self._given(site)
        if self.lam is not None:
            if site.candidate:
                mask = unwrap(msg["fn"])[1]
                map_ = site_map(_rule(site, msg), self.lam.of(site.name), mask)
                self.working[site.name] = map_.working(map_.point_of_value(value))
            else:
                self.working[site.name] = biject_to(msg["fn"].support).inv(value)
        log_prob = msg["fn"].log_prob(value)
        return value, log_prob if msg["scale"] is None else msg["scale"] * log_prob

    def scanned(self, site: Site) -> Array:
        return self._given(site)

    def _given(self, site: Site) -> Array:
        if site.name not in self.given:
            raise ModelError(f"site '{site.name}' has no value; every latent needs one")
        value = jnp.asarray(self.given[site.name])
        if value.shape != site.shape:
            raise ModelError(
                f"site '{site.name}': expected a value of shape {site.shape}, found {value.shape}"
            )
        return value


def _rule(site: Site, msg) -> Standardized:
    return standardize(msg["fn"], sequential=site.loop is not None)


def _constant(value: Array, fn: Any) -> Array:
    """The value, whatever the distribution."""
    return value
