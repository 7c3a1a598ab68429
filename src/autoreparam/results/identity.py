"""What identifies a stored run: its sites, what they compute, its data, its version."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from autoreparam.errors import CheckpointError, SamplingWarning, known
from autoreparam.program.arguments import named_leaves
from autoreparam.program.captured import captured
from autoreparam.program.digest import value_digest
from autoreparam.program.trace import Program

FORMAT = 3  # version of what a checkpoint stores about a run
TRACERS = ("jax", "numpyro")  # what decides how a model is traced


def identify(program: Program) -> dict[str, Any]:
    """The table of sites, and digests of what they compute and of everything they read, as JSON."""
    structure = program.structure
    args, kwargs = structure.arguments.fill(program.data)
    arguments = named_leaves(structure.model, args, kwargs)
    return {
        "format": FORMAT,
        "dtype": str(np.dtype(program.dtype)),
        "sites": [
            [site.name, site.kind, site.distribution, list(site.shape), site.candidate]
            for site in program.sites
        ],
        "computed": dict(structure.digests),
        "arguments": {name: value_digest(value) for name, value in arguments.items()},
        "captured": {
            name: value_digest(value) for name, value in captured(structure.model).items()
        },
        "versions": {name: version(name) for name in TRACERS},
    }


def candidates(identity: Mapping[str, Any]) -> list[str]:
    """Names of the reparameterized sites of a stored run."""
    return [name for name, *_, candidate in identity["sites"] if candidate]


def refuse_other(stored: Mapping[str, Any], program: Program) -> None:
    """Raises an error that names what differs, unless the program is that of the stored run.

    Versions of JAX trace the same model differently. Under another one there is a warning, since
    only sites and data can be compared.
    """
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
    if stored["dtype"] != found["dtype"]:
        raise CheckpointError(
            f"the run used {stored['dtype']}, but this session computes in {found['dtype']}. Set "
            "jax_enable_x64 as it was then."
        )
    changed = _changed(stored["arguments"], found["arguments"])
    if changed:
        raise CheckpointError(
            f"the checkpoint belongs to different data: {known(changed[:5])} of the model's "
            "arguments is not what the run was started with"
        )
    if stored["versions"] != found["versions"]:
        warnings.warn(
            f"The run was started with {_listed(stored['versions'])}, and continues with "
            f"{_listed(found['versions'])}: whether the model is the same could only be checked in "
            "part, and the draws may differ from those of an uninterrupted run.",
            SamplingWarning,
            stacklevel=4,
        )
        return
    changed = _changed(stored["computed"], found["computed"])
    if changed:
        why = _changed(stored["captured"], found["captured"])
        cause = f"{known(why[:5])}, which it captures, has changed" if why else (
            "an operation or a number in it has changed"
        )  # fmt: skip
        raise CheckpointError(
            f"the checkpoint belongs to a different model: the log density of {known(changed[:5])} "
            f"is not that of the run; {cause}"
        )


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def _listed(versions: Mapping[str, str]) -> str:
    return " and ".join(f"{name} {number}" for name, number in versions.items())
