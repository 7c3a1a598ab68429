"""The log likelihood of data that depend on discrete latents, which are summed out.

Per observation where observations are independent given the continuous latents, else in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.primitives import Messenger

from autoreparam.errors import known
from autoreparam.program.enumeration import Placed, log_density
from autoreparam.program.families import unwrap
from autoreparam.program.record import site_kind
from autoreparam.program.site import Site


def inseparable(sites: Iterable[Site]) -> dict[str, str]:
    """The observed sites without a likelihood per observation, and why.

    Discrete latents that meet in a distribution depend on each other given the data. What
    observes one element of them, and nothing else that does, stands alone. What depends on those
    inside a scan is not known, so with them nothing does.
    """
    sites = tuple(sites)
    data = [site for site in sites if site.kind == "observed"]
    inside = [site.name for site in sites if site.kind == "discrete" and site.loop]
    if inside:
        why = f"the states {known(inside)} depend on each other from step to step of a scan"
        return {site.name: why for site in data}
    met = _that_meet(sites)
    reasons = {}
    for site in data:
        if not site.discrete_parents:
            continue
        near = met[site.discrete_parents[0]]
        own = {plate for plate, _ in site.plates}
        shared = [s.name for s in sites if s.name in near and not own <= {p for p, _ in s.plates}]
        others = [s.name for s in data if s != site and near & set(s.discrete_parents)]
        if shared:
            reasons[site.name] = f"its observations share the discrete {known(shared)}"
        elif others:
            reasons[site.name] = (
                f"it shares the discrete {known(sorted(near))} with {known(others)}"
            )
    return reasons


def _that_meet(sites: Iterable[Site]) -> dict[str, frozenset[str]]:
    """The discrete latents by name, each with those that it meets, directly or not."""
    met: dict[str, frozenset[str]] = {}
    for site in sites:
        here = {*site.discrete_parents, *([site.name] if site.kind == "discrete" else [])}
        joined = frozenset(here).union(*(met.get(name, ()) for name in here))
        met |= dict.fromkeys(joined, joined)
    return met


def per_observation(place: Callable[[], Placed], sites: Iterable[Site]) -> dict[str, Array]:
    """The log likelihood of every element of observed sites, given the continuous latents.

    `place` makes a visit. Without the data, and with a term `u r` for each observation, the
    derivative of the log density at `u = 0` is the mean of `r` over the discrete latents. Here `r`
    is the likelihood at their values, as a share `exp(-top)` of the largest.
    """
    shapes = {s.name: s.shape[: len(s.shape) - s.event_dim] for s in sites}

    def total(terms: Mapping[str, Array]) -> tuple[Array, dict[str, Array]]:
        weigh = _Weigh(terms)
        return log_density(place(), weigh), weigh.tops

    zeros = {name: jnp.zeros(shape) for name, shape in shapes.items()}
    means, tops = jax.grad(total, has_aux=True)(zeros)
    return {name: tops[name] + jnp.log(means[name]) for name in shapes}


def in_all(place: Callable[[], Placed]) -> Array:
    """The log likelihood of all data together."""
    return log_density(place()) - log_density(place(), _Weigh({}))


class _Weigh(Messenger):
    """Leaves out the data; adds a term per observation to the log density."""

    def __init__(self, terms: Mapping[str, Array]):
        super().__init__()
        self.terms = terms
        self.tops: dict[str, Array] = {}

    def process_message(self, msg) -> None:
        if msg["type"] == "sample" and msg["is_observed"] and not msg["infer"].get("weight"):
            fn = msg["fn"]
            if site_kind(unwrap(fn)[0], True) != "observed":
                return
            msg["fn"] = fn.mask(False)
            if msg["name"] in self.terms:
                self._add(msg["name"], fn.log_prob(msg["value"]))

    def _add(self, name: str, found: Array) -> None:
        term = self.terms[name]
        # Axes for the values of discrete latents are to the left of those of plates.
        left = tuple(range(jnp.ndim(found) - jnp.ndim(term)))
        top = jax.lax.stop_gradient(jnp.max(found, axis=left, keepdims=True))
        top = jnp.where(jnp.isfinite(top), top, 0.0)
        self.tops[name] = jnp.broadcast_to(jnp.squeeze(top, left), jnp.shape(term))
        added: Any = term * jnp.exp(found - top)
        zero = jnp.zeros_like(added)
        numpyro.sample(
            f"{name}_weight",
            dist.Delta(zero, log_density=added),
            obs=zero,
            infer={"weight": True},
        )
