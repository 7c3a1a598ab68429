"""One run on several processes: which of them reports, and whether all agree.

After `jax.distributed.initialize` every process has a share of the chains. Draws are gathered on
all of them, and each learns the same from them; only the first one shows progress, warns, and
writes.
"""

from __future__ import annotations

import zlib

import jax
import numpy as np

from autoreparam.errors import AutoreparamError, SamplingError
from autoreparam.mcmc.state import RunState

# The statuses of a call that others did not answer.
OUT_OF_TOUCH = "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "UNKNOWN"


def leads() -> bool:
    """Whether this process reports and stores."""
    return jax.process_index() == 0


def check_chains(chains: int) -> None:
    """Refuses chains that several processes cannot share evenly."""
    devices = jax.device_count()
    if jax.process_count() > 1 and chains % devices:
        raise AutoreparamError(
            f"chains: expected a multiple of the {devices} devices of all processes; found {chains}"
        )


def check_agreement(state: RunState) -> None:
    """Raises if processes learned different things: their chains would have different targets."""
    if jax.process_count() == 1:
        return
    from jax.experimental.multihost_utils import process_allgather

    words = (state.kernel, state.plan, state.target_accept, state.every, state.drawn)
    digest = zlib.crc32(repr(words).encode())
    for leaf in jax.tree.leaves((state.slots, state.chains, state.adaptation)):
        digest = zlib.crc32(np.ascontiguousarray(leaf).tobytes(), digest)
    if np.any(process_allgather(np.uint32(digest)) != digest):
        raise SamplingError(
            "the processes of this run learned different things from the same draws, so that their "
            "chains no longer sample the same density. Use machines and releases that are alike."
        )


def loss(error: BaseException) -> str | None:
    """What an error means, in words, if it comes from processes that can no longer work together.

    The runtime's errors begin with the name of a status, and some are a `ValueError` in Python. Too
    little memory, for one, has another status. JAX ends the processes that remain, sooner or later,
    however the error is handled.
    """
    why = str(error).partition("\n")[0]
    of_runtime = isinstance(error, (jax.errors.JaxRuntimeError, ValueError))
    status, named, _ = why.partition(": ")
    if jax.process_count() == 1 or not (of_runtime and named and status in OUT_OF_TOUCH):
        return None
    return (
        "the processes of this run can no longer work together, most likely because one of them "
        f"has ended ({why}). Start all of them again."
    )


def wait_for_all(what: str) -> None:
    """Returns once every process has come here."""
    if jax.process_count() > 1:
        from jax.experimental.multihost_utils import sync_global_devices

        sync_global_devices(what)
