"""How far the means of a run lie from a reference, in Monte Carlo errors of both."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

R_HAT = 1.01  # a reference above it is none


class Known(NamedTuple):
    """What a reference says of one scalar; exact ones have no Monte Carlo errors."""

    mean: float
    mcse_mean: float
    square: float
    mcse_square: float


def references_of(rows: list[dict[str, Any]]) -> dict[str, dict[str, Known]]:
    """By model and scalar, what is known; long runs that did not converge are left out."""
    found = {}
    for row in rows:
        if "exact" in row:
            found[row["model"]] = {
                name: Known(mean, 0.0, square, 0.0) for name, (mean, square) in row["exact"].items()
            }
        elif row.get("r_hat", np.inf) < R_HAT:
            found[row["model"]] = _scalars(row)
    return found


def z_scores(row: dict[str, Any], known: dict[str, Known]) -> dict[str, float]:
    """A score for the mean and one for the mean square of every scalar that both have."""
    scores = {}
    for name, found in _scalars(row).items():
        if name not in known:
            continue
        truth = known[name]
        scores[name] = (found.mean - truth.mean) / np.hypot(found.mcse_mean, truth.mcse_mean)
        error = np.hypot(found.mcse_square, truth.mcse_square)
        scores[f"square of {name}"] = (found.square - truth.square) / error
    return {name: float(z) for name, z in scores.items() if np.isfinite(z)}


def _scalars(row: dict[str, Any]) -> dict[str, Known]:
    """The scalars of a row whose moments are all finite."""
    part = row["scalars"]
    columns = zip(part["name"], *(part[field] for field in Known._fields))
    return {name: Known(*values) for name, *values in columns if None not in values}
