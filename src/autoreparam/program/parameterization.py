"""λ for every reparameterizable site: an immutable value, a JAX pytree, JSON out and in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from autoreparam.errors import ParameterizationError, known
from autoreparam.program import parameterization_file

if TYPE_CHECKING:
    from autoreparam.program.trace import Program


class _Words(NamedTuple):
    what: str
    range: str


SCALE = _Words("λ of the scale", "λ between 0 (non-centered) and 1 (centered)")
TAIL = _Words("the tail", "a tail between 0 (as it is) and 1 (as light as a Normal's)")


@jax.tree_util.register_pytree_node_class
class Parameterization:
    """How far each element of each site is centered: 1 is centered, 0 non-centered.

    `p["theta"]` is λ of the location, with the shape of the site's value; `p.scale["theta"]` that
    of the scale (the same unless untied); `p.reference["theta"]` the reference scale s0. Sites with
    heavy tails have `p.tail["theta"]` as well: 0 leaves the tails, 1 makes them a Normal's.

    >>> p = Parameterization.centered(program)
    >>> p = p.replace({"theta": 0.3})
    """

    __slots__ = ("_loc", "_reference", "_scale", "_tail")
    _loc: Mapping[str, Any]
    _scale: Mapping[str, Any]
    _reference: Mapping[str, Any]
    _tail: Mapping[str, Any]

    def __init__(
        self,
        loc: Mapping[str, Any],
        scale: Mapping[str, Any] | None = None,
        reference: Mapping[str, Any] | None = None,
        tail: Mapping[str, Any] | None = None,
    ):
        """Checks and freezes λ per site; `scale` is `loc` unless untied, `reference` 1."""
        lam_loc = {name: _checked(name, lam) for name, lam in loc.items()}
        for name in [*(scale or ()), *(reference or ()), *(tail or ())]:
            if name not in lam_loc:
                raise ParameterizationError(
                    f"site '{name}' has no λ; sites of this parameterization: {known(lam_loc)}"
                )
        scale, reference = scale or {}, reference or {}
        lam_scale = {
            name: _checked(name, scale[name], np.shape(lam)) if name in scale else lam
            for name, lam in lam_loc.items()
        }
        units = {
            name: _checked_reference(name, reference.get(name, 1.0), np.shape(lam))
            for name, lam in lam_loc.items()
        }
        tails = {
            name: _checked(name, tail[name], np.shape(lam), TAIL)
            for name, lam in lam_loc.items()
            if tail and name in tail
        }
        self._freeze(lam_loc, lam_scale, units, tails)

    def _freeze(self, loc: Mapping, scale: Mapping, reference: Mapping, tail: Mapping) -> None:
        object.__setattr__(self, "_loc", MappingProxyType(dict(loc)))
        object.__setattr__(self, "_scale", MappingProxyType(dict(scale)))
        object.__setattr__(self, "_reference", MappingProxyType(dict(reference)))
        object.__setattr__(self, "_tail", MappingProxyType(dict(tail)))

    def __setattr__(self, name, value):
        raise AttributeError("a Parameterization is immutable; use .replace({...}) for a new one")

    def __reduce__(self):
        return Parameterization, tuple(map(dict, self._maps))

    @property
    def _maps(self) -> tuple[Mapping[str, Any], ...]:
        return self._loc, self._scale, self._reference, self._tail

    # -- constructors -------------------------------------------------------------------------

    @classmethod
    def constant(
        cls, program: Program, lam: float, *, s0: float | None = None, tail: float = 0.0
    ) -> Parameterization:
        """The same λ for every element of every candidate site, and the same tail for heavy ones.

        `s0` is the reference scale: by default the site's own scale where that is constant and its
        prior median elsewhere, so that λ does not depend on units. The paper has `s0=1`.
        """
        dtype = program.dtype
        loc = {
            site.name: np.full(site.unconstrained_shape, lam, dtype) for site in program.candidates
        }
        if s0 is None:
            reference: Mapping[str, Any] = program.reference_scales
        else:
            reference = {name: np.asarray(s0, dtype) for name in loc}
        tails = {
            site.name: np.full(site.unconstrained_shape, tail, dtype)
            for site in program.candidates
            if site.heavy
        }
        return cls(loc, reference=reference, tail=tails)

    @classmethod
    def centered(cls, program: Program, *, s0: float | None = None) -> Parameterization:
        """The model as written: λ = 1 everywhere."""
        return cls.constant(program, 1.0, s0=s0)

    @classmethod
    def noncentered(cls, program: Program, *, s0: float | None = None) -> Parameterization:
        """Every candidate site non-centered: λ = 0 everywhere."""
        return cls.constant(program, 0.0, s0=s0)

    def replace(
        self,
        lam: Mapping[str, Any] | None = None,
        *,
        scale: Mapping[str, Any] | None = None,
        tail: Mapping[str, Any] | None = None,
    ) -> Parameterization:
        """A new parameterization with λ of some sites replaced; numbers spread over a site.

        `lam` sets location and scale together (tied); `scale` then sets λ of the scale alone.
        `tail` is for sites with heavy tails.
        """
        loc_new, scale_new, tail_new = dict(self._loc), dict(self._scale), dict(self._tail)
        for name, value in (lam or {}).items():
            loc_new[name] = scale_new[name] = self._spread(name, value)
        for name, value in (scale or {}).items():
            scale_new[name] = self._spread(name, value)
        for name, value in (tail or {}).items():
            if name not in self._tail:
                raise ParameterizationError(
                    f"site '{name}' has no tail to set; sites with heavy tails: {known(self._tail)}"
                )
            tail_new[name] = self._spread(name, value)
        return Parameterization(loc_new, scale_new, self._reference, tail_new)

    def _spread(self, name: str, value: Any):
        if name not in self._loc:
            raise ParameterizationError(
                f"site '{name}' is not part of this parameterization; "
                f"its sites are {known(self._loc)}"
            )
        shape = np.shape(self._loc[name])
        value = _as_array(name, value)
        if value.shape not in ((), shape):
            raise ParameterizationError(
                f"site '{name}': expected λ as a number or of shape {shape}, the shape of the "
                f"site's value; found shape {value.shape}"
            )
        numpy = np if isinstance(value, np.ndarray) else jnp
        return numpy.broadcast_to(value, shape).astype(self._loc[name].dtype)

    def map(self, change: Callable[[Any], Any]) -> Parameterization:
        """A new parameterization with every λ, of locations and scales, changed alike."""
        return Parameterization(
            {name: change(lam) for name, lam in self._loc.items()},
            {name: change(lam) for name, lam in self._scale.items()},
            self._reference,
            self._tail,
        )

    def round(self) -> Parameterization:
        """Each λ rounded to 0 or 1 (the paper's discrete VIP)."""
        return self.map(lambda lam: (lam >= 0.5).astype(lam.dtype))

    # -- reading ------------------------------------------------------------------------------

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of the model."""
        return tuple(self._loc)

    @property
    def scale(self) -> Mapping[str, Any]:
        """λ of the scale per site."""
        return self._scale

    @property
    def reference(self) -> Mapping[str, Any]:
        """The reference scale s0 per site."""
        return self._reference

    @property
    def tail(self) -> Mapping[str, Any]:
        """How much of its tails each element of a site with heavy ones has lost: 0 to 1."""
        return self._tail

    @property
    def tied(self) -> bool:
        """Whether location and scale share one λ everywhere."""
        return all(np.array_equal(self._loc[name], self._scale[name]) for name in self._loc)

    def of(self, name: str) -> Parameterization:
        """One site alone, its reference scale spread over all elements as λ is."""
        lam = self[name]
        spread = jnp.broadcast_to(self._reference[name], jnp.shape(lam))
        tail = {name: self._tail[name]} if name in self._tail else {}
        leaves = [lam, self._scale[name], spread, *tail.values()]
        return self.tree_unflatten(((name,), tuple(tail)), leaves)

    def __getitem__(self, name: str):
        if name not in self._loc:
            raise KeyError(f"site '{name}'; sites of this parameterization: {known(self._loc)}")
        return self._loc[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loc

    def __iter__(self) -> Iterator[str]:
        return iter(self._loc)

    def __len__(self) -> int:
        return len(self._loc)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parameterization) or self.sites != other.sites:
            return NotImplemented if not isinstance(other, Parameterization) else False
        mine, theirs = jax.tree.leaves(self), jax.tree.leaves(other)
        same_tails = tuple(self._tail) == tuple(other._tail)
        return same_tails and all(np.array_equal(a, b) for a, b in zip(mine, theirs))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Parameterization({', '.join(map(self._describe, self._loc))})"

    def _describe(self, name: str) -> str:
        text = f"{name}{list(np.shape(self._loc[name]))}: {_range(self._loc[name])}"
        if not isinstance(self._loc[name], jax.core.Tracer) and not np.array_equal(
            self._loc[name], self._scale[name]
        ):
            text += f" (scale {_range(self._scale[name])})"
        if name in self._tail:
            text += f" (tail {_range(self._tail[name])})"
        return text

    # -- fitting a model ----------------------------------------------------------------------

    def check(self, program: Program) -> Parameterization:
        """This parameterization, if it fits the program's candidate sites; an error otherwise."""
        shapes = {site.name: site.unconstrained_shape for site in program.candidates}
        for name in self._loc:
            if name not in shapes:
                why = program.explain(name)
                raise ParameterizationError(
                    f"site '{name}' of this parameterization {why}; sites that can be "
                    f"reparameterized here: {known(shapes)}. Was it made for another model?"
                )
            if np.shape(self._loc[name]) != shapes[name]:
                raise ParameterizationError(
                    f"site '{name}': λ has shape {np.shape(self._loc[name])}, the site's value "
                    f"has shape {shapes[name]}. Was it made for other data?"
                )
        missing = [name for name in shapes if name not in self._loc]
        if missing:
            raise ParameterizationError(
                f"this parameterization has no λ for {known(missing)}; it covers "
                f"{known(self._loc)}. Was it made for another model?"
            )
        for name in self._tail:
            if not program[name].heavy:
                raise ParameterizationError(
                    f"site '{name}' of this parameterization has a tail, and its distribution here "
                    f"({program[name].distribution}) no heavy ones. Was it made for another model?"
                )
        # In the order of the program, so that equal models share one compiled program.
        return _ordered(self, shapes, [name for name in shapes if program[name].heavy])

    # -- JSON ---------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The parameterization as JSON text, exact to the last bit."""
        return parameterization_file.to_text(self)

    @classmethod
    def from_json(cls, text: str, program: Program | None = None) -> Parameterization:
        """The parameterization in a JSON text; checked against `program` where one is given."""
        parameterization = cls(*parameterization_file.from_text(text))
        return parameterization if program is None else parameterization.check(program)

    def save(self, path: str | Path) -> None:
        """Writes JSON, with large arrays in an npz file of the same name beside it."""
        parameterization_file.write(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, program: Program | None = None) -> Parameterization:
        """The parameterization in a file written by `save`; checked where a program is given."""
        parameterization = cls(*parameterization_file.read(Path(path)))
        return parameterization if program is None else parameterization.check(program)

    # -- pytree -------------------------------------------------------------------------------

    def tree_flatten(self):
        """Leaves: λ of locations, λ of scales, reference scales, tails; static: the names."""
        leaves = [leaf for part in self._maps for leaf in part.values()]
        return leaves, (self.sites, tuple(self._tail))

    @classmethod
    def tree_unflatten(cls, names, leaves):
        """Rebuilds without checks: leaves may be anything JAX puts there."""
        sites, heavy = names
        rest = iter(leaves)
        self = object.__new__(cls)
        self._freeze(*(dict(zip(part, rest)) for part in (sites, sites, sites, heavy)))
        return self


def _ordered(p: Parameterization, names: Iterable[str], heavy: list[str]) -> Parameterization:
    names = list(names)
    if list(p.sites) == names and list(p.tail) == heavy:
        return p
    return Parameterization(
        {name: p[name] for name in names},
        {name: p.scale[name] for name in names},
        {name: p.reference[name] for name in names},
        {name: p.tail.get(name, np.zeros(np.shape(p[name]))) for name in heavy},
    )


def _as_array(name: str, value: Any):
    """The value as an array that cannot change: JAX's stay JAX's, the rest is copied."""
    if isinstance(value, jax.Array):
        return value
    try:
        given = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        given = np.asarray(None)
    if given.dtype.kind not in "fiub":
        raise ParameterizationError(f"site '{name}': expected numbers, found {value!r}")
    array = np.array(given, np.float32 if given.dtype == np.float32 else jnp.result_type(float))
    array.setflags(write=False)
    return array


def _checked(name: str, lam: Any, shape: tuple[int, ...] | None = None, words: _Words = SCALE):
    lam = _as_array(name, lam)
    if shape is not None and lam.shape != shape:
        raise ParameterizationError(
            f"site '{name}': {words.what} has shape {lam.shape}, λ of the location {shape}"
        )
    if isinstance(lam, jax.core.Tracer):
        return lam
    values = np.asarray(lam)
    outside = ~((values >= 0) & (values <= 1))
    if outside.any():
        worst = values[outside].flat[0]
        raise ParameterizationError(
            f"site '{name}': expected {words.range}; "
            f"found {worst} in {int(outside.sum())} of {values.size} elements"
        )
    return lam


def _checked_reference(name: str, reference: Any, shape: tuple[int, ...]):
    reference = _as_array(name, reference)
    if isinstance(reference, jax.core.Tracer):
        return reference
    values = np.asarray(reference)
    if not _spreads(values.shape, shape) or not (np.isfinite(values) & (values > 0)).all():
        raise ParameterizationError(
            f"site '{name}': expected a positive reference scale that broadcasts to {shape}; "
            f"found {np.array2string(values, threshold=4)}"
        )
    return reference


def _spreads(small: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an array of shape `small` broadcasts to `shape`."""
    pairs = zip(reversed(small), reversed(shape))
    return len(small) <= len(shape) and all(n in (1, size) for n, size in pairs)


def _range(lam: Any) -> str:
    if isinstance(lam, jax.core.Tracer):
        return "traced"
    values = np.asarray(lam)
    if values.size == 0:
        return "no elements"
    low, high = values.min(), values.max()
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
