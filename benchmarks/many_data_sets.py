"""Seconds for many data sets of eight schools: one call of `sample_many`, or a call for each.

    python -m benchmarks.many_data_sets [--datasets 1000] [--calls 10] [--out FILE]

The data sets are simulated with log_tau ~ N(1, 1): narrower than its prior, with which most of them
would be easy. Both sides are warm: everything was compiled before, and the time of a call ends with
its tree. `ar.sample` is called for the first `--calls` data sets, and its mean time multiplied. It
makes as many chains and draws; effective draws of the worst scalar are shown beside the times. CPU
time is that of all threads of the process.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import autoreparam as ar
from autoreparam.errors import SamplingWarning

OUT = Path(__file__).parent / "results" / "many_data_sets.json"


def simulate(count: int, sigma: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(0)
    mu, tau = rng.normal(0, 5, (count, 1)), np.exp(rng.normal(1, 1, (count, 1)))
    return mu + tau * rng.normal(size=(count, 8)) + sigma * rng.normal(size=(count, 8))


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """What a call gives, and its seconds by the clock and of CPU."""
    clock, cpu = time.perf_counter(), time.process_time()
    found = call()
    return found, time.perf_counter() - clock, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=10, help="of ar.sample, to extrapolate from")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplingWarning)
    problem = ar.zoo.load("eight_schools")
    sigma, size = problem.kwargs["sigma"], options.datasets
    y = simulate(size, sigma)
    length = {"draws": options.draws, "warmup": options.warmup, "progress": False}

    def many(seed: int) -> Any:
        data = {"sigma": sigma, "y": y}
        return ar.sample_many(problem.model, (), data, shared=["sigma"], seed=seed, **length)

    def one(number: int) -> Any:
        return ar.sample(problem.model, (), {"sigma": sigma, "y": y[number]}, **length)

    _, cold, _ = timed(lambda: many(1))
    tree, seconds, cpu = timed(lambda: many(0))
    found = tree["diagnostics"]
    one(0)
    calls = [timed(lambda number=number: one(number)) for number in range(options.calls)]
    per_call, cpu_per_call = (float(np.mean([call[i] for call in calls])) for i in (1, 2))
    alone = [ar.efficiency(call[0]).ess for call in calls]
    row = {
        "device": str(jax.devices()[0].device_kind),
        "data sets": size,
        "seconds": seconds,
        "with compiling": cold,
        "CPU seconds": cpu,
        "seconds per call of sample": per_call,
        "CPU seconds per call": cpu_per_call,
        "times as fast": per_call * size / seconds,
        "times less CPU": cpu_per_call * size / cpu,
        "median ESS": float(np.median(found["ess"])),
        "median ESS of sample": float(np.median(alone)),
        "R-hat above 1.01": int(np.sum(found["r_hat"] > 1.01)),
        "diverged": int(np.sum(found["divergences"] > 0)),
    }
    print("\n".join(f"{name}: {value}" for name, value in row.items()))
    options.out.write_text(json.dumps([row], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
