"""A model and its data traced to a Program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.handlers import seed

from autoreparam.errors import AutoreparamError, ModelError, known
from autoreparam.keywords import helpful
from autoreparam.program.arguments import Arguments, named_leaves, split
from autoreparam.program.captured import captured
from autoreparam.program.dependence import depends_on
from autoreparam.program.digest import output_digests
from autoreparam.program.enumeration import in_enumerated_scan, refuse_unplated, require_funsor
from autoreparam.program.failure import failed, raised_by
from autoreparam.program.families import Unsupported, standardize
from autoreparam.program.implicit.look import Prior, as_implied, with_implied
from autoreparam.program.loops import enter_steps, given_values, is_scan
from autoreparam.program.numbers import refuse_stale, refuse_wrapped
from autoreparam.program.process import refuse_forked
from autoreparam.program.program import Program, Structure
from autoreparam.program.record import Record, compare
from autoreparam.program.site import ONE_AT_A_TIME, Site
from autoreparam.program.traits import Coupling, Traits
from autoreparam.program.unseeded import unseeded

__all__ = ["Program", "Site", "Structure", "inspect"]

VALUE_NEEDED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)

COUPLED = {  # in the words of the table
    Coupling.CORRELATED: "elements are correlated",
    Coupling.SEQUENCE: "each element depends on the one before",
}


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
    """
    if not callable(model):
        raise ModelError(
            f"expected a NumPyro model, a callable; found {type(model).__name__}. Pass the "
            "function itself, and its data as args and kwargs."
        )
    if isinstance(args, str) or not isinstance(args, tuple | list):
        raise ModelError(f"expected args as a tuple; found {type(args).__name__}. Write args=(x,).")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ModelError(f"expected kwargs as a dict; found {type(kwargs).__name__}")
    model = unseeded(model)
    refuse_forked()
    read = captured(model)
    refuse_stale(read)
    named = named_leaves(model, tuple(args), dict(kwargs or {}))
    # What becomes of Python's own integers is seen below: they may never reach JAX.
    refuse_wrapped({n: x for n, x in {**read, **named}.items() if not isinstance(x, int)})
    tables: list[dict[str, Site]] = []

    def traceable(arguments: Arguments, data: tuple) -> bool:
        try:
            tables.append(_shapes(model, arguments, data)[0])
        except ModelError:
            raise
        except Exception:  # models may do with numbers what they cannot do with tracers
            return False
        return True

    arguments, data = split(tuple(args), kwargs, traceable)
    try:
        found, dtype = _shapes(model, arguments, data)
        for table in tables:
            compare(table, found)
        found, digests, looking = _with_parents(model, arguments, data, found, implicit)
    except OverflowError as error:
        refuse_wrapped({**read, **named})
        raise failed(model, error, named) from error
    except VALUE_NEEDED as error:
        for leaf in jax.tree.leaves((args, kwargs)):
            if hasattr(leaf, "__array__") and not isinstance(leaf, np.ndarray | jax.Array):
                raise ModelError(
                    f"the model cannot compute with an argument of type {type(leaf).__name__}. "
                    "Pass it as an array: numpy.asarray(...)."
                ) from error
        raise ModelError(
            "the model's control flow depends on the value of a latent site, so it has no fixed "
            "set of sites. Use jnp.where or jax.lax.cond on the values instead of Python's `if`. "
            f"JAX says: {str(error).splitlines()[0]}"
        ) from error
    except AutoreparamError:
        raise
    except Exception as error:
        if raised_by(model, error):
            raise  # the model's own words
        raise failed(model, error, named) from error
    chosen = _choose(found, sites)
    return Program(Structure(model, arguments, chosen, dtype, digests, looking), data)


# -- first pass: names, kinds and shapes ------------------------------------------------------


def _shapes(model, arguments: Arguments, data: tuple) -> tuple[dict[str, Site], Any]:
    record = Record()

    def run(data, key):
        nonlocal record
        record = Record()
        args, kwargs = arguments.fill(data)
        with ONE_AT_A_TIME, record:
            seed(model, key)(*args, **kwargs)
        return ()

    jax.eval_shape(run, data, jax.random.key(0))
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
) -> tuple[dict[str, Site], dict[str, str], float]:
    """The sites with what they depend on, a digest of what each computes, and seconds of looking.

    Looking is for what was non-centered by hand.
    """
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
        return (depend.kept, depend.deterministics), depend.densities

    dtype = jnp.result_type(float)
    values = {name: jax.ShapeDtypeStruct(site.shape, dtype) for name, site in latents.items()}
    counts = jnp.result_type(int)
    values |= {name: jax.ShapeDtypeStruct(site.shape, counts) for name, site in discrete.items()}
    traced, shapes = jax.make_jaxpr(run, return_shape=True)(data, values)
    inputs = [frozenset[str]()] * len(data) + [frozenset({name}) for name in sorted(values)]
    found_names = depends_on(traced.jaxpr, inputs)
    structure = jax.tree.structure(shapes)
    (depends, computed), _ = jax.tree.unflatten(structure, found_names)
    traces = output_digests(traced, [*(f"data {i}" for i in range(len(data))), *sorted(values)])
    (_, deterministics), densities = jax.tree.unflatten(structure, traces)

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
            standardizable=site.kind == "latent"
            and name not in depend.notes
            and not _in_cond(site),
            note=depend.notes.get(name, site.note),
            **depend.traits.get(name, Traits())._asdict(),
        )
    for name, found in computed.items():
        result[name] = replace(result[name], discrete_parents=names(found, discrete))
    looking = -perf_counter()
    if implicit:
        result = with_implied(traced, shapes, data, arguments.names(model), result, depend.priors)
    looking += perf_counter()
    # A model that reads a global keeps its identity when the global changes, and would reuse
    # outdated compiled code. The digests change with it.
    parts = {**deterministics, **densities}
    digests = {name: "".join(jax.tree.leaves(found)) for name, found in parts.items()}
    return result, digests, looking


# -- which sites to reparameterize ------------------------------------------------------------


def _choose(found: dict[str, Site], asked: str | Iterable[str]) -> tuple[Site, ...]:
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
        note = "inside cond" if _in_cond(site) else site.note
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


def _in_cond(site: Site) -> bool:
    return site.loop is not None and not site.loop.scan


def _listed(site: Site, parents: tuple[str, ...]) -> str:
    return ", ".join("its own past" if name == site.name else name for name in parents)
