"""Rules for distribution families; importing this package registers the built-in ones.

All that a rule of one's own is written with is here. `register` makes it the rule of a type; it
returns a `Standardization` (`log_shift`, `shift` and `log_noise` make some), a `Correlated` or a
`Sequence`, or raises `Unsupported`. `Student` and `LogGamma` are coordinates for heavy tails.
"""

from autoreparam.program.families import (
    location_scale,
    multivariate,
    positive,
    sequences,
    shares,
    transformed,
    truncated,
)
from autoreparam.program.families.multivariate import Correlated
from autoreparam.program.families.registry import (
    Pulled,
    Sequential,
    Standardization,
    Standardized,
    Unsupported,
    exp_from,
    log_noise,
    log_shift,
    register,
    registered,
    shift,
    standardize,
    unwrap,
)
from autoreparam.program.families.sequences import Sequence
from autoreparam.program.maps.tails import LogGamma, Student

__all__ = [
    "Correlated",
    "LogGamma",
    "Pulled",
    "Sequence",
    "Sequential",
    "Standardization",
    "Standardized",
    "Student",
    "Unsupported",
    "exp_from",
    "location_scale",
    "log_noise",
    "log_shift",
    "multivariate",
    "positive",
    "register",
    "registered",
    "sequences",
    "shares",
    "shift",
    "standardize",
    "transformed",
    "truncated",
    "unwrap",
]
