"""Sites inside NumPyro's `scan`: each step sees its own slice of what the sites need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.contrib.control_flow.scan import scan_wrapper
from numpyro.primitives import Messenger

from autoreparam.program.site import Site


def is_scan(msg: dict) -> bool:
    """Whether a control-flow message is a `scan` (and not a `cond`)."""
    return msg["fn"] is scan_wrapper


def enter_steps(
    msg: dict, series: Any, handler: Callable[[Any], AbstractContextManager[Any]]
) -> None:
    """Rewrites a `scan` message so that step t runs inside `handler(series[t])`.

    The series are inputs of the loop. If they were indexed inside it, as NumPyro does with
    substituted values, the cost of a gradient would grow with the square of the length.
    """
    step, init, xs, length, reverse = msg["args"]

    def inside(carry, x):
        own, here = x
        with handler(here):
            return step(carry, own)

    msg["args"] = (inside, init, (xs, series), length, reverse)


def place_in_steps(
    msg: dict,
    series: Any,
    place: Callable[[Any, Any], tuple[Mapping[str, Any], Any]],
    keep: Callable[[Any], None],
) -> None:
    """Rewrites a `scan` message so that each step makes values of its sites from what it is handed.

    `place` gets that and the step's own entry of `series`; it returns values by site, and what is
    to be kept of the step. `keep` gets the latter for all steps at once.
    """
    step, init, xs, length, reverse = msg["args"]
    run = msg["fn"]

    def inside(carry, x):
        own, here = x
        values, kept = place(carry, here)
        with given_values(values):
            carry, shown = step(carry, own)
        return carry, (shown, kept)

    def whole(*args: Any, **kwargs: Any) -> Any:
        last, (trace, (shown, kept)) = run(*args, **kwargs)
        keep(kept)
        return last, (trace, shown)

    msg["fn"], msg["args"] = whole, (inside, init, (xs, series), length, reverse)


def steps(msg: dict) -> int:
    """The length of the loop."""
    _, _, xs, length, _ = msg["args"]
    return length if length is not None else jnp.shape(jax.tree.leaves(xs)[0])[0]


def given_values(values: Mapping[str, Any]) -> Give:
    """The handler that gives sites of one step these values."""
    return Give({name: partial(whatever, value) for name, value in values.items()})


def whatever(value: Any, fn: Any) -> Any:
    """The value, whatever the distribution."""
    return value


class Give(Messenger):
    """Gives sites of one step the values that functions of their distribution return."""

    def __init__(self, values: Mapping[str, Callable[[Any], Any]]):
        super().__init__()
        self.values = values

    def process_message(self, msg) -> None:
        """Sets the value of a site that is among the given ones."""
        if msg["type"] != "sample":
            return
        msg["infer"] = dict(msg["infer"])  # NumPyro writes into it, and sites may share one
        if msg["name"] in self.values:
            msg["value"] = self.values[msg["name"]](msg["fn"])


def in_order(sites: list[Site]) -> list[Site]:
    """The sites of a loop, those that the model implies last, each after what it depends on."""
    ordered = [site for site in sites if site.implied is None]
    waiting = [site for site in sites if site.implied is not None]
    while waiting:
        names = {site.name for site in waiting}
        ready = [site for site in waiting if not site.implied.names & names]
        ordered += ready
        waiting = [site for site in waiting if site not in ready]
    return ordered
