"""The sites of any model on its data, and the arguments that would observe some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import BoundArguments

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.handlers import seed, trace
from numpyro.primitives import Messenger

from autoreparam.errors import ModelError
from autoreparam.program.arguments import Arguments, split
from autoreparam.program.call import Call
from autoreparam.program.captured import held_arrays
from autoreparam.program.effort import factorizes
from autoreparam.program.loops import enter_steps, is_scan
from autoreparam.program.numbers import refuse_wrapped_inside
from autoreparam.program.program import Program, Structure
from autoreparam.program.record import Record, recorded
from autoreparam.program.site import ONE_AT_A_TIME
from autoreparam.program.unseeded import signature_of, unseeded


class _Anything(Record):
    anything = True


def outline(model: Callable, args: tuple, kwargs: Mapping | None) -> Program:
    """The model's sites as a run from the prior sees them: discrete latents too, or none at all.

    It can be run, but not sampled: it does not say what depends on what.
    """
    call = Call.of(model, args, kwargs)

    def traceable(arguments: Arguments, data: tuple) -> bool:
        try:
            recorded(_Anything, call.model, arguments, data)
        except ModelError:
            raise
        except Exception:  # models may do with numbers what they cannot do with tracers
            return False
        return True

    arguments, data = split(call.args, call.kwargs, traceable)

    def run(data, key):
        args, kwargs = arguments.fill(data)
        with ONE_AT_A_TIME, _Anything(), trace() as sites:
            seed(call.model, key)(*args, **kwargs)
        drawn = [(s["fn"], s["value"]) for s in sites.values() if s["type"] == "sample"]
        return [leaf for leaf in jax.tree.leaves(drawn) if isinstance(leaf, jax.Array | np.ndarray)]

    with call.in_words():
        traced = jax.make_jaxpr(run)(data, jax.random.key(0))
        held = held_arrays(call.model, arguments.given(call.model, data))
        refuse_wrapped_inside(traced, arguments.named(call.model, data), held)
        sites = tuple(recorded(_Anything, call.model, arguments, data).sites.values())
    if not sites:
        raise ModelError("the model has no sample statement, so there is nothing to predict")
    dtype, solves = jnp.result_type(float), factorizes(traced.jaxpr)
    structure = Structure(call.model, arguments, sites, dtype, {}, factorizes=solves)
    return Program(structure, data)


# -- arguments that are None ------------------------------------------------------------------


def unobserved(model: Callable, args: tuple, kwargs: Mapping | None) -> dict[str, str]:
    """The sites that an argument would observe if it were not None, with that argument's name.

    The model runs once more with a stand-in for each argument that is None, which shows where it
    goes. Models that ask more of it than `obs=` are judged by names alone.
    """
    model = unseeded(model)
    gone = _arguments_left_none(model, args, kwargs)
    if not gone:
        return {}
    watch = _Watch()
    try:
        bound = signature_of(model).bind(*args, **dict(kwargs or {}))
        bound.arguments.update({name: _Gap(name) for name in gone})
        with ONE_AT_A_TIME:
            jax.eval_shape(lambda key: _run(model, bound, watch, key), jax.random.key(0))
        return watch.found
    except Exception:
        return {name: name for name in gone}


def _arguments_left_none(model: Callable, args: tuple, kwargs: Mapping | None) -> list[str]:
    try:
        bound = signature_of(model).bind(*args, **dict(kwargs or {}))
    except (TypeError, ValueError):
        return []
    bound.apply_defaults()
    return [name for name, value in bound.arguments.items() if value is None]


def _run(model: Callable, bound: BoundArguments, watch: _Watch, key) -> tuple:
    record = _Anything()
    with record, watch:
        seed(model, key)(*bound.args, **bound.kwargs)
    return ()


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Gap:
    """Stands in for an argument that is None; like None, it has no leaves."""

    name: str


class _Watch(Messenger):
    """Notes which sites a stand-in would observe, and leaves them unobserved."""

    def __init__(self, found: dict[str, str] | None = None) -> None:
        super().__init__()
        self.found = {} if found is None else found

    def process_message(self, msg) -> None:
        if msg["type"] == "control_flow" and is_scan(msg):
            enter_steps(msg, (), lambda _: _Watch(self.found))
        if msg["type"] == "sample" and isinstance(msg["value"], _Gap):
            self.found[msg["name"]] = msg["value"].name
            msg["value"], msg["is_observed"] = None, False
