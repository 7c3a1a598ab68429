"""One named statement of a model, as `inspect` found it."""

from __future__ import annotations

from dataclasses import dataclass
from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from autoreparam.program.coordinate import Coordinate
from autoreparam.program.traits import Coupling


class Loop(NamedTuple):
    """The `scan` or `cond` a site is in: its number in the order of the model."""

    number: int
    scan: bool


@dataclass(frozen=True)
class Site:
    """What a site is, what it depends on, what can be done with it."""

    name: str
    kind: str  # "latent", "discrete" (and summed out), "observed", "factor" or "deterministic"
    distribution: str
    shape: tuple[int, ...]
    event_dim: int
    support: str  # in words
    coordinate: Coordinate | None = None  # of an element of that support, where it is simple
    unconstrained_shape: tuple[int, ...] = ()
    plates: tuple[tuple[str, int], ...] = ()  # name and axis, counted from the end of the value
    loc_parents: tuple[str, ...] = ()
    scale_parents: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    discrete_parents: tuple[str, ...] = ()  # those that are summed out
    scanned: Any = None  # inside `scan` or `cond`: the constraint that its values satisfy
    loop: Loop | None = None  # the same: which one
    coupling: Coupling = Coupling.NONE
    heavy: bool = False  # heavy tails that a coordinate can make light
    shape_parameters: tuple[str, ...] | None = None  # see `Traits`
    standardizable: bool = False
    candidate: bool = False
    implied: Any = None  # what the model makes of it by hand, where it is sampled as that
    refusal: str = ""  # why it is not
    alike: bool = False  # it meets other latents, so that is worth telling
    statement: str = ""  # the same in its other form, as a person would write it
    note: str = ""

    @property
    def size(self) -> int:
        """Number of unconstrained elements."""
        return int(np.prod(self.unconstrained_shape, dtype=int))

    @property
    def side(self) -> int:
        """Rows of the matrix that its density factorizes, or 1."""
        if self.implied is not None and self.implied.rows:
            return self.implied.rows
        return self.unconstrained_shape[-1] if self.coupling is Coupling.CORRELATED else 1

    @property
    def alone(self) -> bool:
        """Whether its elements depend on others of it only through what all depend on."""
        return self.coupling is Coupling.NONE and self.loop is None

    @property
    def follows(self) -> bool:
        """Whether elements may have a location that depends on those before them in a sequence."""
        return self.loop is not None or self.coupling is Coupling.SEQUENCE

    @property
    def vectors(self) -> np.ndarray:
        """Which elements depend on each other: one row of their places per vector or sequence."""
        if self.implied is not None and self.implied.form.coupling is not None:
            return self.implied.vectors
        whole = 1 if self.coupling is Coupling.CORRELATED else self.event_dim
        length = np.prod(self.unconstrained_shape[-whole:], dtype=int)
        return np.arange(self.size).reshape(-1, length)


# NumPyro's handler stack is global to the process: two threads that trace models at the same time
# would see each other's handlers. Whoever runs a model must hold this lock.
ONE_AT_A_TIME = RLock()
