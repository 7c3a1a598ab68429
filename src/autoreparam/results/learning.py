"""What learning λ in warm-up saw and chose, window by window."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray


def learning_tree(reports: Sequence[dict[str, Any]]) -> xarray.DataTree:
    """The reports of a run's windows.

    `objective_*` are the held-out objectives of all candidates; the last `lam_*` (and `tail_*`,
    where tails are heavy) are what the run used from then on; `inflation_before` and
    `inflation_after` are the largest variance inflation of each site as the model is written and as
    it was sampled, from the last window in which it could be measured.
    """
    from xarray import Dataset, DataTree

    rivals = sorted({name for report in reports for name in report["objectives"]})
    data: dict[str, Any] = {
        f"objective_{name}": ("window", [r["objectives"].get(name, np.nan) for r in reports])
        for name in rivals
    }
    for kind in ("lam", "tail"):
        for site in reports[-1].get(kind, ()):
            name = f"{kind}_{site.replace('/', '.')}"
            values = np.array([report[kind][site] for report in reports])
            data[name] = (("window", f"{name}_element"), values)
    told = [report["inflation"] for report in reports if report["inflation"]]
    attrs: dict[str, Any] = {
        "windows": json.dumps([{k: r[k] for k in ("chosen", "note")} for r in reports])
    }
    if told:
        sites = list(told[-1]["before"])
        attrs["sites"] = json.dumps(sites)
        for when, found in told[-1].items():
            data[f"inflation_{when}"] = ("site", [found[site] for site in sites])
    return DataTree(Dataset(data, attrs=attrs))
