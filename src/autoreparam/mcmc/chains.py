"""Many chains, in chunks: one compiled program for every λ, tuning, phase and data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.mcmc.hmc import Kernel, State, key_of
from autoreparam.mcmc.interleaved import Slots, draw
from autoreparam.mcmc.step_size import Adaptation, adapt
from autoreparam.mcmc.trail import Trail, as_row, blank_trail, from_rows, in_calls
from autoreparam.mcmc.warmup import CHUNK, CHUNK_OF_LITTLE
from autoreparam.program.compiled import (
    accelerated,
    for_threads,
    often,
    on_little,
    on_much,
)
from autoreparam.program.rows import one_by_one
from autoreparam.program.spread import is_spread
from autoreparam.program.target import Target

# Numbers that the density's operations give. Below LITTLE, a gradient is mostly overhead. A run has
# some 10⁴ gradients per core: from MUCH on, these gain more than compiling them thoroughly costs.
LITTLE, MUCH = 2**13, 2**18

traces: list[str] = []  # one entry each time the chunk is traced; tests count them


def chain_keys(seed: int, chains: int) -> np.ndarray:
    """The words of one key per chain; any that differ will do, and these need no compiling."""
    return np.random.SeedSequence([seed, 0]).generate_state(2 * chains).reshape(chains, 2)


def run_chunk(
    kernel: Kernel,
    length: int,
    target: Target,
    keys: Array,
    start: Array,
    count: Array,
    states: State,
    slots: Slots,
    adaptation: Adaptation,
) -> tuple[State, Adaptation, Array]:
    """Up to `length` draws of each chain, as rows, numbered from `start`; `count` says how many.

    The randomness of a draw depends only on its chain's key and its number, so cutting a run into
    different chunks, or resuming it, changes nothing.
    """
    traces.append(kernel.name)

    def one_chain(key: Array, state: State, adaptation: Adaptation):
        def step(i: Array, carried):
            state, adaptation, rows = carried
            sizes = jnp.where(adaptation.active, adaptation.step_size(), slots.tuning.step_size)
            state, info = draw(kernel, key_of(key, start + i), target, state, slots, sizes)
            entry = Trail(state.position, state.score, state.logdensity, sizes, info)
            rows = jax.lax.dynamic_update_index_in_dim(rows, as_row(entry), i, 0)
            return state, adapt(adaptation, info.acceptance_rate), rows

        blank = blank_trail((), target, len(slots.tuning.step_size))
        width = sum(leaf.size for leaf in jax.tree.leaves(blank))
        rows = jnp.zeros((length, width), target.program.dtype)
        return jax.lax.fori_loop(0, count, step, (state, adaptation, rows))

    chains = keys, states, adaptation
    if len(keys) > 1:
        return jax.vmap(one_chain)(*chains)
    # Alone it is compiled in less time: a vectorized loop keeps what a chain that is done has.
    found = one_chain(*jax.tree.map(lambda leaf: leaf[0], chains))
    return jax.tree.map(lambda leaf: leaf[None], found)


_on_little, _often, _on_much = (
    kind(run_chunk, static_argnames=("kernel", "length")) for kind in (on_little, often, on_much)
)


@dataclass(frozen=True)
class Chains:
    """Chains in groups: each group is a vectorized call, and groups run in parallel threads."""

    kernel: Kernel
    target: Target
    keys: np.ndarray  # the words of one per chain
    work: int = 0  # numbers that operations of the density give

    @property
    def groups(self) -> list[slice]:
        """Which chains run together: on a CPU as many groups as cores, or one chain per group."""
        chains = len(self.keys)
        if accelerated() or is_spread(self.target):  # devices that compute together do one thing
            return [slice(0, chains)]
        alone = chains <= 2 * cores() or one_by_one(self.target.program)
        width = 1 if alone else chains // (2 * cores())
        return [slice(i, min(i + width, chains)) for i in range(0, chains, width)]

    @property
    def at_once(self) -> int:
        """Draws in a call of the compiled program, which takes a millisecond of its own."""
        first = self.groups[0]
        return CHUNK_OF_LITTLE if self.work * (first.stop - first.start) < LITTLE else CHUNK

    def compile(self, states: State, slots: Slots, adaptation: Adaptation) -> None:
        """Compiles the chunk by running it with zero draws."""
        self.run(0, 0, states, slots, adaptation)

    def run(
        self, start: int, count: int, states: State, slots: Slots, adaptation: Adaptation
    ) -> tuple[State, Adaptation, Trail]:
        """`count` draws of every chain, numbered from `start`."""
        program = _on_little if self.work < LITTLE else _often if self.work < MUCH else _on_much
        length = self.at_once

        def call(start: int, count: int, states: State, adaptation: Adaptation):
            def run_group(group: slice):
                mine = jax.tree.map(lambda leaf: leaf[group], (self.keys, states, adaptation))
                keys, state, adaptive = mine
                found = program(
                    self.kernel, length, self.target, keys, start, count, state, slots, adaptive
                )
                return jax.device_get(found)

            states, adaptation, rows = joined(run_group, self.groups)
            trail = from_rows(rows[:, :count], self.target, len(slots.tuning[0]))
            return states, adaptation, trail

        return in_calls(call, length, start, count, states, adaptation)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def meanwhile(call: Callable[[], Any]) -> Iterator[Callable[[], bool]]:
    """Makes a call in a thread beside the block; an error there is ignored, since it will recur.

    Yields a function that says whether the call is still going on.
    """

    def quietly() -> None:
        with suppress(BaseException):
            call()

    thread = Thread(target=for_threads(quietly), daemon=True)
    thread.start()
    try:
        yield thread.is_alive
    finally:
        thread.join()


@contextmanager
def at_once(call: Callable[[], Any]) -> Iterator[Callable[[], bool]]:
    """The same, but before the block: for programs that must not run side by side."""
    with suppress(Exception):
        call()
    yield lambda: False


def joined(call: Callable[[slice], Any], groups: list[slice]) -> Any:
    """The results of one call per group, made in threads, joined along the chain axis."""
    if len(groups) == 1:
        return call(groups[0])
    with ThreadPoolExecutor(min(cores(), len(groups))) as pool:
        parts = list(pool.map(for_threads(call), groups))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
