"""What a run found out: estimates of every scalar, and its predictions beside the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autoreparam.results.scalars import COLUMNS, estimate

if TYPE_CHECKING:
    import xarray

ROWS_SHOWN = 60  # scalars in the table and in the picture
REPLICATES, POINTS = 200, 120  # of a check: simulated data sets, and places where they are compared


@dataclass(frozen=True)
class Estimates:
    """Mean, sd and the central 90% of scalars, and how many more there are."""

    labels: list[str]
    numbers: dict[str, np.ndarray]
    more: int


@dataclass(frozen=True)
class Check:
    """The share of values up to `x`: in the data, and in 90% of the simulated data sets."""

    name: str
    x: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    statistics: list[tuple[str, float, float, float]]  # name, observed, 5% and 95% of the simulated


def gather_estimates(posterior: xarray.Dataset, latents: list[str]) -> Estimates:
    """Estimates of the scalars of a posterior: those of small variables first."""
    order = [*latents, *sorted(str(n) for n in posterior.data_vars if n not in latents)]
    variables = sorted((posterior[name] for name in order), key=lambda variable: variable.size)
    labels: list[str] = []
    numbers: dict[str, list[np.ndarray]] = {key: [np.empty(0)] for key in COLUMNS[:4]}
    total = sum(variable[0, 0].size if variable.size else 0 for variable in variables)
    for variable in variables:
        left = ROWS_SHOWN - len(labels)
        if not left or not variable.size:
            continue
        names, found = estimate(variable)
        labels += names[:left]
        for key, values in found.items():
            numbers[key].append(values[:left])
    joined = {key: np.concatenate(parts) for key, parts in numbers.items()}
    return Estimates(labels, joined, total - len(labels))


def gather_checks(tree: xarray.DataTree) -> list[Check]:
    """Simulated data beside the observed, for every variable that has both."""
    if "posterior_predictive" not in tree.children or "observed_data" not in tree.children:
        return []
    predicted, observed = tree["posterior_predictive"].dataset, tree["observed_data"].dataset
    return [
        _check(str(name), predicted[name].values, observed[name].values)
        for name in predicted.data_vars
        if name in observed and np.isfinite(observed[name].values).any()
    ]


def _check(name: str, predicted: np.ndarray, observed: np.ndarray) -> Check:
    seen = np.isfinite(observed.ravel())
    data = observed.ravel()[seen].astype(float)
    rows = predicted.reshape(-1, observed.size)[:, seen].astype(float)
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, REPLICATES).astype(int))]
    with np.errstate(all="ignore"):
        ends = np.nanquantile(rows, (0.005, 0.995))
    x = np.linspace(min(ends[0], data.min()), max(ends[1], data.max()), POINTS)
    shares = np.stack([np.searchsorted(np.sort(row), x, side="right") / row.size for row in rows])
    low, high = np.quantile(shares, (0.05, 0.95), axis=0)
    own = np.searchsorted(np.sort(data), x, side="right") / data.size
    measures: dict[str, Any] = {
        "mean": np.mean,
        "sd": np.std,
        "smallest": np.min,
        "largest": np.max,
    }
    statistics = [
        (word, float(measure(data)), *np.quantile(measure(rows, axis=1), (0.05, 0.95)).tolist())
        for word, measure in measures.items()
    ]
    return Check(name, x, own, low, high, statistics)
