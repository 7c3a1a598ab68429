"""One draw as a transition in each of several parameterizations (the paper's iHMC; also NUTS).

The point is carried from slot to slot by the exact map between working coordinates, with its log
density and score, so changing coordinates costs no gradient of the target.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.mcmc.hmc import Info, Kernel, State, Tuning, blank_info
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target


class Slots(NamedTuple):
    """λ and tuning of every slot, stacked along a leading axis."""

    lam: Parameterization
    tuning: Tuning

    def at(self, index: Any) -> tuple[Parameterization, Tuning]:
        """λ and tuning of one slot."""
        return jax.tree.map(lambda leaf: leaf[index], (self.lam, self.tuning))


def stack_slots(lams: list[Parameterization], tunings: list[Tuning]) -> Slots:
    """Slots for one or more parameterizations."""
    return Slots(stack(lams), stack(tunings))


def stack(trees: list[Any]) -> Any:
    """Pytrees of the same shape stacked leaf by leaf, in numpy."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


def carry_state(
    target: Target, state: State, lam: Parameterization, new_lam: Parameterization
) -> State:
    """The same point in the coordinates of another λ."""
    position, score, gain = target.carry(state.position, state.score, lam, new_lam)
    return State(position, state.logdensity + gain, score)


def draw(
    kernel: Kernel, key: Array, target: Target, state: State, slots: Slots, step_sizes: Array
) -> tuple[State, Info]:
    """One transition per slot; the state enters and leaves in the last slot's coordinates.

    The infos are stacked along a leading slot axis. A point that no slot moved keeps the
    coordinates it came with: single precision could not always map it back, since near the tip of
    a funnel `(z - m) / s` is all rounding error.
    """
    count = len(step_sizes)
    if count == 1:
        lam, tuning = slots.at(0)
        tuning = tuning._replace(step_size=step_sizes[0])
        state, info = kernel.step(key, target, state, lam, tuning)
        return state, jax.tree.map(lambda leaf: leaf[None], info)
    origin = state

    def visit(index: Array, carried: tuple[State, Array, Info]) -> tuple[State, Array, Info]:
        state, moved, infos = carried
        lam, tuning = slots.at(index)
        before, _ = slots.at((index - 1) % count)
        state = carry_state(target, state, before, lam)
        back = (index == count - 1) & ~moved
        state = jax.tree.map(lambda old, new: jnp.where(back, old, new), origin, state)
        tuning = tuning._replace(step_size=step_sizes[index])
        there, info = kernel.step(jax.random.fold_in(key, index), target, state, lam, tuning)
        infos = jax.tree.map(lambda all_, one: all_.at[index].set(one), infos, info)
        return there, moved | jnp.any(there.position != state.position), infos

    blank = blank_info((count,), state.logdensity.dtype)
    state, _, infos = jax.lax.fori_loop(0, count, visit, (state, jnp.array(False), blank))
    return state, infos
