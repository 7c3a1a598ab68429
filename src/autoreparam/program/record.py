"""The handler that records every site of a model run, and rejects what cannot be sampled."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import biject_to
from numpyro.handlers import seed
from numpyro.ops.pytree import PytreeTrace
from numpyro.primitives import Messenger

from autoreparam.errors import ModelError
from autoreparam.program.arguments import Arguments
from autoreparam.program.coordinate import coordinate_of
from autoreparam.program.families import unwrap
from autoreparam.program.hidden import asked_for_key
from autoreparam.program.loops import is_scan
from autoreparam.program.site import ONE_AT_A_TIME, Loop, Site

AXES = ("chain", "draw", "slot")  # of the draws and statistics of every run


class Record(Messenger):
    """Gives every latent a value and records every site."""

    anything = False  # whether discrete latents may be there without a mark

    def __init__(self) -> None:
        super().__init__()
        self.sites: dict[str, Site] = {}
        self.dtypes: list[Any] = []
        self.plates: set[str] = set()
        # Sites of a scan or cond arrive with their values; here with their statement's number too.
        self.inside: dict[str, Loop] = {}
        self.loops = 0
        self.given: set[str] = set()  # sites whose value the model itself substitutes

    def process_message(self, msg) -> None:
        """Rejects what cannot be sampled and gives the rest a value."""
        if not isinstance(msg.get("name", ""), str):
            raise ModelError(f"site {msg['name']!r}: expected a name, which is text")
        if msg["type"] == "plate":
            _refuse_subsample(msg)
            self.plates.add(msg["name"])
        elif msg["type"] == "param" and msg["value"] is None:
            raise ModelError(
                f"site '{msg['name']}' is a param, which MCMC does not learn. Give it a prior with "
                "numpyro.sample, or fix it with numpyro.handlers.substitute."
            )
        elif msg["type"] == "prng_key":
            raise asked_for_key()
        elif msg["type"] == "sample":
            self._sample(msg)

    def _sample(self, msg) -> None:
        if msg["value"] is not None:
            if not msg["is_observed"] and msg["name"] not in self.inside:
                self.given.add(msg["name"])
        elif not isinstance(unwrap(msg["fn"])[0], dist.Delta):
            if not self.anything:
                _refuse_discrete(msg)
            msg["value"] = self.draw(msg)

    def draw(self, msg) -> Any:
        """A value of the right shape; its numbers do not matter."""
        dtype = int if is_discrete(msg["fn"]) else float
        return jnp.zeros(msg["kwargs"].get("sample_shape", ()) + msg["fn"].shape(), dtype)

    def postprocess_message(self, msg) -> None:
        """Describes the site."""
        if msg["type"] == "control_flow":
            loop = Loop(self.loops, is_scan(msg))
            self.loops += 1
            for found in jax.tree.leaves(msg["value"], is_leaf=_is_trace):
                if _is_trace(found):
                    self.inside.update(dict.fromkeys(found.trace, loop))
        if msg["type"] not in ("sample", "deterministic"):
            return
        name = msg["name"]
        if name in self.sites or name in self.plates:
            other = "as a plate" if name in self.plates else "twice"
            raise ModelError(
                f"site '{name}' appears {other}. Every sample and deterministic statement needs "
                f"its own name; in a loop, number them: f'{name}_{{i}}'."
            )
        if name in AXES:
            raise ModelError(
                f"site '{name}': draws have an axis of this name, so the result could not hold "
                f"both. Call it something else, '{name}_' for example."
            )
        site = _describe(msg, name in self.given, self.inside.get(name), self.anything)
        self.sites[name] = site
        if site.kind == "latent":
            self.dtypes.append(jnp.result_type(msg["value"]))


def recorded(kind: type[Record], model: Callable, arguments: Arguments, data: tuple) -> Record:
    """What a record of this kind saw in an abstract run of the model."""
    record = kind()

    def run(data, key):
        nonlocal record
        record = kind()
        args, kwargs = arguments.fill(data)
        with ONE_AT_A_TIME, record:
            seed(model, key)(*args, **kwargs)
        return ()

    jax.eval_shape(run, data, jax.eval_shape(jax.random.key, 0))
    return record


def compare(first: dict[str, Site], second: dict[str, Site]) -> None:
    """Rejects a model whose two runs did not have the same sites."""
    remedy = (
        "The structure of a model must depend only on its arguments: remove counters, clocks and "
        "numpy's random numbers."
    )
    for name in [*first, *second]:
        if name not in first or name not in second:
            raise ModelError(
                f"site '{name}' was in one run of the model and not in another. {remedy}"
            )
        for part in ("kind", "distribution", "shape"):
            one, other = getattr(first[name], part), getattr(second[name], part)
            if one != other:
                raise ModelError(
                    f"site '{name}' had {part} {one} in one run of the model and {other} in "
                    f"another. {remedy}"
                )
    if list(first) != list(second):
        raise ModelError(f"the order of the sites changed between two runs of the model. {remedy}")


def _is_trace(value: Any) -> bool:
    return isinstance(value, PytreeTrace)


def _refuse_subsample(msg) -> None:
    size, subsample = msg["args"][0], msg["args"][1]
    if subsample is not None and subsample != size:
        raise ModelError(
            f"plate '{msg['name']}' subsamples {subsample} of {size}: MCMC needs every "
            "row. Remove subsample_size, or pass a smaller data set."
        )


def is_discrete(fn: dist.Distribution) -> bool:
    """Whether the values of a distribution are counted."""
    return fn.support is not None and fn.support.is_discrete


def _refuse_discrete(msg) -> None:
    fn = msg["fn"]
    if not is_discrete(fn) or (
        msg["infer"].get("enumerate") == "parallel" and fn.has_enumerate_support
    ):
        return
    what = f"site '{msg['name']}' is a discrete latent ({type(unwrap(fn)[0]).__name__})"
    if not fn.has_enumerate_support:
        raise ModelError(
            f"{what} with too many values to sum over: HMC moves continuous values only. Use a "
            "distribution that has summed it out (such as dist.ZeroInflatedPoisson), or observe it."
        )
    raise ModelError(
        f"{what}: HMC moves continuous values only. Have it summed out: mark it with "
        'numpyro.sample(..., infer={"enumerate": "parallel"}), or observe it.'
    )


def _describe(msg, given: bool, loop: Loop | None, anything: bool) -> Site:
    shape = tuple(np.shape(msg["value"]))
    if msg["type"] == "deterministic":
        return Site(msg["name"], "deterministic", "", shape, 0, "", plates=_plates(msg, 0))
    fn = msg["fn"]
    base, mask = unwrap(fn)
    kind = site_kind(base, msg["is_observed"] or given)
    plates = _plates(msg, fn.event_dim)
    if kind == "factor":
        return Site(msg["name"], kind, "", tuple(fn.batch_shape), 0, "", plates=plates)
    site = Site(
        msg["name"],
        kind,
        type(base).__name__,
        shape,
        fn.event_dim,
        _support_name(fn),
        plates=plates,
        loop=loop,
    )
    if kind != "latent":
        return site
    if is_discrete(fn):
        if not anything:
            _refuse_discrete(msg)
        return replace(site, kind="discrete")
    if loop is not None and jax.tree.leaves(fn.support):
        raise ModelError(
            f"site '{site.name}' has a support that depends on values inside scan or cond. Sample "
            "a variable of fixed support and transform it."
        )
    transform = biject_to(fn.support)
    return replace(
        site,
        coordinate=coordinate_of(transform),
        unconstrained_shape=tuple(transform.inverse_shape(shape)),
        scanned=fn.support if loop is not None else None,
        note="masked" if mask is not None else "",
    )


def site_kind(base: dist.Distribution, observed: bool) -> str:
    """What a site is, by its distribution without wrappers."""
    if isinstance(base, dist.Unit):
        return "factor"
    if observed:
        return "observed"
    return "deterministic" if isinstance(base, dist.Delta) else "latent"


def _plates(msg, event_dim: int) -> tuple[tuple[str, int], ...]:
    frames = msg.get("cond_indep_stack", ())
    return tuple((frame.name, frame.dim - event_dim) for frame in frames)


def _support_name(fn: dist.Distribution) -> str:
    base = fn.support
    while hasattr(base, "base_constraint"):
        base = base.base_constraint
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(base).__name__.strip("_"))
    return words.lower()
