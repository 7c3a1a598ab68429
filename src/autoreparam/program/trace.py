"""A model and its data traced to a Program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.handlers import seed

from autoreparam.errors import ModelError
from autoreparam.keywords import helpful
from autoreparam.program.arguments import Arguments, split
from autoreparam.program.call import Call
from autoreparam.program.captured import held_arrays
from autoreparam.program.choice import choose, in_cond
from autoreparam.program.dependence import depends_on
from autoreparam.program.digest import output_digests
from autoreparam.program.effort import factorizes
from autoreparam.program.families import Unsupported, standardize
from autoreparam.program.implicit.look import Prior, with_implied
from autoreparam.program.loops import enter_steps, given_values, is_scan
from autoreparam.program.numbers import refuse_wrapped_inside
from autoreparam.program.program import Program, Structure
from autoreparam.program.record import Record, compare, recorded
from autoreparam.program.site import ONE_AT_A_TIME, Site
from autoreparam.program.traits import Traits

__all__ = ["Program", "Site", "Structure", "inspect"]


@helpful
def inspect(
    model: Callable,
    args: tuple = (),
    kwargs: dict | None = None,
    *,
    sites: str | Iterable[str] = "auto",
    implicit: bool = True,
) -> Program:
    """The model's sites, found by tracing it abstractly on its data.

    By default the candidates for reparameterization are the latent sites whose location or scale
    depends on other latents; `sites="all"` adds those where both are constant; a list of names
    selects just these. A site that was non-centered by hand, `theta = mu + tau * eps`, is one of
    them unless `implicit=False`: it is sampled as what the model makes of it.

    >>> import autoreparam as ar
    >>> problem = ar.zoo.load("eight_schools")
    >>> program = ar.inspect(problem.model, problem.args, problem.kwargs)
    >>> [site.name for site in program.candidates]
    ['theta']

    Args:
        model: The NumPyro model, a function.
        args: Its positional arguments: the data.
        kwargs: Its keyword arguments; None for none.
        sites: Which sites to reparameterize: "auto", "all" or names. Constant locations and scales
            gain nothing, so "auto" leaves them.
        implicit: Whether sites that were non-centered by hand are recognized; never in models
            with discrete latents.
    """
    call = Call.of(model, args, kwargs)
    model = call.model
    tables: list[dict[str, Site]] = []

    def traceable(arguments: Arguments, data: tuple) -> bool:
        try:
            tables.append(_shapes(model, arguments, data)[0])
        except ModelError:
            raise
        except Exception:  # models may do with numbers what they cannot do with tracers
            return False
        return True

    arguments, data = split(call.args, call.kwargs, traceable)
    with call.in_words():
        found, dtype = _shapes(model, arguments, data)
        for table in tables:
            compare(table, found)
        found, digests, looking, solves = _with_parents(model, arguments, data, found, implicit)
    chosen = choose(found, sites)
    return Program(Structure(model, arguments, chosen, dtype, digests, looking, solves), data)


# -- first pass: names, kinds and shapes ------------------------------------------------------


def _shapes(model, arguments: Arguments, data: tuple) -> tuple[dict[str, Site], Any]:
    record = recorded(Record, model, arguments, data)
    if not record.dtypes:
        raise ModelError(
            "the model has no latent site: there is nothing to sample. A latent is a "
            "numpyro.sample statement without obs."
        )
    return record.sites, jnp.result_type(*record.dtypes)


# -- second pass: what depends on what --------------------------------------------------------


class _Depend(Record):
    """Runs the model at given values, keeping the locations, scales and parameters of its sites."""

    def __init__(self, values: dict, sites: Mapping[str, Site]):
        super().__init__()
        self.values, self.latents = values, sites
        self.kept: dict[str, Any] = {}
        self.deterministics: dict[str, Any] = {}
        self.densities: dict[str, Any] = {}
        self.handed_on: dict[int, Any] = {}  # by each scan, in the end
        self.notes: dict[str, str] = {}
        self.traits: dict[str, Traits] = {}
        self.priors: dict[str, Prior] = {}

    def draw(self, msg) -> Any:
        return self.values[msg["name"]] if msg["name"] in self.values else super().draw(msg)

    def process_message(self, msg) -> None:
        super().process_message(msg)
        if msg["type"] == "control_flow":
            self._enter(msg)
        if msg["type"] == "deterministic":
            self.deterministics[msg["name"]] = msg["value"]
        if msg["type"] != "sample":
            return
        name, fn = msg["name"], msg["fn"]
        if msg["value"] is not None:
            self.densities[name] = [fn.log_prob(msg["value"]), msg["scale"]]
        loc: Any = ()
        scale: Any = ()
        if name in self.latents:
            try:
                rule = standardize(fn)
                loc, scale = rule.loc, rule.spread
                self.traits[name] = rule.traits
                self.priors[name] = Prior.of(rule, jax.tree.structure(fn))
            except Unsupported as reason:
                self.notes[name] = str(reason)
        self.kept[name] = {"loc": loc, "scale": scale, "all": jax.tree.leaves(fn)}

    def postprocess_message(self, msg) -> None:
        number = self.loops
        super().postprocess_message(msg)
        if msg["type"] == "control_flow" and is_scan(msg):
            (step, _, own), _ = msg["value"]
            self.handed_on[number] = (step, jax.tree.leaves(own))

    def _enter(self, msg) -> None:
        """Gives the latents of a loop their values, step by step."""
        here = [site for site in self.latents.values() if site.loop and site.loop[0] == self.loops]
        series = {site.name: self.values[site.name] for site in here}
        if is_scan(msg):
            enter_steps(msg, series, given_values)
        else:
            msg["kwargs"]["substitute_stack"].append(("substitute", series))


def _with_parents(
    model: Callable, arguments: Arguments, data: tuple, sites: dict[str, Site], implicit: bool
) -> tuple[dict[str, Site], dict[str, str], float, bool]:
    """The sites with what they depend on, and what `Structure` tells of what they compute."""
    latents = {name: site for name, site in sites.items() if site.kind == "latent"}
    discrete = {name: site for name, site in sites.items() if site.kind == "discrete"}
    depend: Any = None

    def run(data, values):
        nonlocal depend
        args, kwargs = arguments.fill(data)
        depend = _Depend(values, latents)
        with ONE_AT_A_TIME, depend:
            seed(model, 0)(*args, **kwargs)
        compare(sites, depend.sites)
        return (depend.kept, depend.deterministics, depend.handed_on), depend.densities

    dtype = jnp.result_type(float)
    values = {name: jax.ShapeDtypeStruct(site.shape, dtype) for name, site in latents.items()}
    counts = jnp.result_type(int)
    values |= {name: jax.ShapeDtypeStruct(site.shape, counts) for name, site in discrete.items()}
    traced, shapes = jax.make_jaxpr(run, return_shape=True)(data, values)
    refuse_wrapped_inside(
        traced, arguments.named(model, data), held_arrays(model, arguments.given(model, data))
    )
    inputs = [frozenset[str]()] * len(data) + [frozenset({name}) for name in sorted(values)]
    found_names = depends_on(traced.jaxpr, inputs)
    structure = jax.tree.structure(shapes)
    (depends, computed, _), _ = jax.tree.unflatten(structure, found_names)
    traces = output_digests(traced, [*(f"data {i}" for i in range(len(data))), *sorted(values)])
    (_, deterministics, _), densities = jax.tree.unflatten(structure, traces)

    def names(found: Any, among: Mapping[str, Site] = latents) -> tuple[str, ...]:
        union = frozenset().union(*jax.tree.leaves(found, is_leaf=lambda x: x == frozenset()))
        return tuple(name for name in among if name in union)

    result = dict(sites)
    for name, found in depends.items():
        site = sites[name]
        result[name] = replace(
            site,
            loc_parents=names(found["loc"]),
            scale_parents=names(found["scale"]),
            parents=names(found["all"]),
            discrete_parents=names(found["all"], discrete),
            standardizable=site.kind == "latent" and name not in depend.notes and not in_cond(site),
            note=depend.notes.get(name, site.note),
            **depend.traits.get(name, Traits())._asdict(),
        )
    for name, found in computed.items():
        result[name] = replace(result[name], discrete_parents=names(found, discrete))
    looking = -perf_counter()
    if implicit and not discrete:  # what is summed out has no value that a location could need
        result = with_implied(traced, shapes, data, arguments.names(model), result, depend.priors)
    looking += perf_counter()
    # A model that reads a global keeps its identity when the global changes, and would reuse
    # outdated compiled code. The digests change with it.
    parts = {**deterministics, **densities}
    digests = {name: "".join(jax.tree.leaves(found)) for name, found in parts.items()}
    return result, digests, looking, factorizes(traced.jaxpr)
