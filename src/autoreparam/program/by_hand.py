"""What is implied by a model that is called with arguments of its own, for rewriting it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpyro.handlers import block

from autoreparam.errors import ParameterizationError, known
from autoreparam.program.families import Standardized, standardize
from autoreparam.program.implicit.implied import Implied
from autoreparam.program.trace import inspect


@dataclass(frozen=True)
class ByHand:
    """What a model implies for some of its sites, the loops they are in, and its data."""

    implied: Mapping[str, Implied] = field(default_factory=dict)
    loops: Mapping[str, int] = field(default_factory=dict)
    data: tuple = ()

    @classmethod
    def of(cls, model: Callable, args: tuple, kwargs: dict, sites: Iterable[str]) -> ByHand:
        """What a call of the model implies for the given sites.

        It is nothing where the model cannot be inspected.
        """
        try:
            with block():  # whoever looks at the model from outside is to see one run of it
                program = inspect(model, args, kwargs, sites=sites)
        except Exception:  # running the model will tell what is wrong with it
            return cls()
        found = [site for site in program.candidates if site.implied is not None]
        return cls(
            {site.name: site.implied for site in found},
            {site.name: site.loop.number for site in found if site.loop is not None},
            program.data,
        )

    def rule(self, name: str, fn: Any, values: Mapping[str, Any]) -> Standardized:
        """The rule of a site at the values of the sites before it."""
        later = sorted(self.implied[name].names - values.keys())
        if later:
            raise ParameterizationError(
                f"site '{name}' was non-centered by hand with {known(later)}, which the model "
                "samples after it. Sample them first, or leave it out with implicit=False; "
                "ar.sample takes any order."
            )
        return self.implied[name].rule(standardize(fn), values, self.data)

    def in_order(self, names: Iterable[str]) -> list[str]:
        """The names, each after those it depends on."""
        waiting, ordered = list(names), list[str]()
        while waiting:
            ready = [name for name in waiting if not self.implied[name].names & {*waiting}]
            ordered += ready
            waiting = [name for name in waiting if name not in ready]
        return ordered
