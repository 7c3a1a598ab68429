"""Data whose rows are spread over devices, for data that one device cannot hold.

Devices form a mesh: those in a row of it hold a copy of the data together, and each row of the mesh
can have its own chains. A copy is on as few devices as have room for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from autoreparam.errors import ModelError, known
from autoreparam.program.program import Program

CHAINS, ROWS = "chains", "rows"  # the axes of the mesh
ROOM = 1 / 8  # of a device's memory, for data: what is computed with them takes more


def spread(program: Program, names: Iterable[str], chains: int = 1) -> Program:
    """The program with the rows of these arguments spread over the devices of this process.

    Nothing else changes: whatever is compiled for such data has each device work on its own rows,
    and adds up what they find. Without such arguments, an accelerator has all of the data.
    """
    devices, structure = jax.local_devices(), program.structure
    labels = structure.arguments.names(structure.model)
    apart = {i for name in names for i in _own(program, name, labels)}
    for i in apart:
        _check(labels[i], program.data[i], len(devices))
    if not apart or len(devices) == 1:
        return _placed(program)
    size = sum(_bytes(program.data[i]) for i in apart)
    width = _width(size, _room(devices[0]), len(devices), chains)
    mesh, data = Mesh(np.array(devices).reshape(-1, width), (CHAINS, ROWS)), []
    for i, value in enumerate(program.data):
        axes = PartitionSpec(ROWS) if i in apart else PartitionSpec()  # a copy for each
        data.append(jax.device_put(value, NamedSharding(mesh, axes)))
    return Program(structure, tuple(data))


def _placed(program: Program) -> Program:
    """The program with its data on an accelerator, which otherwise fetches them at every call."""
    if jax.default_backend() == "cpu" or jax.process_count() > 1:
        return program
    return Program(program.structure, jax.device_put(program.data))


def _width(size: int, room: float, devices: int, chains: int) -> int:
    """How many devices share a copy of so many bytes."""
    widths = [n for n in range(1, devices) if devices % n == 0 and chains % (devices // n) == 0]
    return next((n for n in widths if size / n <= room), devices)


def _bytes(value: Any) -> int:
    """What an array takes on a device."""
    return np.size(value) * jax.dtypes.canonicalize_dtype(value.dtype).itemsize


def _room(device: jax.Device) -> float:
    """Bytes of data that a device can well hold; none where it does not say."""
    return ROOM * (device.memory_stats() or {}).get("bytes_limit", 0)


def by_chains(tree: Any, like: Any) -> Any:
    """Arrays whose first axis is that of chains, each chain on the devices that compute it.

    `like` holds the data that were spread.
    """
    (mesh,) = {
        leaf.sharding.mesh
        for leaf in jax.tree.leaves(like)
        if isinstance(leaf, jax.Array) and isinstance(leaf.sharding, NamedSharding)
    }
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec(CHAINS)))


def is_spread(tree: Any) -> bool:
    """Whether some of the arrays are on several devices, which then have to compute together."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    return any(len(leaf.sharding.device_set) > 1 for leaf in leaves)


def _own(program: Program, name: str, labels: Mapping[int, str]) -> list[int]:
    """Which data belong to an argument: one, or those in it."""
    own = [i for i, label in labels.items() if label == name or label.startswith(f"{name}[")]
    structure = program.structure
    if not own and name in structure.arguments.given(structure.model, program.data):
        raise ModelError(
            f"shard: the model needs the values of '{name}' to know its sites and their shapes, so "
            "that each device must have it whole. Leave it out."
        )
    if not own:
        raise ModelError(
            f"shard: '{name}' is no argument with data; those are {known(labels.values())}"
        )
    return own


def _check(name: str, value: Any, devices: int) -> None:
    if np.ndim(value) == 0:
        raise ModelError(f"shard: '{name}' is a single number, which has no rows to spread")
    if len(value) % devices:
        raise ModelError(
            f"shard: '{name}' has {len(value)} rows, which {devices} devices cannot share evenly. "
            "Leave some out, add some that a mask takes out of the density, or use fewer devices."
        )
