"""The gauntlet's results in words and numbers, rendered from its data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.gauntlet.scores import references_of, z_scores
from benchmarks.gauntlet.tasks import KNOWN, METHODS, NINE, NUMPYRO, model_seed

Row = dict[str, Any]
BAD, POOR = 1.05, 1.01  # R-hat
ENDS = ("centered", "noncentered")


def render(rows: list[Row], references: list[Row]) -> str:
    """Every table, for each label and precision by itself."""
    parts = []
    for label, x64 in sorted({(row["label"], row["x64"]) for row in rows}):
        here = [row for row in rows if (row["label"], row["x64"]) == (label, x64)]
        title = f"{label or 'no label'}, {'double' if x64 else 'single'} precision"
        parts += [f"# {title}: {len(here)} runs", _rates(here), _models(here), _ratios(here),
                  _scores(here, references), _failed(here)]  # fmt: skip
    return "\n\n".join(part for part in parts if part)


def total_of(row: Row) -> float:
    """ESS per 1000 gradients with everything counted; nothing where the run failed."""
    return row.get("total", 0.0)


def r_hat_of(row: Row) -> float:
    """The largest R-hat; infinite where the run failed."""
    return row.get("r_hat", np.inf)


def _rates(rows: list[Row]) -> str:
    lines = [
        "## Failures",
        f"{'models':17s} {'method':20s} {'runs':>5s} {'error':>6s} {'timeout':>8s} {'>1.05':>12s} "
        f"{'silent':>7s} {'>1.01':>12s} {'silent':>7s} {'diverging':>10s} {'total':>7s} "
        f"{'seconds':>8s}",
    ]
    for (group, method), found in _by(rows, lambda row: (_group(row), _order(row["method"]))):
        late = [row for row in found if row.get("failure") == "timeout"]
        broken = [row for row in found if "failure" in row]
        diverging = sum(row.get("divergences", 0) > 0 for row in found)
        seconds = np.median([row["seconds"] for row in found])
        lines.append(
            f"{group:17s} {METHODS[method]:20s} {len(found):5d} {len(broken) - len(late):6d} "
            f"{len(late):8d} {_above(found, BAD)} {_above(found, POOR)} {diverging:10d} "
            f"{np.median([total_of(row) for row in found]):7.2f} {seconds:8.1f}"
        )
    lines.append(
        "Errors and timeouts count as R-hat above either. Silent: the run ended without a warning "
        "(NumPyro has none to give: without a divergence)."
    )
    return "\n".join(lines)


def is_silent(row: Row) -> bool:
    """Whether nothing told the user that something is wrong."""
    if "failure" in row:
        return False
    if row["method"] in NUMPYRO:
        return row["divergences"] == 0
    return not row["warnings"]


def _above(rows: list[Row], limit: float) -> str:
    above = [row for row in rows if r_hat_of(row) > limit]
    share = f"{len(above)} ({len(above) / len(rows):.1%})"
    return f"{share:>12s} {sum(map(is_silent, above)):7d}"


def _models(rows: list[Row]) -> str:
    """Known models, and generated ones that were run by more than one method."""
    methods = [method for method in METHODS if any(row["method"] == method for row in rows)]
    lines = [
        "## Total ESS per 1000 gradients: median, lowest to highest; spread of auto",
        f"{'model':15s} " + " ".join(f"{method:>22s}" for method in methods) + "  spread",
    ]
    for model, found in _by_model(rows):
        by_method = {method: [total_of(row) for row in found if row["method"] == method]
                     for method in methods}  # fmt: skip
        if model not in KNOWN and sum(map(bool, by_method.values())) < 2:
            continue
        cells = [f"{_range(by_method[method]):>22s}" for method in methods]
        lines.append(f"{model:15s} " + " ".join(cells) + f"  {_spread(by_method.get('auto', []))}")
    note = "Spread: the ninth decile over the first."
    return "\n".join([*lines, note]) if len(lines) > 2 else ""


def _range(values: list[float]) -> str:
    if not values:
        return ""
    return f"{np.median(values):.1f}, {min(values):.1f}-{max(values):.1f}"


def _spread(values: list[float]) -> str:
    if len(values) < 3:
        return ""
    low, high = np.quantile(values, [0.1, 0.9])
    return f"{high / low:.1f}" if low > 0 else "inf"


def _ratios(rows: list[Row]) -> str:
    """How auto stands beside the better of two others, model by model and on the whole."""
    lines = []
    for title, others in (("NUTS of NumPyro", NUMPYRO), ("end", ENDS)):
        ratios: dict[str, dict[str, float]] = defaultdict(dict)
        for model, found in _by_model(rows):
            totals = {
                method: [total_of(row) for row in found if row["method"] == method]
                for method in ("auto", *others)
            }
            medians = {method: np.median(part) for method, part in totals.items() if part}
            if set(medians) == {"auto", *others}:
                best = max(medians[method] for method in others)
                ratio = medians["auto"] / best if best > 0 else np.inf
                ratios[_group(found[0])][model] = float(ratio)
        for group, values in ratios.items():
            numbers = np.array(list(values.values()))
            usable = numbers[np.isfinite(numbers) & (numbers > 0)]
            mean = np.exp(np.log(usable).mean()) if len(usable) else np.nan
            worst = sorted(values, key=lambda model: values[model])[:5]
            shown = ", ".join(f"{model} {values[model]:.2f}" for model in worst)
            lines.append(
                f"{group:17s} auto over the better {title}: geometric mean {mean:.2f}, "
                f"below 1 in {(numbers < 1).sum()} of {len(numbers)}; worst: {shown}"
            )
    return "\n".join(["## Ratios", *lines]) if lines else ""


def _scores(rows: list[Row], references: list[Row]) -> str:
    known = references_of(references)
    lines = []
    for method in METHODS:
        for group, found in _by(rows, lambda row: (_group(row),)):
            quiet = [row for row in found if row["method"] == method and is_silent(row)]
            scored = [(abs(z), z, name, row) for row in quiet if row["model"] in known
                      for name, z in z_scores(row, known[row["model"]]).items()]  # fmt: skip
            if not scored:
                continue
            size = np.array([one[0] for one in scored])
            _, z, name, row = max(scored, key=lambda one: one[0])
            lines.append(f"{group[0]:17s} {method:20s} {len(quiet):5d} runs: RMS "
                         f"{np.sqrt((size**2).mean()):.2f}, beyond 4 {(size > 4).mean():.2%}, "
                         f"worst {z:.1f} ({row['model']} seed {row['seed']}, {name})")  # fmt: skip
    note = (
        f"## z-scores of means and mean squares, runs without a warning ({len(known)} references)"
    )
    return "\n".join([note, *lines]) if lines else ""


def _failed(rows: list[Row]) -> str:
    lines = []
    for row in sorted(rows, key=lambda row: (_order(row["method"]), row["model"], row["seed"])):
        if r_hat_of(row) <= BAD:
            continue
        what = row.get("failure") or f"R-hat {row['r_hat']:.3f} of {row['r_hat_worst']}"
        said = " | ".join(text.split(":")[0][:90] for text in row["warnings"])
        said = "SILENT" if is_silent(row) else said
        lines.append(f"{row['model']} {row['method']} seed {row['seed']}: "
                     f"{what.splitlines()[0][:160]} [{said}] {row.get('about', '')}")  # fmt: skip
    return "\n".join([f"## What failed (R-hat above {BAD}, errors, timeouts)", *lines])


def _group(row: Row) -> str:
    seed = model_seed(row["model"])
    if seed is None:
        return "nine" if row["model"] in NINE else "simple"
    return "generated, " + ("report" if seed % 2 else "tune")


def _order(method: str) -> int:
    return METHODS.index(method)


def _by(rows: Iterable[Row], key) -> list[tuple[tuple, list[Row]]]:
    found: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return sorted(found.items())


def _by_model(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """Rows by model, the known ones first and in their order."""
    place = {name: i for i, name in enumerate(KNOWN)}
    found = [(key[0], part) for key, part in _by(rows, lambda row: (row["model"],))]
    return sorted(found, key=lambda pair: (place.get(pair[0], len(place)), pair[0]))
