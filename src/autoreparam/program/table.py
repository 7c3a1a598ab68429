"""The sites of a program as a table."""

from __future__ import annotations

from collections.abc import Iterable

from autoreparam.program.site import Site
from autoreparam.render.table import Table

HEADER = ("site", "kind", "distribution", "shape", "support", "depends on", "reparameterized")


def site_table(sites: Iterable[Site]) -> Table:
    """One row per site: what it is, what it depends on, whether it can be reparameterized."""
    rows = [
        (
            site.name,
            site.kind,
            site.distribution,
            "x".join(map(str, site.shape)) or "scalar",
            site.support,
            ", ".join((*site.parents, *site.discrete_parents)),
            _verdict(site),
        )
        for site in sites
    ]
    return Table(HEADER, rows)


def _verdict(site: Site) -> str:
    if site.kind != "latent":
        return site.note if site.kind == "discrete" else ""
    return f"{'yes' if site.candidate else 'no'}: {site.note}"
