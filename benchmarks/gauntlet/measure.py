"""What a run is worth: R-hat, effective sample sizes and moments, by ArviZ's own formulas."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from arviz_stats.base import array_stats

TAILS = (0.05, 0.95)
MOST_MEASURED = 200  # scalars whose R-hat and ESS are computed: a run of 500 takes seconds longer
MOST_KEPT = 100  # scalars whose moments are written down


def measure_draws(draws: Mapping[str, np.ndarray], log_density: np.ndarray) -> dict[str, Any]:
    """The measures of a run from its latents, of shape (chain, draw, ...), and its log density."""
    labels, scalars = _flatten(draws, MOST_MEASURED)
    moving = ~(scalars == scalars[:, :1, :1]).all(axis=(1, 2))  # a NaN counts as moving
    labels = [label for label, moves in zip(labels, moving) if moves]
    scalars = scalars[moving]
    with np.errstate(all="ignore"):
        centered = (scalars - scalars.mean(axis=(1, 2), keepdims=True)) ** 2
        lp = np.asarray(log_density, float)[None]
        r_hats = [array_stats.rhat(part, method="rank") for part in (scalars, centered, lp)]
        bulk = array_stats.ess(scalars, method="bulk")
        tail = array_stats.ess(scalars, method="tail", prob=TAILS)
        squares = array_stats.ess(centered, method="bulk")
        lp_ess = array_stats.ess(lp, method="bulk")
    r_hat = np.concatenate(r_hats)
    names = [*labels, *(f"square of {label}" for label in labels), "log density"]
    # Chains that all stand still have no R-hat; that is the worst there is.
    r_hat = np.where(np.isfinite(r_hat), r_hat, np.inf)
    smallest = np.concatenate([bulk, tail, squares, lp_ess])
    worst = int(np.argmin(np.minimum(bulk, np.minimum(tail, squares)))) if len(labels) else -1
    return {
        "r_hat": float(r_hat.max()),
        "r_hat_worst": names[int(r_hat.argmax())],
        "ess_bulk": _least(bulk),
        "ess_tail": _least(tail),
        "ess_squares": _least(squares),
        "ess_log_density": _least(lp_ess),
        "ess": _least(smallest),
        "ess_worst": labels[worst] if worst >= 0 else "",
        "scalars": _moments(*_fewer(labels, scalars)),
    }


def _moments(labels: list[str], scalars: np.ndarray) -> dict[str, list]:
    """Means, standard deviations and mean squares, with the Monte Carlo errors of the means."""
    with np.errstate(all="ignore"):
        found = {
            "mean": scalars.mean(axis=(1, 2)),
            "mcse_mean": array_stats.mcse(scalars, method="mean"),
            "sd": scalars.std(axis=(1, 2), ddof=1),
            "square": (scalars**2).mean(axis=(1, 2)),
            "mcse_square": array_stats.mcse(scalars**2, method="mean"),
        }
    return {"name": labels} | {key: [_short(x) for x in value] for key, value in found.items()}


def _flatten(draws: Mapping[str, np.ndarray], most: int) -> tuple[list[str], np.ndarray]:
    """Every scalar with its name; of large sites evenly spread ones, so that small ones stay."""
    sizes = {name: math.prod(np.shape(value)[2:]) for name, value in draws.items()}
    room, parts, labels = most, [], []
    for left, name in zip(range(len(sizes), 0, -1), sorted(sizes, key=lambda name: sizes[name])):
        value = np.asarray(draws[name], float)
        flat = value.reshape(*value.shape[:2], sizes[name])
        count = min(sizes[name], max(1, room // left))
        room -= count
        chosen = np.linspace(0, sizes[name] - 1, count).astype(int)
        parts.append(np.moveaxis(flat[..., chosen], 2, 0))
        labels += [_label(name, value.shape[2:], i) for i in chosen]
    return labels, np.concatenate(parts)


def _fewer(labels: list[str], scalars: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The first scalars, which are those of small sites, and evenly spread others."""
    if len(labels) <= MOST_KEPT:
        return labels, scalars
    half = MOST_KEPT // 2
    rest = np.linspace(half, len(labels) - 1, MOST_KEPT - half).astype(int)
    chosen = [*range(half), *rest]
    return [labels[i] for i in chosen], scalars[chosen]


def _label(name: str, shape: tuple[int, ...], position: int) -> str:
    if not shape:
        return name
    return f"{name}[{', '.join(str(i) for i in np.unravel_index(position, shape))}]"


def _least(values: np.ndarray) -> float:
    """The smallest; what could not be computed is 0, since the chains did not move."""
    return float(np.where(np.isfinite(values), values, 0.0).min()) if len(values) else 0.0


def _short(value: float) -> float | None:
    return float(f"{value:.8g}") if np.isfinite(value) else None
