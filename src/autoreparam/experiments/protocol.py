"""The paper's protocol: fits, runs at every number of leapfrog steps, ESS.

Every finished cell (a method and a number of steps) is stored at once and not run again. Cells that
cannot win are not run at all: a draw counts at most once, so n leapfrog steps give at most 1000/n
ESS per 1000 gradients, and only the best is reported.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import jax
import numpy as np

from autoreparam.experiments import store
from autoreparam.experiments.budget import Budget
from autoreparam.experiments.ess import ess_of_each_chain, longest_stay, r_hat
from autoreparam.experiments.fits import (
    PILOT,
    Prepared,
    lane,
    learn_from_pilot,
    needed,
    pilots,
    prepare,
)
from autoreparam.experiments.problem import Problem, load_problems, values
from autoreparam.experiments.queue import Drawn, Job, Lane, run_jobs
from autoreparam.experiments.store import Results, mean_and_error
from autoreparam.experiments.threads import in_threads

FITS_AT_ONCE = 4  # they wait for the compiler most of the time
# JAX's default on a GPU has half as many bits, which would make the density rough.
exact_products = partial(jax.default_matmul_precision, "highest")


@dataclass(eq=False)
class Run:
    """Models that run together under the protocol; `note` is told of everything that gets done."""

    problems: dict[str, Problem]
    results: dict[str, Results]
    budget: Budget
    methods: tuple[str, ...]
    out: Path
    note: Callable[[str, str], None]
    out_of_time: Callable[[], bool]

    def all(self) -> bool:
        """Does what is not done yet; false if time ran out first."""
        failed = Event()
        in_threads(partial(self._fit, failed), self.problems, FITS_AT_ONCE, failed.set)
        with exact_products():
            return not self.out_of_time() and self._sample_all()

    # -- fits ---------------------------------------------------------------------------------

    def _fit(self, failed: Event, name: str) -> None:
        known = self.results[name].fits
        for fit in _fits_before(self.methods):
            if fit in known or failed.is_set() or self.out_of_time():
                continue
            with exact_products():
                found = prepare(self.problems[name], fit, known, self.budget)
            self._keep(name, fit, found)

    def _keep(self, name: str, fit: str, found: Prepared) -> None:
        self.results[name].fits[fit] = found
        store.save(self.out, self.results[name])
        self.note(name, f"{fit} fitted")

    # -- runs ---------------------------------------------------------------------------------

    def _sample_all(self) -> bool:
        lanes: dict[tuple[str, str], Lane] = {}
        for number, steps in enumerate(self.budget.stages()):
            jobs = [job for name in self.problems for job in self._jobs(name, steps, lanes)]
            done = run_jobs(
                jobs,
                lanes,
                lambda job, drawn: self._finish(job, drawn, lanes),
                seed=self.budget.seed + number,
                out_of_time=self.out_of_time,
            )
            if not done:
                return False
        return True

    def _jobs(
        self, name: str, steps: tuple[int, ...], lanes: dict[tuple[str, str], Lane]
    ) -> list[Job]:
        """The missing cells of a model, pilots first, with their lanes where known."""
        b, fits = self.budget, self.results[name].fits
        jobs = [
            Job(name, method, number, slots(method), b.warmup, b.adapt, b.draws)
            for method in self.methods
            for number in wanted(b.num_steps, method, self.results[name])
            if number in steps
        ]
        if any(job.method == "auto" for job in jobs):
            pilot = partial(
                Job, name, num_steps=b.pilot_steps, slots=1, warmup=b.pilot_warmup,
                adapt=b.pilot_warmup, draws=b.pilot_draws, urgent=True,
            )  # fmt: skip
            rounds = pairwise((*pilots(b), "auto"))
            jobs += [pilot(method) for method, learned in rounds if learned not in fits]
        for method in {job.method for job in jobs}:
            if all(fit in fits for fit in needed((method,))):
                lanes[name, method] = lane(self.problems[name], method, fits, b)
        return jobs

    def _finish(self, job: Job, drawn: Drawn, lanes: dict[tuple[str, str], Lane]) -> None:
        results = self.results[job.problem]
        if job.method in pilots(self.budget):
            return self._learn(job, drawn, lanes)
        learning = sum(results.fits[name].gradients for name in needed((job.method,)))
        cell = measure(self.problems[job.problem], job, drawn, lanes[job.lane], learning)
        results.add(job.method, job.num_steps, cell)
        store.save(self.out, results)
        text = f"{job.method}, {job.num_steps} steps: {cell['ess']:.3g} ESS per 1000 gradients"
        return self.note(job.problem, text)

    def _learn(self, job: Job, drawn: Drawn, lanes: dict[tuple[str, str], Lane]) -> None:
        problem, fits = self.problems[job.problem], self.results[job.problem].fits
        paid = job.leapfrogs * self.budget.chains
        found = learn_from_pilot(problem, fits[job.method], drawn, paid, self.budget)
        following = dict(pairwise((*pilots(self.budget), "auto")))[job.method]
        self._keep(job.problem, following, found)
        lanes[job.problem, following] = lane(problem, following, fits, self.budget)


def slots(method: str) -> int:
    """Trajectories per draw."""
    return 2 if method == "iHMC" else 1


def wanted(numbers: Sequence[int], method: str, results: Results) -> list[int]:
    """The numbers of leapfrog steps not yet run that may still be the best."""
    best = max((cell["ess"] for cell in results.cells.get(method, {}).values()), default=0.0)
    return [
        number for number in numbers
        if number not in results.cells.get(method, {}) and best * slots(method) * number <= 1000
    ]  # fmt: skip


def unfinished(results: Mapping[str, Results], methods: Sequence[str]) -> list[str]:
    """The models with a number of leapfrog steps that is still to be run."""
    return [
        name for name, found in results.items()
        if any(wanted(found.settings["num_steps"], method, found) for method in methods)
    ]  # fmt: skip


def _fits_before(methods: tuple[str, ...]) -> list[str]:
    """The variational fits of these methods, in the order in which they build on each other."""
    wanted = [PILOT if name == "auto" else name for name in needed(methods)]
    return ["VIP", *wanted] if "dVIP" in wanted and "VIP" not in wanted else wanted


def measure(problem: Problem, job: Job, drawn: Drawn, lane: Lane, learning: int) -> dict[str, Any]:
    """A cell: ESS per 1000 gradients of sampling and in total, over chains, and how it went."""
    draws = values(problem.wide, drawn.positions, lane.lams[-1])
    each = jax.tree.map(lambda x: np.asarray(x)[problem.real], ess_of_each_chain(draws))
    smallest = each.paper.min(axis=0)  # over variables, of each chain
    slowest = int(each.paper.mean(axis=1).argmin())
    sampling = job.draws * job.slots * job.num_steps
    ess, error = mean_and_error(1000 * smallest / sampling)
    arviz, arviz_error = mean_and_error(1000 * each.arviz.min(axis=0) / sampling)
    alone, alone_error = mean_and_error(1000 * each.paper[slowest] / sampling)
    everything = len(smallest) * job.leapfrogs + learning
    return {
        "ess": _short(ess),  # per 1000 gradients of sampling
        "error": _short(error),
        "arviz": _short(arviz),
        "arviz_error": _short(arviz_error),
        "total": _short(1000 * smallest.sum() / everything),
        "slowest": problem.labels[slowest],  # on average over chains, and its ESS
        "slowest_ess": _short(alone),
        "slowest_error": _short(alone_error),
        "longest_stay": int(longest_stay(draws)),
        "r_hat": _short(np.asarray(r_hat(draws))[problem.real].max()),
        "acceptance": _short(drawn.acceptance.mean()),
        "step_size": [_short(size) for size in drawn.step_size],
    }


def run_models(
    names: Sequence[str],
    budget: Budget,
    methods: Sequence[str],
    out: Path,
    *,
    note: Callable[[str, str], None] = lambda name, text: None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> tuple[dict[str, Results], bool]:
    """The results of models that run together, as far as time allowed, and whether all is done."""
    results = {name: store.load_or_begin(out, name, budget) for name in names}
    open_ = unfinished(results, methods)
    if not open_:
        return results, True
    problems = {problem.name: problem for problem in load_problems(open_)}
    for name, problem in problems.items():
        results[name].counts = problem.counts
        results[name].machine = _machine(problem)
    some = {name: results[name] for name in open_}
    run = Run(problems, some, budget, tuple(methods), out, note, out_of_time)
    return results, run.all()


def _machine(problem: Problem) -> dict[str, str]:
    return {
        "device": jax.devices()[0].device_kind,
        "backend": jax.default_backend(),
        "dtype": str(np.dtype(problem.target.program.dtype)),
        "jax": jax.__version__,
        "python": platform.python_version(),
    }


def _short(number: float) -> float:
    return float(f"{number:.5g}")
