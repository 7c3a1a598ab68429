"""The tree of a run; it can be built at any time, as often as needed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from autoreparam.errors import SamplingWarning
from autoreparam.mcmc.chains import Trail
from autoreparam.mcmc.integrator import INTEGRATORS
from autoreparam.program.foreign import AxisLabels
from autoreparam.program.named import constants
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target
from autoreparam.results.diagnostics import e_bfmi, warnings_for
from autoreparam.results.learning import learning_tree
from autoreparam.results.tree import Draws, to_tree
from autoreparam.run.begin import NOT_CONVERGED
from autoreparam.run.mapping import by_rows, likelihoods, map_back, predictions
from autoreparam.run.notes import has_data
from autoreparam.run.session import Chunk, Session

if TYPE_CHECKING:
    import xarray


PRECISION = {4: "single", 8: "double"}  # by bytes per number


class Shown(NamedTuple):
    """What the user wants from a run, and under which labels."""

    var_names: Iterable[str] | None = None
    coords: Mapping[str, Any] | None = None
    dims: Mapping[str, Any] | None = None
    log_likelihood: bool = False
    posterior_predictive: bool = False
    brought: Iterable[AxisLabels] = ()  # labels of the model's arguments


def check_labels(session: Session, shown: Shown) -> None:
    """Rejects names and labels that do not fit now, before any draws could be lost."""
    if shown.var_names is None and not shown.coords and not shown.dims:
        return
    engine, target = session.engine, session.engine.target
    nothing = engine.chains(session.state.kernel).blank(1).position
    values, _ = by_rows(map_back, target, nothing, session.state.lams[-1])
    _to_tree(session, shown, Draws(values, {}), attrs={}, ledger={})


def build_tree(session: Session, shown: Shown) -> xarray.DataTree:
    """Everything drawn so far, in the ArviZ schema."""
    settings, state = session.settings, session.state
    sampling = _draws(session, "sampling", settings.thin)
    keep_warmup = settings.save_warmup or session.interrupted
    notes = [*state.notes, *_about_learning(session)]
    attrs: dict[str, Any] = {
        **settings.keywords(),
        "kernel": state.kernel,
        "precision": PRECISION[np.dtype(session.engine.target.program.dtype).itemsize],
        "integrator": INTEGRATORS[int(state.tunings[-1].stages)],
        "target_accept": state.target_accept,
        "restarts": state.restarts,
        "added_windows": state.added_windows,
        "interrupted": int(session.interrupted),
        "fit_converged": int(NOT_CONVERGED not in notes),
        "sampling_time": state.seconds,
        "learning_time": state.seconds_learning,
        "notes": notes,
        **_of_all_transitions(session),
    }
    seed = jax.random.fold_in(jax.random.key(settings.seed), 1)
    program = session.engine.target.program
    data = has_data(program)
    tree = _to_tree(
        session,
        shown,
        sampling,
        warmup=_draws(session, "warmup", 1) if keep_warmup else None,
        ledger=state.gradients._asdict(),
        attrs=attrs,
        log_likelihood=(
            _each(session, likelihoods)
            if shown.log_likelihood and data and not program.structure.discrete
            else None
        ),
        posterior_predictive=(
            _each(session, predictions, seed) if shown.posterior_predictive and data else None
        ),
    )
    if state.reports:
        tree["learning"] = learning_tree(state.reports)
    return tree


def warn(tree: xarray.DataTree) -> None:
    """Warns about what is wrong with a run, for `sample` and `resume`."""
    notes = [note for note in tree.attrs["notes"] if note != NOT_CONVERGED]  # explained below
    for sentence in (*notes, *warnings_for(tree)):
        warnings.warn(sentence, SamplingWarning, stacklevel=3)


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


def _to_tree(session: Session, shown: Shown, sampling: Draws, **parts: Any) -> xarray.DataTree:
    target, program = session.engine.target, session.engine.target.program
    observed = jax.device_get(jax.jit(Target.observed)(target))
    return to_tree(
        program,
        sampling,
        parameterizations=[_numpy(lam) for lam in session.state.lams],
        observed=observed,
        constant=constants(program, observed),
        coords=shown.coords,
        dims=shown.dims,
        brought=shown.brought,
        var_names=shown.var_names,
        **parts,
    )


# -- draws ------------------------------------------------------------------------------------


def _draws(session: Session, phase: str, thin: int) -> Draws:
    state, chunks = session.state, session.of(phase)
    used = len(state.slots)
    trail = _joined(session, chunks, thin)
    names = ["acceptance_rate", "diverging", "energy", "n_steps"]
    names += ["tree_depth"] if state.kernel == "nuts" else []
    stats = {name: getattr(trail.info, name)[..., :used] for name in names}
    stats["step_size"] = trail.step_size[..., :used]
    if used == 1:
        stats = {name: value[..., 0] for name, value in stats.items()}
    values, log_det = _mapped_back(session, chunks, trail)
    stats["lp"] = trail.logdensity - log_det
    kept = trail.position if session.settings.save_working else None
    return Draws(values, stats, kept, trail.position)


def _of_all_transitions(session: Session) -> dict[str, Any]:
    """Divergences and E-BFMI of every transition of the sampling phase, kept or thinned out."""
    used = len(session.state.slots)
    info = _joined(session, session.of("sampling"), 1).info
    return {
        "divergences": int(info.diverging[..., :used].sum()),
        "e_bfmi": e_bfmi(info.energy[..., :used]),
    }


def _mapped_back(session: Session, chunks: list[Chunk], trail: Trail) -> Any:
    """Values and log-determinants of the draws, each under the λ it was drawn with."""
    target, parts, begin = session.engine.target, [], 0
    if not chunks or chunks[0].step.phase == "sampling":
        return by_rows(map_back, target, trail.position, session.state.lams[-1])
    for lam, run in groupby(chunks, key=lambda chunk: chunk.lam):
        end = begin + sum(chunk.trail.position.shape[1] for chunk in run)
        parts.append(by_rows(map_back, target, trail.position[:, begin:end], lam))
        begin = end
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)


def _each(session: Session, call: Callable, *key: Any) -> dict[str, np.ndarray]:
    """The result of `call` for every draw that is kept."""
    trail = _joined(session, session.of("sampling"), session.settings.thin)
    return by_rows(call, session.engine.target, trail.position, session.state.lams[-1], *key)


def _joined(session: Session, chunks: list[Chunk], thin: int) -> Trail:
    """All chunks of a phase joined, keeping every `thin`-th draw."""
    state = session.state
    blank = session.engine.chains(state.kernel).blank(len(state.lams))
    trails = [chunk.trail for chunk in chunks]
    whole = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), blank, *trails)
    return jax.tree.map(lambda leaf: leaf[:, thin - 1 :: thin], whole)


def _numpy(lam: Parameterization) -> Parameterization:
    return jax.tree.map(np.asarray, lam)
