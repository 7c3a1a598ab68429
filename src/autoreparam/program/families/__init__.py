"""Rules for distribution families; importing this package registers the ones that ship."""

from autoreparam.program.families import (
    location_scale,
    multivariate,
    positive,
    sequences,
    transformed,
    truncated,
)
from autoreparam.program.families.registry import (
    Standardization,
    Standardized,
    Unsupported,
    register,
    registered,
    standardize,
    unwrap,
)

__all__ = [
    "Standardization",
    "Standardized",
    "Unsupported",
    "location_scale",
    "multivariate",
    "positive",
    "register",
    "registered",
    "sequences",
    "standardize",
    "transformed",
    "truncated",
    "unwrap",
]
