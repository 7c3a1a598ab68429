"""Named arrays in one file: a zarr group in a zip."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autoreparam.disk import sync


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Writes the arrays as one zarr group; returns their SHA-256 once they are on disk."""
    import zarr
    from zarr.storage import ZipStore

    # Names are data: "a" and "a/b" may both be sites, but cannot both be paths in a group.
    names = list(arrays)
    open(path, "wb").close()  # zarr does not say in its own error why a file cannot be opened
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
    sync(path)
    return file_digest(path)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays in a file made by `write_arrays`."""
    import zarr
    from zarr.storage import ZipStore

    with ZipStore(path, mode="r") as store:
        group = zarr.open_group(store, mode="r")
        names: Any = group.attrs["names"]
        return {name: np.asarray(group[str(index)][...]) for index, name in enumerate(names)}


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as stored:
        return hashlib.file_digest(stored, "sha256").hexdigest()
