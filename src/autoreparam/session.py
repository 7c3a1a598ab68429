"""A run under way: chunk after chunk, stored as it goes, and the tree it ends as."""

from __future__ import annotations

import inspect as python_inspect
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from autoreparam.errors import AutoreparamError, SamplingWarning, known
from autoreparam.mcmc.chains import Trail
from autoreparam.mcmc.engine import Engine
from autoreparam.mcmc.hmc import Info
from autoreparam.mcmc.integrator import INTEGRATORS
from autoreparam.mcmc.interleaved import slot_count
from autoreparam.mcmc.warmup import Step
from autoreparam.program.blocks import in_blocks
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.predictive import predict
from autoreparam.program.target import Target
from autoreparam.results.diagnostics import warnings_for
from autoreparam.results.learning import learning_tree
from autoreparam.results.progress import Progress
from autoreparam.results.scalars import ess_of
from autoreparam.results.storage import Store
from autoreparam.results.tree import Draws, to_tree

if TYPE_CHECKING:
    import xarray

CHOICES = ("auto", "nuts", "hmc")
NOT_CONVERGED = "the variational fit had not converged when it ran out of steps"
ROWS = 1000  # draws mapped back to the model's own space per call


@dataclass(frozen=True)
class Settings:
    """The keywords of a run that a checkpoint must remember."""

    parameterization: str
    kernel: str
    draws: int
    warmup: int
    chains: int
    seed: int
    num_steps: int | None
    target_accept: float
    max_tree_depth: int
    thin: int
    save_warmup: bool
    save_working: bool

    def checked(self) -> Settings:
        """These settings, if they make sense; an error that names the keyword otherwise."""
        if self.kernel not in CHOICES:
            raise AutoreparamError(
                f"kernel: expected one of {known(CHOICES)}; found {self.kernel!r}"
            )
        least = {"draws": 1, "warmup": 0, "chains": 1, "thin": 1, "max_tree_depth": 1, "seed": 0}
        if self.num_steps is not None:
            least["num_steps"] = 1
            if self.kernel == "nuts":
                raise AutoreparamError(
                    "num_steps: NUTS chooses its own number of steps. Leave it out, or use "
                    "kernel='hmc'."
                )
        for name, low in least.items():
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < low:
                raise AutoreparamError(f"{name}: expected an integer >= {low}; found {value!r}")
        if self.thin > self.draws:
            raise AutoreparamError(
                f"thin: expected at most draws ({self.draws}), or nothing is kept; "
                f"found {self.thin}"
            )
        if self.seed >= 2**63:
            raise AutoreparamError(f"seed: expected an integer below 2**63; found {self.seed}")
        if not isinstance(self.target_accept, float | np.floating) or not (
            0 < self.target_accept < 1
        ):
            raise AutoreparamError(
                f"target_accept: expected a number between 0 and 1; found {self.target_accept!r}"
            )
        integers: dict[str, Any] = {name: int(getattr(self, name)) for name in least}
        return replace(self, **integers)


@dataclass
class Session:
    """The engine of a run with every chunk it has left behind."""

    settings: Settings
    engine: Engine
    notes: list[str]
    store: Store | None = None
    interrupted: bool = False
    seconds: float = 0.0
    _looked: float = 0.0
    _ess: float | None = None
    lams: list[Parameterization] = field(default_factory=list)  # of each chunk of warm-up
    trails: dict[str, list[Trail]] = field(default_factory=lambda: {"warmup": [], "sampling": []})

    def reload(self, store: Store) -> None:
        """Takes up where the store ends."""
        window: list[Trail] = []
        for arrays, info in zip(store.read_chunks(), store.infos):
            self.engine.tuner.reports = list(info.get("reports", self.engine.tuner.reports))
            trail = _trail(arrays)
            self.trails[info["phase"]].append(trail)
            if info["phase"] == "warmup":
                leaves, treedef = jax.tree.flatten(self.engine.lams[-1])
                found = [arrays[f"lam/{i}"] for i in range(len(leaves))]
                self.lams.append(jax.tree.unflatten(treedef, found))
                window = [] if info["window_ends"] else [*window, trail]
        self.engine.restore(store.state, window)
        drawn = self.engine.drawn - self.settings.warmup
        self.settings = replace(self.settings, draws=max(self.settings.draws, drawn))
        self.notes = list(store.infos[-1]["notes"])
        self.store = store

    def go(self, bar: Progress) -> None:
        """Advances to the end of the plan, or until the user interrupts."""
        engine, began = self.engine, time.perf_counter()
        try:
            for phase in ("warmup", "sampling"):
                total = sum(step.draws for step in engine.plan if step.phase == phase)
                if total:
                    with bar.phase(phase, total):
                        self._phase(phase, bar)
        except KeyboardInterrupt:
            self.interrupted = True
        self.seconds += time.perf_counter() - began

    def _phase(self, phase: str, bar: Progress) -> None:
        engine, done, diverging = self.engine, 0, 0
        while engine.plan and engine.plan[0].phase == phase:
            step = engine.plan[0]
            lam = engine.lams[-1]  # of this chunk; the end of a window may change it
            trail = engine.advance()
            if phase == "warmup":
                self.lams.append(lam)
            self.trails[phase].append(trail)
            self._commit(step, trail, lam)
            done += step.draws
            diverging += int(trail.info.diverging.sum())
            size = float(engine.tunings[-1].step_size)
            ess = self._ess_so_far() if phase == "sampling" and bar.visible else None
            bar.update(done, divergences=diverging, step_size=size, ess=ess)

    def _ess_so_far(self) -> float | None:
        """ESS of the log density: one number that is quick to have and seldom the best."""
        if time.perf_counter() - self._looked < 0.5:
            return self._ess
        self._looked = time.perf_counter()
        self._ess = ess_of(np.concatenate([t.logdensity for t in self.trails["sampling"]], axis=1))
        return self._ess

    def _commit(self, step: Step, trail: Trail, lam: Parameterization) -> None:
        if self.store is None:
            return
        arrays = {name: np.asarray(leaf) for name, leaf in _leaves(trail).items()}
        if step.phase == "warmup":
            arrays |= {f"lam/{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(lam))}
        info = {"phase": step.phase, "window_ends": step.window_ends, "notes": self.notes}
        if step.window_ends and self.engine.tuner.learner is not None:
            info["reports"] = self.engine.tuner.reports
        self.store.commit(arrays, self.engine.snapshot(), info)

    # -- the tree -----------------------------------------------------------------------------

    def check_labels(
        self,
        var_names: Iterable[str] | None,
        coords: Mapping[str, Any] | None,
        dims: Mapping[str, Any] | None,
    ) -> None:
        """Refuses names and labels that do not fit now, and not when the draws would be lost."""
        if var_names is None and not coords and not dims:
            return
        engine = self.engine
        target = engine.chains.target
        blank = _by_rows(_map_back, target, engine.chains.blank().position, engine.lams[-1])
        observed = jax.device_get(jax.jit(Target.observed)(target))
        to_tree(
            target.program,
            Draws(blank[0], {}),
            parameterizations=[_numpy(lam) for lam in engine.lams],
            ledger={},
            observed=observed,
            constant=_constants(target.program, observed),
            attrs={},
            coords=coords,
            dims=dims,
            var_names=var_names,
        )

    def tree(
        self,
        var_names: Iterable[str] | None,
        coords: Mapping[str, Any] | None,
        dims: Mapping[str, Any] | None,
        log_likelihood: bool,
        posterior_predictive: bool = False,
    ) -> xarray.DataTree:
        """Everything drawn so far, in the ArviZ schema."""
        engine, settings = self.engine, self.settings
        target, program = engine.chains.target, engine.chains.target.program
        used = len(engine.lams)
        sampling = self._draws("sampling", settings.thin)
        warmup = self._draws("warmup", 1) if settings.save_warmup or self.interrupted else None
        attrs: dict[str, Any] = {
            **asdict(settings),
            "kernel": engine.chains.kernel.name,
            "integrator": INTEGRATORS[int(engine.tunings[-1].stages)],
            "target_accept": engine.tuner.target_accept,
            "interrupted": int(self.interrupted),
            "fit_converged": int(NOT_CONVERGED not in self.notes),
            "sampling_time": self.seconds,
            "learning_time": engine.tuner.seconds,
        }
        if engine.tuner.reports:
            last = engine.tuner.reports[-1]["note"]
            self.notes += [f"λ was not learned in the last window: {last}"] if last else []
        elif engine.tuner.learner is not None and not engine.plan:
            self.notes.append(
                "The warm-up was too short to learn from: every λ stayed at 0. Use a warmup of "
                "100 or more, or choose a parameterization."
            )
        attrs["notes"] = self.notes
        observed = jax.device_get(jax.jit(Target.observed)(target))
        tree = to_tree(
            program,
            sampling,
            warmup=warmup,
            parameterizations=[_numpy(lam) for lam in engine.lams[:used]],
            ledger=engine.gradients,
            observed=observed,
            constant=_constants(program, observed),
            attrs=attrs,
            coords=coords,
            dims=dims,
            var_names=var_names,
            log_likelihood=self._each(_likelihoods) if log_likelihood else None,
            posterior_predictive=self._predictive() if posterior_predictive else None,
        )
        if engine.tuner.reports:
            tree["learning"] = learning_tree(engine.tuner.reports)
        for sentence in self.notes:
            if sentence != NOT_CONVERGED:  # which the warnings say at length
                warnings.warn(sentence, SamplingWarning, stacklevel=3)
        for sentence in warnings_for(tree):
            warnings.warn(sentence, SamplingWarning, stacklevel=3)
        return tree

    def _each(self, call: Callable, *key: Any) -> dict[str, np.ndarray]:
        """What `call` says of every draw that is kept."""
        engine = self.engine
        trail = _joined(self.trails["sampling"], engine, self.settings.thin)
        return _by_rows(call, engine.chains.target, trail.position, engine.lams[-1], *key)

    def _predictive(self) -> dict[str, np.ndarray]:
        return self._each(_predictions, jax.random.fold_in(jax.random.key(self.settings.seed), 1))

    def _draws(self, phase: str, thin: int) -> Draws:
        engine = self.engine
        used = len(engine.lams)
        trail = _joined(self.trails[phase], engine, thin)
        names = ["acceptance_rate", "diverging", "energy", "n_steps"]
        names += ["tree_depth"] if engine.chains.kernel.name == "nuts" else []
        stats = {name: getattr(trail.info, name)[..., :used] for name in names}
        stats["step_size"] = trail.step_size[..., :used]
        if used == 1:
            stats = {name: value[..., 0] for name, value in stats.items()}
        values, log_det = self._mapped_back(phase, trail)
        stats["lp"] = trail.logdensity - log_det
        kept = trail.position if self.settings.save_working else None
        return Draws(values, stats, kept, trail.position)

    def _mapped_back(self, phase: str, trail: Trail) -> Any:
        """Values and log determinants of the draws, each with the λ that it was drawn under."""
        target, lam = self.engine.chains.target, self.engine.lams[-1]
        if phase == "sampling" or not self.trails[phase]:
            return _by_rows(_map_back, target, trail.position, lam)
        lengths = [part.position.shape[1] for part in self.trails[phase]]
        parts, begin = [], 0
        for lam, run in groupby(zip(self.lams, lengths), key=lambda pair: pair[0]):
            end = begin + sum(length for _, length in run)
            parts.append(_by_rows(_map_back, target, trail.position[:, begin:end], lam))
            begin = end
        return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)


# -- chunks as named arrays -------------------------------------------------------------------


def _leaves(trail: Trail) -> dict[str, Any]:
    return {**trail._asdict(), **trail.info._asdict(), "info": np.zeros(())}


def _trail(arrays: Mapping[str, np.ndarray]) -> Trail:
    info = Info(**{name: arrays[name] for name in Info._fields})
    rest = {name: arrays[name] for name in Trail._fields if name != "info"}
    return Trail(info=info, **rest)


def _joined(trails: list[Trail], engine: Engine, thin: int) -> Trail:
    """All chunks of a phase in one, every `thin`-th draw of it."""
    blank = engine.chains.blank(slot_count(engine.lams))
    whole = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), blank, *trails)
    return jax.tree.map(lambda leaf: leaf[:, thin - 1 :: thin], whole)


def _numpy(lam: Parameterization) -> Parameterization:
    return jax.tree.map(np.asarray, lam)


# -- back to the model's own space ------------------------------------------------------------


@jax.jit
def _map_back(target: Target, positions: Any, lam: Parameterization):
    return jax.vmap(target.map_back, (0, None))(positions, lam)


@jax.jit
def _likelihoods(target: Target, positions: Any, lam: Parameterization):
    return jax.vmap(lambda position: target.log_likelihood(position, lam))(positions)


@jax.jit
def _predictions(target: Target, positions: Any, lam: Parameterization, key: Any):
    def one(position, key):
        return predict(target.program, target.to_sites(position, lam), key)

    return jax.vmap(one)(positions, jax.random.split(key, len(positions)))


def _by_rows(
    call: Callable, target: Target, positions: np.ndarray, lam: Parameterization, *key: Any
) -> Any:
    """What `call` gives for draws of shape (chain, draw, dim), a block of rows at a time.

    A `key`, where `call` takes one, is different in each block.
    """
    chains, draws, size = positions.shape

    def block(first: int, rows: np.ndarray) -> Any:
        return call(target, rows, lam, *(jax.random.fold_in(k, first) for k in key))

    joined = in_blocks(block, ROWS, positions.reshape(-1, size))
    return jax.tree.map(lambda leaf: leaf.reshape(chains, draws, *leaf.shape[1:]), joined)


def _constants(program: Any, observed: Mapping[str, Any]) -> dict[str, Any]:
    """The model's arguments that are arrays, under their names, but for the observed ones."""
    args, kwargs = program.structure.arguments.fill(program.data)
    try:
        names = list(python_inspect.signature(program.structure.model).parameters)
    except (TypeError, ValueError):
        names = []
    named = {**dict(zip(names, args)), **kwargs}
    return {
        name: np.asarray(value)
        for name, value in named.items()
        if isinstance(value, np.ndarray | jax.Array | float | int)
        and not isinstance(value, bool)
        and not any(np.array_equal(value, seen) for seen in observed.values())
    }
