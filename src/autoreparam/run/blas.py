"""The threads of a run are its chains: linear algebra adds none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from threadpoolctl import threadpool_limits

_lock = Lock()
_inside: list[Any] = []  # of blocks, one entry each; the first holds what they changed


@contextmanager
def one_thread() -> Iterator[None]:
    """Within the block, a call of BLAS or LAPACK keeps to the thread that makes it.

    These libraries share out even small matrices among all cores, and wait for each other without
    sleeping. That takes a fifth more of the processor's time, and where something else uses a core,
    they wait for its turn to end. The limits belong to the process, so the last of several runs
    restores them.
    """
    with _lock:
        _inside.append(None if _inside else threadpool_limits(1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            if len(_inside) == 1:
                _inside[0].restore_original_limits()
            _inside.pop()
