"""The runs of the protocol, many at once on the engine's loop over gradients.

At the size of these models an accelerator waits for launches, not for arithmetic. So the chains of
several runs, whatever their method and number of leapfrog steps, take their steps together: one
compiled program, vectorized over groups of chains, with λ, metric, step size and number of steps as
data. A group whose run is over takes the next one.

The step size follows the paper's rule, `log s += 0.02 sign(α - 0.75)`, with α the mean acceptance
probability of the group's chains: then 0.75 is what they accept on average. A chain adapting alone
would settle where its *median* acceptance is 0.75, which in posteriors with sharp corners means a
mean of 0.5, and get stuck. Sampling uses a mean of `log s` in which late draws count most, not its
last value. Around it each chain has its own step size, spread as widely as if chains adapted alone:
trajectories of a fixed length resonate, a change of two percent in the step size can halve the ESS,
and otherwise luck would decide between methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.mcmc.chains import chain_keys
from autoreparam.mcmc.hmc import Kernel, State, tuning_like
from autoreparam.mcmc.interleaved import stack_slots
from autoreparam.mcmc.metric import Metric
from autoreparam.mcmc.passes import Given, run_passes
from autoreparam.mcmc.settings import DEFAULTS
from autoreparam.mcmc.step_size import Adaptation, Average
from autoreparam.mcmc.step_size import begin as begin_adaptation
from autoreparam.program.compiled import often
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

GRADIENTS = 1024  # of every chain per call
TARGET_ACCEPT = 0.75
SIGN_RATE = 0.02  # of the log step sizes per draw, the paper's rule
# The power of a draw's number with which its step size counts in the mean: the first tenth of
# adaptation, in which it may still be far off, has a ten-thousandth of the weight.
LATER = 3
SPREAD = 0.1  # of the log step sizes, in both directions


@dataclass(frozen=True, eq=False)
class Lane:
    """What a method runs with: one λ, or two to alternate between, each with a diagonal metric.

    `start` has one row per chain, in the working coordinates of the last λ. Targets that run
    together differ only in their data. Coordinates with zero inverse mass do not move.
    """

    target: Target
    lams: tuple[Parameterization, ...]
    inverse_mass: tuple[np.ndarray, ...]
    start: np.ndarray


@dataclass(frozen=True)
class Job:
    """One run of a method: each draw is `slots` trajectories of `num_steps` leapfrog steps."""

    problem: str
    method: str
    num_steps: int
    slots: int
    warmup: int
    adapt: int
    draws: int
    urgent: bool = False  # others wait for it

    @property
    def lane(self) -> tuple[str, str]:
        """The name of the lane it runs with."""
        return self.problem, self.method

    @property
    def per_draw(self) -> int:
        """Leapfrog steps of one chain per draw."""
        return self.slots * self.num_steps

    @property
    def total(self) -> int:
        """Draws, those of warm-up included."""
        return self.warmup + self.draws

    @property
    def leapfrogs(self) -> int:
        """Leapfrog steps of one chain."""
        return self.total * self.per_draw


class Drawn(NamedTuple):
    """The result of a job: positions under its last λ, acceptance by chain, step size by λ."""

    positions: Array  # (draw, chain, dim)
    acceptance: np.ndarray
    step_size: np.ndarray


def run_jobs(
    jobs: Sequence[Job],
    lanes_of: Mapping[tuple[str, str], Lane],
    finished: Callable[[Job, Drawn], None],
    *,
    seed: int = 0,
    out_of_time: Callable[[], bool] = lambda: False,
) -> bool:
    """Runs all jobs, calling `finished` as each ends; false if some are left.

    That is when time runs out. A job waits until it has a lane; `finished` may free lanes for
    others.
    """
    assert all(job.per_draw <= GRADIENTS and job.adapt <= job.warmup for job in jobs)
    # The longest first, so that all groups end together.
    waiting = sorted(jobs, key=lambda job: (not job.urgent, -job.leapfrogs))
    longest = max((job.leapfrogs for job in jobs), default=1)
    width = min(-(-sum(job.leapfrogs for job in jobs) // longest), len(jobs))
    slots = max((job.slots for job in jobs), default=1)
    least = int(np.gcd.reduce([job.num_steps for job in jobs] or [1]))
    together = len({job.problem for job in jobs}) > 1
    groups: list[_Group] = []
    while True:
        ready = [job for job in waiting if job.lane in lanes_of][: width - len(groups)]
        for job in ready:
            groups.append(_Group(job, lanes_of[job.lane], slots, GRADIENTS // least, seed))
            waiting.remove(job)
        if not groups:
            return not waiting
        counts = [group.next_draws() for group in groups]
        givens = [group.given._replace(count=count) for group, count in zip(groups, counts)]
        # What groups without a job do is of no consequence.
        givens += [givens[0]] * (width - len(groups))
        found = advance(tuple(givens), passes=GRADIENTS, least=least, together=together)
        for group, count, what in zip(groups, counts, found):
            group.went_on(count, *what)
        jax.block_until_ready([group.buffer for group in groups])
        del found, what  # gigabytes, which the next call needs
        for group in [group for group in groups if group.done == group.job.total]:
            groups.remove(group)  # one at a time: the draws of one job may be gigabytes
            finished(group.job, group.drawn())
        if out_of_time():
            return not waiting and not groups


@partial(often, static_argnames=("passes", "least", "together"))
def advance(
    givens: tuple[Given, ...], *, passes: int, least: int, together: bool
) -> list[tuple[State, Adaptation, Array, Array]]:
    """Each group's chains and step sizes after a call, its positions and its acceptance rates.

    `together`: the groups' targets differ in their data.
    """
    target = _stacked([given.target for given in givens]) if together else givens[0].target
    others = _stacked([given._replace(target=None) for given in givens])
    run = partial(
        run_passes,
        length=passes // least,
        divergence=DEFAULTS.divergence,
        adapts=True,
        passes=passes,
        least=least,
        rule=by_sign,
    )
    places = Given(*[0] * len(Given._fields))._replace(target=0 if together else None)
    states, adaptation, trail = jax.vmap(run, (places,))(others._replace(target=target))
    found = states, adaptation, trail.position, trail.info.acceptance_rate
    return [jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(len(givens))]


def by_sign(state: Adaptation, acceptance: Array) -> Adaptation:
    """The adaptation after a draw by the paper's rule, in the form of `step_size.adapt`."""
    log_step, mean, step, *others = state.average
    log_step = log_step + SIGN_RATE * jnp.sign(acceptance - state.target)
    mean = mean + (LATER + 1) / (step + LATER) * (log_step - mean)
    return state._replace(average=Average(log_step, mean, step + 1, *others))


def _stacked(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


class _Group:
    """Chains that run a job, and how far they have got."""

    def __init__(self, job: Job, lane: Lane, slots: int, length: int, seed: int):
        self.job, self.length, self.done = job, length, 0  # draws
        target, (chains, size), dtype = lane.target, lane.start.shape, lane.start.dtype
        first = np.full((chains, slots), size**-0.25, dtype)
        tuning = partial(tuning_like, target, step_size=first[0, 0], num_steps=job.num_steps)
        tunings = [tuning(inverse_mass=Metric.of(mass).plain()) for mass in lane.inverse_mass]
        fill = slots - len(lane.lams)  # with what is not visited
        own = [seed, job.num_steps, *job.problem.encode(), 0, *job.method.encode()]
        self.given = jax.device_put(
            Given(
                target=target,
                keys=chain_keys(np.random.SeedSequence(own).generate_state(1)[0], chains),
                factors=np.exp(SPREAD * np.linspace(-1, 1, chains)).astype(dtype),
                start=0,
                count=0,
                states=_states(target, lane.start, lane.lams[-1]),
                slots=stack_slots(
                    [*lane.lams, *lane.lams[-1:] * fill], [*tunings, *tunings[-1:] * fill]
                ),
                visited=len(lane.lams),
                adaptation=begin_adaptation(first, job.adapt > 0, TARGET_ACCEPT),
            )
        )
        # A call's draws are all written, those of warm-up in front and those too many behind.
        self.buffer = jnp.zeros((job.draws + 2 * length, chains, size), dtype)
        self.accepted = jnp.zeros(chains, dtype)

    def next_draws(self) -> int:
        """How many there are in the next call: none crosses the end of adaptation."""
        end = self.job.adapt if self.done < self.job.adapt else self.job.total
        return min(GRADIENTS // self.job.per_draw, end - self.done)

    def went_on(
        self, count: int, states: State, adaptation: Adaptation, positions: Array, rates: Array
    ) -> None:
        """Takes note of a call's result."""
        first = self.done - self.job.warmup
        self.buffer, self.accepted = store(
            self.buffer, self.accepted, positions, rates, first, count,
            slots=self.job.slots, length=self.length,
        )  # fmt: skip
        self.done += count
        given = self.given._replace(start=self.done, states=states, adaptation=adaptation)
        if self.done == self.job.adapt:
            final = np.asarray(adaptation.final()[0])
            slots = given.slots._replace(tuning=given.slots.tuning._replace(step_size=final))
            still = adaptation._replace(active=jnp.zeros_like(adaptation.active))
            given = jax.device_put(given._replace(slots=slots, adaptation=still))
        self.given = given

    def drawn(self) -> Drawn:
        """The result."""
        acceptance = np.asarray(self.accepted) / (self.job.draws * self.job.slots)
        sizes = np.asarray(self.given.slots.tuning.step_size)[: self.job.slots]
        return Drawn(self.buffer[self.length : self.length + self.job.draws], acceptance, sizes)


@jax.jit
def _states(target: Target, positions: Array, lam: Parameterization) -> State:
    return jax.vmap(Kernel("hmc").init, (None, 0, None))(target, positions, lam)


@partial(jax.jit, static_argnames=("slots", "length"), donate_argnums=(0, 1))
def store(
    buffer: Array,
    accepted: Array,
    positions: Array,
    rates: Array,
    first: Array,
    count: Array,
    *,
    slots: int,
    length: int,
) -> tuple[Array, Array]:
    """A job's draws and sums of acceptance rates with those of a call.

    `first` is the number of its first draw, negative during warm-up.
    """
    drawn = jnp.swapaxes(positions[:, slots - 1 :: slots], 0, 1)
    buffer = jax.lax.dynamic_update_slice(buffer, drawn, (jnp.maximum(first + length, 0), 0, 0))
    number = first + jnp.arange(rates.shape[1]) // slots
    kept = (number >= 0) & (number < first + count)
    return buffer, accepted + jnp.where(kept, rates, 0).sum(axis=1)
