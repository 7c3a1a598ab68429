"""One writer per folder: a lock that the operating system drops when its process ends."""

from __future__ import annotations

import errno
import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

NAME = "lock"
BUSY = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """The lock of a folder. A killed process leaves the file `lock`, but never holds it.

    On Windows a byte far behind the file's end is locked. A file system without locks is used
    without one.
    """

    def __init__(self, folder: Path):
        self._path = folder / NAME
        self._release: Callable[[], object] | None = None

    @property
    def held(self) -> bool:
        """Whether this object has taken the lock."""
        return self._release is not None

    def take(self) -> str | None:
        """Takes the lock; who has it already, in words, if another does."""
        if self.held:
            return None
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(file)
        except OSError as error:
            if error.errno in BUSY:
                owner = os.read(file, 20).decode(errors="replace").strip()
                os.close(file)
                return f"process {owner}" if owner else "another process"
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        self._release = weakref.finalize(self, os.close, file)
        HELD.add(self)
        return None

    def drop(self) -> None:
        """Gives the lock back."""
        HELD.discard(self)
        if self._release is not None:
            self._release()
            self._release = None


def _let_go() -> None:
    """Closes a forked process's copies: the lock is its parent's, and must not outlive that."""
    for lock in list(HELD):
        lock.drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        os.lseek(file, 1 << 30, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(file, 0, os.SEEK_SET)
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
