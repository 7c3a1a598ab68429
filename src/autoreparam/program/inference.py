"""Discrete latents drawn given everything else, each from its marginal given those before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.handlers import block, seed
from numpyro.primitives import Messenger

from autoreparam.program.enumeration import nesting
from autoreparam.program.loops import enter_steps, is_scan
from autoreparam.program.program import Structure

NEVER = -1e4  # log weight of a value that was not drawn: its probability underflows to zero


def draw_discrete(
    run: Callable[[], Any], structure: Structure, names: tuple[str, ...], key: Array
) -> dict[str, Array]:
    """Values of discrete sites, jointly drawn given what `run` fixes and observes.

    The log density is summed over all values. Its gradient with respect to log weights of the
    values is their probability: sites, and steps inside scan, are drawn one after another, with
    the weights of what was drawn keeping the rest to it. Elements of plates are independent.
    """
    from numpyro.contrib.funsor import enum
    from numpyro.contrib.funsor.infer_util import log_density

    def total(weights: Mapping[str, Array]) -> Array:
        def weighed() -> None:
            with _Weigh(*_by_loop(weights, structure)):
                run()

        model = enum(weighed, first_available_dim=-nesting(structure) - 1)
        with block():
            return log_density(seed(model, 0), (), {}, {})[0]

    probabilities = jax.grad(total)
    sizes = _count(run, names)
    sites = [structure.by_name[name] for name in names]
    weights = {site.name: jnp.zeros((*site.shape, sizes[site.name])) for site in sites}
    values = {}
    for number, site in enumerate(sites):
        own = jax.random.fold_in(key, number)

        def draw(weights: dict, key: Array, where: Any, name: str = site.name):
            chances = probabilities(weights)[name][where]
            drawn = jax.random.categorical(key, jnp.log(jnp.maximum(chances, 0.0)))
            kept = jax.nn.one_hot(drawn, sizes[name], dtype=bool)
            fixed = weights[name].at[where].set(jnp.where(kept, 0.0, NEVER))
            return {**weights, name: fixed}, drawn

        if site.loop is None:
            weights, values[site.name] = draw(weights, own, ...)
        else:
            keys = jax.random.split(own, site.shape[0])
            weights, values[site.name] = jax.lax.scan(
                lambda weights, here: draw(weights, *here),
                weights,
                (keys, jnp.arange(site.shape[0])),
            )
    return values


def _count(run: Callable[[], Any], names: tuple[str, ...]) -> dict[str, int]:
    """How many values each site can take."""
    count = _Count(names)
    with block(), count, seed(rng_seed=0):
        run()
    return count.found


class _Count(Messenger):
    def __init__(self, names: tuple[str, ...]):
        super().__init__()
        self.names, self.found = names, dict[str, int]()

    def postprocess_message(self, msg) -> None:
        if msg["type"] == "sample" and msg["name"] in self.names:
            self.found[msg["name"]] = len(msg["fn"].enumerate_support(expand=False))


class _Weigh(Messenger):
    """Adds a log weight to the log density for every value of discrete sites."""

    def __init__(self, weights: Mapping[str, Array], loops: Mapping | None = None):
        super().__init__()
        self.weights, self.loops, self.number = weights, loops or {}, 0

    def process_message(self, msg) -> None:
        """Goes into the steps of a scan with the weights of each step."""
        if msg["type"] == "control_flow":
            if is_scan(msg):
                enter_steps(msg, self.loops.get(self.number, {}), _Weigh)
            self.number += 1

    def postprocess_message(self, msg) -> None:
        """Adds the weight of a site's value as a point mass, whose density can be anything."""
        if msg["type"] == "sample" and msg["name"] in self.weights:
            name, weights = msg["name"], self.weights[msg["name"]]
            hit = jnp.asarray(msg["value"])[..., None] == jnp.arange(weights.shape[-1])
            term = jnp.sum(jnp.where(hit, weights, 0.0), axis=-1)
            zero = jnp.zeros_like(term)
            numpyro.sample(f"{name}_weight", dist.Delta(zero, log_density=term), obs=zero)


def _by_loop(weights: Mapping[str, Array], structure: Structure) -> tuple[dict, dict]:
    """Weights of sites outside scans, and of those inside by the number of the scan."""
    outside: dict[str, Array] = {}
    loops: dict[int, dict[str, Array]] = {}
    for name, weight in weights.items():
        loop = structure.by_name[name].loop
        (outside if loop is None else loops.setdefault(loop.number, {}))[name] = weight
    return outside, loops
