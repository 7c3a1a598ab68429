"""What identifies a stored run: its sites, its data, its version."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from autoreparam.errors import CheckpointError, known
from autoreparam.program.trace import Program

FORMAT = 2  # version of what a checkpoint stores about a run


def identify(program: Program) -> dict[str, Any]:
    """The table of sites and a digest of the data, as JSON."""
    return {
        "format": FORMAT,
        "dtype": str(np.dtype(program.dtype)),
        "sites": [
            [site.name, site.kind, site.distribution, list(site.shape), site.candidate]
            for site in program.sites
        ],
        "data": _digest(program),
    }


def candidates(identity: Mapping[str, Any]) -> list[str]:
    """Names of the reparameterized sites of a stored run."""
    return [name for name, *_, candidate in identity["sites"] if candidate]


def refuse_other(stored: Mapping[str, Any], program: Program) -> None:
    """Raises an error unless the program is the one the run was stored for."""
    found = identify(program)
    if stored.get("format") != FORMAT:
        raise CheckpointError(
            f"the checkpoint has format {stored.get('format')}, but this version reads {FORMAT}. "
            "Resume it with the version that wrote it."
        )
    # Which sites are reparameterized is the run's choice; what they are is the model's.
    theirs, ours = ({tuple(map(str, row[:-1])) for row in x["sites"]} for x in (stored, found))
    if theirs != ours:
        differing = sorted({row[0] for row in theirs ^ ours})
        raise CheckpointError(
            f"the checkpoint belongs to a different model: they differ in {known(differing[:5])}"
        )
    if stored["data"] != found["data"]:
        raise CheckpointError(
            "the checkpoint belongs to different data: the model's arguments are not those the run "
            "was started with"
        )
    if stored["dtype"] != found["dtype"]:
        raise CheckpointError(
            f"the run used {stored['dtype']}, but this session computes in {found['dtype']}. Set "
            "jax_enable_x64 as it was then."
        )


def _digest(program: Program) -> str:
    digest = hashlib.sha256()
    fixed = [slot.value for slot in program.structure.arguments.fixed if slot is not None]
    for leaf in [*program.data, *fixed]:
        if isinstance(leaf, np.ndarray | np.generic | jax.Array | float | int | bool):
            array = np.asarray(leaf)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(array.tobytes())
        else:
            digest.update(repr(leaf).encode() if isinstance(leaf, str) else b"?")
    return digest.hexdigest()
