"""What learning λ gives back, by the ELBO or from draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

import numpy as np

from autoreparam.program.parameterization import Parameterization


@dataclass(frozen=True, eq=False)
class Fit:
    """A mean-field fit: Normals `loc`, `scale` over the flat working vector of its λ.

    `history` has the ELBO by chunk of steps (rows) and learning rate (columns), for this fit and
    for the fits at both ends that it was compared with. `converged` is false if the ELBO was still
    rising or λ fell back to an end; `note` says which, in words.
    """

    parameterization: Parameterization
    elbo: float | None  # None where λ was learned from scores
    elbo_error: float | None
    history: Mapping[str, np.ndarray]
    gradients: int
    loc: np.ndarray
    scale: np.ndarray
    converged: bool
    note: str

    def __repr__(self) -> str:
        elbo = "" if self.elbo is None else f"ELBO {float(self.elbo):.3f}, "
        end = "" if self.converged else ", not converged"
        said = f": {self.note}" if self.note else ""
        return f"Fit({self.parameterization}, {elbo}{self.gradients:,} gradients{end}{said})"

    def _repr_html_(self) -> str:
        said = escape(repr(self).removeprefix(f"Fit({self.parameterization}, ").removesuffix(")"))
        return f"{self.parameterization._repr_html_()}<p>{said}</p>"
