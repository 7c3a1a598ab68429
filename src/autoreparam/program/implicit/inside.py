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
from autoreparam.program.implicit.implied import UNIT, Implied, unless
from autoreparam.program.implicit.loop import Loop
from autoreparam.program.implicit.rule import ImpliedRule
from autoreparam.program.working import site_map


@dataclass(frozen=True, eq=False)
class Noise:
    """A latent of a loop, and where a step finds what is at the places it is computed from."""

    loop: Loop
    own: Standardization  # the rule of its distribution, the same at every step
    shared: Mapping[int, Any]  # the same at every step
    each: Mapping[int, Any]  # one entry per step
    handed_on: Mapping[int, int]  # by the step before, as which of its values
    before: Mapping[int, str]  # other latents of the same step

    def rule(self, became: tuple[Any, Any]) -> ImpliedRule:
        """The rule of the latent, from location and scale of what it becomes at one step or all."""
        inner, negative = Sequential(*became, UNIT), self.loop.form.negative
        return ImpliedRule(self.own, inner, (), jnp.shape(became[0]), negative)


@dataclass(frozen=True, eq=False)
class NoiseInside:
    """The latents of one loop that were non-centered by hand, each after those that it needs."""

    noises: Mapping[str, Noise]

    @property
    def each(self) -> dict[str, Mapping[int, Any]]:
        """What the steps need besides the latents, one entry per step."""
        return {name: noise.each for name, noise in self.noises.items()}

    def place(self, handed_on: Any, here: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of one step's latents, and location and scale of what they become.

        `here` is the step's entry of `each`, and of working coordinates and λ.
        """
        leaves, (each, own) = jax.tree.leaves(handed_on), here
        values: dict[str, Any] = {}
        became: dict[str, Any] = {}
        for name, noise in self.noises.items():
            working, lam = own[name]
            given = {**noise.shared, **each[name]}
            given |= {place: leaves[i] for place, i in noise.handed_on.items()}
            given |= {place: values[other] for place, other in noise.before.items()}
            became[name] = noise.loop.becomes(
                given, unless(noise.own.loc, 0), unless(noise.own.scale, 1)
            )
            map_ = site_map(noise.rule(became[name]), lam)
            values[name] = map_.value(map_.point(working))
        return values, became


def noise_inside(
    made: Mapping[str, Implied],
    inside: Iterable[str],
    values: Mapping[str, Any],
    data: Sequence[Any],
    known: dict[int, Any],
) -> NoiseInside | None:
    """What the steps of a loop need to place its noise; None where they cannot place all of it.

    `made` are the latents with what the model implies for them, each after those it needs, `inside`
    names all latents of the loop, `values` are those of other latents; `known` is as in
    `Implied.rule`.
    """
    given: dict[tuple[str, Any], Any] = {("data", i): value for i, value in enumerate(data)}
    given |= {("latent", name): value for name, value in values.items() if name not in {*inside}}
    noises: dict[str, Noise] = {}
    for name, implied in made.items():
        loop, own = implied.form.coupling, _steady(implied)
        if own is None or implied.handed_on is None:
            return None
        needed = {place: loop.outside[place] for place in sorted(map(int, loop.form.names))}
        handed_on = {place: i for place, i in implied.handed_on.items() if place in needed}
        before = {
            place: node.value
            for place, node in needed.items()
            if place in loop.stacked and node.op == "latent" and node.value in noises
        }
        places = [place for place in needed if place not in handed_on and place not in before]
        nodes = [needed[place] for place in places]
        if not all(p < loop.first or p in loop.stacked for p in places):
            return None
        if not all(("latent", parent) in given for node in nodes for parent in node.names):
            return None
        found = dict(zip(places, evaluate(nodes, given, known)))
        each = {place: found[place] for place in places if place in loop.stacked}
        shared = {place: found[place] for place in places if place not in loop.stacked}
        noises[name] = Noise(loop, own, shared, each, handed_on, before)
    return NoiseInside(noises) if noises else None


def _steady(implied: Implied) -> Standardization | None:
    """The rule of a latent's distribution, if it is the same at every step of a loop."""
    form = implied.form
    if not isinstance(form.coupling, Loop) or form.gain or form.offset or form.layout:
        return None
    with jax.ensure_compile_time_eval():
        rule = standardize(implied.prior())
        loc, scale = np.unique(np.asarray(rule.loc)), np.unique(np.asarray(rule.scale))
    if not isinstance(rule, Standardization) or loc.size != 1 or scale.size != 1:
        return None
    return replace(rule, loc=loc[0], scale=scale[0])
