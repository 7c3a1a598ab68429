"""Draws from the prior: scales for the unit-free reference scale, values for starts."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to
from numpyro.handlers import seed

from autoreparam.program.compiled import rarely
from autoreparam.program.families import standardize
from autoreparam.program.record import Record
from autoreparam.program.site import ONE_AT_A_TIME

DRAWS = 101


class Runnable(Protocol):
    """A model on its data; a pytree, since compiled code takes it as an argument."""

    data: Any

    def run(self) -> Any:
        """Runs the model inside whatever handlers are active."""
        ...


class _Prior(Record):
    """Draws from the prior, keeping the scales of some sites and the values of others."""

    def __init__(self, scaled: frozenset[str], valued: frozenset[str]):
        super().__init__()
        self.scaled, self.valued = scaled, valued
        self.rules: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        self.drawn: dict[str, Any] = {}

    def draw(self, msg) -> Any:
        """A draw from the prior, or any point in the support if it has no sampler."""
        fn, key = msg["fn"], msg["kwargs"]["rng_key"]
        shape = msg["kwargs"].get("sample_shape", ())
        try:
            return fn.sample(key, shape)
        except (NotImplementedError, ImportError):
            transform = biject_to(fn.support)
            free = transform.inverse_shape(shape + fn.shape())
            return transform(jax.random.uniform(key, free, minval=-2.0, maxval=2.0))

    def process_message(self, msg) -> None:
        """Gives the site a value and keeps it, or its scale."""
        super().process_message(msg)
        if msg["type"] != "sample":
            return
        name, fn = msg["name"], msg["fn"]
        self.drawn[name] = msg["value"]
        if name in self.scaled:
            self.rules[name] = standardize(fn)
        if name in self.valued:
            self.values[name] = biject_to(fn.support).inv(msg["value"])


def prior_draws(
    program: Runnable, scaled: frozenset[tuple[str, Any]], valued: frozenset[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scales of some sites, and unconstrained values of others, in each of `DRAWS` prior draws.

    With the name of a site whose scale is wanted comes what the model implies for it, or None.
    """

    def draw(key):
        prior = _Prior(frozenset(name for name, _ in scaled), valued)
        with ONE_AT_A_TIME, prior, seed(rng_seed=key):
            program.run()
        rules = prior.rules
        for name, implied in scaled:
            if implied is not None:
                rules[name] = implied.rule(rules[name], prior.drawn, program.data)
        return {name: jnp.asarray(rule.scale) for name, rule in rules.items()}, prior.values

    # One draw at a time: vectorized random numbers take longer to compile than these take to draw.
    return jax.lax.map(draw, jax.random.split(jax.random.key(0), DRAWS))


draw_prior = rarely(prior_draws, static_argnums=(1, 2))


def middle_scale(draws: Any, axis: int = 0) -> np.ndarray:
    """The median of scales over prior draws; 1 where its square is beyond single precision.

    So it is with an InverseGamma(0.001, 0.001) variance: λ travels between precisions, and such a
    number is no scale of anything.
    """
    single = np.finfo(np.float32)
    median = np.median(np.asarray(draws, float), axis=axis)
    return np.where((median > single.tiny**0.5) & (median < single.max**0.5), median, 1)


def middle_range(draws: Any, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Median and half the central 90% of values over prior draws."""
    low, middle, high = np.quantile(np.asarray(draws, float), (0.05, 0.5, 0.95), axis=axis)
    return middle, (high - low) / 2
