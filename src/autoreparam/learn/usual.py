"""Usual scales: λ is learned relative to about where the scales of the draws are.

With the quadratic gain only λ and the reference scale together say which width of the data is
meant. A prior may have its median sixteen orders of magnitude away, where λ would be 1 but for
rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from autoreparam.learn.necks import quantile
from autoreparam.program.centering import Centering
from autoreparam.program.maps.gain import QUADRATIC
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target


def varying(target: Target) -> list[str]:
    """The sites whose scales depend on latents."""
    return [site.name for site in target.program.candidates if site.scale_parents]


def at_usual_scales(
    lam: Parameterization, log_scales: Mapping[str, Any], used: Any, xp: Any
) -> Parameterization:
    """λ with the quadratic gain, relative to the median of each scale over the draws.

    What had it before has the same coordinates but for constant factors. `log_scales` has one row
    per draw, and `used` says which of them count.
    """
    sites = {name: replace(lam.of(name), gain=QUADRATIC) for name in lam.sites}
    for name, own in log_scales.items():
        if name in sites:
            middle = quantile(own.reshape(len(used), -1), used, 0.5, xp)
            sites[name] = _relative_to(sites[name], middle, xp)
    return Parameterization.by_site(sites, lam.flat)


def _relative_to(one: Centering, log_scale: Any, xp: Any) -> Centering:
    shape, dtype = xp.shape(one.loc), one.loc.dtype
    wanted = _like(xp.reshape(xp.exp(log_scale), shape).astype(dtype), xp.shape(one.reference))
    single = np.finfo(np.float32)  # λ travels between precisions
    sound = (wanted > single.tiny**0.5) & (wanted < single.max**0.5)
    reference = xp.where(sound & xp.isfinite(wanted / one.reference), wanted, one.reference)
    ratio = reference / one.reference

    def moved(lam: Any) -> Any:
        root = xp.sqrt(lam) * ratio
        size = xp.hypot(root, xp.sqrt(1 - lam))
        return xp.clip((root / size) ** 2, 0, 1).astype(dtype)

    loc = moved(one.loc)
    scale = loc if one.scale is one.loc else moved(one.scale)
    return replace(one, loc=loc, scale=scale, reference=reference.astype(dtype))


def _like(values: Any, shape: tuple[int, ...]) -> Any:
    """The values, at the first place of every axis along which that shape has one element."""
    padded = (1,) * (values.ndim - len(shape)) + shape
    first = tuple(slice(0, 1) if size == 1 else slice(None) for size in padded)
    return values[first].reshape(shape)
