"""Whether draws can be trusted, and what to do where not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from autoreparam.results.diagnostics import (
    Efficiency,
    affordable,
    affordable_with,
    efficiency,
    kept_every,
)
from autoreparam.results.lam import sites
from autoreparam.results.scalars import measure, slowest, smallest, squares
from autoreparam.results.superchains import count_superchains
from autoreparam.results.words import above, below, percent

if TYPE_CHECKING:
    import xarray

HIGHER_TARGETS = (0.95, 0.99)  # to advise, where transitions diverge
ESS_PER_CHAIN = 100  # or per superchain, where chains are many
R_HAT_LIMIT = 1.01
# The paper's sqrt(1 + 1/M + τ) is for M chains of one draw. Here M = 50, the effective draws that
# half of a superchain should have. The choice of τ = 0.02, what starts may add, is that of 1.01.
NESTED_LIMIT = 1.02
E_BFMI_LIMIT = 0.3
FEW_MEASURED = 12  # scalars, to decide whether a run goes on where that is clear
CLEAR = 2.0  # factor by which an ESS, or the distance of R-hat from 1, is from its limit then


def suffice(latents: Mapping[str, np.ndarray], log_density: np.ndarray) -> bool:
    """Whether draws of shape (chain, draw, ...) have the R-hat and ESS that a run should have.

    Where the few scalars that look worst do not make it clear, as many are measured as for the
    warnings at the end: a quick look does not see tails. What cannot be measured does not count.
    """
    import xarray

    def variable(name: str, values: np.ndarray) -> xarray.DataArray:
        own = [f"{name}_{axis}" for axis in range(values.ndim - 2)]
        coords = {dim: np.arange(size) for dim, size in zip(own, values.shape[2:])}
        return xarray.DataArray(values, coords, ["chain", "draw", *own], name)

    own = [variable(name, values) for name, values in latents.items()]
    others = [*squares(own), variable("the log density", log_density)]
    chains = len(log_density)
    groups = count_superchains(chains)
    limit, wanted = _r_hat_limit(groups < chains) - 1, ESS_PER_CHAIN * groups

    def spare(most: int) -> float:
        """The factor by which the worst of so many scalars is within its limit."""
        measured = list(map(measure, own + others, slowest(own + others, most)))
        r_hat = -smallest(measured, lambda m: -m.r_hat)[0]
        bulk = smallest(measured, lambda m: m.bulk)[0]
        tail = smallest(measured[: len(own)], lambda m: m.tail)[0]
        within = limit / max(r_hat - 1, 1e-9), bulk / wanted, tail / wanted, np.inf
        return float(np.nanmin(within))

    found = spare(FEW_MEASURED)
    if 1 <= found < CLEAR:
        found = spare(affordable_with(log_density.size))
    return found >= 1


def warnings_for(tree: xarray.DataTree, found: Efficiency | None = None) -> list[str]:
    """What is wrong with a run and what to do, one sentence per problem; empty if all is well."""
    found = found or efficiency(tree, most=affordable(tree))
    attrs, said = tree.attrs, []
    transitions = found.chains * found.draws * kept_every(tree)
    if attrs.get("interrupted", 0):
        valid = "The draws are valid, but fewer than requested" if found.draws else (
            "There are no draws yet"
        )  # fmt: skip
        said.append(
            f"The run was interrupted after {found.draws} draws per chain. {valid}; with a "
            "checkpoint, ar.resume finishes the run."
        )
    if found.draws == 0:
        return said
    if not attrs.get("fit_converged", 1):
        said.append(
            "The fit of the parameterization did not converge: λ may be far from optimal, but the "
            "draws are still valid. Allow more steps, or use parameterization='auto'."
        )
    other_form = _another_parameterization(tree)
    if found.divergences:
        said.append(
            f"{found.divergences} of {transitions} transitions diverged: the sampler could not "
            "follow the posterior there and may have missed a part of it. "
            + (
                other_form
                or f"{_raise_target(attrs.get('target_accept', 0.8))} for priors that leave a "
                "scale close to zero"
            )
            + "."
        )
    r_hat, worst, limit = found.r_hat, found.worst_r_hat, _r_hat_limit(found.nested)
    name = found.r_hat_name[0].upper() + found.r_hat_name[1:]
    if not r_hat > limit:  # a latent says more than its square
        r_hat, worst = found.r_hat_other, found.worst_r_hat_other
    if found.chains > 1 and np.isnan(found.r_hat) and found.worst_r_hat:
        said.append(
            f"{name} of {found.worst_r_hat} could not be computed: too few draws, or draws that "
            "are not finite."
        )
    elif r_hat > limit:
        said.append(
            f"{name} is {above(r_hat, limit)} for {worst} (it should be below {limit}): "
            f"the chains do not agree. {other_form or 'Use a longer warmup and more draws'}; if it "
            "stays, the posterior may have several modes."
        )
    if found.chains == 1:
        said.append("With a single chain there is no R-hat to check convergence. Use chains=4.")
    wanted = ESS_PER_CHAIN * found.superchains
    if np.isnan(found.ess):
        said.append(
            f"The effective sample size of {found.worst_ess or 'every latent'} could not be "
            "computed: too few draws, or draws that are not finite. Use more draws, and check the "
            "model for overflow."
        )
    else:
        ess, scarce = found.ess, found.worst_ess
        if not ess < wanted:
            ess, scarce = found.ess_other, found.worst_ess_other
        if ess < wanted:
            unit = "superchain" if found.nested else "chain"
            said.append(
                f"The effective sample size is {below(ess, wanted)} for {scarce} (it should be at "
                f"least {wanted}, {ESS_PER_CHAIN} per {unit}): means and intervals are rough. "
                "Use more draws."
            )
    if found.e_bfmi < E_BFMI_LIMIT:
        said.append(
            f"E-BFMI is {below(found.e_bfmi, E_BFMI_LIMIT)} (it should be above {E_BFMI_LIMIT}): "
            "the sampler moves slowly between energies, as it does where tails are heavy or a "
            "scale has a neck. "
            + (other_form or "Use a longer warmup, or priors with lighter tails")
            + "."
        )
    if found.saturated > 0:
        said.append(
            f"{percent(found.saturated)} of the transitions stopped at the maximum tree depth "
            f"({attrs['max_tree_depth']}): they are valid but slow. Raise max_tree_depth, or use a "
            "longer warmup."
        )
    return said


def _r_hat_limit(nested: bool) -> float:
    return NESTED_LIMIT if nested else R_HAT_LIMIT


def _raise_target(accept: float) -> str:
    higher = next((target for target in HIGHER_TARGETS if target > accept), None)
    return "Look" if higher is None else f"Raise target_accept ({higher}, say), or look"


def _another_parameterization(tree: xarray.DataTree) -> str:
    """What to say where λ was not learned: the parameterization is the first thing to try."""
    chosen = tree.attrs.get("parameterization", "auto")
    if chosen == "auto" or "sites" not in tree.attrs:
        return ""
    if not any(site["candidate"] for site in sites(tree)):
        return ""
    return f"λ was fixed here ({chosen}): try parameterization='auto', which learns it"
