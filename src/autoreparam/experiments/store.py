"""The results of a run: one JSON file per model, rewritten whenever a cell is finished."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from autoreparam.disk import write_text
from autoreparam.errors import AutoreparamError
from autoreparam.experiments.budget import MODELS, Budget
from autoreparam.experiments.fits import Prepared

FOLDER = "results"


@dataclass(eq=False)
class Results:
    """What is known about one model: a fit per method, a cell per method and number of steps."""

    model: str
    settings: dict[str, Any]
    counts: dict[str, int] = field(default_factory=dict)
    fits: dict[str, Prepared] = field(default_factory=dict)
    cells: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    seconds: float = 0.0  # in all; of models that ran together, a share
    machine: dict[str, str] = field(default_factory=dict)

    def add(self, method: str, num_steps: int, cell: dict[str, Any]) -> None:
        """Adds a finished cell."""
        self.cells.setdefault(method, {})[num_steps] = cell

    def best(self, method: str, by: str = "ess") -> dict[str, Any] | None:
        """The cell at the best number of steps: the most ESS per gradient of sampling.

        `by="arviz"` takes ArviZ's estimator of ESS.
        """
        cells = [{"num_steps": n, **cell} for n, cell in sorted(self.cells.get(method, {}).items())]
        return max(cells, key=lambda cell: cell[by], default=None)

    def to_json(self) -> str:
        """The results as text."""
        plain = {
            "model": self.model,
            "settings": self.settings,
            "machine": self.machine,
            "seconds": round(self.seconds, 1),
            "counts": self.counts,
            "fits": {method: fit.to_dict() for method, fit in self.fits.items()},
            "cells": self.cells,
        }
        text = json.dumps(plain, indent=1, default=float)
        # Each list of numbers on one line, so that diffs are readable.
        return re.sub(r"\[[^][{}\"]*\]", lambda found: "".join(found[0].split()), text)


def path_of(out: Path, model: str) -> Path:
    """The file that holds the results of a model."""
    return out / FOLDER / f"{model}.json"


def save(out: Path, results: Results) -> None:
    """Writes the results of a model atomically."""
    path = path_of(out, results.model)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, results.to_json() + "\n")


def add_seconds(out: Path, models: Sequence[str], seconds: float) -> None:
    """Adds the time that models took together to what is stored of them, to each its share."""
    stored = [found for model in models if (found := load(out, model)) is not None]
    for results in stored:
        results.seconds += seconds / len(stored)
        save(out, results)


def load(out: Path, model: str) -> Results | None:
    """The results of a model; None if there are none."""
    path = path_of(out, model)
    if not path.is_file():
        return None
    plain = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(plain["seconds"], dict):  # as earlier releases wrote them
        plain["seconds"] = plain["seconds"].get("in all", 0.0)
    fits = {method: Prepared(**fit) for method, fit in plain.pop("fits").items()}
    cells = {
        method: {int(steps): cell for steps, cell in row.items()}
        for method, row in plain.pop("cells").items()
    }
    return Results(fits=fits, cells=cells, **plain)


def load_or_begin(out: Path, model: str, budget: Budget) -> Results:
    """The results so far, to continue from; an error if they were made with other settings."""
    found = load(out, model)
    if found is None:
        return Results(model, budget.settings())
    if found.settings != budget.settings():
        raise AutoreparamError(
            f"'{path_of(out, model)}' has results of the budget '{found.settings['name']}' or of "
            f"other settings; this run has the budget '{budget.name}'. Choose another folder, or "
            "remove that file."
        )
    return found


def load_all(out: Path) -> dict[str, Results]:
    """Every model's results in the folder, in the order of the experiments."""
    found = {model: load(out, model) for model in MODELS}
    known = {model: results for model, results in found.items() if results is not None}
    for model, results in known.items():
        if results.settings.get("protocol") != Budget.protocol:
            raise AutoreparamError(
                f"'{path_of(out, model)}' holds results of an earlier protocol, which cannot be "
                "compared with those of this one. Remove that file and run the model again."
            )
    return known


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """The mean over chains and its standard error."""
    values = np.asarray(values, float)
    return float(values.mean()), float(values.std(ddof=1) / values.size**0.5)
