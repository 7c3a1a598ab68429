"""From settings to the first state of a run: its λ and its starting points."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autoreparam.errors import ModelError, SamplingError, known
from autoreparam.learn.elbo import fit_elbo
from autoreparam.learn.score import fit_score
from autoreparam.mcmc.chains import at_once, chain_keys, meanwhile
from autoreparam.mcmc.engine import Engine
from autoreparam.mcmc.hmc import State, Tuning, tuning_like
from autoreparam.mcmc.metric import most_directions
from autoreparam.mcmc.start import find_start
from autoreparam.mcmc.state import Ledger, RunState
from autoreparam.mcmc.step_size import REASONABLE
from autoreparam.mcmc.warmup import plan
from autoreparam.program.diagnose import nonfinite
from autoreparam.program.maps.gain import GEOMETRIC, QUADRATIC
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.program import Program
from autoreparam.program.spread import is_spread, spread
from autoreparam.program.target import Target
from autoreparam.results.progress import Progress
from autoreparam.results.superchains import count_superchains, superchains
from autoreparam.run.mapping import compile_map_back
from autoreparam.run.processes import check_chains
from autoreparam.run.settings import Settings

NOT_CONVERGED = "the variational fit had not converged when it ran out of steps"


def build_engine(program: Program, settings: Settings) -> Engine:
    """The engine for a program and settings."""
    check_chains(settings.chains)
    target = Target(spread(program, settings.shard, settings.chains))
    learns = settings.parameterization == "auto" and program.candidates
    learner = partial(
        fit_score,
        directions=most_directions(target.size, settings.adaptation.sampler),
        settings=settings.adaptation.learner,
    )
    return Engine(
        target,
        chain_keys(settings.seed, settings.chains),
        settings.policy,
        settings.adaptation.sampler,
        settings.max_tree_depth,
        learner if learns else None,
        program,
    )


def blank_state(engine: Engine, settings: Settings, given: Any = None) -> RunState:
    """A state with the shapes of a run with these settings, and with this parameterization."""
    steps = plan(settings.warmup, settings.draws, engine.settings)
    gain = GEOMETRIC if settings.parameterization == "vip" else QUADRATIC
    if isinstance(given, Parameterization):
        gain = next((given.of(name).gain for name in given.sites), gain)
    return engine.blank(settings.slots, steps, settings.target_accept, gain)


def first_state(
    engine: Engine, settings: Settings, parameterization: Any, init: Any, bar: Progress
) -> RunState:
    """The state before the first draw."""
    blank = blank_state(engine, settings, parameterization)
    beside = at_once if is_spread(engine.target) else meanwhile
    with beside(partial(_compile, engine, settings, blank)) as compiling:
        lams, tuning, positions, ledger, notes = _first_lam(
            engine, settings, parameterization, init, bar
        )
        chains, tuning, gradients = _start(engine, settings, lams, tuning, positions, init)
        if compiling():
            engine.rehearse(lams[-1])
    ledger = ledger.plus("warmup", gradients)
    return engine.begin(chains, lams, tuning, blank.plan, settings.target_accept, ledger, notes)


def _compile(engine: Engine, settings: Settings, blank: RunState) -> None:
    """Compiles what draws are made with, and what shows at the end whether they suffice."""
    engine.compile(blank)
    if engine.policy.careful and settings.draws >= engine.settings.fewest_extended:
        compile_map_back(engine.target, blank.lams[-1])


def _first_lam(
    engine: Engine, settings: Settings, parameterization: Any, init: Any, bar: Progress
) -> tuple[list[Parameterization], Tuning, np.ndarray | None, Ledger, tuple[str, ...]]:
    """λ of every slot, a tuning, starting points if a fit gives them, its cost, and notes."""
    target, program = engine.target, engine.target.program
    if settings.parameterization != "vip":
        lams = _fixed(program, settings.parameterization, parameterization)
        return lams, tuning_like(target, engine.settings), None, Ledger(), ()
    start = Parameterization.constant(program, 0.5)
    if init is not None:  # refused now, if at all
        initial_positions(target, settings, start, init)
    with bar.phase("learning", 1):
        fit = fit_elbo(target, start, key=jax.random.key(settings.seed))
    notes = [fit.note] if fit.note else []
    if not fit.converged:
        notes.append(NOT_CONVERGED)
    rng = np.random.default_rng([settings.seed, 1])
    loc, scale = np.asarray(fit.loc), np.asarray(fit.scale)
    positions = loc + scale * rng.normal(size=(count_superchains(settings.chains), target.size))
    tuning = tuning_like(target, engine.settings, inverse_mass=scale**2)
    return [fit.parameterization], tuning, positions, Ledger(learning=fit.gradients), tuple(notes)


def _fixed(program: Program, name: str, given: Any) -> list[Parameterization]:
    if name == "given":
        return [given.check(program)]
    # Chains start with noise about as large as its prior's: non-centered coordinates near one.
    ends = {"centered": [1.0], "noncentered": [0.0], "interleaved": [1.0, 0.0]}.get(name, [0.0])
    tail = 0.5 if name == "auto" else 0.0
    # With the gain of "auto" all of these share its compiled programs.
    return [Parameterization.constant(program, e, tail=tail, gain=QUADRATIC) for e in ends]


def _start(
    engine: Engine,
    settings: Settings,
    lams: list[Parameterization],
    tuning: Tuning,
    positions: np.ndarray | None,
    init: Mapping[str, Any] | None,
) -> tuple[State, Tuning, int]:
    """The states of all chains, their first tuning, and the gradients spent.

    Chains of a superchain share a start, unless values are given, which may differ between them.
    """
    lam, target, program = lams[-1], engine.target, engine.target.program
    around, start_of = None, superchains(settings.chains)
    if init is not None:
        positions = initial_positions(target, settings, lam, init)
        start_of = np.arange(settings.chains)
    elif positions is None:
        positions = np.zeros((count_superchains(settings.chains), target.size))
        around = _prior_ranges(target, engine.settings.radius)
    vip = settings.parameterization == "vip"
    found = find_start(
        target,
        np.random.default_rng([settings.seed, 3]),
        positions.astype(program.dtype),
        lam,
        settings.target_accept,
        around=around,
        diagonal=tuning.inverse_mass.diagonal if vip else None,
        settings=engine.settings,
    )
    if not found.found.all():
        start = int(np.argmin(found.found))
        chain = int(np.argmax(start_of == start))
        values = jax.device_get(jax.jit(Target.to_sites)(target, found.state.position[start], lam))
        latents = {site.name: values[site.name] for site in program.latents}
        raise nonfinite(program, latents) or SamplingError(
            f"chain {chain} found no starting point with a finite density and gradient. Set values "
            "with init={...}, or check the model's priors."
        )
    metric = tuning.inverse_mass._replace(diagonal=found.diagonal.astype(program.dtype))
    # Where gradients are zero nothing limits the step.
    size = np.asarray(np.clip(found.step_size, *REASONABLE), program.dtype)
    state = State(*(part[start_of] for part in found.state))
    return state, tuning._replace(step_size=size, inverse_mass=metric), found.gradients


def _prior_ranges(target: Target, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Center and width of the prior of each element, where noise has those of every start."""
    centers, widths = [], []
    for site in target.program.latents:
        plain = np.zeros(site.unconstrained_shape), np.full(site.unconstrained_shape, radius)
        center, width = target.program.prior_ranges.get(site.name, plain)
        centers.append(np.ravel(center))
        widths.append(np.ravel(width))
    dtype = target.program.dtype
    return np.concatenate(centers).astype(dtype), np.concatenate(widths).astype(dtype)


def check_init(program: Program, settings: Settings, init: Any) -> None:
    """Rejects starting values of unknown sites, of other types or of other shapes."""
    if init is None:
        return
    if not isinstance(init, Mapping):
        raise ModelError(f"init: expected a dict of values by site; found {type(init).__name__}")
    for name, value in init.items():
        for chain in range(settings.chains):
            if not np.isfinite(_one_value(program, name, value, chain, settings.chains)).all():
                raise ModelError(f"init: site '{name}' of chain {chain} is not finite")


def initial_positions(
    target: Target, settings: Settings, lam: Parameterization, init: Mapping[str, Any]
) -> np.ndarray:
    """Working positions of the given values; the rest are drawn at random, as without values."""
    program, names = target.program, {site.name for site in target.program.latents}
    radius = settings.adaptation.sampler.radius
    rng = np.random.default_rng([settings.seed, 2])
    starts = count_superchains(settings.chains), target.size
    noise = rng.uniform(-radius, radius, starts).astype(program.dtype)
    noise = noise[superchains(settings.chains)]
    origin = Parameterization({n: np.zeros_like(lam[n]) for n in lam.sites})
    to_sites, from_sites = jax.jit(Target.to_sites), jax.jit(Target.from_sites)
    rows = []
    for chain in range(settings.chains):
        drawn = to_sites(target, noise[chain], origin)
        values = {name: drawn[name] for name in names}
        for name, value in init.items():
            values[name] = _one_value(program, name, value, chain, settings.chains)
        rows.append(np.asarray(from_sites(target, values, lam)))
        working = jax.device_get(target.unflatten(jnp.asarray(rows[-1])))
        for name in init:
            if not np.isfinite(working[name]).all():
                raise ModelError(
                    f"init: site '{name}' of chain {chain} is outside the support of its "
                    f"distribution ({program[name].distribution}), or on its edge"
                )
    return np.stack(rows)


def _one_value(program: Program, name: str, value: Any, chain: int, chains: int) -> np.ndarray:
    """The value that `init` gives a site of one chain."""
    names = {site.name for site in program.latents}
    if name not in names:
        raise ModelError(f"init: '{name}' is not a latent site; those are {known(names)}")
    try:
        value, shape = np.asarray(value), program[name].shape
    except ValueError:
        raise ModelError(
            f"init: site '{name}' expects numbers; found rows of different lengths"
        ) from None
    if value.dtype.kind not in "fiub":
        raise ModelError(f"init: site '{name}' expects numbers; found {value.dtype}")
    if value.shape not in (shape, (chains, *shape)):
        raise ModelError(
            f"init: site '{name}' expects shape {shape}, or {(chains, *shape)} "
            f"with one value per chain; found {value.shape}"
        )
    return value if value.shape == shape else value[chain]
