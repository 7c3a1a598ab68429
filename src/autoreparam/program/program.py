"""A model traced on its data: an ordered table of its sites."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from autoreparam.errors import known
from autoreparam.program.arguments import Arguments
from autoreparam.program.prior import Sites, draw_prior, middle_range, middle_scale
from autoreparam.program.site import Site
from autoreparam.program.table import site_table


@dataclass(frozen=True, eq=False)
class Structure:
    """All of a program but its data; equal structures share compiled code."""

    model: Callable
    arguments: Arguments
    sites: tuple[Site, ...]
    dtype: Any
    digests: Mapping[str, str]  # of what each site computes, with the constants it reads
    looking: float = 0.0  # seconds spent on finding what was non-centered by hand
    factorizes: bool = False  # matrices, or solves with them

    @cached_property
    def _key(self) -> tuple:
        computed = tuple(self.digests.items())
        return (self.model, self.arguments, self.sites, str(self.dtype), computed)

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Structure) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def latents(self) -> tuple[Site, ...]:
        """The sites that are sampled."""
        return tuple(site for site in self.sites if site.kind == "latent")

    @cached_property
    def discrete(self) -> tuple[Site, ...]:
        """The discrete latents, which are summed out."""
        return tuple(site for site in self.sites if site.kind == "discrete")

    @cached_property
    def rounds(self) -> int:
        """How often the model is run ahead, so that every implied location and scale is known."""
        order = {site.name: i for i, site in enumerate(self.latents)}
        known: dict[str, int] = {}

        def needed(site: Site) -> int:
            if site.name not in known:
                known[site.name] = 0  # in a loop, sites may depend on each other's past
                known[site.name] = max(
                    (after(site, self.by_name[p]) for p in site.parents), default=0
                )
            return known[site.name]

        def after(site: Site, parent: Site) -> int:
            implied = site.implied is not None and parent.name in site.implied.names
            if implied and site.loop is not None and site.loop == parent.loop:
                return needed(parent) + (parent.implied is None)
            return needed(parent) + (implied and order[parent.name] > order[site.name])

        return max(map(needed, self.latents), default=0)

    @cached_property
    def by_name(self) -> dict[str, Site]:
        """Every site under its name."""
        return {site.name: site for site in self.sites}

    def ancestors(self, names: Iterable[str]) -> set[str]:
        """The latents that some sites depend on, directly or through others."""
        found, waiting = set[str](), list(names)
        while waiting:
            site = self.by_name[waiting.pop()]
            parents = {*site.parents, *site.discrete_parents} - found
            found |= parents
            waiting += parents
        return found


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, eq=False)
class Program:
    """A model traced on its data: its sites in order. A pytree whose leaves are the data."""

    structure: Structure
    data: tuple[Any, ...]

    def tree_flatten(self):
        """Leaves: the data; static: everything else."""
        return self.data, self.structure

    @classmethod
    def tree_unflatten(cls, structure, data):
        """Rebuilds without checks."""
        return cls(structure, tuple(data))

    @property
    def sites(self) -> tuple[Site, ...]:
        """Every site, in the order of the model."""
        return self.structure.sites

    @property
    def latents(self) -> tuple[Site, ...]:
        """The sites that are sampled."""
        return self.structure.latents

    @property
    def candidates(self) -> tuple[Site, ...]:
        """The sites that a parameterization covers."""
        return tuple(site for site in self.sites if site.candidate)

    @property
    def plates(self) -> dict[str, int]:
        """How many elements each plate has."""
        return {
            plate: site.shape[axis]
            for site in self.sites
            if site.kind != "deterministic"
            for plate, axis in site.plates
            if -axis <= len(site.shape)
        }

    @property
    def dtype(self) -> Any:
        """The floating-point type of the latent values."""
        return self.structure.dtype

    def __getitem__(self, name: str) -> Site:
        if name not in self.structure.by_name:
            raise KeyError(f"site '{name}'; sites of this model: {known(self.structure.by_name)}")
        return self.structure.by_name[name]

    def explain(self, name: str) -> str:
        """Why a name is not a candidate, as the end of a sentence.

        Args:
            name: Any name.
        """
        site = self.structure.by_name.get(name)
        if site is None:
            return "is not a site of this model"
        return f"is not reparameterized ({site.note or site.kind})"

    def run(self) -> Any:
        """Runs the model on its data inside whatever handlers are active."""
        args, kwargs = self.structure.arguments.fill(self.data)
        return self.structure.model(*args, **kwargs)

    @cached_property
    def reference_scales(self) -> dict[str, np.ndarray]:
        """s0 of each candidate: its scale where constant, else the median over prior draws."""
        draws = self._prior_draws[0]
        return {
            site.name: middle_scale(draws[site.name]).astype(self.dtype) for site in self.candidates
        }

    @cached_property
    def prior_ranges(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Median and half the central 90% of the prior of latents that are not reparameterized.

        Both are of unconstrained values; sites in loops, and ranges that are not finite, are left
        out.
        """
        ranges = {name: middle_range(draws) for name, draws in self._prior_draws[1].items()}
        return {name: pair for name, pair in ranges.items() if np.isfinite(pair).all()}

    @cached_property
    def reference_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the reference scales, known before these are."""
        scales = draw_prior.shapes(self, self.prior_sites)[0]
        return {name: scale.shape[1:] for name, scale in scales.items()}

    @cached_property
    def _prior_draws(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return draw_prior(self, self.prior_sites)

    @property
    def prior_sites(self) -> Sites:
        """The candidates, whose scales are wanted, latents whose values are, and what both need."""
        others = [site.name for site in self.latents if not site.candidate and not site.loop]
        scaled = frozenset((site.name, site.implied) for site in self.candidates)
        causes = self.structure.ancestors([*others, *(site.name for site in self.candidates)])
        return Sites(scaled, frozenset(others), frozenset([*others, *causes]))

    def __repr__(self) -> str:
        return site_table(self.sites).to_text()

    def _repr_html_(self) -> str:
        return site_table(self.sites).to_html()
