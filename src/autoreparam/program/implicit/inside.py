"""Noise that is sampled inside a loop, placed by the loop's own steps.

A step knows what it is handed, so it can compute `a` and `b` of its noise: the model's own loop is
then the only one. Where that is not certain, all steps are walked through before the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autoreparam.program.families import Sequential, Standardization, standardize
from autoreparam.program.graph import evaluate
from autoreparam.program.implicit.implied import UNIT, Implied
from autoreparam.program.implicit.loop import Loop
from autoreparam.program.implicit.rule import ImpliedRule
from autoreparam.program.working import site_map

BY_NUMPYRO = 2  # of the values that steps hand on: the number of the step, and a random key


@dataclass(frozen=True, eq=False)
class NoiseInside:
    """The latents of one loop that were non-centered by hand, each after those that it needs."""

    made: Mapping[str, Implied]
    own: Mapping[str, Standardization]  # the rules of their distributions, the same at every step
    shared: Mapping[str, Mapping[int, Any]]  # what all steps are computed from, by place
    each: Mapping[str, Mapping[int, Any]]  # what each step has of its own

    def place(self, handed_on: Any, here: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of one step's latents, and location and scale of what they become."""
        leaves, (each, own) = jax.tree.leaves(handed_on), here
        values: dict[str, Any] = {}
        became: dict[str, Any] = {}
        for name, implied in self.made.items():
            loop, (working, lam) = implied.form.coupling, own[name]
            given = {**self.shared[name], **each[name]}
            for place, node in loop.outside.items():
                if place in loop.handed_on:  # the model's own values are the last ones
                    given[place] = leaves[place - loop.handed_on.stop]
                elif place not in given:
                    given[place] = values[node.value]
            became[name] = _became(loop, given, self.own[name], working)
            map_ = site_map(self.rule(name, became[name]), lam)
            values[name] = map_.value(map_.point(working))
        return values, became

    def rule(self, name: str, became: Any) -> ImpliedRule:
        """The rule of a latent, from location and scale of what it becomes, at one step or all."""
        loc, scale = became
        negative = self.made[name].form.negative
        return ImpliedRule(
            self.own[name], Sequential(loc, scale, UNIT), (), jnp.shape(loc), negative
        )


def noise_inside(
    made: Mapping[str, Implied],
    handed_on: int,
    inside: Iterable[str],
    values: Mapping[str, Any],
    data: Sequence[Any],
    known: dict[int, Any],
) -> NoiseInside | None:
    """What the steps of a loop need to place its noise; None where they cannot place all of it.

    `made` are the latents with what the model implies for them, each after those it needs,
    `handed_on` is how many values the model's steps hand on, `inside` names all latents of the
    loop, `values` are those of latents outside it.
    """
    inside = frozenset(inside)
    given: dict[tuple[str, Any], Any] = {("data", i): value for i, value in enumerate(data)}
    given |= {("latent", name): values[name] for name in values.keys() - inside}
    own: dict[str, Standardization] = {}
    shared: dict[str, dict[int, Any]] = {}
    each: dict[str, dict[int, Any]] = {}
    for name, implied in made.items():
        loop, rule = implied.form.coupling, _steady(implied)
        # JAX takes what is handed on unchanged out of the loop, and places are no longer known.
        alone = len(loop.handed_on) == handed_on + BY_NUMPYRO
        if rule is None or not alone or implied.form.gain or implied.form.offset:
            return None
        places = {
            place: node
            for place, node in loop.outside.items()
            if place not in loop.handed_on and not (node.op == "latent" and node.value in own)
        }
        if not all(("latent", n) in given for node in places.values() for n in node.names):
            return None
        found = dict(zip(places, evaluate(list(places.values()), given, known)))
        own[name] = rule
        each[name] = {place: found[place] for place in found if place in loop.stacked}
        shared[name] = {place: found[place] for place in found if place not in loop.stacked}
    return NoiseInside(made, own, shared, each) if made else None


def _steady(implied: Implied) -> Standardization | None:
    """The rule of a latent's distribution, if it is the same at every step."""
    if not isinstance(implied.form.coupling, Loop) or implied.form.layout:
        return None
    with jax.ensure_compile_time_eval():
        rule = standardize(implied.prior())
        loc, scale = np.unique(np.asarray(rule.loc)), np.unique(np.asarray(rule.scale))
    if not isinstance(rule, Standardization) or loc.size != 1 or scale.size != 1:
        return None
    return replace(rule, loc=loc[0], scale=scale[0])


def _became(
    loop: Loop, given: Mapping[int, Any], own: Standardization, like: Any
) -> tuple[Any, Any]:
    """Location and scale of `a + b * value` at one step; the sign of `b` is known."""
    loc, gain = loop.location(given, like), loop.scale(given, like)
    scale = -gain if loop.form.negative else gain
    if own.loc != 0:
        loc = loc + gain * own.loc
    if own.scale != 1:
        scale = scale * own.scale
    return jnp.broadcast_to(loc, jnp.shape(like)), jnp.broadcast_to(scale, jnp.shape(like))
