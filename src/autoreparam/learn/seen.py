"""What the priors say of the elements of each draw, whatever λ the draw was made with."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.learn.settings import ScoreSettings
from autoreparam.learn.usual import varying
from autoreparam.program.blocks import in_blocks
from autoreparam.program.compiled import rarely
from autoreparam.program.flat import may_be_flat
from autoreparam.program.move import LARGE_BLOCK, block
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.rows import over_rows
from autoreparam.program.site import Site
from autoreparam.program.target import Target
from autoreparam.program.visit import AtWorking

Names = tuple[str, ...]


class Seen(NamedTuple):
    """One row per draw."""

    log_scales: dict[str, Any]  # where they vary
    columns: tuple[Any, ...]  # of those of `traded`: location, scale and slope of the noise

    def where(self, rows: np.ndarray) -> Seen:
        """Some of the draws."""
        log_scales = {name: own[rows] for name, own in self.log_scales.items()}
        return Seen(log_scales, tuple(column[rows] for column in self.columns))


def traded(target: Target, settings: ScoreSettings) -> dict[str, Site]:
    """The sites that may be part of a direction, if any can be."""
    most = settings.most_traded
    sites = {n: site for n, site in may_be_flat(target.program).items() if site.size <= most}
    single = any(site.size <= settings.most_single for site in sites.values())
    return sites if single and any(map(of_groups, sites.values())) else {}


def of_groups(site: Site) -> bool:
    """Whether a site may be what a single element is traded against, where it is centered."""
    return bool(site.candidate and site.scale_parents) and site.size > 1


def see(
    target: Target, positions: np.ndarray, lam: Parameterization, settings: ScoreSettings
) -> Seen:
    """Log scales where they vary, columns of the sites of `traded`; by one program."""
    scaled, columns = tuple(varying(target)), tuple(traded(target, settings))
    if not scaled and not columns:
        return Seen({}, ())

    def of_rows(_: int, rows: np.ndarray) -> Seen:
        return _see(target, rows, lam, scaled, columns)

    return in_blocks(of_rows, block(target), positions, large=LARGE_BLOCK)


@partial(rarely, static_argnames=("scaled", "in_columns"))
def _see(
    target: Target, positions: Array, lam: Parameterization, scaled: Names, in_columns: Names
) -> Seen:
    shapes = {site.name: site.unconstrained_shape for site in target.program.latents}

    def one(position: Array) -> Seen:
        visit = AtWorking(target.program, target.unflatten(position), lam)
        visit.run()
        columns = []
        for name, part in visit.parts(in_columns).items():
            found = part.rule.loc, part.rule.scale, part.slope
            columns.append([jnp.broadcast_to(x, shapes[name]).ravel() for x in found])
        joined = tuple(jnp.concatenate(parts) for parts in zip(*columns))
        return Seen(visit.log_scales(scaled), joined)

    return over_rows(target.program, one, (0,))(positions)
