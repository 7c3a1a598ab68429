"""Refuses to compute in a forked process, where JAX would hang."""

from __future__ import annotations

import os

from autoreparam.errors import AutoreparamError

IMPORTED_BY = os.getpid()  # BlackJAX starts JAX's threads on import, and a fork has no threads


def refuse_forked() -> None:
    """Raises in a child that was forked after this library was imported."""
    if os.getpid() != IMPORTED_BY:
        raise AutoreparamError(
            "this process was forked from one that had already imported autoreparam; JAX has "
            "threads, which a fork does not copy, and would wait for them forever. Start processes "
            "with multiprocessing.get_context('spawn'), or import autoreparam in the child only."
        )
