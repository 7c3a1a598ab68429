"""Data whose rows are spread over devices, for data that one device cannot hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from autoreparam.errors import ModelError, known
from autoreparam.program.program import Program


def spread(program: Program, names: Iterable[str]) -> Program:
    """The program with the rows of these arguments spread over all devices of this process.

    Nothing else changes: whatever is compiled for such data has each device work on its own rows,
    and adds up what they find.
    """
    devices, structure = jax.local_devices(), program.structure
    labels = structure.arguments.names(structure.model)
    apart = {i for name in names for i in _own(program, name, labels)}
    for i in apart:
        _check(labels[i], program.data[i], len(devices))
    if not apart or len(devices) == 1:
        return program
    mesh, data = Mesh(np.array(devices), ("rows",)), []
    for i, value in enumerate(program.data):
        axes = PartitionSpec("rows") if i in apart else PartitionSpec()  # a copy for each
        data.append(jax.device_put(value, NamedSharding(mesh, axes)))
    return Program(structure, tuple(data))


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
