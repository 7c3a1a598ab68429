"""Scales of sites over draws from the prior, for the unit-free reference scale."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from numpyro.distributions import biject_to
from numpyro.handlers import seed

from autoreparam.program.families import standardize
from autoreparam.program.record import Record
from autoreparam.program.site import ONE_AT_A_TIME

DRAWS = 101


class Runnable(Protocol):
    """A model on its data; a pytree, since compiled code takes it as an argument."""

    def run(self) -> Any:
        """Runs the model inside whatever handlers are active."""
        ...


class _Scales(Record):
    """Draws from the prior, keeping the scales of the named sites."""

    def __init__(self, names: frozenset[str]):
        super().__init__()
        self.names = names
        self.scales: dict[str, Any] = {}

    def draw(self, msg) -> Any:
        """A draw from the prior, or from anywhere in the support if it has no sampler."""
        fn, key = msg["fn"], msg["kwargs"]["rng_key"]
        shape = msg["kwargs"].get("sample_shape", ())
        try:
            return fn.sample(key, shape)
        except (NotImplementedError, ImportError):
            transform = biject_to(fn.support)
            free = transform.inverse_shape(shape + fn.shape())
            return transform(jax.random.uniform(key, free, minval=-2.0, maxval=2.0))

    def process_message(self, msg) -> None:
        """Gives the site a value and keeps its scale."""
        super().process_message(msg)
        if msg["type"] == "sample" and msg["name"] in self.names:
            self.scales[msg["name"]] = jnp.asarray(standardize(msg["fn"]).scale)


@partial(jax.jit, static_argnums=1)
def prior_scales(program: Runnable, names: frozenset[str]) -> dict[str, Any]:
    """The scale of each named site in each of `DRAWS` draws from the prior."""

    def draw(key):
        scales = _Scales(names)
        with ONE_AT_A_TIME, scales, seed(rng_seed=key):
            program.run()
        return scales.scales

    # One draw at a time: vectorized random bits take longer to compile than these take to draw.
    return jax.lax.map(draw, jax.random.split(jax.random.key(0), DRAWS))
