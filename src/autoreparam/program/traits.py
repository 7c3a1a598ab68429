"""What other rooms need to know about a family; its rule says it, nobody looks at its name."""

from enum import Enum, auto
from typing import NamedTuple


class Coupling(Enum):
    """How the elements of a site depend on each other, given what they depend on elsewhere."""

    NONE = auto()
    CORRELATED = auto()  # through one triangular factor
    SEQUENCE = auto()  # each on the one before it


class Traits(NamedTuple):
    """What a rule says about its family beside the mathematics; a `Site` has the same fields.

    `heavy` says that a coordinate can make its tails light. `shape_parameters` are the names of
    what it is constructed from beside `loc` and `scale`, None where it is not made from these two.
    """

    coupling: Coupling = Coupling.NONE
    heavy: bool = False
    shape_parameters: tuple[str, ...] | None = None
