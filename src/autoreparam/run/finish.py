"""The tree of a run; it can be built at any time, as often as needed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from autoreparam.errors import SamplingWarning
from autoreparam.mcmc.hmc import blank_info
from autoreparam.mcmc.integrator import INTEGRATORS
from autoreparam.mcmc.trail import joined_draws
from autoreparam.program.named import constants
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.pointwise import inseparable
from autoreparam.program.target import Target
from autoreparam.results.advice import warnings_for
from autoreparam.results.diagnostics import e_bfmi
from autoreparam.results.learning import learning_tree
from autoreparam.results.superchains import count_superchains
from autoreparam.results.tree import Draws, add_geometry, to_tree
from autoreparam.run.begin import NOT_CONVERGED
from autoreparam.run.mapping import by_rows, likelihoods, map_back, predictions, total_likelihood
from autoreparam.run.notes import available
from autoreparam.run.processes import leads
from autoreparam.run.session import Session
from autoreparam.run.shown import Shown

if TYPE_CHECKING:
    import xarray


EDGE_SHARE = 0.001  # of the draws, from which a cut-off is worth a word
PRECISION = {4: "single", 8: "double"}  # by bytes per number


def build_tree(session: Session, shown: Shown) -> xarray.DataTree:
    """Everything drawn so far, in the ArviZ schema.

    What fails to be computed besides the draws is left out, and a note says so.
    """
    settings, state = session.settings, session.state
    names = _needed(session, shown)
    sampling = _draws(session, "sampling", settings.thin * state.kept_every, names)
    notes = [*state.notes, *_about_learning(session), *_about_edges(session, sampling.values)]
    warmup = likelihood = predicted = None
    transitions: dict[str, Any] = {}
    with spared("The diagnostics of the transitions", notes):
        transitions = _of_all_transitions(session)
    if settings.save_warmup or session.interrupted:
        with spared("The warm-up draws", notes):
            warmup = _draws(session, "warmup", 1, names)
    program = session.engine.target.program
    if shown.log_likelihood and available(program, "log_likelihood"):
        with spared("The log likelihood", notes):
            likelihood = _each(session, likelihoods)
    if shown.log_likelihood and inseparable(program.sites):
        with spared("The total log likelihood", notes):
            total = {"total_log_likelihood": _each(session, total_likelihood)}
            sampling = replace(sampling, stats={**sampling.stats, **total})
    if shown.posterior_predictive and available(program, "posterior_predictive"):
        with spared("The posterior predictive", notes):
            key = jax.random.fold_in(jax.random.key(settings.seed), 1)
            predicted = _each(session, predictions, key)
    groups = count_superchains(settings.chains)
    attrs: dict[str, Any] = {
        **settings.keywords(),
        **({"superchains": groups} if groups < settings.chains else {}),
        "kernel": state.kernel,
        "precision": PRECISION[np.dtype(session.engine.target.program.dtype).itemsize],
        "integrator": INTEGRATORS[int(state.tunings[-1].stages)],
        "target_accept": state.target_accept,
        "restarts": state.restarts,
        "added_windows": state.added_windows,
        "kept_every": settings.thin * state.kept_every,
        "interrupted": int(session.interrupted),
        "fit_converged": int(NOT_CONVERGED not in notes),
        "sampling_time": state.seconds,
        "learning_time": state.seconds_learning,
        "looking_time": session.engine.target.program.structure.looking,
        "notes": notes,
        **transitions,
    }
    tree = _to_tree(
        session,
        shown,
        sampling,
        warmup=warmup,
        ledger=state.gradients._asdict(),
        attrs=attrs,
        log_likelihood=likelihood,
        posterior_predictive=predicted,
    )
    with spared("The geometry of the run", notes):
        add_geometry(tree, session.engine.target.program, sampling)
    if state.reports:
        with spared("The history of learning λ", notes):
            tree["learning"] = learning_tree(state.reports)
    tree.attrs["notes"] = notes
    return tree


def warned(tree: xarray.DataTree) -> xarray.DataTree:
    """The tree, after warnings about what is wrong with it, for `sample` and `resume`.

    Where warnings are errors, the error has the tree as its attribute `tree`.
    """
    said = [note for note in tree.attrs["notes"] if note != NOT_CONVERGED]  # explained below
    with spared("The diagnostics", said):
        said += warnings_for(tree)
    return warn(tree, said, 5)


def warn(tree: xarray.DataTree, said: Iterable[str], level: int = 4) -> xarray.DataTree:
    """The tree, after a warning for each sentence, in the name of the caller at this level."""
    for sentence in said if leads() else ():
        try:
            warnings.warn(sentence, SamplingWarning, stacklevel=level)
        except SamplingWarning as error:
            error.tree = tree  # type: ignore[attr-defined]
            raise
    return tree


@contextmanager
def spared(what: str, notes: list[str]) -> Iterator[None]:
    """A block whose failure or interruption costs only what it computes; a note says so."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else (
            f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        )  # fmt: skip
        notes.append(f"{what} could not be computed ({why}). The draws are all there.")


def _about_learning(session: Session) -> list[str]:
    state = session.state
    if state.reports:
        last = state.reports[-1]["note"]
        return [f"λ was not learned in the last window: {last}"] if last else []
    if session.engine.learner is not None and not state.plan:
        return [
            "The warm-up was too short to learn from, so every λ stayed at 0. Use a warmup of 100 "
            "or more, or choose a parameterization."
        ]
    return []


def _about_edges(session: Session, values: Mapping[str, np.ndarray]) -> list[str]:
    """Says where draws pile up at an end of (0, 1) that numbers cannot come closer to."""
    program, said = session.engine.target.program, []
    limits = np.finfo(program.dtype)
    for site in program.latents:
        drawn = values.get(site.name, np.empty(0))
        if site.support != "unit interval" or not drawn.size:
            continue
        share = np.mean((drawn >= 1 - limits.eps) | (drawn <= limits.tiny))
        if share > EDGE_SHARE:
            precision = PRECISION[limits.bits // 8]
            closer = "" if precision == "double" else " precision='double' comes closer."
            said.append(
                f"{share:.1%} of the draws of '{site.name}' are as close to 0 or 1 as {precision} "
                f"precision allows: the posterior goes on beyond, and is cut off there.{closer} A "
                "prior with less mass at the ends avoids it."
            )
    return said


def _to_tree(session: Session, shown: Shown, sampling: Draws, **parts: Any) -> xarray.DataTree:
    target, program = session.engine.target, session.engine.target.program
    observed = jax.device_get(jax.jit(Target.observed)(target))
    return to_tree(
        program,
        sampling,
        parameterizations=[_numpy(lam) for lam in session.state.lams],
        observed=observed,
        constant=constants(session.engine.program, observed),
        coords=shown.coords,
        dims=shown.dims,
        brought=shown.brought,
        var_names=shown.var_names,
        **parts,
    )


# -- draws ------------------------------------------------------------------------------------


def _needed(session: Session, shown: Shown) -> tuple[str, ...] | None:
    """The variables to compute; None for all.

    Besides those that are kept, these are the latents, which notes and the geometry are about,
    unless they would take much memory.
    """
    if shown.var_names is None:
        return None
    target = session.engine.target
    latents = () if session.large else (site.name for site in target.program.latents)
    return tuple(sorted({*shown.kept(target), *latents}))


def _draws(session: Session, phase: str, thin: int, names: tuple[str, ...] | None) -> Draws:
    """The draws of a phase, each mapped back under the λ it was drawn with."""
    state, target, parts = session.state, session.engine.target, []
    used, working = len(state.slots), session.settings.save_working
    for lam, trail in session.stretches(phase, thin):
        found = by_rows(map_back, target, trail.position, lam, names=names)
        kept = trail.position if working or not session.large else None
        parts.append((trail._replace(position=kept), found))
    trail, (values, log_det) = joined_draws(parts)
    told = ["acceptance_rate", "diverging", "energy", "n_steps"]
    told += ["tree_depth"] if state.kernel == "nuts" else []
    stats = {name: getattr(trail.info, name)[..., :used] for name in told}
    stats["step_size"] = trail.step_size[..., :used]
    if used == 1:
        stats = {name: value[..., 0] for name, value in stats.items()}
    stats["lp"] = trail.logdensity - log_det
    return Draws(values, stats, trail.position if working else None, trail.position)


def _of_all_transitions(session: Session) -> dict[str, Any]:
    """Divergences and E-BFMI of every transition of the sampling phase, kept or thinned out."""
    used, dtype = len(session.state.slots), session.engine.target.program.dtype
    blank = blank_info((session.settings.chains, 0, used), dtype)
    info = joined_draws([blank, *(chunk.trail.info for chunk in session.of("sampling"))])
    return {
        "divergences": int(info.diverging[..., :used].sum()),
        "e_bfmi": e_bfmi(info.energy[..., :used]),
    }


def _each(session: Session, call: Callable, *key: Any) -> Any:
    """The result of `call` for every draw that is kept."""
    target, parts, before = session.engine.target, [], 0
    thin = session.settings.thin * session.state.kept_every
    for lam, trail in session.stretches("sampling", thin):
        parts.append(by_rows(call, target, trail.position, lam, *key, before=before))
        before += trail.logdensity.size
    return joined_draws(parts)


def _numpy(lam: Parameterization) -> Parameterization:
    return jax.tree.map(np.asarray, lam)
