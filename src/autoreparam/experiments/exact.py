"""What is known without sampling: the radon model, whose posterior is Gaussian.

With unit scales, `ũ_c = m_c - (1 - λ_c) h_c`, `h_c = mu + a u_c`, is linear, so the covariance Σ
and the precision P of the posterior under any λ follow from those of the model as written. The ELBO
is highest at `λ_c = n_c / (n_c + 1)`, with n_c homes in county c. The score objective is `Σ_i ½
log(Σ_ii P_ii)`, in which the counties' λ interact only through the precisions of mu and a.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

GLOBALS = 3  # mu, a, b


def elbo_optimum(homes: np.ndarray) -> np.ndarray:
    """λ of each county at the highest ELBO."""
    return homes / (homes + 1)


@dataclass(frozen=True, eq=False)
class RadonPosterior:
    """The posterior of the radon model with unit scales, in the order mu, a, b, counties."""

    homes: np.ndarray  # in each county
    uranium: np.ndarray
    precision: np.ndarray
    covariance: np.ndarray

    def objective(self, lam: np.ndarray) -> float:
        """The score objective with infinitely many draws."""
        return self._objective_and_slope(np.asarray(lam, float))[0]

    def score_optimum(self) -> np.ndarray:
        """λ of each county at the lowest score objective."""
        found = minimize(
            self._objective_and_slope,
            elbo_optimum(self.homes),
            jac=True,
            bounds=[(0.0, 1.0)] * len(self.homes),
            method="L-BFGS-B",
            options={"ftol": 1e-14, "gtol": 1e-10, "maxiter": 5000},
        )
        return found.x

    def _objective_and_slope(self, lam: np.ndarray) -> tuple[float, np.ndarray]:
        rest, county = 1 - lam, slice(GLOBALS, None)
        # dh_c / d(mu, a, b)
        slope = np.stack([np.ones_like(self.uranium), self.uranium, 0 * self.uranium], axis=1)
        ours, shared = self.covariance[county, county], self.covariance[:GLOBALS, :GLOBALS]
        cross = np.einsum("cg,cg->c", slope, self.covariance[county, :GLOBALS])
        prior = np.einsum("cg,gk,ck->c", slope, shared, slope)
        variance = np.diag(ours) - 2 * rest * cross + rest**2 * prior
        # old = A new, with A = [[I, 0], [diag(rest) slope, I]]; the counties' own P_ii stay.
        lift = np.vstack([np.eye(GLOBALS), rest[:, None] * slope])
        carried = self.precision @ lift
        precision = np.einsum("ig,ig->g", lift, carried)
        fixed = np.log(np.diag(self.precision)[county]).sum() + np.log(np.diag(shared)).sum()
        value = 0.5 * (np.log(variance).sum() + np.log(precision).sum() + fixed)
        by_rest = (rest * prior - cross) / variance
        by_rest += np.einsum("cg,cg,g->c", slope, carried[county], 1 / precision)
        return float(value), -by_rest


def radon_posterior(
    county: np.ndarray, floor: np.ndarray, uranium: np.ndarray, log_r: np.ndarray | None = None
) -> RadonPosterior:
    """The posterior for these homes by linear algebra; its width does not depend on `log_r`."""
    homes = np.bincount(county, minlength=len(uranium)).astype(float)
    size = GLOBALS + len(uranium)
    precision = np.zeros((size, size))
    precision[:GLOBALS, :GLOBALS] = np.eye(GLOBALS)
    rows = np.zeros((len(uranium), size))  # m_c - h_c ~ N(0, 1)
    rows[:, 0], rows[:, 1] = -1, -uranium
    rows[np.arange(len(uranium)), GLOBALS + np.arange(len(uranium))] = 1
    precision += rows.T @ rows
    seen = np.zeros((len(county), size))  # log_r - m_c - b x ~ N(0, 1)
    seen[np.arange(len(county)), GLOBALS + county] = 1
    seen[:, 2] = floor
    precision += seen.T @ seen
    return RadonPosterior(homes, uranium, precision, np.linalg.inv(precision))
