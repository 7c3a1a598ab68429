"""What a model implies for a latent that was non-centered by hand: a location and a scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.tree_util import Partial

from autoreparam.program.dependence import Names
from autoreparam.program.families import Sequence as Steps
from autoreparam.program.families import Sequential, Standardization
from autoreparam.program.graph import Node, evaluate
from autoreparam.program.implicit.loop import Loop
from autoreparam.program.implicit.moves import rearrange
from autoreparam.program.implicit.rule import (
    ImpliedRule,
    implied_rule,
    matrix_rule,
    sequence_rule,
)
from autoreparam.program.implicit.walk import Cumulative, Form, Matrix

UNIT = dist.Normal(0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Implied:
    """The form in which a model uses a latent, and its name.

    Two are equal if they say the same; what they are computed from is part of the model's own
    identity.
    """

    form: Form
    through: str  # the deterministic that it is, if any
    family: str  # in words: "Normal(mu, tau)"
    statement: str  # the same, as a statement of the model
    positive: bool
    own: Any  # inside a loop, the latent's distribution: its structure as a pytree, and its leaves
    # Where it is made in the loop it is sampled in: which of the values that the model's steps hand
    # on is at which place.
    handed_on: Mapping[int, int] | None

    @cached_property
    def _key(self) -> tuple:
        form = self.form
        return (self.through, self.family, self.names, form.noise.shape, form.layout, form.negative)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Implied) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def names(self) -> Names:
        """The latents that its location and scale depend on."""
        return self.form.names

    @property
    def loc_names(self) -> Names:
        """The latents that its location depends on."""
        offset = self.form.offset
        loop = self.names if isinstance(self.form.coupling, Loop) else frozenset()
        return loop | (offset.names if offset else frozenset())

    @property
    def scale_names(self) -> Names:
        """The latents that its scale, or the dependence between its elements, depend on."""
        gain, factor = self.form.gain, getattr(self.form.coupling, "factor", None)
        loop = self.names if isinstance(self.form.coupling, Loop) else frozenset()
        return loop.union(*(node.names for node in (gain, factor) if node))

    @property
    def rows(self) -> int:
        """Rows of the matrix that mixes its elements; 0 where there is none."""
        coupling = self.form.coupling
        return coupling.factor.shape[-1] if isinstance(coupling, Matrix) else 0

    @property
    def vectors(self) -> np.ndarray:
        """The places of its coupled elements, one row per vector or sequence."""
        coupling, shape = self.form.coupling, self.form.noise.shape
        places = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        places = np.asarray(rearrange(places, self.form.layout))
        # A step of a loop may depend on everything in the step before.
        if isinstance(coupling, Loop):
            return places.reshape(1, -1)
        axis = coupling.axis if isinstance(coupling, Cumulative) else -1
        return np.moveaxis(places, axis, -1).reshape(-1, places.shape[axis])

    def prior(self) -> dist.Distribution:
        """The distribution of a latent inside a loop, for all steps at once."""
        structure, leaves = self.own
        return jax.tree.unflatten(structure, list(map(jnp.asarray, leaves)))

    def rule(
        self,
        own: Any,
        values: Mapping[str, Any],
        data: Sequence[Any],
        known: dict[int, Any] | None = None,
    ) -> ImpliedRule:
        """The rule at given values of other latents; `own` is that of the latent's distribution.

        `known` holds what was computed from the same values for other latents.
        """
        form, shape = self.form, self.form.noise.shape
        known = {} if known is None else known
        given: dict[tuple[str, Any], Any] = {("latent", name): values[name] for name in self.names}
        given |= {("data", i): value for i, value in enumerate(data)}

        def at(node: Node | None, default: float) -> Any:
            if node is None:
                return jnp.asarray(default, form.noise.dtype)
            return evaluate([node], given, known)[0]

        gain, offset = at(form.gain, 1.0), at(form.offset, 0.0)
        if form.coupling is None:
            return implied_rule(
                own, offset, gain, shape, positive=self.positive, negative=form.negative
            )
        if isinstance(form.coupling, Matrix):
            factor = at(form.coupling.factor, 1.0)
            gain = jnp.abs(gain)
            factor = factor * (gain if jnp.ndim(gain) == 0 else gain[..., None])
            return matrix_rule(own, offset, factor, shape, form.layout, form.negative)
        center, scale = (
            rearrange(jnp.broadcast_to(part, shape), form.layout) for part in (own.loc, own.scale)
        )
        if isinstance(form.coupling, Cumulative):
            steps = _cumulative(form.coupling.axis, offset, gain, center, scale)
        else:
            places = form.coupling.outside
            found = dict(zip(places, evaluate(list(places.values()), given, known)))
            centered = form.offset is None and unless(own.loc, 0) is None
            unit = form.gain is None and unless(own.scale, 1) is None
            loc = None if centered else jnp.broadcast_to(offset + gain * center, scale.shape)
            scale = None if unit else jnp.broadcast_to(gain * scale, scale.shape)
            steps = _loop(form.coupling, found, loc, scale)
        return sequence_rule(own, steps, shape, form.layout, form.negative)


# -- sequences --------------------------------------------------------------------------------


def _cumulative(axis: int, offset: Any, gain: Any, center: Any, scale: Any) -> Steps:
    """`x_t = x_(t-1) + (a_t - a_(t-1)) + b_t value_t`."""

    def lead(array: Any) -> Any:
        return jnp.moveaxis(jnp.broadcast_to(array, scale.shape), axis, 0)

    a, drift, b = lead(offset), lead(gain * center), lead(jnp.abs(gain) * scale)

    def follow(previous, inputs):
        step, scale = inputs
        return Sequential(previous + step, scale, UNIT)

    first = Standardization(a[0] + drift[0], b[0], UNIT)
    inputs = (jnp.diff(a, axis=0) + drift[1:], b[1:])
    return Steps(first, Partial(follow), inputs, scale.shape[axis], axis)


@dataclass(frozen=True)
class _Follow:
    """The rule of a step of a loop, given the value before it."""

    loop: Loop

    def __call__(self, shared: Any, previous: Any, inputs: Any) -> Sequential:
        each, loc, scale = inputs
        given = {**shared, **each}
        if self.loop.own is not None:
            given[self.loop.own] = previous
        return Sequential(*self.loop.becomes(given, loc, scale), UNIT)


def _loop(loop: Loop, values: dict[int, Any], loc: Any, scale: Any) -> Steps:
    """`x_t = a(x_(t-1)) + b(x_(t-1)) noise_t`, the noise of this location and scale."""
    shared, each = loop.steps(values)
    inputs, noise = (each, loc, scale), loop.form.noise
    first, later = (jax.tree.map(lambda x, at=at: x[at], inputs) for at in (0, slice(1, None)))
    follow = Partial(_Follow(loop), shared)
    init = values[loop.own] if loop.own is not None else jnp.zeros(noise.shape, noise.dtype)
    return Steps(follow(init, first), follow, later, loop.length, -1 - len(noise.shape))


def unless(value: Any, number: float) -> Any:
    """The value; None where all of it is known to be the number."""
    known = not isinstance(value, jax.core.Tracer)
    return None if known and np.all(np.asarray(value) == number) else value
