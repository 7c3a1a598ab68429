"""Draws from the prior: scales for the unit-free reference scale, values for starts.

Nothing else is drawn, and by quantiles where the distribution has them: random numbers take longer
to compile than a small model, and evenly spread levels give better medians.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import biject_to
from numpyro.handlers import seed

from autoreparam.program.compiled import rarely
from autoreparam.program.families import standardize, unwrap
from autoreparam.program.record import Record
from autoreparam.program.site import ONE_AT_A_TIME, Site

DRAWS = 101
MOST_LEVELS = 1000  # elements of a site: levels are constants of what is compiled


class Sites(NamedTuple):
    """Names of the sites that draws from the prior are about."""

    scaled: frozenset[tuple[str, Any]]  # by scale, with what the model implies for it, or None
    valued: frozenset[str]  # by unconstrained value
    drawn: frozenset[str]  # what these depend on; the others may have any value


class Runnable(Protocol):
    """A model on its data; a pytree, since compiled code takes it as an argument."""

    data: Any

    @property
    def latents(self) -> tuple[Site, ...]:
        """The sites that are sampled."""
        ...

    def run(self) -> Any:
        """Runs the model inside whatever handlers are active."""
        ...


class _Prior(Record):
    """Draws from the prior, keeping the scales of some sites and the values of others."""

    def __init__(self, sites: Sites, levels: Mapping[str, Array]):
        super().__init__()
        self.wanted, self.scaled, self.levels = sites, dict(sites.scaled), levels
        self.rules: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        self.drawn: dict[str, Any] = {}

    def draw(self, msg) -> Any:
        """A draw from the prior, or any point in the support if it has no sampler."""
        fn, name, key = msg["fn"], msg["name"], msg["kwargs"]["rng_key"]
        if name not in self.wanted.drawn:
            return super().draw(msg)
        base = unwrap(fn)[0]
        # A user's own may have inherited the quantiles of something else.
        if name in self.levels and type(base).__module__.startswith("numpyro."):
            with suppress(Exception):  # many have none
                return base.icdf(self.levels[name])
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
        if name in self.wanted.valued:
            self.values[name] = biject_to(fn.support).inv(msg["value"])


def prior_draws(program: Runnable, sites: Sites) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scales of some sites, and unconstrained values of others, in each of `DRAWS` prior draws."""

    def draw(given):
        key, levels = given
        prior = _Prior(sites, levels)
        with ONE_AT_A_TIME, prior, seed(rng_seed=key):
            program.run()
        rules = prior.rules
        for name, implied in sites.scaled:
            if implied is not None:
                rules[name] = implied.rule(rules[name], prior.drawn, program.data)
        return {name: jnp.asarray(rule.scale) for name, rule in rules.items()}, prior.values

    # One draw at a time: vectorized random numbers take longer to compile than these take to draw.
    return jax.lax.map(draw, (jax.random.split(jax.random.key(0), DRAWS), _levels(program, sites)))


def _levels(program: Runnable, sites: Sites) -> dict[str, np.ndarray]:
    """Levels of quantiles, one row per draw: the same for every element, in another order."""
    random, even = np.random.default_rng(0), (np.arange(DRAWS) + 0.5) / DRAWS
    wanted = [site for site in program.latents if site.name in sites.drawn and site.loop is None]
    return {
        site.name: random.permuted(np.tile(even, (site.size, 1)), axis=1)
        .T.reshape(DRAWS, *site.shape)
        .astype(jnp.result_type(float))
        for site in wanted
        if site.shape == site.unconstrained_shape and site.size <= MOST_LEVELS
    }


draw_prior = rarely(prior_draws, static_argnums=1)


def middle_scale(draws: Any, axis: int = 0) -> np.ndarray:
    """The median of scales over prior draws; 1 where its fourth power is beyond single precision.

    So it is with an InverseGamma(0.001, 0.001) variance: λ travels between precisions, scales are
    squared relative to this number, and such a number is no scale of anything.
    """
    single = np.finfo(np.float32)
    median = np.median(np.asarray(draws, float), axis=axis)
    return np.where((median > single.tiny**0.25) & (median < single.max**0.25), median, 1)


def middle_range(draws: Any, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Median and half the central 90% of values over prior draws.

    Not finite where these are no numbers, as the logarithms of Gamma(0.001, 0.001) precisions.
    """
    with np.errstate(invalid="ignore"):
        low, middle, high = np.quantile(np.asarray(draws, float), (0.05, 0.5, 0.95), axis=axis)
        return middle, (high - low) / 2
