"""λ of a run as code for NumPyro's own `LocScaleReparam`, for use without this library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from autoreparam.program.maps.gain import QUADRATIC
from autoreparam.results.lam import parameterization, sites

if TYPE_CHECKING:
    import xarray


def numpyro_code(tree: xarray.DataTree) -> str:
    """Python code that gives a model the λ of a run, with NumPyro only.

    NumPyro multiplies noise by the power λ of the scale. Up to a constant factor per element, so
    does a run whose λ has the geometric gain. A λ learned from draws has the quadratic gain: there
    the two agree around usual scales, and NumPyro's fits less well where data leave a scale open.
    Sites whose family `LocScaleReparam` does not support, or whose location and scale have
    separate λ, are listed in comments and stay centered.

    >>> print(ar.interop.numpyro_code(tree))

    Args:
        tree: A run, as `ar.sample` returns it.
    """
    lam = parameterization(tree)
    entries = {entry["name"]: entry for entry in sites(tree)}
    lines = [
        "import numpy as np",
        "import numpyro",
        "from numpyro.infer.reparam import LocScaleReparam",
        "",
        "# How far each element is centered: 1 as the model is written, 0 non-centered.",
        "config = {",
    ]
    left = []
    if any(lam.of(name).gain == QUADRATIC for name in lam.sites):
        left += ["# λ was learned for a quadratic mean of a scale and its usual size. A power is"]
        left += ["# like it around usual scales; where that diverges, try a smaller λ."]
    for name in lam.sites:
        family, shapes = entries[name]["distribution"], entries[name]["shape_parameters"]
        if entries[name].get("by_hand"):
            written = entries[name]["statement"]
            if not written:
                left.append(f"# {name!r} stays as it is: non-centered by hand.")
                continue
            own = entries[name]["through"] or name
            left.append(f"# {name!r} is non-centered by hand. Instead of it and of {own!r}, write")
            left.append(f"#     {written}")
            lines.append(f"    {own!r}: LocScaleReparam({_array(np.asarray(lam[name]))}),")
            continue
        if shapes is None:
            left.append(f"# {name!r} stays centered: LocScaleReparam does not support {family}.")
        elif not np.array_equal(lam[name], lam.scale[name]):
            left.append(f"# {name!r} stays centered: its location and scale have separate λ.")
        else:
            if name in lam.tail and np.any(lam.tail[name]):
                left.append(f"# {name!r} has only λ: LocScaleReparam leaves its heavy tails.")
            kept = f", shape_params={json.dumps(shapes)}" if shapes else ""
            centered = _array(np.asarray(lam[name]))
            lines.append(f"    {name!r}: LocScaleReparam({centered}{kept}),")
    lines += ["}", *left, "", "", "def reparameterized(model):"]
    lines += ['    """The model, for any NumPyro tool."""']
    lines += ["    return numpyro.handlers.reparam(model, config=config)", ""]
    return "\n".join(lines)


def _array(lam: np.ndarray) -> str:
    lam = np.round(lam.astype(float), 4)
    if lam.size and (lam == lam.flat[0]).all():
        return repr(float(lam.flat[0]))
    return f"np.array({lam.tolist()})"
