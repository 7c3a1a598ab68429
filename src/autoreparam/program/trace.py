"""A model and its data traced to a Program: the ordered table of its sites."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import biject_to
from numpyro.handlers import seed
from numpyro.ops.provenance import eval_provenance
from numpyro.primitives import Messenger

from autoreparam.errors import ModelError, known
from autoreparam.program.arguments import Arguments, split
from autoreparam.program.families import Unsupported, standardize, unwrap
from autoreparam.program.table import as_html, as_text

PRIOR_DRAWS = 101
VALUE_NEEDED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


@dataclass(frozen=True)
class Site:
    """One named statement of a model: what it is, what it depends on, what can be done with it."""

    name: str
    kind: str  # "latent", "observed", "factor" or "deterministic"
    distribution: str
    shape: tuple[int, ...]
    event_dim: int
    support: str
    unconstrained_shape: tuple[int, ...] = ()
    plates: tuple[tuple[str, int], ...] = ()  # name and axis, counted from the end of the value
    loc_parents: tuple[str, ...] = ()
    scale_parents: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    scanned: Any = None  # inside `scan`: the constraint that its values satisfy
    standardizable: bool = False
    candidate: bool = False
    note: str = ""

    @property
    def size(self) -> int:
        """Number of unconstrained elements."""
        return int(np.prod(self.unconstrained_shape, dtype=int))


@dataclass(frozen=True, eq=False)
class Structure:
    """All of a program but its data; equal structures share compiled code."""

    model: Callable
    arguments: Arguments
    sites: tuple[Site, ...]
    dtype: Any

    @cached_property
    def _key(self) -> tuple:
        return (self.model, self.arguments, self.sites, str(self.dtype))

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Structure) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def latents(self) -> tuple[Site, ...]:
        return tuple(site for site in self.sites if site.kind == "latent")

    @cached_property
    def by_name(self) -> dict[str, Site]:
        return {site.name: site for site in self.sites}


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, eq=False)
class Program:
    """A model traced on its data: its sites in order. A pytree whose leaves are the data."""

    structure: Structure
    data: tuple[Any, ...]

    def tree_flatten(self):
        """Leaves: the data; static: everything else."""
        return self.data, self.structure

    @classmethod
    def tree_unflatten(cls, structure, data):
        """Rebuilds without checks."""
        return cls(structure, tuple(data))

    @property
    def sites(self) -> tuple[Site, ...]:
        """Every site, in the order of the model."""
        return self.structure.sites

    @property
    def latents(self) -> tuple[Site, ...]:
        """The sites that are sampled."""
        return self.structure.latents

    @property
    def candidates(self) -> tuple[Site, ...]:
        """The sites that a parameterization covers."""
        return tuple(site for site in self.sites if site.candidate)

    @property
    def dtype(self) -> Any:
        """The floating-point type of the latent values."""
        return self.structure.dtype

    def __getitem__(self, name: str) -> Site:
        if name not in self.structure.by_name:
            raise KeyError(f"site '{name}'; sites of this model: {known(self.structure.by_name)}")
        return self.structure.by_name[name]

    def explain(self, name: str) -> str:
        """Why a name is no candidate, as the end of a sentence."""
        site = self.structure.by_name.get(name)
        if site is None:
            return "is no site of this model"
        return f"is not reparameterized ({site.note or site.kind})"

    def run(self) -> Any:
        """Runs the model on its data inside whatever handlers are active."""
        args, kwargs = self.structure.arguments.fill(self.data)
        return self.structure.model(*args, **kwargs)

    @cached_property
    def reference_scales(self) -> dict[str, np.ndarray]:
        """s0 of each candidate: its scale where constant, else the median over prior draws."""
        names = frozenset(site.name for site in self.candidates)
        if not names:
            return {}
        draws = _prior_scales(self, names)
        scales = {}
        for site in self.candidates:
            median = np.median(np.asarray(draws[site.name]), axis=0)
            usable = np.isfinite(median) & (median > np.finfo(median.dtype).tiny)
            scales[site.name] = np.where(usable, median, 1).astype(self.dtype)
        return scales

    def __repr__(self) -> str:
        return as_text(self.sites)

    def _repr_html_(self) -> str:
        return as_html(self.sites)


def inspect(
    model: Callable,
    args: tuple = (),
    kwargs: dict | None = None,
    *,
    sites: str | Iterable[str] = "auto",
) -> Program:
    """The model's sites, found by tracing it abstractly on its data.

    By default the candidates for reparameterization are the latent sites whose location or scale
    depends on other latents; `sites="all"` adds those with constant ones, a list of names asks
    for just these.

    >>> import autoreparam as ar
    >>> problem = ar.zoo.load("eight_schools")
    >>> program = ar.inspect(problem.model, problem.args, problem.kwargs)
    >>> [site.name for site in program.candidates]
    ['theta']
    """
    if not callable(model):
        raise ModelError(f"expected a NumPyro model, a callable; found {type(model).__name__}")
    if isinstance(args, str) or not isinstance(args, tuple | list):
        raise ModelError(f"expected args as a tuple; found {type(args).__name__}. Write args=(x,).")

    def traceable(arguments: Arguments, data: tuple) -> bool:
        try:
            _shapes(model, arguments, data)
        except VALUE_NEEDED:
            return False
        return True

    arguments, data = split(tuple(args), kwargs, traceable)
    try:
        found, dtype = _shapes(model, arguments, data)
        found = _with_parents(model, arguments, data, found)
    except VALUE_NEEDED as error:
        raise ModelError(
            "the model's control flow depends on the value of a latent site, so it has no fixed "
            "set of sites. Use jnp.where or jax.lax.cond on the values instead of Python's `if`. "
            f"JAX says: {str(error).splitlines()[0]}"
        ) from error
    return Program(Structure(model, arguments, _choose(found, sites), dtype), data)


# -- first pass: names, kinds and shapes ------------------------------------------------------


class _Record(Messenger):
    """Notes every site of one abstract run, refusing what cannot be sampled."""

    def __init__(self) -> None:
        super().__init__()
        self.sites: dict[str, Site] = {}
        self.dtypes: list[Any] = []

    def process_message(self, msg) -> None:
        if msg["type"] == "plate":
            size, subsample = msg["args"][0], msg["args"][1]
            if subsample is not None and subsample != size:
                raise ModelError(
                    f"plate '{msg['name']}' subsamples {subsample} of {size}: MCMC needs every "
                    "row. Remove subsample_size, or pass a smaller data set."
                )
        elif msg["type"] == "param":
            raise ModelError(
                f"site '{msg['name']}' is a param, which MCMC does not learn. Give it a prior with "
                "numpyro.sample, or fix it with numpyro.handlers.substitute."
            )
        elif msg["type"] == "sample" and msg["value"] is None:
            _refuse_discrete(msg)
            msg["value"] = self.draw(msg)

    def draw(self, msg) -> Any:
        """A value of the right shape; its numbers are never looked at."""
        return jnp.zeros(msg["kwargs"].get("sample_shape", ()) + msg["fn"].shape())

    def postprocess_message(self, msg) -> None:
        if msg["type"] not in ("sample", "deterministic"):
            return
        name = msg["name"]
        if name in self.sites:
            raise ModelError(
                f"site '{name}' appears twice. Every sample and deterministic statement needs a "
                "name of its own; in a loop, write f'{name}_{i}'."
            )
        site = _describe(msg)
        self.sites[name] = site
        if site.kind == "latent":
            self.dtypes.append(jnp.result_type(msg["value"]))


def _refuse_discrete(msg) -> None:
    if msg["fn"].support is not None and msg["fn"].support.is_discrete:
        raise ModelError(
            f"site '{msg['name']}' is a discrete latent ({type(unwrap(msg['fn'])[0]).__name__}): "
            "HMC moves continuous values only. Sum it out (for example with "
            "dist.MixtureSameFamily), or observe it."
        )


def _describe(msg) -> Site:
    shape = tuple(np.shape(msg["value"]))
    if msg["type"] == "deterministic":
        return Site(msg["name"], "deterministic", "", shape, 0, "", plates=_plates(msg, 0))
    base, mask = unwrap(msg["fn"])
    site = Site(
        msg["name"],
        _kind(msg, base),
        type(base).__name__,
        shape,
        msg["fn"].event_dim,
        _support_name(msg["fn"]),
        plates=_plates(msg, msg["fn"].event_dim),
    )
    if site.kind != "latent":
        return site
    _refuse_discrete(msg)
    support, scanned = msg["fn"].support, None
    if msg.get("infer", {}).get("_scan_current_index") is not None:
        if jax.tree.leaves(support):
            raise ModelError(
                f"site '{site.name}' has a support that depends on values inside scan. Sample a "
                "variable of fixed support and transform it."
            )
        scanned = support
    free = tuple(biject_to(support).inverse_shape(shape))
    note = "masked" if mask is not None else ""
    return replace(site, unconstrained_shape=free, scanned=scanned, note=note)


def _kind(msg, base: dist.Distribution) -> str:
    if isinstance(base, dist.Unit):
        return "factor"
    if isinstance(base, dist.Delta) and not msg["is_observed"]:
        return "deterministic"
    if msg["is_observed"]:
        return "observed"
    return "latent"


def _plates(msg, event_dim: int) -> tuple[tuple[str, int], ...]:
    frames = msg.get("cond_indep_stack", ())
    return tuple((frame.name, frame.dim - event_dim) for frame in frames)


def _support_name(fn: dist.Distribution) -> str:
    base = fn.support
    while hasattr(base, "base_constraint"):
        base = base.base_constraint
    return type(base).__name__.strip("_").lower()


def _shapes(model, arguments: Arguments, data: tuple) -> tuple[dict[str, Site], Any]:
    record = _Record()

    def run(data, key):
        nonlocal record
        record = _Record()
        args, kwargs = arguments.fill(data)
        with record:
            seed(model, key)(*args, **kwargs)
        return ()

    jax.eval_shape(run, data, jax.random.key(0))
    if not record.dtypes:
        raise ModelError("the model has no latent site: there is nothing to sample")
    return record.sites, jnp.result_type(*record.dtypes)


# -- second pass: what depends on what --------------------------------------------------------


class _Depend(Messenger):
    """Runs the model at given values, keeping locations, scales and parameters of its sites."""

    def __init__(self, values: dict, sites: dict[str, Site]):
        super().__init__()
        self.values, self.sites, self.kept = values, sites, {}
        self.notes: dict[str, str] = {}

    def process_message(self, msg) -> None:
        if msg["type"] == "control_flow":
            msg["kwargs"]["substitute_stack"].append(("substitute", self.values))
        if msg["type"] != "sample":
            return
        name, fn = msg["name"], msg["fn"]
        if name in self.values and msg["value"] is None:
            msg["value"] = self.values[name]
        loc = scale = ()
        if self.sites[name].kind == "latent":
            try:
                rule = standardize(fn)
                loc, scale = rule.loc, rule.scale
            except Unsupported as reason:
                self.notes[name] = str(reason)
        self.kept[name] = {"loc": loc, "scale": scale, "all": jax.tree.leaves(fn)}


def _with_parents(model, arguments, data, sites: dict[str, Site]) -> dict[str, Site]:
    latents = [site for site in sites.values() if site.kind == "latent"]
    notes: dict[str, str] = {}

    def run(**inputs):
        args, kwargs = arguments.fill(inputs.pop("data"))
        values = {site.name: inputs[f"site:{site.name}"] for site in latents}
        depend = _Depend(values, sites)
        with depend:
            seed(model, 0)(*args, **kwargs)
        notes.update(depend.notes)
        return depend.kept

    dtype = jnp.result_type(float)
    inputs = {f"site:{s.name}": jax.ShapeDtypeStruct(s.shape, dtype) for s in latents}
    depends = eval_provenance(run, data=data, **inputs)

    def names(found: Any) -> tuple[str, ...]:
        union = frozenset().union(*jax.tree.leaves(found, is_leaf=lambda x: x == frozenset()))
        return tuple(site.name for site in latents if f"site:{site.name}" in union)

    result = dict(sites)
    for name, found in depends.items():
        site = sites[name]
        result[name] = replace(
            site,
            loc_parents=names(found["loc"]),
            scale_parents=names(found["scale"]),
            parents=names(found["all"]),
            standardizable=site.kind == "latent" and name not in notes and site.scanned is None,
            note=notes.get(name, site.note),
        )
    return result


# -- which sites to reparameterize ------------------------------------------------------------


def _choose(found: dict[str, Site], asked: str | Iterable[str]) -> tuple[Site, ...]:
    if isinstance(asked, str):
        if asked not in ("auto", "all"):
            raise ModelError(f"sites: expected 'auto', 'all' or a list of names; found {asked!r}")
        wanted = None
    else:
        wanted = set(asked)
        for name in wanted:
            if name not in found or not found[name].standardizable:
                why = "is no site of the model" if name not in found else found[name].note
                able = [site.name for site in found.values() if site.standardizable]
                raise ModelError(
                    f"site '{name}' cannot be reparameterized: {why or found[name].kind}. "
                    f"Sites that can: {known(able)}."
                )
    return tuple(_decide(site, asked, wanted) for site in found.values())


def _decide(site: Site, asked: Any, wanted: set[str] | None) -> Site:
    if site.kind != "latent":
        return site
    if not site.standardizable:
        note = "inside scan" if site.scanned is not None else site.note
        return replace(site, note=f"{note}; stays centered")
    dependent = bool(site.loc_parents or site.scale_parents)
    candidate = site.name in wanted if wanted is not None else dependent or asked == "all"
    parts = []
    if site.loc_parents:
        parts.append(f"location depends on {', '.join(site.loc_parents)}")
    if site.scale_parents:
        parts.append(f"scale depends on {', '.join(site.scale_parents)}")
    reason = "; ".join(parts) or "location and scale are constant"
    if dependent and not candidate:
        reason += "; not asked for"
    if site.note:
        reason += f"; {site.note}"
    return replace(site, candidate=candidate, note=reason)


# -- reference scales -------------------------------------------------------------------------


class _Scales(_Record):
    """Draws from the prior, keeping the scales of the named sites."""

    def __init__(self, names: frozenset[str]):
        super().__init__()
        self.names, self.scales = names, {}

    def draw(self, msg) -> Any:
        """A draw from the prior, or from anywhere in the support if it has no sampler."""
        fn, key = msg["fn"], msg["kwargs"]["rng_key"]
        shape = msg["kwargs"].get("sample_shape", ())
        try:
            return fn.sample(key, shape)
        except (NotImplementedError, ImportError):
            transform = biject_to(fn.support)
            free = transform.inverse_shape(shape + fn.shape())
            return transform(jax.random.uniform(key, free, minval=-2.0, maxval=2.0))

    def process_message(self, msg) -> None:
        super().process_message(msg)
        if msg["type"] == "sample" and msg["name"] in self.names:
            self.scales[msg["name"]] = jnp.asarray(standardize(msg["fn"]).scale)


@partial(jax.jit, static_argnums=1)
def _prior_scales(program: Program, names: frozenset[str]) -> dict[str, Any]:
    def draw(key):
        scales = _Scales(names)
        with scales, seed(rng_seed=key):
            program.run()
        return scales.scales

    # One draw at a time: vectorized random bits take longer to compile than these take to draw.
    return jax.lax.map(draw, jax.random.split(jax.random.key(0), PRIOR_DRAWS))
