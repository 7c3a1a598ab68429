"""Garbage collection beside a compiler that makes many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def only_new() -> Iterator[None]:
    """Within the block, collections look only at objects made in it.

    Tracing makes so many that collections are frequent, and each would go through the several
    hundred thousand objects of the libraries again.
    """
    if gc.get_freeze_count():  # by another run, or by the user
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
