"""What a run is asked to show, checked before it begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from autoreparam.errors import AutoreparamError, ModelError
from autoreparam.program.foreign import AxisLabels
from autoreparam.program.named import constants
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target
from autoreparam.results.labels import as_names
from autoreparam.results.tree import check_labels
from autoreparam.run.mapping import likelihoods, predictions
from autoreparam.run.notes import available
from autoreparam.run.settings import check_flag


class Shown(NamedTuple):
    """What the user wants from a run, and under which labels."""

    var_names: Iterable[str] | None = None
    coords: Mapping[str, Any] | None = None
    dims: Mapping[str, Any] | None = None
    log_likelihood: bool = False
    posterior_predictive: bool = False
    brought: Iterable[AxisLabels] = ()  # labels of the model's arguments

    def checked(self) -> Shown:
        """The same, if everything is of the right type; an error that names the keyword if not."""
        names = self.var_names
        if names is not None:
            names = as_names(names)  # a generator would be read twice
        check_flag("log_likelihood", self.log_likelihood)
        check_flag("posterior_predictive", self.posterior_predictive)
        for keyword in ("coords", "dims"):
            given = getattr(self, keyword)
            if given is not None and not isinstance(given, Mapping):
                wanted = {"coords": "labels by dimension", "dims": "dimensions by variable"}
                raise AutoreparamError(
                    f"{keyword}: expected a dict of {wanted[keyword]}; found {type(given).__name__}"
                )
        return self._replace(var_names=names)

    def kept(self, target: Target) -> set[str]:
        """The variables of this model to keep; an error if names or labels do not fit it."""
        program = target.program
        lam = Parameterization.centered(program, s0=1.0)  # any will do, and this one costs nothing
        shapes = {site.name: site.shape for site in program.sites if site.kind == "observed"}
        observed: dict[str, Any] = {n: np.broadcast_to(np.nan, s) for n, s in shapes.items()}
        if self.var_names is not None or self.coords or self.dims:
            observed = jax.device_get(jax.jit(Target.observed)(target))
        arguments = constants(program, observed)
        return check_labels(program, [lam], observed, arguments, self.coords, self.dims,
                            self.var_names, self.brought)  # fmt: skip

    def check(self, target: Target) -> None:
        """Rejects what cannot be shown of this model, before any draws could be lost."""
        self.kept(target)
        program = target.program
        lam = Parameterization.centered(program, s0=1.0)
        row = np.zeros((1, target.size), program.dtype)
        key = jax.eval_shape(jax.random.key, 0)
        for keyword, call, rest in (
            ("log_likelihood", likelihoods, ()),
            ("posterior_predictive", predictions, (key,)),
        ):
            if not getattr(self, keyword) or not available(program, keyword):
                continue
            try:
                call.shapes(target, row, lam, *rest)
            except Exception as error:
                raise ModelError(
                    f"{keyword}: it cannot be computed for this model: {type(error).__name__}: "
                    f"{str(error).partition(chr(10))[0]}"
                ) from error
