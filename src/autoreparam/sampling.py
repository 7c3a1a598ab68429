"""The front door: sample a model, resume a run, learn a parameterization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from autoreparam.disk import as_path
from autoreparam.errors import AutoreparamError, CheckpointError, known
from autoreparam.keywords import helpful, refuse_unknown
from autoreparam.learn.elbo import OPTIONS, Fit, fit_elbo
from autoreparam.learn.score import fit_draws
from autoreparam.mcmc.chains import meanwhile
from autoreparam.mcmc.engine import Engine
from autoreparam.mcmc.state import RunState
from autoreparam.program.foreign import as_arrays
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.rows import over_rows
from autoreparam.program.target import Target
from autoreparam.program.trace import Program, inspect
from autoreparam.results.identity import candidates, identify, refuse_other
from autoreparam.results.lam import check_tree
from autoreparam.results.progress import Progress
from autoreparam.results.scalars import load_libraries
from autoreparam.results.storage import Store
from autoreparam.run.begin import blank_state, build_engine, check_init, first_state
from autoreparam.run.blas import one_thread
from autoreparam.run.clock import Clock
from autoreparam.run.finish import build_tree, warned
from autoreparam.run.garbage import only_new
from autoreparam.run.notes import about_call
from autoreparam.run.precision import begin_precisely, in_precision
from autoreparam.run.processes import leads, wait_for_all
from autoreparam.run.rescue import rescuing
from autoreparam.run.session import Session
from autoreparam.run.settings import METHODS, Adaptation, Settings, as_seed, check_flag
from autoreparam.run.shown import Shown

if TYPE_CHECKING:
    import xarray


@helpful
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
    seed: Any = 0,
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
    precision: str = "auto",
    implicit: bool = True,
    shard: Iterable[str] = (),
    adaptation: Adaptation | None = None,
) -> xarray.DataTree:
    """Draws from the posterior of a NumPyro model, as a DataTree in the ArviZ schema.

    `parameterization` is "auto" (learned during warm-up from draws and scores), "vip" (learned
    beforehand, by the ELBO), "centered", "noncentered", "interleaved" or a Parameterization. All
    give the same posterior, at different cost. Sites that were non-centered by hand have a λ too,
    unless `implicit=False`.

    >>> problem = ar.zoo.load("eight_schools")
    >>> tree = ar.sample(problem.model, problem.args, problem.kwargs)
    >>> ar.summary(tree)

    Args:
        model: The NumPyro model, a function.
        args: Its positional arguments: the data.
        kwargs: Its keyword arguments; None for none.
        parameterization: "auto" learns λ during warm-up, and costs no gradients of its own. "vip"
            fits it beforehand; "centered", "noncentered" and "interleaved" learn nothing; a
            Parameterization is used as it is.
        kernel: "auto" is HMC, or NUTS where trajectories would get long; "hmc" or "nuts" to choose.
        draws: Draws per chain after warm-up; 4 chains of 1000 suffice for means and 90% intervals.
            Where chains mix slowly, kernel="auto" draws up to 8 times as many and keeps this many.
        warmup: Draws per chain to learn from, which are dropped; more where chains disagree.
        chains: Chains from different starting points, at least 2 for R-hat; 64 and more form 16
            superchains with a starting point each.
        seed: The same seed gives the same draws.
        num_steps: Leapfrog steps per draw of HMC; None learns how many.
        target_accept: The acceptance rate to aim for. Higher means shorter steps: slower, but safer
            where transitions diverge.
        max_tree_depth: The longest trajectory of NUTS is 2 to this power; a longer one seldom pays.
        init: Starting values by site, in the model's own space, for all chains or one per chain;
            None chooses among random ones.
        thin: Keep every n-th draw only, to save memory; 1 keeps all.
        save_warmup: Keep the draws of warm-up too, as groups `warmup_*`.
        save_working: Keep the coordinates that the sampler moved in, as the group `working`.
        log_likelihood: Also the log likelihood of every observation, for ArviZ's `loo`; off, as it
            can be large.
        posterior_predictive: Also data simulated at each draw, for checks of the fit; off, as it
            can be large.
        var_names: Names of the variables to keep; None keeps all.
        coords: Labels of dimensions, such as `{"county": names}`; where None, those that pandas or
            xarray arguments bring.
        dims: Names of a variable's own axes, such as `{"beta": ["feature"]}`; where None, its
            plates'.
        progress: Whether to show progress in a terminal or notebook.
        checkpoint: A folder that the run is stored in as it goes, for `ar.resume`; None stores
            nothing.
        precision: "auto" computes in single precision and turns to double where rounding would
            hurt; "single" or "double" to choose.
        adaptation: The numbers that steer warm-up; None for the usual ones.
        implicit: Whether sites that were non-centered by hand are recognized.
        shard: Names of arguments whose rows are spread over devices, where one cannot hold the
            data; each device adds up the likelihood of its own.
    """
    given = isinstance(parameterization, Parameterization)
    if not given and parameterization not in METHODS:
        raise AutoreparamError(
            f"parameterization: expected one of {known(METHODS)} or a Parameterization; "
            f"found {parameterization!r}"
        )
    name = parameterization if isinstance(parameterization, str) else "given"
    seed = as_seed(seed)
    settings = Settings(name, kernel, draws, warmup, chains, seed, num_steps, target_accept,
                        max_tree_depth, thin, save_warmup, save_working, precision,
                        Adaptation() if adaptation is None else adaptation,
                        implicit, _names_of(shard)).checked()  # fmt: skip
    sites: Any = "auto" if isinstance(parameterization, str) else parameterization.sites
    brought = as_arrays((args, kwargs))[1]
    shown = Shown(var_names, coords, dims, log_likelihood, posterior_predictive, brought).checked()
    folder = None if checkpoint is None else as_path(checkpoint, "checkpoint")
    check_flag("progress", progress)
    look = partial(inspect, model, args, kwargs, sites=sites, implicit=settings.implicit)

    def begin(bar: Progress, program: Program) -> Session:
        engine = build_engine(program, settings)
        shown.check(engine.target)
        check_init(engine.target.program, settings, init)
        with ExitStack() as unless_begun:
            store = None
            if folder is not None and leads():
                identity = identify(program)
                store = Store.create(folder, identity, settings.to_dict())
                unless_begun.callback(store.close)
            with bar.waiting("compiling"):
                state = first_state(engine, settings, parameterization, init, bar)
            unless_begun.pop_all()
        wanted = {"log_likelihood": log_likelihood, "posterior_predictive": posterior_predictive}
        about = about_call(program, model, args, kwargs, wanted)
        return Session(settings, engine, replace(state, notes=(*about, *state.notes)), store)

    clock = Clock()
    with (
        rescuing() as kept,
        in_precision(precision),
        only_new(),
        one_thread(),
        ExitStack() as stack,
    ):
        with Progress(progress and leads()) as bar, meanwhile(load_libraries):
            kept.session = begin_precisely(look, partial(begin, bar), precision, stack)
            clock.begin(kept.session)
            kept.session.go(bar)
        kept.tree = build_tree(kept.session, shown)
    kept.tree.attrs |= clock.times(kept.session)
    return warned(kept.tree)


@helpful
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
    """Finishes an interrupted run, or extends a finished one to `draws` draws.

    An interrupted run ends with exactly the draws that an uninterrupted one would have given. An
    extended run keeps its draws and its tuning, although a longer run would have been tuned for
    more draws. The model and its data must be those of the checkpoint.

    Args:
        checkpoint: The folder that `ar.sample` was given.
        model: The model of the run.
        args: The positional arguments of the run.
        kwargs: The keyword arguments of the run; None for none.
        draws: Draws per chain in all; None for as many as were asked for.
        var_names: Names of the variables to keep; None keeps all.
        coords: Labels of dimensions, such as `{"county": names}`; where None, those that pandas or
            xarray arguments bring.
        dims: Names of a variable's own axes, such as `{"beta": ["feature"]}`; where None, its
            plates'.
        log_likelihood: Also the log likelihood of every observation, for ArviZ's `loo`; off, as it
            can be large.
        posterior_predictive: Also data simulated at each draw, for checks of the fit; off, as it
            can be large.
        progress: Whether to show progress in a terminal or notebook.
    """
    clock, brought = Clock(), as_arrays((args, kwargs))[1]
    shown = Shown(var_names, coords, dims, log_likelihood, posterior_predictive, brought).checked()
    check_flag("progress", progress)
    store = Store.open(as_path(checkpoint, "checkpoint"), alone=leads())
    with rescuing() as kept, only_new(), one_thread(), ExitStack() as stack:
        stack.callback(store.close)
        settings = _settings_of(store, draws)
        stack.enter_context(
            in_precision("double" if store.identity.get("dtype") == "float64" else "single")
        )
        look = partial(inspect, model, args, kwargs, implicit=settings.implicit)
        refuse_other(store.identity, look())
        program = look(sites=candidates(store.identity))
        engine = build_engine(program, settings)
        shown.check(engine.target)
        session = Session.reload(settings, engine, blank_state(engine, settings), store)
        _refuse_other_density(engine, session.state)
        wait_for_all("the checkpoint has been read")
        session.store = store if leads() else None
        clock.begin(session)
        with Progress(progress and leads()) as bar:
            kept.session = session
            session.go(bar)
        kept.tree = build_tree(session, shown)
    kept.tree.attrs |= clock.times(session)
    return warned(kept.tree)


def _names_of(shard: Any) -> Any:
    """The names as a tuple; a name alone, or anything else, is left to the check of settings."""
    return shard if isinstance(shard, str) or not isinstance(shard, Iterable) else tuple(shard)


def _settings_of(store: Store, draws: int | None) -> Settings:
    if not store.chunks:
        raise CheckpointError(
            f"the run in {store.path} was interrupted before anything was stored. Start again with "
            "ar.sample; it may use the same folder."
        )
    settings = Settings.from_dict(store.settings)
    return replace(settings, draws=settings.draws if draws is None else draws).checked()


@helpful
def learn(
    model: Callable,
    args: tuple = (),
    kwargs: dict | None = None,
    *,
    objective: str = "elbo",
    draws: xarray.DataTree | None = None,
    seed: Any = 0,
    s0: float | None = None,
    implicit: bool = True,
    **options: Any,
) -> Fit:
    """A parameterization fitted to the model and its data.

    `objective="elbo"` maximizes the mean-field ELBO over (μ, σ, λ), the paper's VIP; options, such
    as `steps`, `samples` and `learning_rates`, go to the fit. `objective="score"` learns from the
    draws of an earlier run, `draws=tree`, at a cost of one gradient per draw.

    Args:
        model: The NumPyro model, a function.
        args: Its positional arguments: the data.
        kwargs: Its keyword arguments; None for none.
        objective: "elbo" needs no draws and is the paper's; "score" learns from draws.
        draws: The run to learn from, with "score".
        seed: The seed of the fit.
        s0: The reference scale of λ, for "elbo"; None makes λ independent of units, 1 is the
            paper's. With "score" it is about where the scales of the draws are.
        implicit: Whether sites that were non-centered by hand are recognized.
        options: Settings of the fit by the ELBO.
    """
    own = ["model", "args", "kwargs", "objective", "draws", "seed", "s0", "implicit"]
    if objective not in ("elbo", "score"):
        raise AutoreparamError(f"objective: expected 'elbo' or 'score'; found {objective!r}")
    refuse_unknown("learn", options, own + (OPTIONS if objective == "elbo" else []))
    key = jax.random.key(as_seed(seed))
    if s0 is not None and not (isinstance(s0, Real) and 0 < s0 < float("inf")):
        raise AutoreparamError(f"s0: expected a positive number; found {s0!r}")
    if objective == "score" and s0 is not None:
        raise AutoreparamError("s0 is for objective='elbo': with 'score' it comes from the draws")
    if objective == "score" and draws is None:
        raise AutoreparamError("objective='score' learns from draws: pass draws=tree")
    if draws is not None:
        check_tree(draws, "draws")
    target = Target(inspect(model, args, kwargs, implicit=implicit))
    if objective == "elbo":
        start = Parameterization.constant(target.program, 0.5, s0=s0)
        return fit_elbo(target, start, key=key, **options)
    start = Parameterization.constant(target.program, 0.5, tail=0.5)
    assert draws is not None  # refused above
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


def _refuse_other_density(engine: Engine, stored: RunState) -> None:
    """Raises unless the stored point has the density it was stored with."""
    state, lam, target = stored.chains, stored.lams[-1], engine.target
    # A new function is traced again, so it sees the model as it is now.
    densities = jax.jit(over_rows(target.program, lambda x: target.logdensity(x, lam), (0,)))
    for chain, found in enumerate(np.asarray(densities(state.position))):
        before = state.logdensity[chain]
        if not np.isclose(found, before, rtol=1e-4, atol=1e-3):
            raise CheckpointError(
                f"the model gives log density {found:.6g} at the stored position of chain {chain}, "
                f"but the run had {before:.6g}: it is a different model, or depends on something "
                "besides "
                "its arguments"
            )
