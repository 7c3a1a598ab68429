"""One HMC transition that tries again with smaller steps where the first try failed badly.

From `x` the first try leads to `y` with steps of size ε. Where its energy error is at least
`patience`, so that the step size and not chance speaks against it, a second try leads to `w` with
steps of ε/`finer`. With `α` the probability of accepting a first try and `r = 1 - α` where it would
be tried again, else 0, the second is accepted with probability

    min(1, π(w) r(w) / (π(x) r(x)))

where `r(w)` takes the first try from `w` with its momentum turned around. That leaves the target
invariant (Mira 2001; Modi, Barnett and Carpenter 2024, "Delayed rejection Hamiltonian Monte Carlo
for sampling multiscale distributions"). A posterior that rejects little hardly ever pays for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc.integrators import IntegratorState
from jax import Array

FIRST, SECOND, GHOST = 0, 1, 2  # trajectories of a transition, in this order


class Again(NamedTuple):
    """When and how a transition is tried a second time."""

    patience: float  # energy error from which there is a second try
    finer: float  # factor by which its steps are smaller
    longer: float  # factor by which there are more of them


class Outcome(NamedTuple):
    """What a transition did besides moving."""

    acceptance: Any  # of the first try
    worst: Any  # the largest energy error on the way of the try that counts
    energy: Any  # of the state that is kept
    steps: Any  # of the integrator, in all trajectories


def transition(
    key: Array,
    start: IntegratorState,
    one_step: Any,
    kinetic_energy: Any,
    step_size: Array,
    steps: Array,
    again: Again,
) -> tuple[IntegratorState, Outcome]:
    """The state after one transition, and what happened; `start` holds a fresh momentum.

    All trajectories are one loop with one compiled gradient.
    """
    dtype = start.logdensity.dtype
    luck = jnp.log(jax.random.uniform(key, (2,), dtype))

    def energy(state: IntegratorState) -> Array:
        return (kinetic_energy(state.momentum) - state.logdensity).astype(dtype)

    def follow(state: IntegratorState, size: Array, count: Array) -> tuple[Any, Array, Array]:
        """The end of a trajectory, the largest energy error on the way, and the steps taken."""
        begin = energy(state)

        def step(carried):
            state, worst, done = carried
            state = one_step(state, size)
            return state, jnp.maximum(worst, _sound(energy(state) - begin)), done + 1

        def more(carried):
            _, worst, done = carried
            return (done < count) & (worst < jnp.inf)

        nothing = jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
        return jax.lax.while_loop(more, step, (state, *nothing))

    def error_of(end: IntegratorState, begin: Array, worst: Array) -> Array:
        """The energy error of a whole trajectory; one that left the numbers is never accepted."""
        return jnp.where(worst == jnp.inf, jnp.inf, _sound(energy(end) - begin))

    def attempt(carried):
        number, first, second, first_error, ghost_error, worsts, taken = carried
        begin = _choose(number == GHOST, _turned(second), start)
        second_try = number == SECOND
        size = jnp.where(second_try, step_size / again.finer, step_size)
        count = jnp.where(second_try, jnp.round(again.longer * steps).astype(jnp.int32), steps)
        end, worst, done = follow(begin, size, count)
        error = error_of(end, energy(begin), worst)
        first = _choose(number == FIRST, end, first)
        second = _choose(second_try, end, second)
        first_error = jnp.where(number == FIRST, error, first_error)
        ghost_error = jnp.where(number == GHOST, error, ghost_error)
        worsts = worsts.at[number].set(worst)
        # A second try that left the numbers needs no ghost: it is not accepted.
        enough = (first_error < again.patience) | (luck[0] < -first_error)
        stop = jnp.where(number == FIRST, enough, second_try & (worst == jnp.inf))
        number = jnp.where(stop, GHOST + 1, number + 1)
        return number, first, second, first_error, ghost_error, worsts, taken + done

    zero, infinite = jnp.zeros((), jnp.int32), jnp.full((), jnp.inf, dtype)
    carried = (zero, start, start, infinite, infinite, jnp.zeros(3, dtype), zero)
    found = jax.lax.while_loop(lambda c: c[0] <= GHOST, attempt, carried)
    _, first, second, first_error, ghost_error, worsts, taken = found

    accept_first = luck[0] < -first_error
    tried_again = (first_error >= again.patience) & ~accept_first
    second_error = error_of(second, energy(start), worsts[SECOND])
    log_ratio = _log_again(ghost_error, again) - _log_again(first_error, again) - second_error
    accept_second = tried_again & (luck[1] < jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio))
    state = _choose(accept_first, first, _choose(accept_second, second, start))
    outcome = Outcome(
        acceptance=jnp.exp(-jnp.maximum(first_error, 0)),
        worst=jnp.where(tried_again, worsts[SECOND], worsts[FIRST]),
        energy=energy(state),
        steps=taken,
    )
    return state, outcome


def _log_again(error: Array, again: Again) -> Array:
    """`log r`: the logarithm of the probability of a second try after this energy error."""
    rejected = jnp.log1p(-jnp.exp(-jnp.maximum(error, again.patience)))
    return jnp.where(error >= again.patience, rejected, -jnp.inf)


def _sound(error: Array) -> Array:
    """The error, or infinity where it is no number."""
    return jnp.where(jnp.isfinite(error), error, jnp.inf)


def _turned(state: IntegratorState) -> IntegratorState:
    return state._replace(momentum=-state.momentum)


def _choose(condition: Array, one: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)
