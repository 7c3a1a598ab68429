"""Origins of sequences other than zero."""

from dataclasses import replace

import numpy as np

import autoreparam as ar


def with_origins(lam: ar.Parameterization, draw: np.random.Generator) -> ar.Parameterization:
    """The same λ with an origin for every element of a sequence."""
    sites = {name: lam.of(name) for name in lam}
    new = {
        name: replace(site, origin=draw.normal(size=np.shape(site.loc)))
        for name, site in sites.items()
        if site.origin is not None
    }
    return ar.Parameterization.by_site({**sites, **new})
