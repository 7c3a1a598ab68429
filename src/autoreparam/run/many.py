"""From the call of `sample_many` to draws: batches of data sets through the engine of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import jax
import numpy as np

from autoreparam.errors import ModelError
from autoreparam.learn.many import fit_inside
from autoreparam.mcmc.chains import joined
from autoreparam.mcmc.many import Fit, begin, begin_again, run_window
from autoreparam.mcmc.many_retune import retune, settle
from autoreparam.mcmc.settings import DEFAULTS
from autoreparam.mcmc.start import untouched
from autoreparam.mcmc.trail import Trail
from autoreparam.mcmc.warmup import LAST_WINDOWS, windows
from autoreparam.program.compiled import often
from autoreparam.program.diagnose import nonfinite
from autoreparam.program.many import Targets, look_at_priors
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target
from autoreparam.results.advice import R_HAT_LIMIT
from autoreparam.results.many import worst
from autoreparam.results.progress import Progress
from autoreparam.run.settings import Settings

BATCH = 64  # data sets on a CPU: with four chains, their states stay in a core's cache
AGAIN = 2  # more warm-ups at most, where chains do not agree
FEWEST_DRAWS = 100  # from which R-hat says so
PIECE = 250  # draws per call of the compiled program
MOST_NUMBERS = 2**28  # of a call's draws and scores on an accelerator: a gigabyte, or two


class Found(NamedTuple):
    """What was drawn for some data sets, along the first axis of every array."""

    values: dict[str, np.ndarray]  # (dataset, chain, draw, *shape)
    stats: dict[str, np.ndarray]  # (dataset, chain, draw)
    lam: Parameterization
    diagnostics: dict[str, np.ndarray]  # (dataset,)


@dataclass(frozen=True)
class Batches:
    """What stays the same for all data sets."""

    targets: Targets
    count: int  # of data sets
    lam: Parameterization  # to begin with
    settings: Settings
    kept: Sequence[str]  # of the variables

    def run(self, bar: Progress) -> Found:
        """Everything drawn, for all data sets.

        Where chains do not agree in the end, warm-up was too short. Those data sets have another
        one, from where their chains are, and are drawn again.
        """
        found, fits = self._pass(0, np.arange(self.count), None, bar)
        for number in range(1, 1 + AGAIN):
            rows = self._apart(found)
            if not len(rows):
                break
            before = jax.tree.map(lambda leaf, rows=rows: leaf[rows], fits)
            later, left = self._pass(number, rows, before, bar)
            for spent in ("warmup", "sampling"):
                later.diagnostics["gradients_warmup"] += found.diagnostics[f"gradients_{spent}"][
                    rows
                ]
            jax.tree.map(partial(_put, rows), (found, fits), (later, left))
        return found

    def _apart(self, found: Found) -> np.ndarray:
        """The data sets whose chains do not agree."""
        if self.settings.chains == 1 or self.settings.draws < FEWEST_DRAWS:
            return np.zeros(0, int)
        return np.flatnonzero(~(found.diagnostics["r_hat"] <= R_HAT_LIMIT))

    def _pass(
        self, number: int, rows: np.ndarray, before: Fit | None, bar: Progress
    ) -> tuple[Found, Fit]:
        """What is drawn for some data sets, batch by batch, and how that leaves their chains."""
        width = min(self.count, self._width())
        done, lock = 0, Lock()

        def batch(group: slice) -> tuple[Found, Fit]:
            nonlocal done
            own = np.arange(group.start, group.start + width).clip(max=len(rows) - 1)
            found = self._batch(number, rows[own], jax.tree.map(lambda leaf: leaf[own], before))
            found = jax.tree.map(lambda leaf: np.array(leaf[: group.stop - group.start]), found)
            found[0].diagnostics.update(self._agreement(found[0].values))
            with lock:
                done += group.stop - group.start
                bar.update(done)
            return found

        firsts = range(0, len(rows), width)
        with bar.phase("some again" if number else "data sets", len(rows)):
            return joined(batch, [slice(i, min(i + width, len(rows))) for i in firsts])

    @property
    def _length(self) -> int:
        """Draws that one call of the compiled program can make."""
        return max([min(PIECE, self.settings.draws), *windows(self.settings.warmup)])

    def _width(self) -> int:
        if jax.default_backend() == "cpu":
            return BATCH
        numbers = 2 * self._length * self.settings.chains * (self.targets.stacked.size + 3)
        return max(1, MOST_NUMBERS // numbers)

    def _batch(self, number: int, rows: np.ndarray, before: Fit | None) -> tuple[Found, Fit]:
        targets = jax.device_put(self.targets.take(rows))
        root = jax.random.key(self.settings.seed)
        starts, keys, shared = (jax.random.fold_in(root, 3 * number + i) for i in range(3))
        fits, paid = self._begun(targets, _spread(starts, rows, self.settings.chains), rows, before)
        run = partial(run_window, targets, _spread(keys, rows, self.settings.chains), shared)
        learner = fit_inside if self.settings.parameterization == "auto" and len(self.lam) else None
        drawn, lengths = 0, windows(self.settings.warmup)
        for number, draws in enumerate(lengths):
            learning = len(lengths) - LAST_WINDOWS - number  # windows, with this one
            fits, trail = run(drawn, draws, learning > 0, fits, length=self._length)
            paid = paid + np.sum(trail.info.n_steps[..., :draws], axis=(1, 2))
            if learning > 0:
                fits = retune(targets, fits, trail, draws, learning == 1, learner=learner)
            else:
                fits = settle(fits, trail, draws)
            drawn += draws
        pieces = []
        for first in range(0, self.settings.draws, self._length):
            draws = min(self._length, self.settings.draws - first)
            fits, trail = run(drawn + first, draws, False, fits, length=self._length)
            pieces.append(self._mapped(targets, fits, trail, draws))
        values, stats = jax.tree.map(lambda *x: np.concatenate(x, axis=2), *pieces)
        diagnostics = {
            "divergences": stats["diverging"].sum(axis=(1, 2)),
            "gradients_warmup": np.asarray(paid, np.int64),
            "gradients_sampling": stats["n_steps"].sum(axis=(1, 2), dtype=np.int64),
        }
        fits = jax.device_get(fits)
        return Found(values, stats, fits.lam, diagnostics), fits

    def _agreement(self, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """R-hat and ESS of the latents; those that are not to be kept are dropped."""
        names = [site.name for site in self.targets.stacked.program.latents]
        r_hat, ess = worst({name: values[name] for name in names})
        for name in values.keys() - set(self.kept):
            del values[name]
        return {"r_hat": r_hat, "ess": ess}

    def _begun(
        self, targets: Targets, keys: Any, rows: np.ndarray, before: Fit | None
    ) -> tuple[Fit, Any]:
        """The state before the first draw, and the gradients spent on it."""
        dtype, count = targets.stacked.program.dtype, len(rows)
        accept = np.asarray(self.settings.target_accept, dtype)
        if before is not None:
            start = begin_again(targets, keys, before, accept)
            return start.fit, start.gradients
        priors = look_at_priors(targets, count, DEFAULTS.radius)
        lams = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], count, axis=0), self.lam)
        if self.settings.parameterization != "given":
            sites = {n: replace(lams.of(n), reference=x) for n, x in priors.scales.items()}
            lams = Parameterization.by_site(sites)
        start = begin(targets, keys, lams, priors.center, priors.width, untouched(self.lam), accept)
        if not np.all(start.found):
            at = int(np.argmin(start.found))
            self._refuse(int(rows[at]), jax.tree.map(lambda leaf: leaf[at], start.fit))
        return start.fit, start.gradients

    def _refuse(self, number: int, fit: Fit) -> None:
        """Raises: no chain of this data set found a place to start."""
        target = self.targets.take(number).stacked
        position = np.asarray(fit.chains.position)[0]
        values = jax.device_get(jax.jit(Target.to_sites)(target, position, fit.lam))
        latents = {site.name: values[site.name] for site in target.program.latents}
        why = nonfinite(target.program, latents) or (
            "no chain found a starting point with a finite density and gradient. Check the "
            "model's priors, or leave the data set out."
        )
        raise ModelError(f"data set {number}: {why}")

    def _mapped(self, targets: Targets, fits: Fit, trail: Trail, draws: int) -> Any:
        """Values and statistics of the draws of one call."""
        info = trail.info
        values, log_dets = _map_back(targets, trail.position, fits.lam)
        stats = {
            "acceptance_rate": info.acceptance_rate,
            "diverging": info.diverging,
            "energy": info.energy,
            "n_steps": info.n_steps,
            "step_size": trail.step_size,
            "lp": trail.logdensity - log_dets,
        }
        latents = {site.name for site in targets.stacked.program.latents}
        values = {name: x for name, x in values.items() if name in self.kept or name in latents}
        return jax.tree.map(lambda leaf: np.asarray(leaf[:, :, :draws]), (values, stats))


@often
def _map_back(targets: Targets, positions: Any, lams: Parameterization) -> Any:
    def one(target: Target, positions: Any, lam: Parameterization) -> Any:
        rows: Callable = jax.vmap(jax.vmap(target.map_back, (0, None)), (0, None))
        return rows(positions, lam)

    return targets.each(one, positions, lams)


def _put(rows: np.ndarray, all_: np.ndarray, some: np.ndarray) -> None:
    """Overwrites some rows of an array."""
    all_[rows] = some


def _spread(key: Any, rows: np.ndarray, chains: int) -> Any:
    """A key for each chain of each data set, whichever data sets are sampled together."""

    def one(row: Any) -> Any:
        return jax.random.split(jax.random.fold_in(key, row), chains)

    return jax.vmap(one)(rows)
