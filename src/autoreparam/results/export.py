"""λ of a run as code for NumPyro's own `LocScaleReparam`, for those who must do without us."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from autoreparam.results.lam import parameterization, sites

if TYPE_CHECKING:
    import xarray


def numpyro_code(tree: xarray.DataTree) -> str:
    """Python text that moves a model to the λ of a run with NumPyro alone.

    The coordinates are the run's own up to a constant factor for each element (NumPyro knows no
    reference scale), which a sampler's diagonal metric takes out. Sites of families that
    `LocScaleReparam` does not know, or whose location and scale have each a λ of their own, are
    listed as comments and stay centered.

    >>> print(ar.interop.numpyro_code(tree))
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
    for name in lam.sites:
        family, shapes = entries[name]["distribution"], entries[name]["shape_parameters"]
        if shapes is None:
            left.append(f"# {name!r} stays centered: LocScaleReparam has no {family}.")
        elif not np.array_equal(lam[name], lam.scale[name]):
            left.append(f"# {name!r} stays centered: its location and scale have a λ each.")
        else:
            if name in lam.tail and np.any(lam.tail[name]):
                left.append(f"# {name!r} has λ alone: LocScaleReparam leaves its heavy tails.")
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
