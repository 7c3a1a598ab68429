"""Necks: where the scale of an element is far below its usual one.

Where the data say less about an element than its λ, its width in working coordinates shrinks with
its scale. An objective made of variances hardly sees the narrow end, but trajectories have to pass
through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoreparam.learn.settings import ScoreSettings
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target

SHALLOW = 1e-3  # no neck: a scale that never changes has a depth of 0


def depths_of(
    target: Target, log_scales: Mapping[str, Any], used: Any, settings: ScoreSettings, xp: Any
) -> dict[str, Any]:
    """How far below its usual one the scale of each element gets, in logarithms, by site.

    That is for sites of several elements. `log_scales` has one row per draw, and `used` says which
    of them count.
    """
    found = {}
    names = [site.name for site in target.program.candidates if site.size > 1]
    for name in (name for name in names if name in log_scales):
        own = log_scales[name].reshape(len(used), -1)
        low, middle = (quantile(own, used, q, xp) for q in (settings.neck_quantile, 0.5))
        found[name] = middle - low
    return found


def out_of_necks(
    target: Target,
    lam: Parameterization,
    depths: Mapping[str, Any],
    by_data: Parameterization,
    settings: ScoreSettings,
    xp: Any,
) -> Parameterization:
    """λ, lowered so that no width shrinks by more than a factor of `neck` to the low quantile.

    `by_data` is the share `d` of what is known about each element that its own data tell. With the
    scale at `s` times its usual size, the square of the width in working coordinates is
    `(1 - λ + λ s²) / (1 - d + d s²)`. For elements that depend on each other `d` counts as 0, since
    the data of one tell of others as well.
    """
    alone = {site.name for site in target.program.candidates if site.alone}
    loc, scale = {}, {}
    for name, depth in depths.items():
        share = xp.ravel(by_data[name]) if name in alone else 0.0
        gap = xp.maximum(-xp.expm1(-2 * depth), SHALLOW)
        most = (1 - (1 - share * gap) / settings.neck**2) / gap
        most = most.reshape(lam[name].shape).astype(lam[name].dtype)
        loc[name] = xp.minimum(lam[name], most)
        scale[name] = xp.minimum(lam.scale[name], most)
    return lam.replace(loc, scale=scale) if depths else lam


def quantile(values: Any, used: Any, share: float, xp: Any) -> Any:
    """A quantile of each column, of the finite values in the rows that are used; 0 without any."""
    valid = used[:, None] & xp.isfinite(values)
    ordered = xp.sort(xp.where(valid, values, xp.inf), axis=0)
    last = xp.maximum(xp.sum(valid, axis=0) - 1, 0)
    place = xp.round(share * last).astype(int)
    found = xp.take_along_axis(ordered, place[None], axis=0)[0]
    return xp.where(xp.isfinite(found), found, 0)
