"""What each number that steers adaptation is worth: every one halved and doubled, on four models.

    python -m benchmarks.ablation [--out FILE] [--seeds N] [--workers N] [--stop-after SECONDS]
        [--table]

A row of data per run, written as it ends; runs that the file holds are not made again. The table
shows, for each number, the ratio of total ESS per gradient to that of the defaults, geometric means
over models and seeds, with a standard error; and the runs that failed (R-hat above 1.05).
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
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

MODELS = ("eight_schools", "robust_schools", "unequal_groups", "local_scales")
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


def work(model: str, seeds: int, out: Path, stop_at: float) -> None:
    """All variants of one model, in this process: most share one compiled program."""
    import autoreparam as ar

    entry, done = ar.zoo.load(model), {key(row) for row in read(out)}
    todo: list[tuple[str, str, Any]] = [("", "defaults", None), *variants()]
    for seed in range(seeds):
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
                    tree = ar.sample(entry.model, entry.args, entry.kwargs, seed=seed,
                                     progress=False, adaptation=adaptation)  # fmt: skip
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
    lines = [f"{'number':24s} {'value':>18s} {'ratio':>6s} {'error':>6s} {'runs':>5s} failed"]
    for (number, value), logs in sorted(ratios.items()):
        error = np.std(logs, ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else np.nan
        lines.append(
            f"{number:24s} {value:>18s} {np.exp(np.mean(logs)):6.2f} {error:6.2f} {len(logs):5d} "
            f"{failed[number, value]}"
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
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model:
        if options.core is not None:
            os.sched_setaffinity(0, {options.core})
        work(options.model, options.seeds, options.out, time.time() + options.stop_after)
        return
    if not options.table:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "benchmarks.ablation", "--out", str(options.out)]
        command += ["--seeds", str(options.seeds), "--stop-after", str(options.stop_after)]
        for first in range(0, len(MODELS), options.workers):
            group = MODELS[first : first + options.workers]
            running = [
                subprocess.Popen([*command, "--model", model, "--core", str(core)])
                for core, model in enumerate(group)
            ]
            for process in running:
                process.wait()
    print(table(read(options.out)))


if __name__ == "__main__":
    main()
