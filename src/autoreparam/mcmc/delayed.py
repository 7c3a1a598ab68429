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
from jax import Array

from autoreparam.mcmc.integrator import IntegratorState

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
    start: IntegratorState,
    one_step: Any,
    kinetic_energy: Any,
    step_size: Array,
    steps: Array,
    luck: Array,
    again: Again | None,
) -> tuple[IntegratorState, Outcome]:
    """The state after one transition, and what happened; `start` holds a fresh momentum.

    `luck` is the logarithm of two uniform numbers, one per try. All trajectories are one loop with
    one compiled gradient. Without `again` there is a single try.
    """
    dtype, zero = start.logdensity.dtype, jnp.zeros((), jnp.int32)

    def energy(state: IntegratorState) -> Array:
        return (kinetic_energy(state.momentum) - state.logdensity).astype(dtype)

    energy_at_start = energy(start)

    def follow(state: IntegratorState, size: Array, count: Array) -> tuple[Any, Array, Array]:
        """The end of a trajectory, the energy errors of its steps so far, and the steps taken.

        The errors are that of the last step and the largest; infinite where numbers end.
        """

        def step(carried):
            state, errors, done = carried
            state = one_step(state, size)
            error = energy(state) - energy_at_start
            error = jnp.where(jnp.isfinite(error), error, jnp.inf)
            return state, jnp.stack([error, jnp.maximum(errors[1], error)]), done + 1

        def more(carried):
            _, errors, done = carried
            # With a single try, chains of a batch that take equally many steps stay in step.
            return done < count if again is None else (done < count) & (errors[1] < jnp.inf)

        return jax.lax.while_loop(more, step, (state, jnp.zeros(2, dtype), zero))

    if again is None:
        proposal, error, taken = follow(start, step_size, steps)
        accepted = luck[0] < -error[0]
        kept = energy_at_start + jnp.where(accepted, error[0], 0)
        rate = jnp.exp(-jnp.maximum(error[0], 0))
        return choose(accepted, proposal, start), Outcome(rate, error[1], kept, taken)

    def attempt(carried):
        number, proposal, errors, taken = carried
        ghost, second_try = number == GHOST, number == SECOND
        begin = choose(ghost, _turned(proposal), start)
        size = jnp.where(second_try, step_size / again.finer, step_size)
        count = jnp.where(second_try, jnp.round(again.longer * steps).astype(jnp.int32), steps)
        end, found, done = follow(begin, size, count)
        errors = errors.at[number].set(found)
        # A second try that left the numbers needs no ghost: it is not accepted.
        enough = (found[0] < again.patience) | (luck[0] < -found[0])
        stop = jnp.where(number == FIRST, enough, second_try & (found[1] == jnp.inf))
        number = jnp.where(stop, GHOST + 1, number + 1)
        return number, choose(ghost, proposal, end), errors, taken + done

    errors = jnp.full((3, 2), jnp.inf, dtype)
    carried = jax.lax.while_loop(
        lambda carried: carried[0] <= GHOST, attempt, (zero, start, errors, zero)
    )
    _, proposal, errors, taken = carried
    first, second = errors[FIRST], errors[SECOND]
    # The way back starts at the proposal, not at the start.
    ghost_error = errors[GHOST, 0] - second[0]
    accept_first = luck[0] < -first[0]
    tried_again = (first[0] >= again.patience) & ~accept_first
    log_ratio = _log_again(ghost_error, again) - _log_again(first[0], again) - second[0]
    accept_second = tried_again & (luck[1] < jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio))
    last = jnp.where(tried_again, second, first)
    accepted = accept_first | accept_second
    outcome = Outcome(
        acceptance=jnp.exp(-jnp.maximum(first[0], 0)),
        worst=last[1],
        energy=energy_at_start + jnp.where(accepted, last[0], 0),
        steps=taken,
    )
    return choose(accepted, proposal, start), outcome


def _log_again(error: Array, again: Again) -> Array:
    """`log r`: the logarithm of the probability of a second try after this energy error."""
    rejected = jnp.log1p(-jnp.exp(-jnp.maximum(error, again.patience)))
    return jnp.where(error >= again.patience, rejected, -jnp.inf)


def _turned(state: IntegratorState) -> IntegratorState:
    return state._replace(momentum=-state.momentum)


def choose(condition: Array, one: Any, other: Any) -> Any:
    """`jnp.where` for every array of two pytrees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)
