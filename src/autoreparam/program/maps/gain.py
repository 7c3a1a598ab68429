"""The gain: how wide noise is in working coordinates, a mean of `s0` and the scale `s`.

Its weights are `1 - λ` and λ, so that it is `s0` at one end and `s` at the other:

    geometric, as in the paper:    s0 (s / s0)^λ
    quadratic:                     sqrt((1 - λ) s0² + λ s²)

Data about an element that are as precise as a Normal of width `t` leave it a width of
`s t / sqrt(s² + t²)`, and its noise one of `t / sqrt(s² + t²)`. With the quadratic mean and
`λ = s0² / (s0² + t²)` its working coordinate is equally wide at every scale. With the geometric
mean it is so only close to `s0`, and where scales go to zero there is a neck at every λ but 0.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

GEOMETRIC, QUADRATIC = "geometric", "quadratic"
GAINS = (GEOMETRIC, QUADRATIC)


def relative_gain(gain: str, lam: Any, ratio: Any) -> Any:
    """The gain relative to `s0`, at the scale `ratio` relative to it."""
    if gain == GEOMETRIC:
        return ratio**lam
    return jnp.sqrt(1 - lam + lam * ratio**2)


def within_range(ratio: Any) -> Any:
    """The ratio, kept from being so extreme that its square would be zero or infinite.

    `hypot` would do without, and take five times as long.
    """
    info = jnp.finfo(jnp.result_type(float, ratio))
    return jnp.clip(ratio, (4 * info.tiny) ** 0.5, (info.max / 4) ** 0.5)


def pull(gain: str, lam: Any, ratio: Any, relative: Any) -> Any:
    """What one unit of a location given others adds; scale and gain are relative to `s0`.

    What is passed on along a sequence is multiplied by `1 - λ` with the geometric mean, and by
    `(1 - λ) s0² / gain²` with the quadratic: never by more than 1.
    """
    return lam * (relative / ratio if gain == GEOMETRIC else ratio / relative)


def mixed(gain: str, lam: Any, ratio: Any, relative: Any) -> Any:
    """The pull times the scale over the gain: between 0 and 1, however extreme the scale is."""
    return lam if gain == GEOMETRIC else lam * (ratio / relative) ** 2
