"""Chains in lockstep, for accelerators: few calls, of programs that all devices have a share in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from autoreparam.mcmc.chains import meanwhile
from autoreparam.mcmc.hmc import State
from autoreparam.mcmc.interleaved import Slots
from autoreparam.mcmc.passes import MOST_NUMBERS, Given, by_draws, run_passes
from autoreparam.mcmc.step_size import Adaptation
from autoreparam.mcmc.trail import Trail, in_calls
from autoreparam.mcmc.warmup import CHUNK, CHUNK_TOGETHER
from autoreparam.program.compiled import often
from autoreparam.program.spread import by_chains, is_spread
from autoreparam.program.target import Target

FEW = 4  # draws, for which the program of warm-up serves whether or not step sizes adapt


@dataclass(frozen=True)
class Together:
    """Chains that take their steps together, on one accelerator or all that there are."""

    target: Target
    keys: np.ndarray  # the words of one per chain
    divergence: float  # energy error on the way
    scores: bool = True  # whether they are wanted: they take as long to fetch as the draws

    def run(
        self, start: int, count: int, states: State, slots: Slots, adaptation: Adaptation
    ) -> tuple[State, Adaptation, Trail]:
        """`count` draws of every chain, numbered from `start`, as `Chains.run` makes them."""
        adapts = bool(np.any(adaptation.active)) or count <= FEW
        # Directions that are not used would still be computed; during warm-up that costs little.
        plain = not adapts and not np.any(slots.tuning.inverse_mass.stretch != 1)
        return self._draw(adapts, plain, start, count, states, slots, adaptation)

    @property
    def at_once(self) -> int:
        """Draws in a step of a run that is not stored: no more than in one that is."""
        return CHUNK

    def compile(self, states: State, slots: Slots, adaptation: Adaptation) -> None:
        """Compiles what warm-up needs and, beside it, what sampling will most likely need."""
        one = partial(self._draw, plain=False, start=0, count=0, states=states, slots=slots,
                      adaptation=adaptation)  # fmt: skip
        if jax.process_count() > 1 or is_spread(self.target):
            one(True)  # all devices would have to begin the two in the same order
            return
        with meanwhile(partial(one, False)):
            one(True)

    def _draw(
        self,
        adapts: bool,
        plain: bool,
        start: int,
        count: int,
        states: State,
        slots: Slots,
        adaptation: Adaptation,
    ) -> tuple[State, Adaptation, Trail]:
        tuning, chains, number = slots.tuning, len(self.keys), len(slots.tuning.step_size)
        if plain:
            slots = slots._replace(tuning=tuning._replace(inverse_mass=tuning.inverse_mass.plain()))
        numbers = 2 * number * chains * (self.target.size + 3)
        length = int(np.clip(MOST_NUMBERS // numbers, 1, CHUNK_TOGETHER))
        factors = np.ones(chains, self.target.program.dtype)
        # One for all: chains that ran apart may have been stored in the middle of a window.
        adaptation = jax.tree.map(lambda x: np.repeat(x[:1], chains, axis=0), adaptation)
        apart = is_spread(self.target)

        def call(start: int, count: int, states: State, adaptation: Adaptation):
            own = self.keys, factors, states, adaptation
            keys, even, states, adaptation = by_chains(own, self.target) if apart else own
            given = Given(self.target, keys, even, start, count, states, slots, number, adaptation)
            states, adaptation, trail = run_together(
                given, length, self.divergence, adapts, self._mesh()
            )
            return _fetched((states, adaptation, _first(trail, count, self.scores)))

        return in_calls(call, length, start, count, states, adaptation)

    def _mesh(self) -> Mesh | None:
        """All devices, of all processes, if there are several and each can have as many chains.

        Where the user chose a device, it is that one; where devices share the data, the compiler
        sees to it.
        """
        if is_spread(self.target):
            return None
        devices = jax.devices()
        chosen = getattr(jax.config, "jax_default_device", None) and jax.process_count() == 1
        if chosen or len(devices) == 1 or len(self.keys) % len(devices):
            return None
        return Mesh(np.array(devices), ("chains",))


def _fetched(tree: Any) -> Any:
    """Arrays of all chains in numpy, on every process."""
    if jax.process_count() == 1:
        return jax.device_get(tree)
    from jax.experimental.multihost_utils import process_allgather

    return process_allgather(tree, tiled=True)


@partial(jax.jit, static_argnames=("rows", "scores"))
def _first(trail: Trail, rows: int, scores: bool) -> Trail:
    trail = trail if scores else trail._replace(score=trail.score[..., :0])
    return jax.tree.map(lambda leaf: leaf[:, :rows], trail)


@partial(often, static_argnames=("length", "divergence", "adapts", "mesh"))
def run_together(
    given: Given, length: int, divergence: float, adapts: bool, mesh: Mesh | None = None
) -> tuple[State, Adaptation, Trail]:
    """The draws of all chains, at most `length` each, as `chains.run_chunk` makes them.

    With a `mesh`, each device has its share of the chains, and all that they tell each other is the
    sum of their acceptance rates.
    """
    slots = len(given.slots.tuning.step_size)
    run = partial(_draws, slots, length=slots * length, divergence=divergence, adapts=adapts)
    if mesh is None:
        return run(given)
    axis = mesh.axis_names[0]
    run = partial(run, total=lambda x: jax.lax.psum(jnp.sum(x), axis))
    own, same = PartitionSpec(axis), PartitionSpec()
    places = Given(same, own, own, same, same, own, same, same, own)
    return jax.shard_map(run, mesh=mesh, in_specs=(places,), out_specs=own, check_vma=False)(given)


def _draws(slots: int, given: Given, **how: Any) -> tuple[State, Adaptation, Trail]:
    states, adaptation, trail = run_passes(given, **how)
    return states, adaptation, by_draws(trail, slots)
