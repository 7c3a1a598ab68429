"""One model of the experiments: its target, its data, and what a measurement of it needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam import zoo
from autoreparam.experiments.budget import MODELS
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target
from autoreparam.program.trace import inspect

PAPERS_SCALE = 1.0  # s0: the paper's λ has the units of the model


@dataclass(frozen=True, eq=False)
class Problem:
    """A target with a name; `left_out` is what grouping its data took from the log density."""

    name: str
    target: Target
    counts: dict[str, int]
    left_out: float

    def constant(self, lam: float) -> Parameterization:
        """The same λ everywhere, with the paper's reference scale."""
        return Parameterization.constant(self.target.program, lam, s0=PAPERS_SCALE)

    @property
    def labels(self) -> list[str]:
        """The names of the scalars, in the order of `values`."""
        sites = self.target.program.latents
        return [label for site in sites for label in _labels(site.name, site.shape)]


def load_problem(name: str) -> Problem:
    """The problem called `name` in `MODELS`."""
    entry_name, options = MODELS[name]
    entry = zoo.load(entry_name, **options)
    target = Target(inspect(entry.model, entry.args, entry.kwargs))
    left_out = 0.0
    if options.get("grouped"):
        whole = zoo.load(entry_name, **{**options, "grouped": False})
        other = Target(inspect(whole.model, whole.args, whole.kwargs))
        origin = {site.name: np.zeros(site.shape) for site in target.program.latents}
        log_joint = jax.jit(Target.log_joint)
        left_out = float(log_joint(other, origin)) - float(log_joint(target, origin))
    return Problem(name, target, entry.counts, left_out)


@jax.jit
def values(target: Target, positions: Array, lam: Parameterization) -> Array:
    """The model's own values of positions of shape (draw, chain, dim), flat in the last axis."""

    def flat(position: Array) -> Array:
        sites = target.to_sites(position, lam)
        return jnp.concatenate([jnp.ravel(sites[s.name]) for s in target.program.latents])

    return jax.vmap(jax.vmap(flat))(positions)


@jax.jit
def scores(target: Target, positions: Array, lam: Parameterization) -> Array:
    """The gradient of the log density at positions of shape (draw, dim)."""
    return jax.vmap(partial(jax.grad(Target.logdensity, argnums=1), target), (0, None))(
        positions, lam
    )


def _labels(name: str, shape: tuple[int, ...]) -> list[str]:
    return [name + "".join(f"[{i}]" for i in index) for index in np.ndindex(*shape)]
