"""A run, stored as it goes: after a crash the store holds exactly the committed chunks.

A folder of zip files, each a zarr group, and `manifest.json`, which counts the committed chunks and
holds their SHA-256. Replacing the manifest is the commit; files it does not name do not count.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from autoreparam.disk import in_words, sync
from autoreparam.errors import CheckpointError, known
from autoreparam.results.arrays import file_digest, read_arrays, write_arrays
from autoreparam.results.lock import NAME as LOCK
from autoreparam.results.lock import Lock

HEADER = {"format": "autoreparam.checkpoint", "version": 4}
MANIFEST = "manifest.json"
UNFINISHED = "manifest.json.new"
START_AGAIN = "Restore the folder from a copy, or delete it and sample again."


class Store:
    """A run on disk: what it is (`identity`), its settings, its chunks and its last state.

    >>> store = Store.create("run.zarr", identity={"sites": "theta"}, settings={"draws": 1000})
    >>> store.commit({"theta": draws}, {"position": position}, {"phase": "sampling"})
    >>> Store.open("run.zarr").chunks
    1
    """

    def __init__(self, path: Path, manifest: dict, lock: Lock | None = None):
        self.path = path
        self._manifest = manifest
        self._lock = lock or Lock(path)

    @classmethod
    def create(
        cls, path: str | os.PathLike, identity: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Store:
        """A new, empty store; an error if anything is at `path` already, which is left alone."""
        path = Path(path)
        with _in_words(path):
            if path.exists() and not path.is_dir():
                raise CheckpointError(f"{path} is a file. Choose another path for the checkpoint.")
            _refuse_used(path)
            path.mkdir(parents=True, exist_ok=True)
            lock = _locked(path)
            try:
                _refuse_used(path)  # by whoever had the lock before
                sync(path.parent)
                empty: dict = {
                    "identity": identity,
                    "settings": settings,
                    "chunks": [],
                    "state": None,
                }
                return cls(path, _replace_manifest(path, empty), lock)
            except BaseException:
                lock.drop()
                raise

    @classmethod
    def open(cls, path: str | os.PathLike, *, alone: bool = False) -> Store:
        """The store at `path`, every committed byte of it verified.

        With `alone` no other process may write to it meanwhile; a folder that nobody can write to
        needs no such care.
        """
        path = Path(path)
        lock = None
        with _in_words(path):
            manifest = _read_manifest(path)
            if alone and os.access(path, os.W_OK):
                lock = _locked(path)
                manifest = _read_manifest(path)  # it may have changed before the lock was taken
            try:
                _verify_all(path, manifest)
            except BaseException:
                if lock is not None:
                    lock.drop()
                raise
        return cls(path, manifest, lock)

    def hold(self) -> None:
        """Makes sure that this store can be written, and by nobody else until `close`."""
        with _in_words(self.path):
            if not self._lock.held:
                _refuse_unwritable(self.path)
                self._lock = _locked(self.path)
            # Two runs on one folder would overwrite each other's chunks.
            if _body_digest(_read_manifest(self.path)) != _body_digest(self._manifest):
                raise CheckpointError(
                    f"{self.path} was changed by another run since this one opened it. Stop one "
                    "of them, then continue with ar.resume."
                )

    def close(self) -> None:
        """Lets others write to the folder."""
        self._lock.drop()

    def commit(
        self,
        arrays: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray],
        info: Mapping[str, Any],
    ) -> None:
        """Appends a chunk of draws and replaces the state: both or neither."""
        self.commit_all([(arrays, info)], state)

    def commit_all(
        self,
        parts: Sequence[tuple[Mapping[str, np.ndarray], Mapping[str, Any]]],
        state: Mapping[str, np.ndarray],
    ) -> None:
        """Appends chunks of draws, each with its info, and replaces the state: all or nothing."""
        self.hold()
        with _in_words(self.path):
            try:
                chunks = list(self._manifest["chunks"])
                for arrays, info in parts:
                    digest = write_arrays(self.path / _chunk_file(len(chunks)), arrays)
                    chunks.append({"sha256": digest, "info": info})
                stored = write_arrays(self.path / _state_file(len(chunks) - 1), state)
                sync(self.path)
                manifest = {**self._manifest, "chunks": chunks, "state": stored}
                self._manifest = _replace_manifest(self.path, manifest)
            finally:
                self._tidy()

    def _tidy(self) -> None:
        """Removes files that the manifest does not list; one that has to stay does no harm."""
        with suppress(OSError, CheckpointError):
            self._manifest = _read_manifest(self.path)
            named = {_chunk_file(index) for index in range(self.chunks)}
            named.add(_state_file(self.chunks - 1))
            for pattern in ("chunk-*.zip", "state-*.zip", UNFINISHED):
                for file in self.path.glob(pattern):
                    if file.name not in named:
                        file.unlink()

    @property
    def chunks(self) -> int:
        """How many chunks are committed."""
        return len(self._manifest["chunks"])

    def read_chunks(self) -> Iterator[dict[str, np.ndarray]]:
        """The arrays of each committed chunk, in order."""
        return map(self.read_chunk, range(self.chunks))

    def read_chunk(self, index: int) -> dict[str, np.ndarray]:
        """The arrays of one committed chunk."""
        with _in_words(self.path):
            return read_arrays(self.path / _chunk_file(index))

    @property
    def state(self) -> dict[str, np.ndarray]:
        """The sampler's state at the end of the last chunk; empty before the first."""
        if self._manifest["state"] is None:
            return {}
        with _in_words(self.path):
            return read_arrays(self.path / _state_file(self.chunks - 1))

    @property
    def infos(self) -> list[dict[str, Any]]:
        """The info stored with each chunk."""
        return [dict(chunk["info"]) for chunk in self._manifest["chunks"]]

    @property
    def identity(self) -> dict[str, Any]:
        """Which model and data the run belongs to, as JSON gives it back (tuples are lists)."""
        return dict(self._manifest["identity"])

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the run."""
        return dict(self._manifest["settings"])


def _chunk_file(index: int) -> str:
    return f"chunk-{index:06d}.zip"


def _state_file(index: int) -> str:
    return f"state-{index:06d}.zip"


def _verify_all(path: Path, manifest: Mapping[str, Any]) -> None:
    count = len(manifest["chunks"])
    for index, chunk in enumerate(manifest["chunks"]):
        name = f"chunk {index + 1} of {count}"
        _verify(path / _chunk_file(index), chunk["sha256"], name)
    if manifest["state"] is not None:
        _verify(path / _state_file(count - 1), manifest["state"], "the sampler's state")


def _verify(path: Path, expected: str, what: str) -> None:
    if not path.exists():
        raise CheckpointError(f"{path.parent}: {what} is missing ({path.name}). {START_AGAIN}")
    if file_digest(path) != expected:
        raise CheckpointError(
            f"{path.parent}: {what} is damaged ({path.name} is not what was written). {START_AGAIN}"
        )


# -- the manifest -----------------------------------------------------------------------------


def _replace_manifest(path: Path, content: Mapping[str, Any]) -> dict:
    """Commits: at every moment either the old or the new manifest is there."""
    # Passed through JSON once, so that comparisons see what will be read back.
    body = json.loads(json.dumps({**content, **HEADER}, default=_plain))
    new = path / UNFINISHED
    with open(new, "w", encoding="utf-8") as file:
        json.dump({**body, "sha256": _body_digest(body)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path / MANIFEST)
    sync(path)
    return body


def _read_manifest(path: Path) -> dict:
    if not path.is_dir():
        found = "it is a file" if path.exists() else "there is nothing there"
        raise CheckpointError(f"{path} is not a checkpoint: {found}. Check the path.")
    if not (path / MANIFEST).exists():
        raise CheckpointError(
            f"{path} is not a checkpoint: it has no {MANIFEST}. Check the path; if the run was "
            "killed before it began, delete the folder and sample again."
        )
    try:
        body = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        stated = body.pop("sha256")
        header = {key: body[key] for key in HEADER}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError(f"{path}: {MANIFEST} is damaged. {START_AGAIN}") from None
    if header != HEADER:
        raise CheckpointError(
            f"{path} has {_described(header)}; this release reads {_described(HEADER)}. "
            "Continue it with the release that wrote it, or sample again."
        )
    if stated != _body_digest(body):
        raise CheckpointError(f"{path}: {MANIFEST} is damaged. {START_AGAIN}")
    return body


def _described(header: Mapping[str, Any]) -> str:
    return f"format {header['format']}, version {header['version']}"


def _body_digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a checkpoint's identity, settings and infos are JSON; found {type(value)}")


# -- the disk ---------------------------------------------------------------------------------


def _refuse_used(path: Path) -> None:
    """Raises if the folder holds a run, or anything but what a killed run leaves."""
    inside = {entry.name for entry in path.iterdir()} if path.exists() else set()
    if MANIFEST in inside and _read_manifest(path)["chunks"]:
        raise CheckpointError(
            f"{path} already holds a run. Continue or extend it with ar.resume, or choose another "
            "path, or delete the folder."
        )
    if MANIFEST not in inside and inside - {UNFINISHED, LOCK}:
        raise CheckpointError(
            f"{path} is not empty and is not a checkpoint: it holds {known(sorted(inside)[:5])}. "
            "Choose another path."
        )


def _refuse_unwritable(path: Path) -> None:
    if not os.access(path, os.W_OK):
        raise CheckpointError(
            f"{path} cannot be written: it is read-only here. Change its permissions, or copy the "
            "folder to a place that can be written and continue there with ar.resume."
        )


def _locked(path: Path) -> Lock:
    """The lock of the folder, taken."""
    lock = Lock(path)
    owner = lock.take()
    if owner is not None:
        raise CheckpointError(
            f"{path} is in use by {owner}, which is sampling into it. Wait until that has ended, "
            "or choose another path."
        )
    return lock


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """Turns an error of the operating system into advice."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{path}: {in_words(error)} Then continue with ar.resume, or choose another path. What "
            "was committed before is safe."
        ) from error
    except zipfile.BadZipFile as error:
        raise CheckpointError(f"{path}: a file is damaged ({error}). {START_AGAIN}") from error
