"""HMC and NUTS transitions in working coordinates, with λ and tuning as arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.mcmc.delayed import Again, transition
from autoreparam.mcmc.integrator import LEAPFROG, IntegratorState, integrator
from autoreparam.mcmc.metric import Metric
from autoreparam.mcmc.settings import DEFAULTS, SamplerSettings
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

KEYS = "threefry2x32"  # whatever JAX's default is: a thread may have another
SINGLE_STEP = 0.05  # by which a trajectory of one step is longer or shorter: 0.1 cost radon a tenth


class State(NamedTuple):
    """The state of one chain: working position, log density there, and its gradient."""

    position: Any
    logdensity: Any
    score: Any


class Tuning(NamedTuple):
    """What a transition needs besides λ; arrays of fixed shape, so changing them is free."""

    step_size: Any  # between one gradient and the next
    inverse_mass: Metric
    num_steps: Any  # mean number of steps, or the maximum where `length` is given; HMC only
    length: Any  # mean length of a trajectory, in units of the metric; 0: see `num_steps`
    jitter: Any  # 0: always the mean; 1: uniform from zero to twice the mean
    stages: Any  # of the integrator; HMC only


class Info(NamedTuple):
    """What one transition did."""

    acceptance_rate: Any
    diverging: Any
    energy: Any
    n_steps: Any  # one gradient each
    tree_depth: Any


def blank_info(shape: tuple[int, ...], dtype: Any) -> Info:
    """Infos of this shape, to be written into."""
    real, count = np.zeros(shape, dtype), np.zeros(shape, np.int32)
    return Info(real, np.zeros(shape, bool), real, count, count)


@dataclass(frozen=True)
class Kernel:
    """A transition, "hmc" or "nuts". Hashable, so that it can select compiled code."""

    name: str
    max_tree_depth: int = 10
    divergence: float = DEFAULTS.divergence  # energy error on the way
    again: Again | None = DEFAULTS.again  # the second try of HMC, if any

    def init(self, target: Target, position: Array, lam: Parameterization) -> State:
        """The state at a position; costs one gradient."""
        logdensity, score = jax.value_and_grad(target.logdensity)(position, lam)
        return State(position, logdensity, score)

    def step(
        self, key: Array, target: Target, state: State, lam: Parameterization, tuning: Tuning
    ) -> tuple[State, Info]:
        """One transition that leaves the target at `lam` invariant."""

        def logdensity(position: Array) -> Array:
            return target.logdensity(position, lam)

        if self.name == "nuts":
            return self._nuts(key, logdensity, state, tuning)
        return self._hmc(key, logdensity, state, tuning)

    def travel(
        self,
        key: Array,
        target: Target,
        state: State,
        lam: Parameterization,
        tuning: Tuning,
        steps: Array,
    ) -> tuple[State, Info]:
        """The same by HMC with this many steps, whatever the tuning says."""
        return self._hmc(key, lambda x: target.logdensity(x, lam), state, tuning, steps)

    def _nuts(
        self, key: Array, logdensity: Any, state: State, tuning: Tuning
    ) -> tuple[State, Info]:
        from blackjax.mcmc import hmc, nuts  # most runs do without, and it takes long to import

        build = nuts.build_kernel(divergence_threshold=int(self.divergence))
        start, metric = hmc.HMCState(*state), tuning.inverse_mass.build()
        end, info = build(key, start, logdensity, tuning.step_size, metric, self.max_tree_depth)
        return State(*end), Info(
            acceptance_rate=info.acceptance_rate,
            diverging=info.is_divergent,
            energy=info.energy,
            n_steps=jnp.asarray(info.num_integration_steps, jnp.int32),
            tree_depth=jnp.asarray(info.num_trajectory_expansions, jnp.int32),
        )

    def _hmc(
        self,
        key: Array,
        logdensity: Any,
        state: State,
        tuning: Tuning,
        given: Array | None = None,
    ) -> tuple[State, Info]:
        """Momenta are those of unit variance, so that only the integrator knows the metric."""
        momentum, uniform = fresh_noise(key, state.position)
        stages = tuning.stages.astype(jnp.int32)
        steps, step_size = (
            jittered(uniform[0], tuning) if given is None else (given, tuning.step_size)
        )
        start = IntegratorState(state.position, momentum, state.logdensity, state.score)
        build = integrator(stages, *tuning.inverse_mass.halves())
        one_step = build(logdensity, kinetic_energy)
        end, outcome = transition(
            start, one_step, kinetic_energy, step_size, steps, jnp.log(uniform[1:]), self.again
        )
        return State(end.position, end.logdensity, end.logdensity_grad), Info(
            acceptance_rate=outcome.acceptance,
            diverging=outcome.worst > self.divergence,
            energy=outcome.energy,
            n_steps=stages * outcome.steps,
            tree_depth=jnp.zeros((), jnp.int32),
        )


def key_of(words: Array, number: Array) -> Array:
    """The key of a draw, from the words of its chain's."""
    return jax.random.fold_in(jax.random.wrap_key_data(words, impl=KEYS), number)


def fresh_noise(key: Array, position: Array) -> tuple[Array, Array]:
    """Momenta of unit variance, and three uniform numbers.

    All are from a single call: each one takes as long to compile as a small model.
    """
    size, dtype = position.size, position.dtype
    above = np.nextafter(np.asarray(-1, dtype), np.asarray(0, dtype))  # -1 would be infinite
    symmetric = jax.random.uniform(key, (size + 3,), dtype, above, 1.0)
    momentum = np.sqrt(2).astype(dtype) * jax.lax.erf_inv(symmetric[3:])
    return momentum, (1 + symmetric[:3]) / 2


def kinetic_energy(momentum: Array) -> Array:
    """The energy of momenta of unit variance."""
    return jnp.sum(momentum**2) / 2


def jittered(uniform: Array, tuning: Tuning) -> tuple[Array, Array]:
    """A number of the integrator's steps, uniform within `jitter` of the mean, and their size.

    A trajectory of a single step has only its size to vary.
    """
    spread = 1.0 + tuning.jitter * (2.0 * uniform - 1.0)
    fitting = jnp.minimum(tuning.length / tuning.step_size, tuning.num_steps)
    mean = jnp.where(tuning.length > 0, fitting, tuning.num_steps)
    steps = jnp.maximum(jnp.round(mean * spread / tuning.stages), 1).astype(jnp.int32)
    alone = (steps == 1) & (tuning.jitter > 0)
    varied = 1.0 + SINGLE_STEP * (2.0 * uniform - 1.0)
    return steps, tuning.step_size * jnp.where(alone, varied, 1.0)


def tuning_like(target: Target, settings: SamplerSettings = DEFAULTS, **changes: Any) -> Tuning:
    """Default tuning of the right shapes, with some entries replaced."""
    dtype = target.program.dtype
    neutral = Tuning(
        step_size=np.asarray(0.1, dtype),
        inverse_mass=Metric.of(np.ones(target.size), settings),
        num_steps=np.asarray(10.0),
        length=np.asarray(0.0),
        jitter=np.asarray(0.0),
        stages=np.asarray(LEAPFROG),
    )
    if isinstance(changes.get("inverse_mass"), np.ndarray):
        changes["inverse_mass"] = Metric.of(changes["inverse_mass"], settings)
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), neutral._replace(**changes))
