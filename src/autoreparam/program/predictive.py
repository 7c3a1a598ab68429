"""Data and new groups simulated from the model at given values of its latents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.handlers import block, seed, substitute, trace
from numpyro.primitives import Messenger

from autoreparam.program.families import unwrap
from autoreparam.program.inference import draw_discrete
from autoreparam.program.loops import Give, enter_steps, is_scan, steps
from autoreparam.program.program import Program
from autoreparam.program.record import site_kind
from autoreparam.program.site import ONE_AT_A_TIME

NEW = -1  # in place of an index: an element that the draws do not have


@dataclass(frozen=True)
class Origin:
    """Where each element of a site's value comes from: per axis, indices into the draws or `NEW`.

    An element is in the draws if none of its indices is `NEW`.
    """

    axes: tuple[np.ndarray, ...]

    @property
    def complete(self) -> bool:
        """Whether the draws have every element."""
        return all((axis != NEW).all() for axis in self.axes)

    @property
    def known(self) -> np.ndarray:
        """Which elements the draws have."""
        known = np.ones((), bool)
        for axis in self.axes:
            known = known[..., None] & (axis != NEW)
        return known

    def place(self, drawn: Array) -> Array:
        """The elements that the draws have, each in its place, and anything elsewhere."""
        for number, axis in enumerate(self.axes):
            if not np.array_equal(axis, np.arange(drawn.shape[number])):
                drawn = jnp.take(drawn, np.maximum(axis, 0), axis=number)
        return drawn


def simulate(
    program: Program,
    drawn: Mapping[str, Array],
    origins: Mapping[str, Origin],
    key: Array,
    replicate: bool,
    given_data: bool = False,
) -> dict[str, Array]:
    """Values of every site, given one draw of some latents.

    Elements that the draw does not have come from their distribution given the rest, in the order
    of the model: that is their prior given the draw. With `replicate`, observed sites are drawn
    too. With `given_data`, discrete latents are drawn given what is observed.
    """
    own, outer, last = jax.random.split(key, 3)

    def run() -> None:
        with _Simulate(program, drawn, origins, own, replicate):
            program.run()

    with ONE_AT_A_TIME:
        discrete = _left_out(program, origins) if given_data else ()
        values = draw_discrete(run, program.structure, discrete, last) if discrete else {}
        with block(), trace() as found, seed(rng_seed=outer), substitute(data=values):
            run()
    kinds = ("sample", "deterministic")
    return {name: jnp.asarray(s["value"]) for name, s in found.items() if s["type"] in kinds}


def _left_out(program: Program, origins: Mapping[str, Origin]) -> tuple[str, ...]:
    """The discrete latents that the draws do not have."""
    return tuple(s.name for s in program.sites if s.kind == "discrete" and s.name not in origins)


def predict(program: Program, values: Mapping[str, Any], key: Array) -> dict[str, Array]:
    """One draw of each observed site, given the values of the latents."""
    latents = {site.name: jnp.asarray(values[site.name]) for site in program.latents}
    origins = {name: Origin(tuple(map(np.arange, value.shape))) for name, value in latents.items()}
    found = simulate(program, latents, origins, key, replicate=True)
    return {site.name: found[site.name] for site in program.sites if site.kind == "observed"}


class _Simulate(Messenger):
    """Gives latents the values of a draw, and observed sites none."""

    def __init__(self, program, drawn, origins, key, replicate: bool):
        super().__init__()
        self.sites = program.structure.by_name
        self.drawn, self.origins, self.key, self.replicate = drawn, origins, key, replicate
        self.loops = 0

    def process_message(self, msg) -> None:
        if msg["type"] == "control_flow":
            self._enter(msg)
        if msg["type"] != "sample" or msg.get("_control_flow_done"):
            return
        msg["infer"] = dict(msg["infer"])  # NumPyro writes into it, and sites may share one
        if msg["name"] in self.origins:
            self.key, key = jax.random.split(self.key)
            msg["value"] = self._value(msg, key)
        elif self.replicate:
            _forget(msg)

    def _value(self, msg, key: Array) -> Array:
        origin = self.origins[msg["name"]]
        placed = origin.place(self.drawn[msg["name"]])
        if origin.complete:
            return placed
        fresh = msg["fn"].sample(key, msg["kwargs"].get("sample_shape", ()))
        return jnp.where(origin.known, placed, fresh)

    def _enter(self, msg) -> None:
        """Does the same inside the steps of a scan, and gives a cond its values."""
        number, self.loops = self.loops, self.loops + 1
        inside = [
            name
            for name in self.origins
            if (loop := self.sites[name].loop) is not None and loop.number == number
        ]
        if self.replicate:  # conditioned is observed
            stack = msg["kwargs"]["substitute_stack"]
            stack[:] = [entry for entry in stack if entry[0] != "condition"]
        if not is_scan(msg):
            values = {name: self.origins[name].place(self.drawn[name]) for name in inside}
            msg["kwargs"]["substitute_stack"].append(("substitute", values))
            return
        self.key, key = jax.random.split(self.key)
        series = {
            name: (
                self.origins[name].place(self.drawn[name]),
                jnp.asarray(self.origins[name].known),
            )
            for name in inside
        }
        complete = {name: self.origins[name].complete for name in inside}
        keys = jax.random.split(key, steps(msg))

        def handler(here: Any) -> Messenger:
            values, key = here
            given = {
                name: _step_value(value, jax.random.fold_in(key, place), complete[name])
                for place, (name, value) in enumerate(values.items())
            }
            return _Step(given, self.replicate)

        enter_steps(msg, (series, keys), handler)


def _step_value(series: tuple[Array, Array], key: Array, complete: bool):
    value, known = series

    def choose(fn) -> Array:
        return value if complete else jnp.where(known, value, fn.sample(key))

    return choose


class _Step(Give):
    """One step of a `scan`: values for its latents, none for what it observes."""

    def __init__(self, values, replicate: bool):
        super().__init__(values)
        self.replicate = replicate

    def process_message(self, msg) -> None:
        super().process_message(msg)
        if self.replicate and msg["type"] == "sample" and msg["name"] not in self.values:
            _forget(msg)


def _forget(msg) -> None:
    """Leaves an observed site, but not a factor, to be drawn."""
    if msg["is_observed"] and site_kind(unwrap(msg["fn"])[0], True) == "observed":
        fn, shape = msg["fn"], jnp.shape(msg["value"])
        batch = shape[: len(shape) - fn.event_dim]
        if jnp.broadcast_shapes(batch, fn.batch_shape) != fn.batch_shape:
            msg["fn"] = fn.expand(batch)  # data outside plates: one distribution, many values
        msg["value"], msg["is_observed"] = None, False
