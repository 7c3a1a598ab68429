"""Seconds, effective draws and gradients per second of a run with many chains on an accelerator.

    python -m benchmarks.many_chains [--chains N ...] [--seeds 2] [--out FILE]

German credit, λ learned on the way, everything by default but the number of chains and draws. The
first run of each number of chains compiles, and is reported with that; the others, each with its
own seed, are the warm ones, of which the median is reported. Effective draws are those of the worst
scalar, pooled over chains, and R-hat is nested. Gradients per second are those of the sampling
phase's compiled program. On a CPU it runs too, but with few chains.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np

import autoreparam as ar
from autoreparam.errors import SamplingWarning
from autoreparam.mcmc import lockstep

OUT = Path(__file__).parent / "results" / "many_chains.json"
LENGTHS = {  # warm-up and draws: fewer where chains are many
    64: (300, 1000), 200: (300, 500), 1024: (200, 250), 4096: (150, 120), 16384: (100, 40),
}  # fmt: skip


class Timed:
    """The compiled program, and what its calls took and did."""

    def __init__(self, program: Any) -> None:
        self.program, self.calls = program, []

    def __call__(self, given: Any, length: int, divergence: float, adapts: bool, mesh: Any) -> Any:
        began = time.perf_counter()
        found = jax.block_until_ready(self.program(given, length, divergence, adapts, mesh))
        seconds = time.perf_counter() - began
        gradients = np.asarray(found[2].info.n_steps[0, : given.count]).sum() * len(given.keys)
        self.calls.append((adapts, int(gradients), seconds))
        return found

    def speed(self) -> float:
        """Gradients per second while nothing adapts, of the last call."""
        return next(n / s for adapts, n, s in reversed(self.calls) if not adapts and n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplingWarning)
    lockstep.run_together = timed = Timed(lockstep.run_together)  # type: ignore[assignment]
    problem, rows = ar.zoo.load("german_credit"), []
    for chains in options.chains:
        warmup, draws = LENGTHS[chains]
        runs = []
        for seed in range(1 + options.seeds):
            began = time.perf_counter()
            tree = ar.sample(problem.model, problem.args, problem.kwargs, chains=chains, seed=seed,
                             warmup=warmup, draws=draws, progress=False)  # fmt: skip
            seconds = time.perf_counter() - began
            found = ar.efficiency(tree, most=50)
            speed = timed.speed() if timed.calls else np.nan
            runs.append((seconds, found.ess, found.r_hat, found.gradients_total, speed))
            print(chains, seed, runs[-1], flush=True)
        (first, *_), *warm = runs
        seconds, ess, r_hat, gradients, speed = (list(column) for column in zip(*warm))
        rows.append({
            "device": jax.devices()[0].device_kind,
            "chains": chains,
            "warm-up + draws": f"{warmup} + {draws}",
            "seconds": median(seconds),
            "with compiling": first,
            "least ESS of the seeds": min(ess),
            "largest nested R-hat": max(r_hat),
            "gradients, millions": median(gradients) / 1e6,
            "millions per second": median(speed) / 1e6,
            "seeds": len(warm),
        })  # fmt: skip
        options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
