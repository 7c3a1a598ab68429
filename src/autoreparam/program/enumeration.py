"""Discrete latents: summed out of a density, set aside where only coordinates matter, inferred."""

from __future__ import annotations

from contextlib import nullcontext
from importlib.util import find_spec
from typing import Protocol

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.primitives import Messenger

from autoreparam.errors import ModelError
from autoreparam.program.program import Program, Structure
from autoreparam.program.site import ONE_AT_A_TIME, Site


class Placed(Protocol):
    """A visit of a model that knows the values of its continuous latents."""

    program: Program
    log_dets: dict[str, Array]

    def enter(self, msg: dict, settle: bool) -> None:
        """Gives the sites of a scan their values; discrete ones only to settle them."""

    def place(self, site: Site, msg: dict) -> tuple[Array, Array]:
        """The value of a latent, and its share of the log density."""

    def scanned_log_det(self, site: Site) -> Array | None:
        """The log-determinant of a site inside a scan, where coordinates are worked with."""


def require_funsor() -> None:
    """Raises an error that says what to install, unless it is there."""
    if find_spec("funsor") is None:
        raise ModelError(
            "summing out discrete latents needs a package that is not installed. Run: pip install "
            '"autoreparam[discrete]"'
        )


def first_value(fn: dist.Distribution) -> Array:
    """Any value of a discrete distribution, for runs in which it does not matter."""
    return fn.enumerate_support(expand=True)[0]


def nesting(structure: Structure) -> int:
    """How many axes, counted from the end of batch shapes, plates take."""
    depths = [-(axis + s.event_dim) for s in structure.sites for _, axis in s.plates]
    return max(depths, default=0)


def log_density(visit: Placed, inside: Messenger | None = None) -> Array:
    """The log density of the model at the values of a visit, over all values of discrete latents.

    NumPyro's enumeration does the work. Jacobians are added here. A handler may be put `inside`.
    """
    from numpyro.contrib.funsor import enum
    from numpyro.contrib.funsor.infer_util import log_density as enumerated

    program = visit.program

    def run() -> None:
        with _Given(visit), inside or nullcontext():
            program.run()

    with ONE_AT_A_TIME:
        model = enum(run, first_available_dim=-nesting(program.structure) - 1)
        total, _ = enumerated(model, (), {}, {})
    return total + sum(map(jnp.sum, visit.log_dets.values()), jnp.zeros((), program.dtype))


class _Given(Messenger):
    """Gives continuous latents their values and leaves discrete ones to be enumerated."""

    def __init__(self, visit: Placed):
        super().__init__()
        self.visit = visit
        self.site = visit.program.structure.by_name

    def process_message(self, msg) -> None:
        if msg["type"] == "control_flow":
            self.visit.enter(msg, settle=False)
        elif msg["type"] == "sample":
            msg["infer"] = dict(msg["infer"])  # NumPyro writes into it, and sites may share one
            site = self.site.get(msg["name"])  # None for the first steps of an enumerated scan
            if site is None or site.kind != "latent":
                return
            if site.loop is None:
                msg["value"], _ = self.visit.place(site, msg)
            elif (log_det := self.visit.scanned_log_det(site)) is not None:
                self.visit.log_dets[site.name] = log_det


def refuse_unplated(sites: tuple[Site, ...]) -> None:
    """Raises if an axis that enumeration would have to know belongs to no plate."""
    for site in sites:
        if site.kind in ("deterministic", "factor"):
            continue
        plates = {len(site.shape) + axis for _, axis in site.plates}
        own = range(1 if site.loop else 0, len(site.shape) - site.event_dim)
        loose = [axis for axis in own if axis not in plates and site.shape[axis] > 1]
        if loose:
            raise ModelError(
                f"site '{site.name}' has shape {site.shape}, and axis {loose[0]} belongs to no "
                "plate. In a model with discrete latents, put it in a numpyro.plate, or make it "
                "part of the event: dist.Normal(...).to_event(1)."
            )


def in_enumerated_scan(site: Site, sites: tuple[Site, ...]) -> bool:
    """Whether a site is in a scan that also has discrete latents."""
    loops = {other.loop for other in sites if other.kind == "discrete" and other.loop}
    return site.loop in loops
