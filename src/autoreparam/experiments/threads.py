"""Work side by side: while one part waits for the compiler, another has the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")


def in_threads(
    call: Callable[[T], object],
    items: Iterable[T],
    at_once: int,
    stop: Callable[[], None] = lambda: None,
) -> None:
    """Calls a function with each item, so many at once.

    After an error or Ctrl-C no other call begins, and `stop` tells those that have to end soon.
    """
    x64 = jnp.result_type(float) == jnp.float64

    def in_thread(item: T) -> None:
        with jax.enable_x64(x64):  # a context manager sets it for one thread only
            call(item)

    with ThreadPoolExecutor(at_once) as pool:
        calls = [pool.submit(in_thread, item) for item in items]
        try:
            for done in as_completed(calls):
                done.result()
        except BaseException:
            stop()
            for one in calls:
                one.cancel()
            raise
