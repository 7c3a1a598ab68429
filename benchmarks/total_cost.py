"""ESS per 1000 gradients with everything counted: parameterizations side by side on the zoo.

    python -m benchmarks.total_cost [--models NAME ...] [--methods NAME ...] [--kernels auto nuts]
                                    [--seeds 5] [--out FILE] [--time-limit SECONDS]

4 chains, 500 + 1000. ESS is the minimum over all scalar latents of the smaller of bulk and tail;
ESS of the means is shown beside it. Kernel "auto" is the default of `ar.sample`. Each run is
written as it finishes, and a run that is already in the file is not repeated; the table shows
medians over seeds.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

import autoreparam as ar
from autoreparam.errors import SamplingWarning
from autoreparam.render.table import Table

MODELS: dict[str, tuple[str, dict]] = {
    "eight_schools": ("eight_schools", {}),
    "funnel_10": ("funnel", {"n": 9}),
    "funnel_100": ("funnel", {"n": 99}),
    "german_credit": ("german_credit", {}),
    "election88": ("election88", {}),
    "electric": ("electric", {}),
    "radon_MN": ("radon", {"state": "MN"}),
    "radon_PA": ("radon", {"state": "PA"}),
    "radon_AZ": ("radon", {"state": "AZ"}),
    "radon_scales_MN": ("radon_scales", {"state": "MN"}),
    "unequal_groups_20": ("unequal_groups", {"n": 20}),
    "unequal_groups_500": ("unequal_groups", {"n": 500}),
    "co2_trend": ("co2_trend", {}),
    "co2_trend_plain": ("co2_trend", {"plain": True}),
    "correlated_slopes": ("correlated_slopes", {}),
    "stochastic_volatility": ("stochastic_volatility", {}),
    "horseshoe": ("horseshoe", {}),
    "regularized_horseshoe": ("horseshoe", {"regularized": True}),
    "r2d2": ("r2d2", {}),
    "robust_schools": ("robust_schools", {}),
    "cauchy_schools": ("robust_schools", {"df": 1.0}),
    "rare_features": ("rare_features", {}),
    "local_scales": ("local_scales", {}),
    "local_exponential": ("local_scales", {"family": "exponential"}),
    "german_credit_gamma": ("german_credit_gamma", {}),
    "gp_poisson": ("gp_poisson", {}),
}
KERNELS = ("auto", "nuts", "hmc")
METHODS = ("auto", "centered", "noncentered", "vip")


def run(name: str, method: str, kernel: str, seed: int) -> dict:
    """One run of one model: what it delivered and what it cost."""
    problem = ar.zoo.load(MODELS[name][0], **MODELS[name][1])
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SamplingWarning)
        tree = ar.sample(problem.model, problem.args, problem.kwargs, parameterization=method,
                         kernel=kernel, seed=seed, progress=False)  # fmt: skip
    seconds = time.perf_counter() - began
    found = ar.efficiency(tree)
    return {
        "model": name, "method": method, "kernel": kernel, "seed": seed, "seconds": seconds,
        "sampling": found.ess_per_1000_sampling, "total": found.ess_per_1000_total,
        "means_total": found.ess_mean_per_1000_total, "r_hat": found.r_hat,
        "divergences": found.divergences, "gradients": found.gradients_total,
        "used": tree.attrs["kernel"], "learning_seconds": tree.attrs["learning_time"],
        "warned": any("R-hat" in str(one.message) for one in caught),
    }  # fmt: skip


def table(rows: list[dict]) -> str:
    """Medians over seeds, one row per model and kernel."""
    lines = []
    for name in MODELS:
        for kernel in sorted({row["kernel"] for row in rows if row["model"] == name}):
            cells = []
            for method in METHODS:
                cell = (name, kernel, method)
                found = [row["total"] for row in rows
                         if (row["model"], row["kernel"], row["method"]) == cell]  # fmt: skip
                cells.append(f"{np.median(found):.1f}" if found else "")
            lines.append([f"{name}, {kernel}", *cells])
    return Table(("model, kernel", *METHODS), lines, numbers=True).to_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--kernels", nargs="+", default=["auto", "nuts"], choices=KERNELS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/total_cost.json"))
    parser.add_argument("--time-limit", type=float, default=float("inf"))
    options = parser.parse_args()
    began = time.perf_counter()
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    done = {(row["model"], row["method"], row["kernel"], row["seed"]) for row in rows}
    for name in options.models:
        for kernel in options.kernels:
            for seed in range(options.seeds):
                for method in options.methods:
                    late = time.perf_counter() - began > options.time_limit
                    if late or (name, method, kernel, seed) in done:
                        continue
                    row = run(name, method, kernel, seed)
                    rows.append(row)
                    options.out.write_text(json.dumps(rows, indent=0))
                    print(f"{name:20s} {kernel:5s} {method:12s} seed {seed}  total "
                          f"{row['total']:7.2f}  sampling {row['sampling']:7.2f}  R-hat "
                          f"{row['r_hat']:.3f}  {row['seconds']:.1f} s", flush=True)  # fmt: skip
    print(table(rows))


if __name__ == "__main__":
    main()
