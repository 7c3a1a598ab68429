"""The state of a run, and chunks of draws, as named arrays: what a checkpoint holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from autoreparam.errors import CheckpointError
from autoreparam.mcmc.hmc import Info
from autoreparam.mcmc.state import Ledger, RunState
from autoreparam.mcmc.trail import Trail
from autoreparam.mcmc.warmup import Step
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.parameterization_file import flat_entry, flat_of

WORDS = "words"  # the array that holds everything except numeric arrays, as JSON


def pack(state: RunState) -> dict[str, np.ndarray]:
    """The state as named arrays."""
    words = {
        "kernel": state.kernel,
        "target_accept": float(state.target_accept),
        "plan": state.plan,
        "drawn": state.drawn,
        "warmup_until": state.warmup_until,
        "gradients": state.gradients._asdict(),
        "reports": state.reports,
        "restarts": state.restarts,
        "added_windows": state.added_windows,
        "every": state.every,
        "notes": state.notes,
        "seconds": [state.seconds, state.seconds_learning],
        "gains": [[slot.lam.of(n).gain for n in slot.lam.sites] for slot in state.slots],
        "flat": [slot.lam.flat and flat_entry(slot.lam.flat) for slot in state.slots],
    }
    text = json.dumps(words).encode()
    return {**_named(_arrays(state)), WORDS: np.frombuffer(text, np.uint8)}


def unpack(arrays: Mapping[str, np.ndarray], like: RunState) -> RunState:
    """The state that was packed; `like` has its shapes, but for gains and flat directions."""
    words = json.loads(arrays[WORDS].tobytes()) if WORDS in arrays else {}
    static = zip(like.slots, words.get("gains", []), words.get("flat", []))
    known = [slot._replace(lam=_with_static(slot.lam, *parts)) for slot, *parts in static]
    like = replace(like, slots=tuple(known) or like.slots)
    names = _named(_arrays(like))
    missing = [name for name in (*names, WORDS) if name not in arrays]
    if missing:
        raise CheckpointError(
            f"the stored state lacks {', '.join(missing[:3])}: it was written by another version. "
            "Resume it with the version that wrote it, or sample again."
        )
    leaves, treedef = jax.tree.flatten(_arrays(like))
    found = [arrays[name] for name in names]
    if any(np.shape(a) != np.shape(b) for a, b in zip(leaves, found)):
        raise CheckpointError("the stored state has other shapes than this run's")
    chains, slots, adaptation = jax.tree.unflatten(treedef, found)
    seconds, seconds_learning = words["seconds"]
    return replace(
        like,
        chains=chains,
        slots=slots,
        adaptation=adaptation,
        kernel=words["kernel"],
        target_accept=words["target_accept"],
        plan=tuple(Step(*step) for step in words["plan"]),
        drawn=words["drawn"],
        warmup_until=words.get("warmup_until", 0),
        gradients=Ledger(**words["gradients"]),
        reports=tuple(words["reports"]),
        restarts=words["restarts"],
        added_windows=words["added_windows"],
        every=words.get("every", 1),  # an older release never took more
        notes=tuple(words["notes"]),
        seconds=seconds,
        seconds_learning=seconds_learning,
    )


def _with_static(lam: Parameterization, gains: Sequence[str], flat: Any) -> Parameterization:
    sites = {name: replace(lam.of(name), gain=gain) for name, gain in zip(lam.sites, gains)}
    return Parameterization.by_site(sites, flat_of(flat))


def _arrays(state: RunState) -> tuple[Any, ...]:
    return state.chains, state.slots, state.adaptation


def _named(tree: Any) -> dict[str, np.ndarray]:
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        f"{number:04d}{jax.tree_util.keystr(path)}": np.asarray(leaf)
        for number, (path, leaf) in enumerate(paths)
    }


def pack_trail(trail: Trail) -> dict[str, np.ndarray]:
    """A chunk of draws as named arrays."""
    parts = {**trail._asdict(), **trail.info._asdict()}
    return {name: np.asarray(leaf) for name, leaf in parts.items() if name != "info"}


def unpack_trail(arrays: Mapping[str, np.ndarray]) -> Trail:
    """The chunk that was packed; other names are ignored."""
    info = Info(**{name: arrays[name] for name in Info._fields})
    return Trail(info=info, **{name: arrays[name] for name in Trail._fields if name != "info"})
