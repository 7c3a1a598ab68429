"""Seconds from import to draws, and effective draws per second, against NumPyro's own NUTS.

    python -m benchmarks.cold_start [--models NAME ...] [--repeats 3] [--out FILE] [--table]

4 chains, 500 + 1000; every run in a process of its own, in turn, so that all see the same machine.
NumPyro runs the model as written and non-centered, its chains one after another, vectorized and in
parallel on as many devices; the fastest counts for time and the best for effective draws. Importing
this library, for its models, does not count there. Ours says how long it imported, traced, lowered
and compiled, summed over threads; the second process finds what the first has compiled in a folder.
Rows are written as they are measured, and those that the file holds are not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "cold_start.json"
MODELS = ("eight_schools", "robust_schools", "unequal_groups", "local_scales", "rare_features",
          "sleep_study", "german_credit", "election88")  # fmt: skip
CHAINS, WARMUP, DRAWS = 4, 500, 1000
METHODS = ("sequential", "vectorized", "parallel")
PARTS = ("import", "tracing", "lowering", "compiling")
OURS, AGAIN = "ours", "ours, second process"
AS_INSTALLED = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # sources are not compiled every time


def ours(model: str, folder: str) -> dict[str, Any]:
    """One run by the defaults: its seconds, and what they went into."""
    began = time.perf_counter()
    import jax.monitoring

    import autoreparam as ar

    imported = time.perf_counter() - began
    spent: dict[str, float] = defaultdict(float)

    def listen(event: str, duration: float, **_: Any) -> None:
        spent[event.rpartition("/")[2].removesuffix("_duration")] += duration

    jax.monitoring.register_event_duration_secs_listener(listen)
    ar.compilation_cache(folder)
    problem = ar.zoo.load(model)
    tree = ar.sample(problem.model, problem.args, problem.kwargs, progress=False)
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds, "ess": ar.efficiency(tree).ess, "import": imported,
        "tracing": spent["jaxpr_trace"], "lowering": spent["jaxpr_to_mlir_module"],
        "compiling": spent["backend_compile"],
    }  # fmt: skip


def numpyros(model: str, method: str, sites: list[str]) -> dict[str, Any]:
    """One run by NumPyro's NUTS, with these sites non-centered."""
    began = time.perf_counter()
    import numpyro

    if method == "parallel":
        numpyro.set_host_device_count(CHAINS)
    import jax
    from numpyro.handlers import reparam
    from numpyro.infer import MCMC, NUTS
    from numpyro.infer.reparam import LocScaleReparam

    loading = time.perf_counter()
    from autoreparam import zoo  # all of this library comes along, and does not count

    problem = zoo.load(model)
    began += time.perf_counter() - loading
    shapes = {name: own.split(",") if own else [] for name, _, own in map(_parts, sites)}
    config = {name: LocScaleReparam(0, shape_params=own) for name, own in shapes.items()}
    built = reparam(problem.model, config=config)
    mcmc = MCMC(NUTS(built), num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS,
                progress_bar=False, chain_method=method)  # fmt: skip
    mcmc.run(jax.random.key(0), *problem.args, **problem.kwargs)
    drawn = jax.device_get(mcmc.get_samples(group_by_chain=True))
    seconds = time.perf_counter() - began
    from arviz_stats.base import array_stats

    names = set(drawn) - {f"{name}_decentered" for name in shapes}
    rows = np.concatenate([drawn[n].reshape(CHAINS, DRAWS, -1) for n in sorted(names)], axis=2)
    scalars = np.moveaxis(rows, 2, 0)
    bulk = array_stats.ess(scalars, method="bulk")
    tail = array_stats.ess(scalars, method="tail", prob=(0.05, 0.95))
    return {"seconds": seconds, "ess": float(min(bulk.min(), tail.min()))}


def _parts(site: str) -> tuple[str, str, str]:
    return site.partition(":")


def noncentered(model: str) -> list[str]:
    """The sites that NumPyro can non-center, each with its shape parameters after a colon."""
    import autoreparam as ar

    problem = ar.zoo.load(model)
    program = ar.inspect(problem.model, problem.args, problem.kwargs, implicit=False)
    return [
        f"{site.name}:{','.join(site.shape_parameters)}"
        for site in program.candidates
        if site.parents and site.shape_parameters is not None
    ]


def summarize(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over repeats, one row per model; ratios to NumPyro's fastest, and to its best."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row["model"]][row["how"]].append(row)

    def median(runs: list[dict[str, Any]], of: str) -> float:
        values = [r["ess"] / r["seconds"] if of == "rate" else r[of] for r in runs]
        return float(np.median(values)) if values else float("nan")

    lines = []
    for model, runs in found.items():
        theirs = [own for how, own in runs.items() if how not in (OURS, AGAIN)]
        seconds, rate = median(runs[OURS], "seconds"), median(runs[OURS], "rate")
        fastest = min((median(own, "seconds") for own in theirs), default=float("nan"))
        best = max((median(own, "rate") for own in theirs), default=float("nan"))
        parts = {name: median(runs[OURS], name) for name in PARTS}
        lines.append({
            "model": model, "seconds": seconds, "NumPyro": fastest, "ratio": seconds / fastest,
            "second process": median(runs[AGAIN], "seconds"), "ESS per second": rate,
            "NumPyro's": best, "ratio of ESS": rate / best, **parts, "repeats": len(runs[OURS]),
        })  # fmt: skip
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cold_start",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="only print the table")
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        how, model, *rest = options.run
        row = ours(model, *rest) if how == OURS else numpyros(model, how, rest)
        print(json.dumps(row))
        return
    rows = json.loads(options.out.read_text())["runs"] if options.out.exists() else []
    subprocess.run([sys.executable, "-c", "import autoreparam"], check=True, env=AS_INSTALLED)
    for repeat in range(options.repeats if not options.table else 0):
        for model in options.models:
            for row in _measure(model, repeat, rows):
                rows.append(row)
                content = {"summary": summarize(rows), "runs": rows}
                options.out.write_text(json.dumps(content, indent=0))
                seconds = f"{row['seconds']:6.1f} s  ESS {row['ess']:6.0f}"
                print(f"{model:18s} {row['how']:26s} {seconds}", flush=True)
    from autoreparam.render.table import Table

    lines = summarize(rows)
    cells = [
        [f"{x:.2f}" if isinstance(x, float) else str(x) for x in line.values()] for line in lines
    ]
    print(Table(tuple(lines[0]), cells, numbers=True).to_text())


def _measure(model: str, repeat: int, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The runs of one model that are still missing, one after another."""
    done = {(row["model"], row["how"], row["repeat"]) for row in rows}
    sites = noncentered(model)
    ways: list[tuple[str, str, list[str]]] = []
    for form, changed in (("centered", []), ("noncentered", sites)):
        if form == "noncentered" and not sites:
            continue
        ways += [(f"{form}, {method}", method, changed) for method in METHODS]
    with tempfile.TemporaryDirectory() as folder:
        ways = [(OURS, OURS, [folder]), (AGAIN, OURS, [folder]), *ways]
        for how, run, rest in ways:
            if (model, how, repeat) in done:
                continue
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.cold_start", "--run"]
            found = subprocess.run(
                [*command, run, model, *rest],
                check=True,
                stdout=subprocess.PIPE,
                env=AS_INSTALLED,
            )
            yield {"model": model, "how": how, "repeat": repeat, **json.loads(found.stdout)}


if __name__ == "__main__":
    main()
