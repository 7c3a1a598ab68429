"""Parameterizations whose λ stands for a hold of the data that varies: `grip.py`, for all sites."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from autoreparam.program.centering import Centering
from autoreparam.program.grip import roots
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.program import Program


def varies(lam: Parameterization) -> bool:
    """Whether the data's hold on any site varies."""
    return any(lam.of(name).grips for name in lam)


def loose(lam: Parameterization) -> Parameterization:
    """The same λ with a hold of the data that does not vary."""
    return _each(lam, Centering.loose)


def held(lam: Parameterization, program: Program, working: Mapping[str, Any]) -> Parameterization:
    """The same λ at a point; of its unconstrained values, those of roots are enough."""
    values = {root.label: root.of(working) for root in roots(program)}
    return _each(lam, lambda site: site.at(values))


def _each(lam: Parameterization, change: Callable[[Centering], Centering]) -> Parameterization:
    before = [lam.of(name) for name in lam]
    after = [change(site) for site in before]
    if all(map(operator.is_, before, after)):
        return lam
    return Parameterization.tree_unflatten(lam.sites, (after, lam.flat))
