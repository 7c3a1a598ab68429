"""How robust the default is: known and generated posteriors that break samplers.

    python -m benchmarks.gauntlet [--models nine|generated|all] [--half tune|report|both]
        [--seeds N] [--methods NAME ...] [--workers N] [--limit SECONDS] [--stop-after SECONDS]
        [--out FILE] [--label TEXT] [--x64] [--reference] [--table]

4 chains, 500 + 1000, everything else as `ar.sample` does by itself. Each run is one JSON line,
written as it ends; runs that the file holds already are not made again, so a call can be cut
short (`--stop-after`) and repeated. `--reference` makes one long run per model instead, against
which the table computes z-scores. Eight models read their data from `AUTOREPARAM_DATA`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.gauntlet.generator import COUNT
from benchmarks.gauntlet.pool import Pool, append, read
from benchmarks.gauntlet.table import render
from benchmarks.gauntlet.tasks import METHODS, Task, list_tasks

RESULTS = Path("benchmarks/results")


def main() -> None:
    options = _options()
    if not options.table:
        _work(options)
    rows = [row for row in read(options.out) if options.label in ("", row["label"])]
    print(render(rows, read(options.references)))


def _work(options: argparse.Namespace) -> None:
    tasks = list_tasks(
        options.models, options.half, options.seeds, tuple(options.methods), options.x64,
        options.label, options.count,
    )  # fmt: skip
    out = options.references if options.reference else options.out
    if options.reference:
        tasks = list_tasks(options.models, options.half, 1, ("reference",), True, "", options.count)
    if options.only:
        tasks = [task for task in tasks if task.model in options.only]
    named = list(Task.__dataclass_fields__)
    done = {tuple(row[name] for name in named) for row in read(out)}
    left = [task for task in tasks if tuple(task.to_dict().values()) not in done]
    print(f"{len(left)} of {len(tasks)} runs to make", flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)

    def record(task: Task, row: dict) -> None:
        append(out, {**task.to_dict(), **row})
        print(_in_a_line(task, row), flush=True)

    stop_at = time.monotonic() + options.stop_after
    Pool(left, options.limit, stop_at, record).run(options.workers)


def _in_a_line(task: Task, row: dict) -> str:
    head = f"{task.model:15s} {task.method:20s} seed {task.seed:4d} {row['seconds']:6.1f} s  "
    if "failure" in row:
        return head + row["failure"].splitlines()[0][:100]
    if "exact" in row:
        return head + "exact"
    return head + (
        f"total {row['total']:7.2f}  R-hat {row['r_hat']:.3f}  "
        f"divergences {row['divergences']:4d}  warnings {len(row['warnings'])}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gauntlet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--models", choices=("nine", "generated", "all"), default="all",
        help="nine: the known ones, with simple ones beside them")  # fmt: skip
    add("--only", nargs="+", default=[], metavar="MODEL", help="of these, models by name")
    add("--half", choices=("tune", "report", "both"), default="both")
    add("--seeds", type=int, default=1, help="runs per model and method")
    add("--count", type=int, default=COUNT, help="of generated models, both halves together")
    add("--methods", nargs="+", default=["auto"], choices=METHODS)
    add("--x64", action="store_true", help="double precision")
    add("--workers", type=int, default=1)
    add("--limit", type=float, default=300.0, help="seconds per run; then it is a timeout")
    add("--stop-after", type=float, default=float("inf"), help="seconds for the whole call")
    add("--out", type=Path, default=RESULTS / "gauntlet.jsonl")
    add("--references", type=Path, default=RESULTS / "gauntlet_reference.jsonl")
    add("--reference", action="store_true", help="make the references instead")
    add("--label", default="", help="which code it is")
    add("--table", action="store_true", help="only print the table")
    return parser.parse_args()


if __name__ == "__main__":
    main()
