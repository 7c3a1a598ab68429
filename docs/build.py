"""What the build of the documentation makes: pictures, an example report, benchmark tables.

Each file that a page asks for is made once per build; nothing is written into the source tree.
"""

from __future__ import annotations

import json
import re
import tempfile
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")
import cases
import matplotlib.pyplot as plt
from ink import INK, svg
from mkdocs.structure.files import File

import autoreparam as ar
from autoreparam.render.table import Table

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def on_files(files, config):
    """Adds the pictures and the example report to the site."""
    made = {f"pictures/{name}.svg": draw() for name, draw in PICTURES.items()}
    for page, results in case_results().items():
        made |= cases.pictures(page, results)
    made["example-report.html"] = example_report()
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    """Puts tables of benchmark results, and what code printed, where they belong."""
    folder, _, name = page.file.src_uri.removesuffix(".md").rpartition("/")
    if folder == "cases":
        return cases.with_output(markdown, case_results()[name])
    return re.sub(r"<!-- benchmark: (\w+) -->", lambda found: table(found[1]), markdown)


@cache
def case_results() -> dict[str, cases.Results]:
    """What the case studies give."""
    return cases.pages()


def table(name: str) -> str:
    """The rows of a file of results as Markdown."""
    path = RESULTS / (f"{name}.json" if name != "gauntlet" else "gauntlet.jsonl")
    if not path.is_file():
        return "*Not measured yet.*"
    text = path.read_text(encoding="utf-8")
    rows = json.loads(text) if path.suffix == ".json" else hard(map(json.loads, text.splitlines()))
    if name == "total_cost":
        rows = medians(rows)
    if name == "implicit":
        rows = twins(**rows)
    if name == "cold_start":
        rows = rows["summary"]
    keys = list(rows[0])
    head = [key.replace("_", " ") for key in keys]
    return Table(head, [[cell(row.get(key)) for key in keys] for row in rows]).to_markdown()


def hard(runs: Iterable[dict]) -> list[dict]:
    """The last results of `benchmarks.gauntlet` for known posteriors, one row per model."""
    known = [run for run in runs if "generated" not in run["model"]]
    label = [run["label"] for run in known if run["method"] == "auto"][-1]
    last = [run for run in known if run["label"] == label]
    rows = []
    for model in dict.fromkeys(run["model"] for run in last):
        totals: dict[str, list[float]] = {}
        for run in last:
            if run["model"] == model:
                totals.setdefault(run["method"], []).append(run.get("total", 0.0))
        found = [run for run in last if (run["model"], run["method"]) == (model, "auto")]
        r_hat = np.array([run.get("r_hat", np.inf) for run in found])
        total = np.array(totals["auto"])
        low, high = np.quantile(total, (0.1, 0.9))
        rows.append({
            "model": model, "seeds": len(found), "R-hat > 1.05": int(np.sum(r_hat > 1.05)),
            "R-hat > 1.01": int(np.sum(r_hat > 1.01)),
            "divergences": float(np.median([run.get("divergences", np.inf) for run in found])),
            "median": float(np.median(total)), "lowest": total.min(), "highest": total.max(),
            "ninth decile / first": high / low,
            "better end": highest(totals, "centered", "noncentered"),
            "NUTS": highest(totals, "numpyro_centered", "numpyro_noncentered"),
        })  # fmt: skip
    return sorted(rows, key=lambda row: -row["median"])


def highest(totals: dict[str, list[float]], *methods: str) -> float | str:
    """The best median of some methods; a dash where most runs of each failed."""
    medians = [float(np.median(totals[method])) for method in methods if method in totals]
    return max(medians, default=0.0) or "-"


def medians(runs: list[dict]) -> list[dict]:
    """Results of `benchmarks.total_cost`, one row per model and kernel."""
    rows = []
    models = list(dict.fromkeys(run["model"] for run in runs))
    pairs = {(run["model"], run["kernel"]) for run in runs}
    for model, kernel in sorted(pairs, key=lambda pair: (models.index(pair[0]), pair[1])):
        row, total, seeds = {"model": model, "kernel": kernel}, {}, []
        for method in ("auto", "centered", "noncentered", "vip"):
            same = (model, kernel, method)
            found = [run for run in runs if (run["model"], run["kernel"], run["method"]) == same]
            row[method] = "-"
            if found:
                total[method] = float(np.median([run["total"] for run in found]))
                unsure = np.mean([run["warned"] for run in found]) >= 0.5
                row[method] = f"{total[method]:.3g}" + (r"\*" if unsure else "")
                seeds.append(len(found))
        row["ratio"] = "-"
        if {"auto", "centered", "noncentered"} <= total.keys():
            best = max(total["centered"], total["noncentered"])
            row["ratio"] = f"{total['auto'] / best:.2f}"
        rows.append(row | {"seeds": min(seeds)})
    return rows


def twins(looks: list[dict], draws: list[dict]) -> list[dict]:
    """Results of `benchmarks.implicit`, one row per model."""
    rows = []
    for look in looks:
        row = {"model": look["model"], "recognized": f"{len(look['recognized'])}"}
        row["inspect"] = look["inspect_twin"]
        row["looking"] = look["looking"]
        row["gradient"] = look.get("ratio", "-")
        for how in ("model", "twin", "as written"):
            same = (look["model"], how)
            found = [run["total"] for run in draws if (run["model"], run["how"]) == same]
            row[f"draws of {how}" if how != "as written" else "twin as written"] = (
                float(np.median(found)) if found else "-"
            )
        rows.append(row)
    return rows


def cell(value) -> str:
    """A value of a result in a few digits."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


# -- the mathematics, by plain arithmetic -----------------------------------------------------


def funnel() -> str:
    """Draws of a funnel in the coordinates of three λ."""
    random = np.random.default_rng(1)
    log_tau = random.normal(0, 1.5, 1500)
    noise = random.normal(size=1500)
    with plt.rc_context(INK):
        figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
        for ax, lam in zip(axes, (1.0, 0.5, 0.0)):
            ax.plot(np.exp(lam * log_tau) * noise, log_tau, ".", markersize=2, alpha=0.5)
            words = {1.0: "centered", 0.5: "halfway", 0.0: "non-centered"}[lam]
            ax.set(title=f"λ = {lam:g}, {words}", xlabel="what the sampler moves", xlim=(-9, 9))
        axes[0].set_ylabel("log tau")
        return svg(figure)


def few_or_many() -> str:
    """The posterior of a group and its mean: which λ is best depends on the data."""
    random = np.random.default_rng(2)
    with plt.rc_context(INK):
        figure, axes = plt.subplots(2, 2, figsize=(7.5, 5.5), layout="constrained")
        for row, (count, words) in zip(axes, ((0.1, "little data"), (50.0, "much data"))):
            # mu ~ N(0, 1), theta ~ N(mu, 1), observed with precision `count`.
            precision = np.array([[2.0, -1.0], [-1.0, 1.0 + count]])
            draws = random.multivariate_normal([0, 0], np.linalg.inv(precision), 800)
            mu, theta = draws.T
            for ax, x, title in ((row[0], theta, "centered"), (row[1], theta - mu, "non-centered")):
                size = abs(np.corrcoef(x, mu)[0, 1])
                ax.plot(x, mu, ".", markersize=2, alpha=0.5)
                ax.set_title(f"{words}, {title}: {size:.2f}", fontsize=10)
                ax.set_ylabel("mu")
        figure.suptitle("size of the correlation with mu", fontsize=10)
        for ax, label in zip(axes[1], ("theta", "theta - mu")):
            ax.set_xlabel(label)
        return svg(figure)


# -- a real run -------------------------------------------------------------------------------


@cache
def runs() -> dict:
    """Twenty groups of very unequal sizes, sampled in three parameterizations."""
    problem = ar.zoo.load("unequal_groups")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these runs are meant to show what goes wrong
        return {
            method: ar.sample(
                problem.model, problem.args, problem.kwargs, parameterization=method,
                kernel="hmc", draws=500, warmup=300, progress=False,
            )
            for method in ("auto", "centered", "noncentered")
        }  # fmt: skip


def example_report() -> str:
    """The page that `report` makes of the run."""
    others = {name: tree for name, tree in runs().items() if name != "auto"}
    with tempfile.TemporaryDirectory() as folder:
        path = ar.report(runs()["auto"], Path(folder) / "report.html", alternatives=others,
                         title="Twenty groups of unequal sizes")  # fmt: skip
        return path.read_text(encoding="utf-8")


def drawn(draw):
    """A picture of `ar.plots` as SVG text."""

    def picture() -> str:
        with plt.rc_context(INK):
            found = draw()
            return svg((found[0] if isinstance(found, tuple) else found).figure)

    return picture


PICTURES = {
    "funnel": funnel,
    "few-or-many": few_or_many,
    "parameterization": drawn(lambda: ar.plots.parameterization(runs()["auto"])),
    "geometry": drawn(lambda: ar.plots.geometry(runs()["auto"])),
    "efficiency": drawn(lambda: ar.plots.efficiency(runs())),
}
