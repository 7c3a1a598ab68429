"""The figures without data: the funnel, condition numbers, mean-field fits of the funnel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from autoreparam import paper
from autoreparam.experiments.style import COLORS, save, styled
from autoreparam.experiments.theory import (
    QS,
    SIGMA_MUS,
    FunnelFit,
    funnel_lam,
    implied,
    log_density,
)
from autoreparam.program.target import Target

GRID = 160
FLOOR = 8.0  # nats below the top that are still colored


def draw_theory(target: Target, fits: list[FunnelFit], folder: Path) -> None:
    """Writes the figures of the funnel and of the two-level Gaussian model."""
    with styled():
        save(_funnel(target), folder, "figure1_funnel")
        save(_condition_numbers(), folder, "figure2_condition_numbers")
        save(_funnel_fits(target, fits), folder, "figure3_funnel_fits")


def _grid(wide: float, tall: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both axes, and the grid points as rows (z, x); z is vertical, x horizontal."""
    across, up = np.linspace(-wide, wide, GRID), np.linspace(-tall, tall, GRID)
    X, Z = np.meshgrid(across, up)
    return across, up, np.stack([Z.ravel(), X.ravel()], axis=1)


def _paint(axes: Any, across: np.ndarray, up: np.ndarray, log: Any) -> None:
    log = np.asarray(log, float).reshape(GRID, GRID)
    log = np.maximum(log - log.max(), -FLOOR)
    # Drawn as an image: contours at that many levels would take megabytes of SVG.
    axes.pcolormesh(across, up, log, cmap="viridis", shading="gouraud", rasterized=True)
    axes.spines[["top", "right"]].set_visible(True)


def _outline(axes: Any, across: np.ndarray, up: np.ndarray, log: Any) -> None:
    log = np.asarray(log, float).reshape(GRID, GRID)
    levels = log.max() - 0.5 * np.array([3.0, 2.0, 1.0]) ** 2  # one, two, three deviations
    axes.contour(across, up, log, levels, colors="white", linewidths=0.9, linestyles="solid")


def _funnel(target: Target):
    figure, panels = plt.subplots(1, 2, figsize=(5.6, 2.8), sharey=True)
    rows = (("centered", 1.0, 12.0, "$x$"), ("non-centered", 0.0, 3.5, r"$\tilde{x}$"))
    for axes, (title, lam, wide, label) in zip(panels, rows):
        across, up, points = _grid(wide, 8.0)
        density = log_density(target, points.astype(target.program.dtype), funnel_lam(target, lam))
        _paint(axes, across, up, density)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(label)
    panels[0].set_ylabel("$z$")
    return figure


def _condition_numbers():
    figure, axes = plt.subplots(figsize=(5.0, 3.2))
    styles = dict(zip(SIGMA_MUS, (":", "-", "--")))
    for sigma, line in styles.items():
        mark: dict[str, Any] = {"linestyle": line, "linewidth": 1.4}
        axes.plot(QS, paper.condition_number_cp(QS, sigma), color=COLORS["CP"], **mark)
        axes.plot(QS, paper.condition_number_ncp(QS, sigma), color=COLORS["NCP"], **mark)
        crossing = paper.condition_crossing(sigma)
        height = paper.condition_number_cp(crossing, sigma)
        axes.plot(crossing, height, "o", color="black", markersize=4, zorder=3)
        axes.plot([], [], color="0.3", label=rf"$\sigma_\mu = {sigma:g}$", **mark)
    axes.plot([], [], color=COLORS["CP"], label=r"$\kappa_{CP}$")
    axes.plot([], [], color=COLORS["NCP"], label=r"$\kappa_{NCP}$")
    axes.plot([], [], "o", color="black", markersize=4, label="equal")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(r"$q = N / \sigma^2$")
    axes.set_ylabel("condition number")
    axes.legend(ncols=2, fontsize=8, loc="upper center")
    axes.set_ylim(top=3000)
    return figure


def _funnel_fits(target: Target, fits: list[FunnelFit]):
    figure, rows = plt.subplots(2, len(fits), figsize=(9, 4.0), sharey=True)
    dtype = target.program.dtype
    for (upper, lower), fit in zip(rows.T, fits):
        across, up, points = _grid(3.5 * 4**fit.value, 8.0)
        points = points.astype(dtype)
        _paint(upper, across, up, log_density(target, points, fit.lam))
        log_q = -0.5 * np.sum(((points - fit.loc) / fit.scale) ** 2, axis=1)
        _outline(upper, across, up, log_q)
        upper.set_title(f"λ = {fit.value:g}\nELBO {round(fit.elbo, 2) + 0.0:.2f}", fontsize=9)
        upper.set_xlabel(r"$\tilde{x}$")
        across, up, points = _grid(14.0, 8.0)
        points = points.astype(dtype)
        _paint(lower, across, up, log_density(target, points, funnel_lam(target, 1.0)))
        _outline(lower, across, up, implied(target, points, fit.lam, fit.loc, fit.scale))
        lower.set_xlabel("$x$")
    rows[0, 0].set_ylabel("$z$, working coordinates")
    rows[1, 0].set_ylabel("$z$, original space")
    return figure
