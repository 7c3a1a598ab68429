"""The coordinate of single elements without constraints, for draws that have left JAX."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpyro.distributions.transforms import (
    ExpTransform,
    IdentityTransform,
    IndependentTransform,
    SigmoidTransform,
    Transform,
)


@dataclass(frozen=True)
class Coordinate:
    """A value without its constraint, element by element: `free(value)`, called `word`."""

    word: str  # "log", say; empty for the value itself
    free: Callable[[np.ndarray], np.ndarray]

    def name(self, value: str) -> str:
        """What the coordinate of a named value is called: `log tau`."""
        return f"{self.word} {value}".strip()


def _same(value: np.ndarray) -> np.ndarray:
    return value


def _logit(value: np.ndarray) -> np.ndarray:
    return np.log(value) - np.log1p(-value)


_COORDINATES: dict[type[Transform], Coordinate] = {
    IdentityTransform: Coordinate("", _same),
    ExpTransform: Coordinate("log", np.log),
    SigmoidTransform: Coordinate("logit", _logit),
}


def coordinate_of(transform: Transform) -> Coordinate | None:
    """The inverse of a map to a support; None where it is not one of each element alone."""
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform
    return _COORDINATES.get(type(transform))
