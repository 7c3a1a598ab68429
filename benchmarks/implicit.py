"""Models non-centered by hand beside the same models as the zoo has them.

    python -m benchmarks.implicit [--models NAME ...] [--seeds 3] [--draw] [--out FILE]
                                  [--time-limit SECONDS]

For each model: how long `inspect` takes and how much of it is looking; which sites are recognized;
how far the density, and its gradient, of the twin are from those of the model at the same λ and the
same working coordinates; how long a compiled gradient takes, both centered. With `--draw` both are
sampled too, and the twin once more as written (`implicit=False`). Runs are written as they finish.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

import autoreparam as ar
from autoreparam.program.target import Target
from autoreparam.render.table import Table
from benchmarks.target_cost import seconds
from benchmarks.total_cost import MODELS
from benchmarks.twins import twin

NOISE = "_noise"


def look(name: str) -> dict[str, Any] | None:
    """What is recognized in a model's twin, whether it is the same target, and what it costs."""
    problem = ar.zoo.load(MODELS[name][0], **MODELS[name][1])
    model = twin(problem)
    if model is None:
        return None
    began = time.process_time()  # other programs may be running
    plain = ar.inspect(problem.model, problem.args, problem.kwargs)
    between = time.process_time()
    program = ar.inspect(model, problem.args, problem.kwargs)
    ended = time.process_time()
    made = [site.name for site in program.candidates if site.implied is not None]
    row = {
        "model": name,
        "inspect": between - began,
        "inspect_twin": ended - between,
        "looking": plain.structure.looking,
        "recognized": made,
        "missed": [
            s.name for s in program.latents if s.name.endswith(NOISE) and s.name not in made
        ],
        "in_the_model": [s.name for s in plain.candidates if s.implied is not None],
    }
    return {**row, **_compare(Target(plain), Target(program))}


def _compare(plain: Target, twin: Target) -> dict[str, Any]:
    """Differences of density and gradient, and the ratio of times of a centered gradient."""
    names = {s.name.removesuffix(NOISE): s.name for s in twin.program.latents}
    if set(names) != {s.name for s in plain.program.latents}:
        return {}
    order = [names[s.name] for s in plain.program.latents]

    def same(lam: ar.Parameterization) -> ar.Parameterization:
        return ar.Parameterization.by_site({names[n]: lam.of(n) for n in lam}).check(twin.program)

    def moved(position: Any) -> Any:
        parts = plain.unflatten(position)
        return twin.flatten(dict(zip(order, parts.values())))

    rng, gaps = np.random.default_rng(0), []
    one, other = (jax.jit(jax.value_and_grad(t.logdensity)) for t in (plain, twin))
    start = ar.Parameterization.constant(plain.program, 0.5)
    if {names[n] for n in start} != {site.name for site in twin.program.candidates}:
        return {}
    for level in (0.0, 0.5, 1.0):
        lam = start.map(lambda leaf, level=level: np.full_like(leaf, level))
        position = (0.3 * rng.normal(size=plain.size)).astype(plain.program.dtype)
        (value, slope), (value_twin, slope_twin) = (
            one(position, lam), other(moved(position), same(lam)))  # fmt: skip
        gaps.append(abs(float(value - value_twin)) / (1 + abs(float(value))))
        gap = np.max(np.abs(np.asarray(moved(slope)) - np.asarray(slope_twin)))
        gaps.append(float(gap / (1 + np.max(np.abs(slope)))))
    lam = start.map(np.ones_like)
    mine, hers = moved(position), same(lam)
    # In short turns, so that other programs disturb both alike.
    times = [(seconds(lambda: one(position, lam), 10), seconds(lambda: other(mine, hers), 10))
             for _ in range(100)]  # fmt: skip
    cheap, dear = np.median(times, axis=0)
    ratio = np.median([slow / fast for fast, slow in times])
    flops, flops_twin = _flops(one, position, lam), _flops(other, mine, hers)
    return {
        "gap": max(gaps), "gradient": cheap, "gradient_twin": dear, "ratio": ratio,
        "flops": flops, "flops_twin": flops_twin,
    }  # fmt: skip


def _flops(function: Any, *args: Any) -> float:
    """What XLA counts in a compiled call; other programs do not disturb it."""
    return float(function.lower(*args).compile().cost_analysis()["flops"])


def draw(name: str, how: str, seed: int) -> dict[str, Any]:
    """One run: of the model, of its twin, or of its twin as written."""
    problem = ar.zoo.load(MODELS[name][0], **MODELS[name][1])
    model = problem.model if how == "model" else twin(problem)
    assert model is not None
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ar.sample(model, problem.args, problem.kwargs, seed=seed, progress=False,
                         implicit=how != "as written")  # fmt: skip
    # Of the same variables: what are latents of the model are deterministics of its twin.
    names = [n.removesuffix(NOISE) for n in tree.attrs["latents"]]
    known = [n if n in tree["posterior"] else f"{n}{NOISE}" for n in names]
    tree.attrs["latents"] = known
    found, lam = ar.efficiency(tree), ar.parameterization(tree)
    return {
        "model": name, "how": how, "seed": seed, "seconds": time.perf_counter() - began,
        "total": found.ess_per_1000_total, "sampling": found.ess_per_1000_sampling,
        "r_hat": found.r_hat, "divergences": found.divergences,
        "lam": {n.removesuffix(NOISE): round(float(np.mean(lam[n])), 4) for n in lam},
    }  # fmt: skip


def table(looks: list[dict], draws: list[dict]) -> str:
    """One row per model: medians over seeds."""

    def median(name: str, how: str) -> float:
        found = [row["total"] for row in draws if (row["model"], row["how"]) == (name, how)]
        return float(np.median(found)) if found else np.nan

    lines = []
    for row in looks:
        totals = [median(row["model"], how) for how in ("model", "twin", "as written")]
        lines.append(
            [row["model"], str(len(row["recognized"])), str(len(row["missed"])),
             f"{row['inspect_twin']:.2f}",
             f"{1000 * row['looking']:.0f}", f"{row.get('gap', np.nan):.0e}",
             f"{row.get('ratio', np.nan):.2f}",
             f"{row.get('flops_twin', np.nan) / row.get('flops', 1.0):.2f}",
             *(f"{total:.1f}" for total in totals)]
        )  # fmt: skip
    head = ("model", "recognized", "missed", "inspect, s", "looking, ms", "gap", "gradient ratio",
            "the same in flops", "model", "twin", "twin as written")  # fmt: skip
    return Table(head, lines, numbers=True).to_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/implicit.json"))
    parser.add_argument("--time-limit", type=float, default=float("inf"))
    options = parser.parse_args()
    began = time.perf_counter()
    found = json.loads(options.out.read_text()) if options.out.exists() else {}
    looks, draws = found.get("looks", []), found.get("draws", [])

    def late() -> bool:
        return time.perf_counter() - began > options.time_limit

    def write() -> None:
        options.out.write_text(json.dumps({"looks": looks, "draws": draws}, indent=0))

    for name in options.models:
        if not late() and name not in {row["model"] for row in looks}:
            row = look(name)
            if row is not None:
                looks.append(row)
                write()
                print(row, flush=True)
    done = {(row["model"], row["how"], row["seed"]) for row in draws}
    able = [row["model"] for row in looks if row["model"] in options.models]
    wanted = [(name, how, seed) for seed in range(options.seeds) for name in able
              for how in ("model", "twin", "as written")]  # fmt: skip
    for run in wanted if options.draw else []:
        if not late() and run not in done:
            draws.append(draw(*run))
            write()
            print(draws[-1], flush=True)
    print(table(looks, draws))


if __name__ == "__main__":
    main()
