"""What each number that steers adaptation is worth: every one halved and doubled, on eight models.

    python -m benchmarks.ablation [--out FILE] [--seeds N] [--workers N] [--stop-after SECONDS]
        [--table]

A row of data per run, written as it ends; runs that the file holds are not made again. The table
shows, for each number, the ratio of total ESS per gradient to that of the defaults, geometric means
over models and seeds, with a standard error; in how many runs it changed anything; and the runs
that failed (R-hat above 1.05). Four models are of the zoo, four of the gauntlet, whose data are
read from `AUTOREPARAM_DATA`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

ZOO = ("eight_schools", "robust_schools", "unequal_groups", "local_scales")
MODELS = (*ZOO, "seeds", "pilots", "surgical", "random_walk")
RESULTS = Path("benchmarks/results/ablation.jsonl")


def variants() -> Iterator[tuple[str, str, Any]]:
    """The room, the name and the value of every number, halved and doubled."""
    import autoreparam as ar

    defaults = ar.Adaptation()
    for room in ("sampler", "learner"):
        for field in fields(getattr(defaults, room)):
            value = getattr(getattr(defaults, room), field.name)
            for factor in (0.5, 2.0):
                if isinstance(value, int):
                    yield room, field.name, max(1, int(value * factor))
                elif isinstance(value, float):
                    yield room, field.name, value * factor
                elif field.name == "again":
                    for part, number in value._asdict().items():
                        changed = value._replace(**{part: number * factor})
                        yield room, f"again.{part}", changed


def load(model: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A model and its arguments."""
    import autoreparam as ar
    from benchmarks.gauntlet.known import load_known

    if model in ZOO:
        entry = ar.zoo.load(model)
        return entry.model, entry.args, entry.kwargs
    found, arguments = load_known(model)
    return found, (), arguments


def work(model: str, seed: int, out: Path, stop_at: float) -> None:
    """All variants of one model, in this process: most share one compiled program."""
    import autoreparam as ar

    problem, done = load(model), {key(row) for row in read(out)}
    todo: list[tuple[str, str, Any]] = [("", "defaults", None), *variants()]
    for room, name, value in todo:
        row = {"model": model, "number": name, "value": plain(value), "seed": seed}
        if key(row) in done or time.time() > stop_at:
            continue
        adaptation = ar.Adaptation()
        if room:
            changed = replace(getattr(adaptation, room), **{name.partition(".")[0]: value})
            adaptation = replace(adaptation, **{room: changed})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tree = ar.sample(*problem, seed=seed, progress=False, adaptation=adaptation)
                found = ar.efficiency(tree, most=50)
                row |= {"total": found.ess_per_1000_total, "r_hat": found.r_hat}
                row |= {"divergences": found.divergences}
            except Exception as error:  # a number may be impossible: that is a result too
                row |= {"failure": f"{type(error).__name__}: {error}"[:200]}
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["model"], row["number"], json.dumps(row["value"]), row["seed"]


def read(out: Path) -> list[dict[str, Any]]:
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    return [json.loads(line) for line in lines]


def table(rows: list[dict[str, Any]]) -> str:
    """One line per number and value."""
    usual = {
        (row["model"], row["seed"]): row["total"]
        for row in rows
        if row["number"] == "defaults" and "total" in row
    }
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    failed: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        place, name = (row["model"], row["seed"]), (row["number"], json.dumps(row["value"]))
        if row.get("r_hat", np.inf) > 1.05:
            failed[name] += 1
        if place in usual and row.get("total", 0) > 0:
            ratios[name].append(float(np.log(row["total"] / usual[place])))
    lines = [
        f"{'number':20s} {'value':>16s} {'ratio':>6s} {'error':>6s} {'runs':>5s} {'changed':>8s} "
        "failed"
    ]
    for (number, value), logs in sorted(ratios.items()):
        error = np.std(logs, ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else np.nan
        lines.append(
            f"{number:20s} {value:>16s} {np.exp(np.mean(logs)):6.2f} {error:6.2f} {len(logs):5d} "
            f"{np.count_nonzero(logs):8d} {failed[number, value]}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--stop-after", type=float, default=float("inf"))
    parser.add_argument("--table", action="store_true", help="only print the table")
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model:
        if options.core is not None:
            os.sched_setaffinity(0, {options.core})
        work(options.model, options.seed, options.out, time.time() + options.stop_after)
        return
    if not options.table:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "benchmarks.ablation", "--out", str(options.out)]
        stop_at = time.time() + options.stop_after
        tasks = [(model, seed) for seed in range(options.seeds) for model in MODELS]

        def one(core: int) -> None:
            while tasks and time.time() < stop_at:
                model, seed = tasks.pop(0)
                task = ["--model", model, "--seed", str(seed), "--core", str(core)]
                task += ["--stop-after", str(stop_at - time.time())]
                subprocess.run([*command, *task], check=False)

        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(one, range(options.workers)))
    print(table(read(options.out)))


if __name__ == "__main__":
    main()
