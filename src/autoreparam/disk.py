"""Files written beside their name and then renamed, so that a name never holds half a file."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from autoreparam.errors import DiskError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; what is there when the block ends takes the place of `path`.

    If anything goes wrong, `path` stays as it was, and the error says so in words. A link stays
    one: what it leads to is replaced.
    """
    path = Path(os.path.realpath(path))
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        yield beside
        sync(beside)
        _put(beside, path)
        sync(path.parent)
    except OSError as error:
        raise DiskError(f"{path} could not be written: {in_words(error)}") from error
    finally:
        remove(beside)


def write_text(path: Path, text: str) -> None:
    """Writes a text file, all or nothing."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def check_place(path: Any, what: str, *, folder: bool = False) -> Path:
    """The path, if a file (or folder) can be written there later; an error now otherwise."""
    path = as_path(path, what)
    parent = path.absolute().parent
    if not parent.is_dir():
        raise DiskError(f"{what}: there is no folder '{parent}' to write to")
    if path.is_dir() and not folder:
        raise DiskError(f"{what}: {path} is a folder; name a file")
    if not os.access(path if path.exists() else parent, os.W_OK) or not os.access(parent, os.W_OK):
        raise DiskError(f"{what}: {path} cannot be written. Choose another place.")
    return path


def check_folder(path: Any, what: str) -> Path:
    """The path, if files can be written into a folder there, which may not exist yet."""
    path = as_path(path, what)
    there = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
    if not there.is_dir():
        raise DiskError(f"{what}: {there} is a file; expected a folder")
    if not os.access(there, os.W_OK):
        raise DiskError(f"{what}: the folder {there} cannot be written. Choose another place.")
    return path


def reserve(path: Path, size: int) -> None:
    """Raises now if there is no space for a file of this size; nothing is left behind.

    Not every library survives a disk that fills up while it writes: HDF5 takes the process along.
    """
    try:
        with open(path, "wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            elif shutil.disk_usage(path.parent).free < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        path.unlink(missing_ok=True)


def as_path(path: Any, what: str) -> Path:
    """The path, if it is one; an error that names the argument otherwise."""
    if not isinstance(path, str | os.PathLike):
        raise DiskError(f"{what}: expected a path, as text or a Path; found {type(path).__name__}")
    return Path(path)


def in_words(error: OSError) -> str:
    """What the operating system says, and what to do."""
    said = error.strerror or str(error)
    if error.errno in FULL:
        return f"{said}. The disk is full, or a quota is reached: free some space."
    if error.errno in CLOSED:
        return f"{said}. The folder cannot be written or read: change its permissions."
    return f"{said}. Check the disk."


def sync(path: Path) -> None:
    """Makes a file, or the names in a folder, durable; systems without such a call need none."""
    if os.name == "nt":
        return
    for one in (path, *path.rglob("*")) if path.is_dir() and path.suffix == ".new" else (path,):
        opened = os.open(one, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def remove(path: Path) -> None:
    """Removes a file or a folder; one that has to stay does no harm."""
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _put(beside: Path, path: Path) -> None:
    if not path.is_dir():
        os.replace(beside, path)
        return
    # A folder cannot take the place of another that has files in it.
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    os.rename(path, old)
    try:
        os.rename(beside, path)
    except OSError:
        os.rename(old, path)
        raise
    remove(old)
