"""Work side by side: while one part waits for the compiler, another has the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from typing import TypeVar

from autoreparam.program.compiled import for_threads

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
    in_thread = for_threads(call)
    with ThreadPoolExecutor(at_once) as pool:
        calls: list[Future] = []
        try:
            calls += [pool.submit(in_thread, item) for item in items]
            for done in as_completed(calls):
                done.result()
        except BaseException:
            stop()
            for call_ in calls:
                call_.cancel()
            while any(not call_.done() for call_ in calls):
                with suppress(KeyboardInterrupt):  # once is enough
                    wait(calls)
            raise
