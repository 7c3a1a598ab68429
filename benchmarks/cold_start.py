"""Seconds from import to result, against NumPyro's own NUTS with the same numbers, in one run.

    python -m benchmarks.cold_start [--repeats 3] [--out FILE]

4 chains, 500 + 1000, NUTS, non-centered; every run in its own process, alternating. `ratio` is
relative to NumPyro's default, which on one CPU device runs chains one after another; its vectorized
method is shown beside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import numpy as np

OURS = """
import autoreparam as ar
problem = ar.zoo.load("{model}")
tree = ar.sample(problem.model, problem.args, problem.kwargs, parameterization="noncentered",
                 kernel="nuts", chains=4, warmup=500, draws=1000, progress=False)
assert tree["posterior"].sizes["draw"] == 1000
"""
NUMPYRO = """
import jax
from numpyro.handlers import reparam
from numpyro.infer import MCMC, NUTS
from numpyro.infer.reparam import LocScaleReparam
from autoreparam import zoo
problem = zoo.load("{model}")
model = reparam(problem.model, config={{name: LocScaleReparam(0) for name in {sites}}})
mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=1000, num_chains=4, progress_bar=False,
            chain_method="{method}")
mcmc.run(jax.random.key(0), *problem.args, **problem.kwargs)
assert len(mcmc.get_samples()) > 1
"""
MODELS = {"eight_schools": ["theta"], "german_credit": ["log_tau", "beta"]}


def seconds(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", help="write the figures as JSON to this file")
    options = parser.parse_args()
    rows = []
    for model, sites in MODELS.items():
        times: dict[str, list[float]] = {"ours": [], "sequential": [], "vectorized": []}
        for _ in range(options.repeats):
            times["ours"].append(seconds(OURS.format(model=model)))
            for method in ("sequential", "vectorized"):
                code = NUMPYRO.format(model=model, sites=sites, method=method)
                times[method].append(seconds(code))
        best = {name: float(np.median(found)) for name, found in times.items()}
        row = {
            "model": model,
            "seconds": best["ours"],
            "numpyro_sequential_seconds": best["sequential"],
            "numpyro_vectorized_seconds": best["vectorized"],
            "ratio": best["ours"] / best["sequential"],
            "ratio_to_vectorized": best["ours"] / best["vectorized"],
        }
        rows.append(row)
        print("  ".join(f"{k}={v:.2f}" if isinstance(v, float) else f"{k}={v}"
                        for k, v in row.items()), flush=True)  # fmt: skip
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
