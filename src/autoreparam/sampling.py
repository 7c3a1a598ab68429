"""The front door: sample a model, resume a run, learn a parameterization."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from autoreparam.errors import (
    AutoreparamError,
    CheckpointError,
    ModelError,
    SamplingError,
    known,
)
from autoreparam.learn.elbo import Fit, fit_elbo
from autoreparam.learn.score import fit_draws, fit_score
from autoreparam.mcmc.chains import Chains, meanwhile
from autoreparam.mcmc.engine import Engine
from autoreparam.mcmc.hmc import Kernel, State, Tuning, tuning_like
from autoreparam.mcmc.start import find_start
from autoreparam.mcmc.tuner import Tuner
from autoreparam.mcmc.warmup import plan
from autoreparam.program.diagnose import nonfinite
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target
from autoreparam.program.trace import Program, inspect
from autoreparam.results.identity import candidates, identify, refuse_other
from autoreparam.results.progress import Progress
from autoreparam.results.scalars import load_libraries
from autoreparam.results.storage import Store
from autoreparam.session import NOT_CONVERGED, Session, Settings

if TYPE_CHECKING:
    import xarray

METHODS = ("auto", "vip", "centered", "noncentered", "interleaved")


def sample(
    model: Callable,
    args: tuple = (),
    kwargs: dict | None = None,
    *,
    parameterization: str | Parameterization = "auto",
    kernel: str = "auto",
    draws: int = 1000,
    warmup: int = 500,
    chains: int = 4,
    seed: int = 0,
    num_steps: int | None = None,
    target_accept: float = 0.8,
    max_tree_depth: int = 10,
    init: Mapping[str, Any] | None = None,
    thin: int = 1,
    save_warmup: bool = False,
    save_working: bool = False,
    log_likelihood: bool = False,
    posterior_predictive: bool = False,
    var_names: Iterable[str] | None = None,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
    progress: bool = True,
    checkpoint: Any = None,
) -> xarray.DataTree:
    """Draws from the posterior of a NumPyro model, as a DataTree in the ArviZ schema.

    `parameterization` is "auto" (learned during warm-up from draws and scores), "vip" (by the ELBO,
    before it), "centered", "noncentered", "interleaved" or a Parameterization; every one gives the
    same posterior, at a different cost.

    >>> problem = ar.zoo.load("eight_schools")
    >>> tree = ar.sample(problem.model, problem.args, problem.kwargs)
    >>> ar.summary(tree)
    """
    given = isinstance(parameterization, Parameterization)
    if not given and parameterization not in METHODS:
        raise AutoreparamError(
            f"parameterization: expected one of {known(METHODS)} or a Parameterization; "
            f"found {parameterization!r}"
        )
    if var_names is not None and not isinstance(var_names, str):
        var_names = list(var_names)  # it is read twice
    name = parameterization if isinstance(parameterization, str) else "given"
    settings = Settings(name, kernel, draws, warmup, chains, seed, num_steps, target_accept,
                        max_tree_depth, thin, save_warmup, save_working).checked()  # fmt: skip
    sites: Any = "auto" if isinstance(parameterization, str) else parameterization.sites
    program = inspect(model, args, kwargs, sites=sites)
    store = None
    if checkpoint is not None:
        store = Store.create(checkpoint, identify(program), asdict(settings))
    with Progress(progress) as bar, meanwhile(load_libraries):
        engine, notes = _prepare(program, settings, parameterization, init, bar)
        session = Session(settings, engine, notes, store)
        session.check_labels(var_names, coords, dims)
        session.go(bar)
    return session.tree(var_names, coords, dims, log_likelihood, posterior_predictive)


def resume(
    checkpoint: Any,
    model: Callable,
    args: tuple = (),
    kwargs: dict | None = None,
    draws: int | None = None,
    *,
    var_names: Iterable[str] | None = None,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
    log_likelihood: bool = False,
    posterior_predictive: bool = False,
    progress: bool = True,
) -> xarray.DataTree:
    """Finishes a run that was broken off, or extends a finished one to `draws` draws.

    What was broken off ends with the draws that an uninterrupted run would have given. An extended
    run keeps its draws and its tuning, which a longer run would have chosen with more draws in
    mind. The model and its data must be the ones of the checkpoint.
    """
    store = Store.open(checkpoint)
    if not store.chunks:
        raise SamplingError(
            f"the run in {checkpoint} broke off before anything was stored. Delete the folder and "
            "start it again with ar.sample."
        )
    settings = Settings(**store.settings)
    if draws is not None:
        settings = replace(settings, draws=draws).checked()
    refuse_other(store.identity, inspect(model, args, kwargs))
    program = inspect(model, args, kwargs, sites=candidates(store.identity))
    session = Session(settings, _template(program, settings), [])
    session.reload(store)
    _refuse_other_density(session.engine)
    session.check_labels(var_names, coords, dims)
    with Progress(progress) as bar:
        session.go(bar)
    return session.tree(var_names, coords, dims, log_likelihood, posterior_predictive)


def learn(
    model: Callable,
    args: tuple = (),
    kwargs: dict | None = None,
    *,
    objective: str = "elbo",
    draws: xarray.DataTree | None = None,
    seed: int = 0,
    s0: float | None = None,
    **options: Any,
) -> Fit:
    """A parameterization fitted to the model and its data.

    `objective="elbo"` maximizes the mean-field ELBO over (μ, σ, λ), the paper's VIP; options, such
    as `steps`, `samples` and `learning_rates`, go to the fit. `objective="score"` learns from the
    draws of an earlier run, `draws=tree`, at the price of one gradient a draw.
    """
    target = Target(inspect(model, args, kwargs))
    if objective == "elbo":
        start = Parameterization.constant(target.program, 0.5, s0=s0)
        return fit_elbo(target, start, key=jax.random.key(seed), **options)
    if objective != "score":
        raise AutoreparamError(f"objective: expected 'elbo' or 'score'; found {objective!r}")
    if draws is None:
        raise AutoreparamError("objective='score' learns from draws: pass draws=tree")
    start = Parameterization.constant(target.program, 0.5, s0=s0, tail=0.5)
    return fit_draws(target, _rows_of(draws, target.program), start)


def _rows_of(tree: xarray.DataTree, program: Program) -> dict[str, np.ndarray]:
    """Draws of every latent, chains one after another."""
    posterior, rows = tree["posterior"], {}
    for site in program.latents:
        name = site.name.replace("/", ".")
        if name not in posterior:
            raise AutoreparamError(
                f"the draws have no latent '{site.name}' of this model; they hold "
                f"{known(posterior.data_vars)}"
            )
        values = np.asarray(posterior[name])
        rows[site.name] = values.reshape(-1, *values.shape[2:]).astype(program.dtype)
    return rows


def compilation_cache(folder: str | os.PathLike) -> None:
    """Keeps compiled programs in a folder, so that the next session need not compile them again.

    This sets JAX's own persistent cache for the whole process; nothing else here does.
    """
    os.makedirs(folder, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", os.fspath(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


# -- from settings to an engine ---------------------------------------------------------------


def _prepare(
    program: Program, settings: Settings, parameterization: Any, init: Any, bar: Progress
) -> tuple[Engine, list[str]]:
    """The engine at the start of a run, and what the user should be told."""
    target = Target(program)
    notes, positions, paid = [], None, 0
    tuning = tuning_like(target)
    if settings.parameterization == "vip":
        start = Parameterization.constant(program, 0.5)
        with bar.phase("learning", 1):
            fit = fit_elbo(target, start, key=jax.random.key(settings.seed))
        lams, paid = [fit.parameterization], fit.gradients
        notes += [fit.note] if fit.note else []
        if not fit.converged:
            notes.append(NOT_CONVERGED)
        rng = np.random.default_rng([settings.seed, 1])
        loc, scale = np.asarray(fit.loc), np.asarray(fit.scale)
        positions = loc + scale * rng.normal(size=(settings.chains, target.size))
        tuning = tuning_like(target, inverse_mass=scale**2)
    else:
        lams = _fixed(program, settings.parameterization, parameterization)
    with meanwhile(_template(program, settings).compile):
        states, tuning, gradients = _start(target, settings, lams, tuning, positions, init)
    ledger = {"learning": paid, "warmup": gradients}
    engine = _template(program, settings, lams, [tuning] * len(lams), states, ledger)
    return engine, notes


def _fixed(program: Program, name: str, given: Any) -> list[Parameterization]:
    if name == "given":
        return [given.check(program)]
    if name == "centered":
        return [Parameterization.centered(program)]
    if name == "interleaved":
        return [Parameterization.centered(program), Parameterization.noncentered(program)]
    if name == "noncentered":
        return [Parameterization.noncentered(program)]
    # Chains start with noise of about its prior's size: non-centered coordinates of size one.
    return [Parameterization.constant(program, 0.0, tail=0.5)]


def _template(
    program: Program,
    settings: Settings,
    lams: list[Parameterization] | None = None,
    tunings: list[Tuning] | None = None,
    states: State | None = None,
    ledger: dict[str, int] | None = None,
) -> Engine:
    """An engine for these settings; without states, one to be restored from a checkpoint."""
    target = Target(program)
    if lams is None or tunings is None or states is None:
        slots = 2 if settings.parameterization == "interleaved" else 1
        lams = [Parameterization.centered(program)] * slots
        tunings = [tuning_like(target)] * slots
        blank = np.zeros((settings.chains, target.size), program.dtype)
        states = State(blank, blank[:, 0], blank)
    name = settings.kernel
    if name == "auto":
        name = "hmc"
    keys = jax.random.split(jax.random.key(settings.seed), settings.chains)
    learner = fit_score if settings.parameterization == "auto" and program.candidates else None
    return Engine(
        Chains(Kernel(name, settings.max_tree_depth), target, keys),
        plan(settings.warmup, settings.draws),
        Tuner(
            target,
            lams,
            tunings,
            settings.target_accept,
            num_steps=settings.num_steps,
            adaptive=name == "hmc" and settings.num_steps is None,
            learner=learner,
            careful=settings.kernel == "auto",
        ),
        states,
        free=settings.kernel == "auto" and settings.num_steps is None,
        gradients=ledger or {},
    )


def _start(
    target: Target,
    settings: Settings,
    lams: list[Parameterization],
    tuning: Tuning,
    positions: np.ndarray | None,
    init: Mapping[str, Any] | None,
) -> tuple[State, Tuning, int]:
    """States of all chains, their first tuning, and the gradients paid."""
    lam, program = lams[-1], target.program
    keys = jax.random.split(jax.random.key(settings.seed), settings.chains)
    given = positions is not None or init is not None
    if init is not None:
        positions = _initial_positions(target, settings, lam, init)
    if positions is None:
        positions = np.zeros((settings.chains, target.size))
    begin = positions.astype(program.dtype)
    accept, rough = settings.target_accept, settings.parameterization != "vip"
    found = jax.device_get(find_start(target, keys, begin, given, lam, tuning, accept, rough))
    if not found.found.all():
        chain = int(np.argmin(found.found))
        values = jax.device_get(jax.jit(Target.to_sites)(target, found.state.position[chain], lam))
        latents = {site.name: values[site.name] for site in program.latents}
        raise nonfinite(program, latents) or SamplingError(
            f"chain {chain} found no start with a finite density and gradient. Give values with "
            "init={...}, or check the model's priors."
        )
    size = np.exp(np.mean(np.log(found.step_size))).astype(program.dtype)
    tuning = tuning._replace(step_size=size, inverse_mass=found.metric)
    return found.state, tuning, int(found.gradients.sum())


def _initial_positions(target, settings, lam, init) -> np.ndarray:
    """Working positions of the given values; the rest is drawn as a start without values is."""
    program, names = target.program, {site.name for site in target.program.latents}
    if not isinstance(init, Mapping):
        raise ModelError(f"init: expected a dict of values by site; found {type(init).__name__}")
    rng = np.random.default_rng([settings.seed, 2])
    noise = rng.uniform(-2, 2, (settings.chains, target.size)).astype(program.dtype)
    origin = Parameterization({n: np.zeros_like(lam[n]) for n in lam.sites})
    to_sites, from_sites = jax.jit(Target.to_sites), jax.jit(Target.from_sites)
    rows = []
    for chain in range(settings.chains):
        drawn = to_sites(target, noise[chain], origin)
        values = {name: drawn[name] for name in names}
        for name, value in init.items():
            if name not in names:
                raise ModelError(f"init: '{name}' is no latent site; they are {known(names)}")
            value, shape = np.asarray(value), program[name].shape
            if value.dtype.kind not in "fiub":
                raise ModelError(f"init: site '{name}' expects numbers; found {value.dtype}")
            if value.shape not in (shape, (settings.chains, *shape)):
                raise ModelError(
                    f"init: site '{name}' expects shape {shape}, or {(settings.chains, *shape)} "
                    f"with one value per chain; found {value.shape}"
                )
            values[name] = value if value.shape == shape else value[chain]
        rows.append(np.asarray(from_sites(target, values, lam)))
        working = target.unflatten(rows[-1])
        for name in init:
            if not np.isfinite(working[name]).all():
                raise ModelError(
                    f"init: site '{name}' of chain {chain} is not finite, or outside the support "
                    f"of its distribution ({program[name].distribution}), or on its edge"
                )
    return np.stack(rows)


def _refuse_other_density(engine: Engine) -> None:
    """The stored point must have the density it was stored with."""
    state, lam, target = engine.states, engine.lams[-1], engine.chains.target
    # A function of its own is traced anew: it sees the model as it is now.
    densities = jax.jit(jax.vmap(lambda position: target.logdensity(position, lam)))
    for chain, found in enumerate(np.asarray(densities(state.position))):
        stored = state.logdensity[chain]
        if not np.isclose(found, stored, rtol=1e-4, atol=1e-3):
            raise CheckpointError(
                f"the model gives log density {found:.6g} at the stored position of chain {chain}, "
                f"the run had {stored:.6g}: it is another model, or depends on something besides "
                "its arguments"
            )
