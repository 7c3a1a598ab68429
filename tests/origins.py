"""Origins of sequences other than zero, and holds of the data that vary."""

from dataclasses import replace

import numpy as np

import autoreparam as ar


def with_origins(lam: ar.Parameterization, draw: np.random.Generator) -> ar.Parameterization:
    """The same λ with an origin and a grip for every element of a sequence."""

    def varied(site):
        shape = np.shape(site.loc)
        origin, grip = draw.normal(size=shape), site.grip
        if grip is not None:
            grip = {label: 0.5 * draw.normal(size=shape) for label in grip}
        return replace(site, origin=origin, grip=grip)

    sites = {name: lam.of(name) for name in lam}
    new = {name: varied(site) for name, site in sites.items() if site.origin is not None}
    return ar.Parameterization.by_site({**sites, **new})
