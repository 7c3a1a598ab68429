"""Rows of a table by gain: the learned one for all of them, the paper's for enough of them."""

import pytest

from autoreparam.program.maps.gain import GEOMETRIC, QUADRATIC


def rows_by_gain(argument, table, *, alike=(), papers=()):
    """Parameters `argument` and `gain` of a test.

    Rows named in `alike` are slow. With the paper's gain those in `papers` are, the rest are long.
    """
    marked = []
    for row in table:
        name = getattr(row, "name", row)
        first = pytest.mark.slow if name in alike else ()
        second = pytest.mark.slow if name in papers else pytest.mark.long
        marked += [pytest.param(row, QUADRATIC, marks=first, id=name)]
        marked += [pytest.param(row, GEOMETRIC, marks=second, id=f"{name}-{GEOMETRIC}")]
    return pytest.mark.parametrize((argument, "gain"), marked)
