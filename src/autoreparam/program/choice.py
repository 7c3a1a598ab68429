"""Which sites to reparameterize, and why the others not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from autoreparam.errors import ModelError, known
from autoreparam.program.enumeration import in_enumerated_scan, refuse_unplated, require_funsor
from autoreparam.program.implicit.look import as_implied
from autoreparam.program.site import Site
from autoreparam.program.traits import Coupling

COUPLED = {  # in the words of the table
    Coupling.CORRELATED: "elements are correlated",
    Coupling.SEQUENCE: "each element depends on the one before",
}


def choose(found: dict[str, Site], asked: str | Iterable[str]) -> tuple[Site, ...]:
    """All sites, of which those that were asked for are candidates; a note says why."""
    found = {name: _if_any(site) for name, site in found.items()}
    if isinstance(asked, str):
        if asked not in ("auto", "all"):
            raise ModelError(f"sites: expected 'auto', 'all' or a list of names; found {asked!r}")
        wanted = None
    elif not isinstance(asked, Iterable):
        raise ModelError(f"sites: expected 'auto', 'all' or a list of names; found {asked!r}")
    else:
        wanted = set(asked)
        for name in wanted:
            if name not in found or not found[name].standardizable:
                why = "is not a site of the model" if name not in found else found[name].note
                able = [site.name for site in found.values() if site.standardizable]
                raise ModelError(
                    f"site '{name}' cannot be reparameterized: {why or found[name].kind}. "
                    f"Sites that can: {known(able)}."
                )
    sites = tuple(found.values())
    if any(site.kind == "discrete" for site in sites):
        require_funsor()
        refuse_unplated(sites)
        sites = tuple(_apart_from_discrete(site, sites) for site in sites)
    return tuple(_decide(site, asked, wanted) for site in sites)


def _if_any(site: Site) -> Site:
    """The site, which has nothing to reparameterize if it has no elements."""
    if site.kind != "latent" or site.size or not site.standardizable:
        return site
    return replace(site, standardizable=False, implied=None, note="has no elements")


def _apart_from_discrete(site: Site, sites: tuple[Site, ...]) -> Site:
    """The site, which cannot move with locations that depend on what is summed out."""
    if site.kind == "discrete":
        return replace(site, note="summed out")
    if site.discrete_parents:
        note = f"depends on the discrete {', '.join(site.discrete_parents)}"
        return replace(site, standardizable=False, note=note)
    if in_enumerated_scan(site, sites):
        note = "inside a scan with discrete latents"
        return replace(site, standardizable=False, note=note)
    return site


def _decide(site: Site, asked: Any, wanted: set[str] | None) -> Site:
    if site.kind != "latent":
        return site
    if not site.standardizable:
        note = "inside cond" if in_cond(site) else site.note
        return replace(site, note=f"{note}; stays centered")
    if site.implied is not None:
        chosen = wanted is None or site.name in wanted
        return as_implied(site) if chosen else replace(site, implied=None, note="not requested")
    coupled = site.coupling is not Coupling.NONE
    dependent = bool(site.loc_parents or site.scale_parents or coupled)
    dependent |= site.heavy and site.size > 1  # such as local scales
    candidate = site.name in wanted if wanted is not None else dependent or asked == "all"
    parts = []
    if site.loc_parents:
        parts.append(f"location depends on {_listed(site, site.loc_parents)}")
    if site.scale_parents:
        parts.append(f"scale depends on {_listed(site, site.scale_parents)}")
    reason = "; ".join(parts) or "location and scale are constant"
    if coupled:
        reason += f"; {COUPLED[site.coupling]}"
    if site.heavy and candidate:
        reason += "; heavy tails"
    if dependent != candidate:
        reason += "; requested" if candidate else "; not requested"
    if site.alike and not candidate:
        reason += f"; not seen as non-centered by hand: {site.refusal}"
    if site.note:
        reason += f"; {site.note}"
    return replace(site, candidate=candidate, note=reason)


def in_cond(site: Site) -> bool:
    """Whether a site is inside `cond`."""
    return site.loop is not None and not site.loop.scan


def _listed(site: Site, parents: tuple[str, ...]) -> str:
    return ", ".join("its own past" if name == site.name else name for name in parents)
