"""Looks for non-centering by hand in a traced model: what is implied, and what was refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions.transforms import ExpTransform, IdentityTransform

from autoreparam.program.families import Correlated, Standardization
from autoreparam.program.graph import Graph, Node
from autoreparam.program.implicit.facts import Facts, sign_of
from autoreparam.program.implicit.find import Found, Noise, Traced, find
from autoreparam.program.implicit.implied import Implied
from autoreparam.program.implicit.loop import Loop
from autoreparam.program.implicit.walk import Matrix
from autoreparam.program.implicit.words import (
    Writer,
    centered_statement,
    implied_words,
    noncentered_statement,
)
from autoreparam.program.site import Site
from autoreparam.program.traits import Coupling

MOST_EQUATIONS = 100_000  # of a traced model; with more, looking would take seconds


@dataclass(frozen=True)
class Prior:
    """What the rule of a latent's distribution says about it as noise."""

    able: bool  # whether its family can be shifted or scaled
    positive: bool
    coupled: bool
    normal: bool
    structure: Any  # of the distribution, a pytree

    @classmethod
    def of(cls, rule: Any, structure: Any) -> Prior:
        """From the rule, and the distribution's structure as a pytree."""
        if isinstance(rule, Correlated):
            return cls(isinstance(rule.transform, IdentityTransform), False, True, False, structure)
        if not isinstance(rule, Standardization):
            return cls(False, False, False, False, structure)
        positive = isinstance(rule.transform, ExpTransform)
        able = positive or isinstance(rule.transform, IdentityTransform)
        return cls(able, positive, False, isinstance(rule.noise, dist.Normal), structure)


def with_implied(
    traced: Any,
    outputs: Any,
    data: Sequence[Any],
    arguments: Mapping[int, str],
    sites: dict[str, Site],
    priors: Mapping[str, Prior],
) -> dict[str, Site]:
    """The sites with what the model implies for them; as they were where looking fails.

    `outputs` is the structure of what was traced: of every site its location, its scale and all
    that its distribution is made of, the deterministics by name, and what each loop hands on.
    """
    try:
        return _look(traced, outputs, data, arguments, sites, priors)
    except Exception:  # a model that runs is more than one that is understood
        return sites


def as_implied(site: Site) -> Site:
    """The site as a candidate that is sampled as what the model makes of it."""
    implied: Implied = site.implied
    form = implied.form
    coupling = site.coupling
    if form.coupling is not None:
        correlated = isinstance(form.coupling, Matrix)
        coupling = Coupling.CORRELATED if correlated else Coupling.SEQUENCE
    note = f"non-centered by hand, implied {implied.family}"
    if implied.through:
        note += f", through {implied.through}"
    return replace(
        site,
        candidate=True,
        loc_parents=tuple(sorted(implied.loc_names)),
        scale_parents=tuple(sorted(implied.scale_names)),
        parents=tuple(sorted(implied.names)),
        coupling=coupling,
        heavy=site.heavy and form.coupling is None,
        statement=implied.statement,
        note=note,
    )


def _look(
    traced: Any,
    outputs: Any,
    data: Sequence[Any],
    arguments: Mapping[int, str],
    sites: dict[str, Site],
    priors: Mapping[str, Prior],
) -> dict[str, Site]:
    if len(traced.jaxpr.eqns) > MOST_EQUATIONS:
        return sites
    names = sorted(name for name, site in sites.items() if site.kind == "latent")
    graph = Graph()
    variables = traced.jaxpr.invars
    sources = [graph.source("data", i, v.aval) for i, v in enumerate(variables[: len(data)])]
    sources += [graph.source("latent", n, v.aval) for n, v in zip(names, variables[len(data) :])]
    nodes = graph.read(traced.jaxpr, traced.consts, sources)
    (made, deterministics, loops), _ = jax.tree.unflatten(jax.tree.structure(outputs), nodes)
    facts = Facts({name: sites[name].support for name in names}, _signs(sources, data))
    by_name = {node.value: node for node in sources if node.op == "latent"}
    latents = {name: by_name[name] for name in sites if name in by_name}
    used = [node for parts in made.values() for node in jax.tree.leaves(parts["all"])]
    model = Traced(graph, facts, latents, [n for n in used if n.names], deterministics)
    noises = [
        Noise(name, sites[name].size, prior.positive, prior.coupled, prior.normal)
        for name, prior in priors.items()
        if prior.able and _is_noise(sites[name], made[name]["all"])
    ]
    parents = {name: frozenset(sites[name].parents) for name in latents}
    found = find(model, noises, parents)
    named = {node.number: name for name, node in deterministics.items()}
    writer, result = Writer(arguments, named), dict(sites)
    for name in latents:
        site, one = sites[name], found.get(name)
        if one is not None and one.form is not None:
            result[name] = replace(
                site, implied=_implied(one, site, made[name], priors[name], loops, writer)
            )
        elif one is not None:
            unit = (_scalar(made[name]["loc"]), _scalar(made[name]["scale"])) == (0.0, 1.0)
            result[name] = replace(site, refusal=one.reason, alike=one.alike and unit)
        elif not site.parents:
            result[name] = replace(site, refusal=_unable(site, priors.get(name)))
        elif site.parents and site.standardizable:
            result[name] = replace(site, statement=_other_form(site, made[name], writer))
    return result


def _is_noise(site: Site, made: Any) -> bool:
    """Whether location and scale of a latent are constant, inside a loop too."""
    if site.kind != "latent" or not site.standardizable or site.parents or site.note == "masked":
        return False
    if site.heavy and site.support == "positive":
        return False  # long tails of a log scale: λ of the product did not help
    return site.loop is None or all(node.op == "constant" for node in jax.tree.leaves(made))


def _unable(site: Site, prior: Prior | None) -> str:
    """Why a latent of constant location and scale cannot be noise."""
    if prior is None or not prior.able:
        return f"the {site.distribution} family can be neither shifted nor scaled"
    if site.heavy:
        return "its own tails are made lighter instead"
    return "it is masked" if site.note == "masked" else "it is in a loop, and not constant"


def _implied(
    one: Found, site: Site, made: Any, prior: Prior, loops: Mapping[int, Any], writer: Writer
) -> Implied:
    assert one.form is not None
    family = implied_words(one.form, site, (_scalar(made["loc"]), _scalar(made["scale"])), writer)
    statement = centered_statement(one.through or site.name, family)
    constants, handed_on = None, None
    if site.loop is not None:
        constants = tuple(node.value for node in jax.tree.leaves(made["all"]))
        if isinstance(one.form.coupling, Loop):
            handed_on = one.form.coupling.handed_on(*loops[site.loop.number])
    own = (prior.structure, constants)
    return Implied(one.form, one.through, family, statement, prior.positive, own, handed_on)


def _other_form(site: Site, made: Any, writer: Writer) -> str:
    loc, scale = made["loc"], made["scale"]
    if not isinstance(loc, Node) or not isinstance(scale, Node):
        return ""
    return noncentered_statement(site, writer.text(loc, "0.0"), writer.text(scale, "1.0"))


def _scalar(node: Any) -> float:
    """The value of a constant that is the same for all elements; NaN where it is not one."""
    while isinstance(node, Node) and node.op in ("broadcast_in_dim", "reshape"):
        node = node.inputs[0]
    if not isinstance(node, Node) or node.op != "constant":
        return np.nan
    values = np.unique(np.asarray(node.value))
    return float(values[0]) if values.size == 1 else np.nan


def _signs(sources: Sequence[Node], data: Sequence[Any]) -> dict[int, str]:
    signs = {}
    for node, value in zip(sources, data):
        if not isinstance(value, jax.core.Tracer):
            signs[node.number] = sign_of(value)
    return signs
