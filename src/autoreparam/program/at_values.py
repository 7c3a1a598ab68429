"""Runs of the model at its own values: their density, and where they are in working coordinates."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array
from numpyro.distributions import biject_to

from autoreparam.errors import ModelError
from autoreparam.program.families import unwrap
from autoreparam.program.held import held, loose
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.program import Program
from autoreparam.program.site import Site
from autoreparam.program.visit import Visit
from autoreparam.program.working import site_map


class AtValues(Visit):
    """Latents at the model's own values; densities without the Jacobian."""

    def __init__(self, program: Program, values: Mapping, lam: Parameterization | None):
        super().__init__(program)
        self.given, self.lam = values, lam

    def run(self) -> None:
        """Runs the model; before, for the roots that the data's hold on others varies with."""
        if self.lam is not None and (bare := loose(self.lam)) is not self.lam:
            before = AtValues(self.program, self.given, bare)
            Visit.run(before)
            self.lam = held(self.lam, self.program, before.working)
        super().run()

    def place(self, site: Site, msg) -> tuple[Array, Array]:
        """The given value, and its share of the log density."""
        value = self._given(site)
        if self.lam is not None:
            if site.candidate:
                mask = unwrap(msg["fn"])[1]
                rule = self.rule(site, msg["fn"], self.given)
                map_ = site_map(rule, self.lam.of(site.name), mask)
                self.working[site.name] = map_.working(map_.point_of_value(value))
            else:
                self.working[site.name] = biject_to(msg["fn"].support).inv(value)
        log_prob = msg["fn"].log_prob(value)
        return value, log_prob if msg["scale"] is None else msg["scale"] * log_prob

    def scanned(self, site: Site) -> Array:
        """The given value."""
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
