"""λ for every reparameterizable site: an immutable value, a JAX pytree, saved as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from autoreparam.disk import as_path
from autoreparam.errors import ParameterizationError, known
from autoreparam.program import parameterization_file
from autoreparam.program.centering import Centering
from autoreparam.program.flat import Flat
from autoreparam.program.grip import roots
from autoreparam.program.maps.gain import GEOMETRIC
from autoreparam.program.program import Program
from autoreparam.program.site import Site
from autoreparam.render.table import Table


@jax.tree_util.register_pytree_node_class
class Parameterization:
    """How far each element of each site is centered: 1 is centered, 0 non-centered.

    `p["theta"]` is λ of the location, with the shape of the site's value; `p.scale["theta"]` that
    of the scale (the same unless untied); `p.reference["theta"]` the reference scale s0. Sites with
    heavy tails also have `p.tail["theta"]`: 0 leaves the tails alone, 1 makes them a Normal's.

    >>> p = Parameterization.centered(program)
    >>> p = p.replace({"theta": 0.3})

    Args:
        loc: λ of the location by site: numbers in [0, 1] with the shape of the value.
        scale: λ of the scale by site; None for the same.
        reference: s0 by site; None for 1.
        tail: How much lighter heavy tails are made, by site; None leaves them.
    """

    __slots__ = ("_flat", "_sites")
    _sites: Mapping[str, Centering]
    _flat: Flat | None

    def __init__(
        self,
        loc: Mapping[str, Any],
        scale: Mapping[str, Any] | None = None,
        reference: Mapping[str, Any] | None = None,
        tail: Mapping[str, Any] | None = None,
    ):
        for given in (loc, scale, reference, tail):
            if given is not None and not isinstance(given, Mapping):
                found = type(given).__name__
                raise ParameterizationError(f"expected a dict of λ by site; found {found}")
        scale, reference, tail = scale or {}, reference or {}, tail or {}
        for name in [*scale, *reference, *tail]:
            if name not in loc:
                raise ParameterizationError(
                    f"site '{name}' has no λ; sites of this parameterization: {known(loc)}"
                )
        given = {
            name: Centering(lam, scale.get(name, lam), reference.get(name, 1.0), tail.get(name))
            for name, lam in loc.items()
        }
        self._freeze({name: site.checked(name) for name, site in given.items()})

    def _freeze(self, sites: Mapping[str, Centering], flat: Flat | None = None) -> None:
        object.__setattr__(self, "_sites", MappingProxyType(dict(sites)))
        object.__setattr__(self, "_flat", flat)

    def __setattr__(self, name, value):
        raise AttributeError("a Parameterization is immutable; use .replace({...}) for a new one")

    def __reduce__(self):
        return Parameterization.by_site, (dict(self._sites), self._flat)

    @classmethod
    def by_site(cls, sites: Mapping[str, Centering], flat: Flat | None = None) -> Parameterization:
        """The parameterization with these sites, checked and frozen.

        Args:
            sites: λ by site as values.
            flat: Directions that the data say nothing about, where some are known.
        """
        return cls.tree_unflatten(tuple(sites), ([sites[n].checked(n) for n in sites], flat))

    @property
    def flat(self) -> Flat | None:
        """Directions that the data say nothing about, where some are known."""
        return self._flat

    def with_flat(self, flat: Flat | None) -> Parameterization:
        """The same λ with other directions.

        Args:
            flat: The directions; None for none.
        """
        return self.tree_unflatten(self.sites, (tuple(self._sites.values()), flat))

    @classmethod
    def constant(
        cls,
        program: Program,
        lam: float,
        *,
        s0: float | None = None,
        tail: float = 0.0,
        gain: str = GEOMETRIC,
    ) -> Parameterization:
        """The same λ for every element of every candidate site, and the same tail where heavy.

        Args:
            program: What `ar.inspect` gives.
            lam: The number for every element.
            s0: The reference scale, 1 in the paper. None makes λ independent of units: the site's
                own scale where that is constant and its prior median elsewhere.
            tail: The same for heavy tails; 0 leaves them.
            gain: How s0 and the scale are averaged: "geometric", as in the paper, or "quadratic".
        """
        if not isinstance(program, Program):
            raise ParameterizationError(
                f"expected a Program, as ar.inspect gives it; found {type(program).__name__}"
            )

        def one(site: Site) -> Centering:
            shape, dtype = site.unconstrained_shape, program.dtype
            alike = np.full(shape, lam, dtype)
            reference = program.reference_scales[site.name] if s0 is None else np.asarray(s0, dtype)
            heavy = np.full(shape, tail, dtype) if site.heavy else None
            return Centering(alike, alike, reference, heavy, gain=gain).completed(site, labels)

        labels = tuple(root.label for root in roots(program))
        return cls.by_site({site.name: one(site) for site in program.candidates})

    @classmethod
    def centered(cls, program: Program, *, s0: float | None = None) -> Parameterization:
        """Every candidate site centered: λ = 1 everywhere.

        That is the model as written, except for sites that were non-centered by hand.

        Args:
            program: What `ar.inspect` gives.
            s0: The reference scale, which does not matter at λ = 1.
        """
        return cls.constant(program, 1.0, s0=s0)

    @classmethod
    def noncentered(cls, program: Program, *, s0: float | None = None) -> Parameterization:
        """Every candidate site non-centered: λ = 0 everywhere.

        Args:
            program: What `ar.inspect` gives.
            s0: The reference scale; None makes λ independent of units.
        """
        return cls.constant(program, 0.0, s0=s0)

    def replace(
        self,
        lam: Mapping[str, Any] | None = None,
        *,
        scale: Mapping[str, Any] | None = None,
        tail: Mapping[str, Any] | None = None,
    ) -> Parameterization:
        """A new parameterization with λ of some sites replaced; a number applies to the whole site.

        Args:
            lam: New λ by site, for location and scale.
            scale: New λ of the scale alone.
            tail: New tails, of sites with heavy ones.
        """
        new = dict(self._sites)
        for name, value in (lam or {}).items():
            both = self._filled(name, value)
            new[name] = replace(new[name], loc=both, scale=both)
        for name, value in (scale or {}).items():
            new[name] = replace(new[name], scale=self._filled(name, value))
        for name, value in (tail or {}).items():
            if name not in self.tail:
                raise ParameterizationError(
                    f"site '{name}' has no tail to set; sites with heavy tails: {known(self.tail)}"
                )
            new[name] = replace(new[name], tail=self._filled(name, value))
        return self.by_site(new, self._flat)

    def _filled(self, name: str, value: Any):
        if name not in self._sites:
            raise ParameterizationError(
                f"site '{name}' is not part of this parameterization; "
                f"its sites are {known(self._sites)}"
            )
        return self._sites[name].filled(name, value)

    def map(self, change: Callable[[Any], Any]) -> Parameterization:
        """A new parameterization with every λ, of locations and scales, changed the same way.

        Args:
            change: A function of arrays of λ.
        """
        return self.by_site(
            {
                name: replace(site, loc=change(site.loc), scale=change(site.scale))
                for name, site in self._sites.items()
            },
            self._flat,
        )

    def round(self) -> Parameterization:
        """Each λ rounded to 0 or 1 (the paper's discrete VIP)."""
        return self.map(lambda lam: (lam >= 0.5).astype(lam.dtype))

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of the model."""
        return tuple(self._sites)

    @property
    def scale(self) -> Mapping[str, Any]:
        """λ of the scale per site."""
        return MappingProxyType({name: site.scale for name, site in self._sites.items()})

    @property
    def reference(self) -> Mapping[str, Any]:
        """The reference scale s0 per site."""
        return MappingProxyType({name: site.reference for name, site in self._sites.items()})

    @property
    def tail(self) -> Mapping[str, Any]:
        """How much lighter each element's tails are made, from 0 to 1, where tails are heavy."""
        heavy = {name: site.tail for name, site in self._sites.items() if site.tail is not None}
        return MappingProxyType(heavy)

    @property
    def tied(self) -> bool:
        """Whether location and scale share one λ everywhere."""
        return all(np.array_equal(site.loc, site.scale) for site in self._sites.values())

    def of(self, name: str) -> Centering:
        """All that there is about one site: λ of location and scale, s0, gain, tail, and so on.

        Args:
            name: A site.
        """
        if name not in self._sites:
            raise KeyError(f"site '{name}'; sites of this parameterization: {known(self._sites)}")
        return self._sites[name]

    def __getitem__(self, name: str):
        return self.of(name).loc

    def __contains__(self, name: object) -> bool:
        return name in self._sites

    def __iter__(self) -> Iterator[str]:
        return iter(self._sites)

    def __len__(self) -> int:
        return len(self._sites)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parameterization):
            return NotImplemented
        (mine, parts), (theirs, others) = jax.tree.flatten(self), jax.tree.flatten(other)
        same = parts == others  # type: ignore[operator]
        return same and all(np.array_equal(a, b) for a, b in zip(mine, theirs))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Parameterization({', '.join(f'{n}{site}' for n, site in self._sites.items())})"

    def _repr_html_(self) -> str:
        rows = [(name, *site.summary()) for name, site in self._sites.items()]
        return Table(("site", "elements", "smallest λ", "mean", "largest"), rows).to_html()

    def check(self, program: Program) -> Parameterization:
        """This parameterization, if it fits the candidates of `program`; an error otherwise.

        Args:
            program: What `ar.inspect` gives.
        """
        wanted = {site.name: site for site in program.candidates}
        labels = tuple(root.label for root in roots(program))
        for name, lam in self._sites.items():
            if name not in wanted:
                raise ParameterizationError(
                    f"site '{name}' of this parameterization {program.explain(name)}; sites that "
                    f"can be reparameterized here: {known(wanted)}. Was it made for another model?"
                )
            lam.refuse_other(wanted[name], labels)
        if self._flat is not None:
            self._flat.refuse_other(program, varies=any(s.grips for s in self._sites.values()))
        if missing := [name for name in wanted if name not in self._sites]:
            raise ParameterizationError(
                f"this parameterization has no λ for {known(missing)}; it covers "
                f"{known(self._sites)}. Was it made for another model?"
            )
        # In the program's order and with all parts: equal models share one compiled program.
        whole = {name: self._sites[name].completed(site, labels) for name, site in wanted.items()}
        same = all(whole[name] is lam for name, lam in self._sites.items())
        return self if same and self.sites == tuple(wanted) else self.by_site(whole, self._flat)

    def to_json(self) -> str:
        """The parameterization as JSON text, exact to the last bit."""
        return parameterization_file.to_text(self._sites, self._flat)

    @classmethod
    def from_json(cls, text: str, program: Program | None = None) -> Parameterization:
        """The parameterization in a JSON text.

        Args:
            text: What `to_json` gave.
            program: The program that it must fit; None for no check.
        """
        found = cls.by_site(*parameterization_file.from_text(text))
        return found if program is None else found.check(program)

    def save(self, path: str | Path) -> None:
        """Writes JSON, with large arrays in an npz file of the same name beside it.

        Args:
            path: A name that ends in .json.
        """
        parameterization_file.write(self._sites, self._flat, as_path(path, "save"))

    @classmethod
    def load(cls, path: str | Path, program: Program | None = None) -> Parameterization:
        """The parameterization in a file written by `save`; checked where a program is given.

        Args:
            path: A file that `save` wrote.
            program: The program that it must fit; None for no check.
        """
        found = cls.by_site(*parameterization_file.read(as_path(path, "load")))
        return found if program is None else found.check(program)

    def tree_flatten(self):
        """Children: the sites, and flat directions; static: the sites' names."""
        return (tuple(self._sites.values()), self._flat), self.sites

    @classmethod
    def tree_unflatten(cls, names, children):
        """Rebuilds without checks, since JAX may put anything in the leaves."""
        sites, flat = children
        self = object.__new__(cls)
        self._freeze(dict(zip(names, sites)), flat)
        return self
