"""The paper's protocol for one model: fits, runs at every number of leapfrog steps, ESS.

Every finished cell (method and number of steps) is stored at once; what is stored is not run again.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from autoreparam.experiments import store
from autoreparam.experiments.budget import Budget
from autoreparam.experiments.ess import ess_of_each_chain, largest_r_hat
from autoreparam.experiments.fits import PILOT, lane, learn_from_pilot, needed, pilots, prepare
from autoreparam.experiments.lockstep import Drawn, Job, Lane, run_jobs
from autoreparam.experiments.problem import Problem, load_problem, values
from autoreparam.experiments.store import Results, mean_and_error


@dataclass(eq=False)
class Run:
    """One model under the protocol; `note` is called with each thing that got done."""

    problem: Problem
    budget: Budget
    methods: tuple[str, ...]
    out: Path
    results: Results
    note: Callable[[str], None]
    out_of_time: Callable[[], bool]

    def all(self) -> bool:
        """Does what is not done yet; false if time ran out before."""
        # The default of JAX on a GPU, half as many bits, would roughen the density.
        with jax.default_matmul_precision("highest"):
            self._fit_all()
            return not self.out_of_time() and self._sample_all()

    # -- fits ---------------------------------------------------------------------------------

    def _fit_all(self) -> None:
        fits = needed(self.methods)
        wanted = [PILOT if name == "auto" else name for name in fits]
        if "dVIP" in wanted and "VIP" not in wanted:
            wanted.insert(0, "VIP")
        for name in wanted:
            if name in self.results.fits or self.out_of_time():
                continue
            began = time.perf_counter()
            fit = prepare(self.problem, name, self.results.fits, self.budget)
            self._keep(name, fit, began)

    def _keep(self, name: str, fit: Any, began: float) -> None:
        self.results.fits[name] = fit
        self._spent("fits", began)
        store.save(self.out, self.results)
        self.note(f"{name} fitted")

    def _spent(self, what: str, began: float) -> None:
        seconds = self.results.seconds
        seconds[what] = seconds.get(what, 0.0) + time.perf_counter() - began

    # -- runs ---------------------------------------------------------------------------------

    def _sample_all(self) -> bool:
        jobs = [job for job in self._jobs() if job.num_steps not in self._done(job.method)]
        lanes: dict[str, Lane] = {}
        for method in {job.method for job in jobs}:
            if method != "auto" or "auto" in self.results.fits:
                lanes[method] = lane(self.problem, method, self.results.fits, self.budget)
        if any(job.method == "auto" for job in jobs) and "auto" not in lanes:
            jobs += self._pilots()
            lanes[PILOT] = lane(self.problem, PILOT, self.results.fits, self.budget)
        for number, some in enumerate(_by_leap(jobs, self.budget.leap)):
            leap = int(np.gcd.reduce([job.num_steps for job in some] + [self.budget.leap]))
            began = time.perf_counter()
            done = run_jobs(
                self.problem.target,
                some,
                lanes,
                lambda job, drawn: self._finish(job, drawn, lanes),
                key=jax.random.key(self.budget.seed + number),
                leap=leap,
                unroll=leap if jax.default_backend() != "cpu" else 1,
                out_of_time=self.out_of_time,
            )
            self._spent("sampling", began)
            store.save(self.out, self.results)
            if not done:
                return False
        return True

    def _jobs(self) -> list[Job]:
        b = self.budget
        return [
            Job(method, steps, 2 if method == "iHMC" else 1, b.warmup, b.adapt, b.draws)
            for method in self.methods
            for steps in b.num_steps
        ]

    def _pilots(self) -> list[Job]:
        b = self.budget
        return [
            Job(name, b.leap, 1, b.pilot_warmup, b.pilot_warmup, b.pilot_draws, urgent=True)
            for name in pilots(b)
        ]

    def _done(self, method: str) -> dict[int, dict[str, Any]]:
        return self.results.cells.get(method, {})

    def _finish(self, job: Job, drawn: Drawn, lanes: dict[str, Lane]) -> None:
        if job.method in pilots(self.budget):
            return self._learn(job, drawn, lanes)
        cell = measure(self.problem, job, drawn, lanes[job.method], self._learning(job.method))
        self.results.add(job.method, job.num_steps, cell)
        store.save(self.out, self.results)
        return self.note(f"{job.method}, {job.num_steps} steps: {cell['ess']:.3g} ESS/1000∇")

    def _learn(self, job: Job, drawn: Drawn, lanes: dict[str, Lane]) -> None:
        began = time.perf_counter()
        paid = job.leapfrogs * self.budget.chains
        before = self.results.fits[job.method]
        fit = learn_from_pilot(self.problem, before, drawn, paid, self.budget)
        rounds = (*pilots(self.budget), "auto")
        following = rounds[rounds.index(job.method) + 1]
        self._keep(following, fit, began)
        lanes[following] = lane(self.problem, following, self.results.fits, self.budget)

    def _learning(self, method: str) -> int:
        """Gradients that the preparation of a method paid for."""
        return sum(self.results.fits[name].gradients for name in needed((method,)))


def measure(problem: Problem, job: Job, drawn: Drawn, lane: Lane, learning: int) -> dict[str, Any]:
    """A cell: ESS per 1000 gradients of sampling and in total, over chains, and how it went."""
    draws = values(problem.target, drawn.positions, lane.lams[0])
    each = jax.tree.map(np.asarray, ess_of_each_chain(draws))
    smallest = each.geyer.min(axis=0)  # over variables, of each chain
    sampling = job.draws * job.slots * job.num_steps
    ess, error = mean_and_error(1000 * smallest / sampling)
    everything = len(smallest) * job.leapfrogs + learning
    return {
        "ess": _short(ess),  # per 1000 gradients of sampling
        "error": _short(error),
        "truncated": _short(1000 * each.truncated.min(axis=0).mean() / sampling),
        "total": _short(1000 * smallest.sum() / everything),
        "slowest": problem.labels[int(each.geyer.mean(axis=1).argmin())],
        "r_hat": _short(float(largest_r_hat(draws))),
        "acceptance": _short(float(drawn.acceptance.mean())),
        "step_size": [_short(float(size)) for size in np.median(drawn.step_size, axis=0)],
    }


def run_model(
    name: str,
    budget: Budget,
    methods: Sequence[str],
    out: Path,
    *,
    note: Callable[[str], None] = lambda text: None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> tuple[Results, bool]:
    """The results of one model, as far as time allowed, and whether they are complete."""
    results = store.load_or_begin(out, name, budget)
    steps = set(budget.num_steps)
    if all(steps <= set(results.cells.get(method, {})) for method in methods):
        return results, True
    problem = load_problem(name)
    results.counts = problem.counts
    device = jax.devices()[0]
    results.machine = {
        "device": device.device_kind,
        "backend": jax.default_backend(),
        "dtype": str(np.dtype(problem.target.program.dtype)),
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
    began = time.perf_counter()
    run = Run(problem, budget, tuple(methods), out, results, note, out_of_time)
    done = run.all()
    run._spent("in all", began)
    store.save(out, results)
    return results, done


def _by_leap(jobs: list[Job], leap: int) -> list[list[Job]]:
    """Jobs that share a compiled program: those whose steps come in whole blocks, and the rest.

    The first have the pilot among them, whose λ the others may need.
    """
    long = [job for job in jobs if job.num_steps % leap == 0]
    short = [job for job in jobs if job.num_steps % leap != 0]
    return [some for some in (long, short) if some]


def _short(number: float) -> float:
    return float(f"{number:.5g}")
