"""Data simulated from the model at given values of its latents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array
from numpyro.handlers import block, seed, substitute, trace, uncondition

from autoreparam.program.program import Program
from autoreparam.program.site import ONE_AT_A_TIME


def predict(program: Program, values: Mapping[str, Any], key: Array) -> dict[str, Array]:
    """One draw of each observed site, given the values of the latents."""
    latents = {site.name: jnp.asarray(values[site.name]) for site in program.latents}
    observed = [site.name for site in program.sites if site.kind == "observed"]
    with (
        ONE_AT_A_TIME,
        block(),
        trace() as found,
        seed(rng_seed=key),
        substitute(data=latents),
        uncondition(),
    ):
        program.run()
    return {name: found[name]["value"] for name in observed}
