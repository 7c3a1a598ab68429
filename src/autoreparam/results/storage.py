"""A run, stored as it goes: after a crash the store holds exactly the committed chunks.

A folder of zip files, each a zarr group, and `manifest.json`, which counts the committed chunks and
holds their SHA-256. Replacing the manifest is the commit; files it does not name do not count.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from autoreparam.errors import CheckpointError, known

HEADER = {"format": "autoreparam.checkpoint", "version": 1}
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

    def __init__(self, path: Path, manifest: dict):
        self.path = path
        self._manifest = manifest

    @classmethod
    def create(
        cls, path: str | os.PathLike, identity: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Store:
        """A new, empty store; an error if anything is at `path` already, which is left alone."""
        path = Path(path)
        with _in_words(path):
            if path.exists() and not path.is_dir():
                raise CheckpointError(f"{path} is a file. Choose another path for the checkpoint.")
            inside = {entry.name for entry in path.iterdir()} if path.exists() else set()
            if MANIFEST in inside and _read_manifest(path)["chunks"]:
                raise CheckpointError(
                    f"{path} already holds a run. Continue or extend it with ar.resume, or choose "
                    "another path, or delete the folder."
                )
            if inside - {UNFINISHED, MANIFEST}:
                raise CheckpointError(
                    f"{path} is not empty and is not a checkpoint: it holds "
                    f"{known(sorted(inside)[:5])}. Choose another path."
                )
            path.mkdir(parents=True, exist_ok=True)
            _sync_folder(path.parent)
            empty: dict = {"identity": identity, "settings": settings, "chunks": [], "state": None}
            return cls(path, _replace_manifest(path, empty))

    @classmethod
    def open(cls, path: str | os.PathLike) -> Store:
        """The store at `path`, every committed byte of it verified."""
        path = Path(path)
        with _in_words(path):
            manifest = _read_manifest(path)
            count = len(manifest["chunks"])
            for index, chunk in enumerate(manifest["chunks"]):
                name = f"chunk {index + 1} of {count}"
                _verify(path / _chunk_file(index), chunk["sha256"], name)
            if manifest["state"] is not None:
                _verify(path / _state_file(count - 1), manifest["state"], "the sampler's state")
        return cls(path, manifest)

    def commit(
        self,
        arrays: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray],
        info: Mapping[str, Any],
    ) -> None:
        """Appends a chunk of draws and replaces the state: both or neither."""
        index = self.chunks
        with _in_words(self.path):
            # Two runs on one folder would overwrite each other's chunks.
            if _body_digest(_read_manifest(self.path)) != _body_digest(self._manifest):
                raise CheckpointError(
                    f"{self.path} was changed by another run since this one opened it. Stop one "
                    "of them, then continue with ar.resume."
                )
            try:
                digest = _write(self.path / _chunk_file(index), arrays)
                manifest = {
                    **self._manifest,
                    "chunks": [*self._manifest["chunks"], {"sha256": digest, "info": info}],
                    "state": _write(self.path / _state_file(index), state),
                }
                _sync_folder(self.path)
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
        for index in range(self.chunks):
            with _in_words(self.path):
                arrays = _read(self.path / _chunk_file(index))
            yield arrays

    @property
    def state(self) -> dict[str, np.ndarray]:
        """The sampler's state at the end of the last chunk; empty before the first."""
        if self._manifest["state"] is None:
            return {}
        with _in_words(self.path):
            return _read(self.path / _state_file(self.chunks - 1))

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


# -- arrays -----------------------------------------------------------------------------------


def _write(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Writes the arrays as one zarr group; returns their SHA-256 once they are on disk."""
    import zarr
    from zarr.storage import ZipStore

    # Names are data: "a" and "a/b" may both be sites, but cannot both be paths in a group.
    names = list(arrays)
    with ZipStore(path, mode="w") as store:
        group = zarr.create_group(store=store, zarr_format=3, attributes={"names": names})
        for index, name in enumerate(names):
            array = np.asarray(arrays[name])
            assert array.dtype.kind in "biufc", f"'{name}' is {array.dtype}, not numbers"
            group.create_array(
                str(index),
                data=array,
                chunks=tuple(max(1, length) for length in array.shape),
                compressors=None,
                config={"write_empty_chunks": True},
            )
    with open(path, "r+b") as written:
        os.fsync(written.fileno())
    return _digest(path)


def _read(path: Path) -> dict[str, np.ndarray]:
    import zarr
    from zarr.storage import ZipStore

    with ZipStore(path, mode="r") as store:
        group = zarr.open_group(store, mode="r")
        names: Any = group.attrs["names"]
        return {name: np.asarray(group[str(index)][...]) for index, name in enumerate(names)}


def _digest(path: Path) -> str:
    with open(path, "rb") as stored:
        return hashlib.file_digest(stored, "sha256").hexdigest()


def _verify(path: Path, expected: str, what: str) -> None:
    if not path.exists():
        raise CheckpointError(f"{path.parent}: {what} is missing ({path.name}). {START_AGAIN}")
    if _digest(path) != expected:
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
    _sync_folder(path)
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


def _sync_folder(path: Path) -> None:
    """Makes file names in a folder durable; systems without such a call need none."""
    if os.name == "nt":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """Turns an error of the operating system into advice."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            remedy = "The disk is full, or a quota is reached: free some space"
        elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            remedy = "The folder cannot be written or read: change its permissions"
        else:
            remedy = "Check the disk"
        raise CheckpointError(
            f"{path}: {error.strerror or error}. {remedy}, then continue with ar.resume; or choose "
            "another path. What was committed before is safe."
        ) from error
