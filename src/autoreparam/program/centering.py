"""λ of one site: how far each of its elements is centered, with the checks of such a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autoreparam.errors import ParameterizationError, known
from autoreparam.program.grip import BASE, no_grip, tightness
from autoreparam.program.maps.gain import GAINS, GEOMETRIC
from autoreparam.program.site import Site

LAM_RANGE = "λ between 0 (non-centered) and 1 (centered)"
TAIL_RANGE = "a tail between 0 (as it is) and 1 (as light as a Normal's)"


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Centering:
    """How far the elements of one site are centered: 1 is centered, 0 non-centered.

    Location and scale have a λ each, of the shape of the unconstrained value. The reference scale
    s0 broadcasts to that shape. The tail is None where the site has no heavy ones. The origin is
    about where the elements of a sequence are, the grip how the data's hold on them varies; other
    sites have neither. The gain says which mean of s0 and the scale noise is multiplied by.
    """

    loc: Any
    scale: Any
    reference: Any
    tail: Any = None
    origin: Any = None
    grip: Any = None  # by the label of a root
    tight: Any = None  # what the grip comes to, at a point
    gain: str = field(default=GEOMETRIC, metadata={"static": True})

    def checked(self, name: str) -> Centering:
        """The same in arrays that cannot change; an error about site `name` if it is no λ."""
        loc = _between(name, self.loc, LAM_RANGE)
        shape, scale, tail, origin = np.shape(loc), loc, self.tail, self.origin
        if self.scale is not self.loc:
            scale = _between(name, self.scale, LAM_RANGE)
            _refuse_other_shape(name, "λ of the scale", scale, shape)
        reference = _positive(name, self.reference, shape)
        if tail is not None:
            tail = _between(name, tail, TAIL_RANGE)
            _refuse_other_shape(name, "the tail", tail, shape)
        if origin is not None:
            origin = _finite(name, origin, "an origin")
            _refuse_other_shape(name, "the origin", origin, shape)
        grip = self.grip
        if grip is not None:
            grip = {label: _finite(name, own, "a grip") for label, own in grip.items()}
            for own in grip.values():
                _refuse_other_shape(name, "the grip", own, shape)
        if self.gain not in GAINS:
            raise ParameterizationError(
                f"site '{name}': expected a gain that is one of {known(GAINS)}; found {self.gain!r}"
            )
        return Centering(loc, scale, reference, tail, origin, grip, self.tight, self.gain)

    def spread(self) -> Centering:
        """The same with the reference scale repeated for every element, as λ is."""
        return replace(self, reference=jnp.broadcast_to(self.reference, jnp.shape(self.loc)))

    def completed(self, site: Site, roots: tuple[str, ...] = ()) -> Centering:
        """The same with zeros for the tail, origin or grip that its site needs and it lacks."""
        shape, dtype = np.shape(self.loc), self.loc.dtype
        zeros: Any = np.zeros(shape, dtype)
        needs = {"tail": site.heavy, "origin": site.follows}
        bare = {p: zeros for p, need in needs.items() if need and getattr(self, p) is None}
        grip = no_grip(roots, shape, dtype) if site.follows else None
        if grip and self.grip:
            same = grip.keys() == self.grip.keys()
            grip = self.grip if same else {one: self.grip.get(one, zeros) for one in grip}
        if grip is not self.grip:
            bare["grip"] = grip
        return replace(self, **bare) if bare else self

    @property
    def grips(self) -> bool:
        """Whether the hold of the data varies."""
        parts = [] if self.grip is None else list(self.grip.values())
        return not any(isinstance(p, jax.core.Tracer) for p in parts) and any(map(np.any, parts))

    def loose(self) -> Centering:
        """The same with a grip that does not vary."""
        if self.grip is None:
            return self
        return replace(self, grip={label: 0 * own for label, own in self.grip.items()})

    def at(self, roots: Mapping[str, Any]) -> Centering:
        """The same where roots have these values."""
        if self.grip is None:
            return self
        return replace(self, grip=None, tight=tightness(self.grip, roots))

    def refuse_other(self, site: Site, roots: tuple[str, ...] = ()) -> None:
        """Raises where this cannot be the λ of a site of a program with these roots."""
        name, shape = site.name, np.shape(self.loc)
        if shape != site.unconstrained_shape:
            raise ParameterizationError(
                f"site '{name}': λ has shape {shape}, the site's value "
                f"has shape {site.unconstrained_shape}. Was it made for other data?"
            )
        if self.tail is not None and not site.heavy:
            raise ParameterizationError(
                f"site '{name}' of this parameterization has a tail, and its distribution here "
                f"({site.distribution}) no heavy ones. Was it made for another model?"
            )
        if self.origin is not None and not site.follows:
            raise ParameterizationError(
                f"site '{name}' is a sequence in this parameterization, but not in this model. "
                "Was it made for another one?"
            )
        labels = {*(self.grip or ())} - {BASE}
        if self.grips and not (site.follows and labels <= {*roots}):
            raise ParameterizationError(
                f"site '{name}': the data's grip on it varies with {known(labels)} in this "
                f"parameterization, and can vary with {known(roots)} here. Was it made for another "
                "model?"
            )

    def filled(self, name: str, value: Any) -> Any:
        """A number for every element, or an array of the site's shape, in the type of its λ."""
        shape = np.shape(self.loc)
        value = _as_array(name, value)
        if value.shape not in ((), shape):
            raise ParameterizationError(
                f"site '{name}': expected λ as a number or of shape {shape}, the shape of the "
                f"site's value; found shape {value.shape}"
            )
        numpy = np if isinstance(value, np.ndarray) else jnp
        return numpy.broadcast_to(value, shape).astype(self.loc.dtype)

    def summary(self) -> tuple[str, ...]:
        """The number of elements; the smallest λ, the mean and the largest."""
        lam = np.asarray(self.loc, float)
        ends = (lam.min(), lam.mean(), lam.max()) if lam.size else (np.nan,) * 3
        return str(lam.size), *(f"{value:.2f}" for value in ends)

    def __str__(self) -> str:
        text = f"{list(np.shape(self.loc))}: {_range(self.loc)}"
        traced = any(isinstance(lam, jax.core.Tracer) for lam in (self.loc, self.scale))
        if not traced and not np.array_equal(self.loc, self.scale):
            text += f" (scale {_range(self.scale)})"
        if self.tail is not None:
            text += f" (tail {_range(self.tail)})"
        if self.grips:
            text += " (with a grip)"
        return text if self.gain == GEOMETRIC else f"{text} ({self.gain} gain)"


def _as_array(name: str, value: Any):
    """The value as an immutable array: JAX arrays stay as they are, the rest is copied."""
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


def _between(name: str, lam: Any, wanted: str):
    lam = _as_array(name, lam)
    if isinstance(lam, jax.core.Tracer):
        return lam
    values = np.asarray(lam)
    outside = ~((values >= 0) & (values <= 1))
    if outside.any():
        worst = values[outside].flat[0]
        raise ParameterizationError(
            f"site '{name}': expected {wanted}; "
            f"found {worst} in {int(outside.sum())} of {values.size} elements"
        )
    return lam


def _finite(name: str, given: Any, what: str):
    given = _as_array(name, given)
    if not isinstance(given, jax.core.Tracer) and not np.isfinite(np.asarray(given)).all():
        raise ParameterizationError(f"site '{name}': expected {what} of finite numbers")
    return given


def _refuse_other_shape(name: str, what: str, lam: Any, shape: tuple[int, ...]) -> None:
    if lam.shape != shape:
        raise ParameterizationError(
            f"site '{name}': {what} has shape {lam.shape}, λ of the location {shape}"
        )


def _positive(name: str, reference: Any, shape: tuple[int, ...]):
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
