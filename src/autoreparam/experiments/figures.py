"""The figures of the measurements: radon by state, ESS and ELBO by model, learned λ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from autoreparam.experiments.budget import METHODS, RADON
from autoreparam.experiments.lam import RadonLam
from autoreparam.experiments.store import Results
from autoreparam.experiments.style import COLORS, MARKERS, save, styled
from autoreparam.experiments.words import title_of

VARIATIONAL = ("CP", "NCP", "VIP", "dVIP")


def draw_measured(
    results: Mapping[str, Results], lams: Mapping[str, RadonLam], folder: Path
) -> None:
    """Writes every figure that these results allow."""
    radon = {name: results[name] for name in RADON if name in results}
    with styled():
        if radon:
            save(_ess_by_model(radon), folder, "figure4_radon")
        if results:
            save(_ess_and_elbo(results), folder, "figure5_ess_and_elbo")
            save(_heat_map(results), folder, "figure6_lambda")
        if lams:
            save(_lam_against_exact(lams), folder, "radon_lambda")


def _dodge(axes, results: Mapping[str, Results]) -> None:
    """ESS per 1000 gradients of every model (positions on the axis) and method, 95% intervals."""
    shown = [m for m in METHODS if any(r.best(m) for r in results.values())]
    width = 0.72 / max(len(shown), 1)
    for index, method in enumerate(shown):
        place, ess, error = [], [], []
        for position, found in enumerate(results.values()):
            best = found.best(method)
            if best is not None:
                place.append(position + (index - (len(shown) - 1) / 2) * width)
                ess.append(best["ess"])
                error.append(1.96 * best["error"])
        low = np.minimum(error, 0.95 * np.asarray(ess))  # an interval that reaches 0 has no log
        axes.errorbar(
            place, ess, yerr=[low, error], fmt=MARKERS[method], color=COLORS[method], label=method,
            markersize=5, capsize=2, elinewidth=1,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylabel("ESS per 1000 gradients")
    for position in range(1, len(results)):
        axes.axvline(position - 0.5, color="0.9", linewidth=0.8, zorder=0)
    axes.set_xlim(-0.5, len(results) - 0.5)
    axes.set_xticks(range(len(results)), [title_of(name) for name in results])


def _ess_by_model(results: Mapping[str, Results]):
    figure, axes = plt.subplots(figsize=(7.5, 3.2))
    _dodge(axes, results)
    axes.legend(ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def _ess_and_elbo(results: Mapping[str, Results]):
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(8.5, 5.2), sharex=True)
    _dodge(top, results)
    top.legend(ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    width = 0.72 / len(VARIATIONAL)
    for index, method in enumerate(VARIATIONAL):
        place, gap = [], []
        for position, found in enumerate(results.values()):
            elbos = {m: f.elbo for m, f in found.fits.items() if f.elbo and m in VARIATIONAL}
            if method in elbos:
                place.append(position + (index - (len(VARIATIONAL) - 1) / 2) * width)
                gap.append(max(max(elbos.values()) - elbos[method], 1e-3))
        bottom.plot(place, gap, MARKERS[method], color=COLORS[method], markersize=5)
    bottom.set_yscale("symlog", linthresh=0.1)
    bottom.invert_yaxis()
    bottom.set_ylabel("ELBO below the best (nats)")
    bottom.tick_params(axis="x", rotation=35)
    for label in bottom.get_xticklabels():
        label.set_horizontalalignment("right")
    for position in range(1, len(results)):
        bottom.axvline(position - 0.5, color="0.9", linewidth=0.8, zorder=0)
    return figure


def _heat_map(results: Mapping[str, Results]):
    strips = [
        (f"{title_of(name)}, {site}" if len(found.fits["VIP"].lam) > 1 else title_of(name), lam)
        for name, found in results.items()
        if "VIP" in found.fits
        for site, lam in found.fits["VIP"].lam.items()
    ]
    figure, rows = plt.subplots(len(strips), 1, figsize=(7.5, 0.34 * len(strips) + 0.7))
    image = None
    for axes, (title, lam) in zip(np.atleast_1d(rows), strips):
        image = axes.imshow(
            np.sort(np.ravel(lam))[None], aspect="auto", cmap="cividis", vmin=0, vmax=1,
            interpolation="nearest",
        )  # fmt: skip
        axes.set_yticks([0], [f"{title} ({np.size(lam)})"])
        axes.set_xticks([])
        axes.tick_params(length=0)
    if image is not None:
        bar = figure.colorbar(image, ax=rows, fraction=0.03, pad=0.02)
        bar.set_label("λ (0 NCP, 1 CP)")
    return figure


def _lam_against_exact(lams: Mapping[str, RadonLam]):
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.5, 3.6), sharex=True, sharey=True)
    for index, (state, found) in enumerate(lams.items()):
        color = plt.get_cmap("tab10")(index)
        if found.elbo is not None:
            left.plot(found.elbo_exact, found.elbo, "o", ms=3, color=color, alpha=0.7, label=state)
        if found.score is not None:
            right.plot(found.score_exact, found.score, "o", ms=3, color=color, alpha=0.7)
    for axes in (left, right):
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, zorder=0)
        axes.set_aspect("equal")
    left.set_xlabel("$n_c / (n_c + 1)$")
    left.set_ylabel("λ by the ELBO")
    right.set_xlabel("minimum of the exact score objective")
    right.set_ylabel("λ by scores")
    left.legend(ncols=1, fontsize=7, markerscale=1.5)
    return figure
