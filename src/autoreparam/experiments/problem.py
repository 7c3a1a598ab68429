"""One model of the experiments: its target, its data, and what measuring it needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam import zoo
from autoreparam.errors import DataError
from autoreparam.experiments.budget import MODELS
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target
from autoreparam.program.trace import inspect

PAPERS_SCALE = 1.0  # s0: the paper's λ depends on the model's units
# Padding for the radon data of a state: counties without homes, cells of weight zero.
FILL = {"uranium": 0.0, "county": 0, "floor": 0.0, "n": 1e-20, "log_r": 0.0}


@dataclass(frozen=True, eq=False)
class Problem:
    """A named target; `left_out` is the part of the log density lost by grouping its data.

    Problems that run together are sampled in `wide` targets of one shape, in which `real` are the
    coordinates of `target`. The others are non-centered variables without data, which do not affect
    the rest; a zero inverse mass keeps them still.
    """

    name: str
    target: Target
    wide: Target
    real: np.ndarray
    counts: dict[str, int]
    left_out: float = 0.0

    def constant(self, lam: float) -> Parameterization:
        """The same λ everywhere, with the paper's reference scale."""
        return Parameterization.constant(self.target.program, lam, s0=PAPERS_SCALE)

    def widen(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the target's coordinates as rows of `wide`, padded with zeros."""
        wide = np.zeros((*np.shape(rows)[:-1], self.wide.size), self.target.program.dtype)
        wide[..., self.real] = rows
        return wide

    def widen_lam(self, lam: Parameterization) -> Parameterization:
        """λ of the target as λ of `wide`."""
        blank = Parameterization.noncentered(self.wide.program, s0=PAPERS_SCALE)
        padded = {
            name: np.pad(
                lam[name], [(0, n - m) for n, m in zip(blank[name].shape, lam[name].shape)]
            )
            for name in blank.sites
        }
        return blank.replace(padded)

    @property
    def labels(self) -> list[str]:
        """The names of the target's scalars, in the order of its coordinates."""
        sites = self.target.program.latents
        return [label for site in sites for label in _labels(site.name, site.shape)]


def without_data(names: Iterable[str]) -> dict[str, str]:
    """The reason why the data of a model cannot be loaded, for each model of which this is so."""
    reasons: dict[str, str] = {}  # by name in the zoo: the states of radon share their files
    asked = {name: MODELS[name] for name in names}
    for entry, options in dict(asked.values()).items():
        try:
            zoo.load(entry, **options)
        except DataError as error:
            reasons[entry] = str(error)
    return {name: reasons[entry] for name, (entry, _) in asked.items() if entry in reasons}


def load_problems(names: Sequence[str]) -> list[Problem]:
    """The problems with these names in `MODELS`, ready to run together."""
    entries = [zoo.load(MODELS[name][0], **MODELS[name][1]) for name in names]
    problems = make_problems(names, entries)
    return [replace(problem, left_out=_left_out(problem)) for problem in problems]


def make_problems(names: Sequence[str], entries: Sequence[zoo.Entry]) -> list[Problem]:
    """Problems of one shape, from zoo models that differ only in their data."""
    widest = {
        key: max(len(entry.kwargs[key]) for entry in entries) for key in FILL if len(entries) > 1
    }
    problems = []
    for name, entry in zip(names, entries):
        target = Target(inspect(entry.model, entry.args, entry.kwargs))
        data = {key: _padded(key, value, widest) for key, value in entry.kwargs.items()}
        wide = Target(inspect(entry.model, entry.args, data)) if widest else target
        problems.append(Problem(name, target, wide, _real(target, wide), entry.counts))
    return problems


def _padded(key: str, value: np.ndarray, widest: dict[str, int]) -> np.ndarray:
    if key not in widest:
        return value
    return np.pad(value, (0, widest[key] - len(value)), constant_values=FILL[key])


def _real(target: Target, wide: Target) -> np.ndarray:
    """The positions of a target's coordinates among those of a wider one."""
    parts, first = [], 0
    for site, wider in zip(target.program.latents, wide.program.latents):
        parts.append(first + np.arange(site.size))
        first += wider.size
    return np.concatenate(parts)


def _left_out(problem: Problem) -> float:
    entry_name, options = MODELS[problem.name]
    if not options.get("grouped"):
        return 0.0
    whole = zoo.load(entry_name, **{**options, "grouped": False})
    other = Target(inspect(whole.model, whole.args, whole.kwargs))
    origin = {site.name: np.zeros(site.shape) for site in problem.target.program.latents}
    log_joint = jax.jit(Target.log_joint)
    return float(log_joint(other, origin)) - float(log_joint(problem.target, origin))


@jax.jit
def values(target: Target, positions: Array, lam: Parameterization) -> Array:
    """The model's own values at positions of shape (draw, chain, dim), flat in the last axis."""

    def flat(position: Array) -> Array:
        sites = target.to_sites(position, lam)
        return jnp.concatenate([jnp.ravel(sites[s.name]) for s in target.program.latents])

    return jax.vmap(jax.vmap(flat))(positions)


@jax.jit
def values_and_scores(
    target: Target, positions: Array, lam: Parameterization
) -> tuple[Array, Array]:
    """The log density and its gradient at positions of shape (draw, dim)."""
    look = jax.value_and_grad(Target.logdensity, argnums=1)
    return jax.vmap(look, (None, 0, None))(target, positions, lam)


def _labels(name: str, shape: tuple[int, ...]) -> list[str]:
    return [name + "".join(f"[{i}]" for i in index) for index in np.ndindex(*shape)]
