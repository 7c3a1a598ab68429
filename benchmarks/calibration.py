"""Simulation-based calibration of eight schools, all data sets in one call of `ar.sample_many`.

    python -m benchmarks.calibration [--datasets 1000] [--seed 0] [--precision auto]
        [--out FILE]

Parameters come from the prior, data from the model. The rank of each parameter among its thinned
posterior draws is then uniform, and so is that of the log likelihood, which also sees a posterior
that ignores its data. Everything is adapted for each data set, λ included, and none is left out,
whatever its diagnostics say. The p-value is that of a χ² test of the ranks in 20 bins; the smallest
is multiplied by the number of tests.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import jax
import numpy as np
from scipy import stats

import autoreparam as ar
from autoreparam.errors import SamplingWarning

OUT = Path(__file__).parent / "results" / "calibration.json"
BINS, APART = 20, 20  # draws of a chain between those that are ranked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=("auto", "single", "double"), default="auto")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplingWarning)
    problem = ar.zoo.load("eight_schools")
    sigma, size = problem.kwargs["sigma"], options.datasets
    drawn = ar.predict(
        problem.model, (), {"sigma": sigma}, num_draws=size, seed=1000 + options.seed
    )
    y = drawn["prior_predictive"]["y"].values[0]
    truth = {name: values.values[0] for name, values in drawn["prior"].data_vars.items()}
    began = time.perf_counter()
    tree = ar.sample_many(
        problem.model, (), {"sigma": sigma, "y": y}, shared=["sigma"], seed=options.seed,
        precision=options.precision, progress=False,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    draws = {name: tree["posterior"][name].values[:, :, ::APART] for name in truth}
    truth["log likelihood"] = -(((y - truth["theta"]) / sigma) ** 2).sum(-1)
    residuals = (y[:, None, None] - draws["theta"]) / sigma
    draws["log likelihood"] = -(residuals**2).sum(-1)
    tests = {}
    for name, values in draws.items():
        ranks = (values < truth[name][:, None, None]).sum((1, 2)).reshape(size, -1)
        most = values.shape[1] * values.shape[2]
        for number, column in enumerate(ranks.T):
            counts, _ = np.histogram((column + 0.5) / (most + 1), BINS, (0, 1))
            label = f"{name}[{number}]" if ranks.shape[1] > 1 else name
            tests[label] = float(stats.chisquare(counts).pvalue)
    worst = min(tests, key=tests.__getitem__)
    found = tree["diagnostics"]
    row = {
        "device": jax.devices()[0].device_kind,
        "seed": options.seed,
        "data sets": size,
        "precision": options.precision,
        "seconds": seconds,
        "tests": len(tests),
        "smallest p-value, corrected": min(1.0, tests[worst] * len(tests)),
        "of": worst,
        "R-hat above 1.01": int(np.sum(found["r_hat"].values > 1.01)),
        "diverged": int(np.sum(found["divergences"].values > 0)),
    }
    print(", ".join(f"{name} {p:.3f}" for name, p in tests.items()))
    print("\n".join(f"{name}: {value}" for name, value in row.items()))
    options.out.write_text(json.dumps([row], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
