"""Garbage collection beside a compiler that makes many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

_runs = count()


@contextmanager
def only_new() -> Iterator[None]:
    """Within the block, collections look only at objects made in it.

    Tracing makes so many that collections are frequent, and each would go through the several
    hundred thousand objects of the libraries again. That is so in the first run of a process; later
    ones would keep the results of those before them from being collected.
    """
    if next(_runs) or gc.get_freeze_count():  # which may be the user's
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
