"""Rules for distribution families; importing this package registers the ones that ship."""

from autoreparam.program.families import location_scale, positive, transformed, truncated
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
    "positive",
    "register",
    "registered",
    "standardize",
    "transformed",
    "truncated",
    "unwrap",
]
