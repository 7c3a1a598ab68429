"""Data whose rows are spread over devices, for data that one device cannot hold."""

from __future__ import annotations

from collections.abc import Iterable
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
    names = tuple(names)
    if not names:
        return program
    structure, data = program.structure, list(program.data)
    labels = structure.arguments.names(structure.model)
    devices = jax.local_devices()
    rows = NamedSharding(Mesh(np.array(devices), ("rows",)), PartitionSpec("rows"))
    for name in names:
        own = [i for i, label in labels.items() if label == name or label.startswith(f"{name}[")]
        if not own:
            raise ModelError(
                f"shard: '{name}' is no argument with data; those are {known(labels.values())}"
            )
        for i in own:
            data[i] = jax.device_put(_checked(labels[i], data[i], len(devices)), rows)
    return Program(structure, tuple(data))


def is_spread(tree: Any) -> bool:
    """Whether some of the arrays are on several devices, which then have to compute together."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    return any(len(leaf.sharding.device_set) > 1 for leaf in leaves)


def _checked(name: str, value: Any, devices: int) -> Any:
    if np.ndim(value) == 0:
        raise ModelError(f"shard: '{name}' is a single number, which has no rows to spread")
    if len(value) % devices:
        raise ModelError(
            f"shard: '{name}' has {len(value)} rows, which {devices} devices cannot share evenly. "
            "Add rows that a mask takes out of the likelihood, or leave some out."
        )
    return value
