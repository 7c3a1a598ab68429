"""Numbers in sentences: readable, and never in contradiction to their bound."""

from __future__ import annotations


def above(value: float, limit: float) -> str:
    """A number above its limit in as many digits as it takes to see that, and readable ones."""
    if value >= 100 * limit:
        return f"more than {100 * limit:.0f}"
    return _apart(value, limit, 3)


def below(value: float, limit: float) -> str:
    """The same for a number below its limit."""
    return _apart(value, limit, 0 if limit > 10 else 2)


def _apart(value: float, limit: float, digits: int) -> str:
    while digits < 17 and float(f"{value:.{digits}f}") == limit:
        digits += 1
    return f"{value:.{digits}f}"


def percent(share: float) -> str:
    """A share in percent."""
    return f"{share:.1%}" if share >= 0.0005 else "fewer than 0.1%"
