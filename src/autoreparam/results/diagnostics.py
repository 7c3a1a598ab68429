"""How well a run went: ESS, ESS per gradient, R-hat, divergences; a table, and advice in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autoreparam.errors import AutoreparamError, known
from autoreparam.results.lam import lam_columns
from autoreparam.results.scalars import COLUMNS, Measured, measure, slowest
from autoreparam.results.summary import Summary
from autoreparam.results.tree import texts

if TYPE_CHECKING:
    import xarray

R_HAT_LIMIT = 1.01
ESS_PER_CHAIN = 100
E_BFMI_LIMIT = 0.3
MOST_MEASURED, LEAST_MEASURED = 300, 50  # scalars, for the warnings at the end of a run
DRAWS_MEASURED = 1_200_000  # of all of them together: the time goes with the draws


@dataclass(frozen=True)
class Efficiency:
    """What a run gave for what it cost; NaN where it is too short to say."""

    ess: float  # minimum over scalar latents that vary of the smaller of bulk and tail ESS
    ess_mean: float  # the same for ESS of the means
    ess_per_1000_sampling: float  # per 1000 gradients of the sampling phase alone
    ess_per_1000_total: float  # per 1000 gradients of everything that was paid
    ess_mean_per_1000_sampling: float
    ess_mean_per_1000_total: float
    r_hat: float  # the largest
    divergences: int
    e_bfmi: float  # the smallest
    saturated: float  # share of transitions whose tree reached its greatest depth
    worst_ess: str  # names of the scalars that these minima and maxima belong to
    worst_ess_mean: str
    worst_r_hat: str
    gradients_sampling: int
    gradients_total: int
    chains: int
    draws: int

    def to_dict(self) -> dict[str, Any]:
        """The numbers by name."""
        return asdict(self)


def efficiency(tree: xarray.DataTree, most: int | None = None) -> Efficiency:
    """ESS per gradient and the other measures of a run, over its latent variables.

    ArviZ takes milliseconds a scalar. With `most`, only so many are measured, those that a quick
    look over all of them finds the worst.
    """
    posterior = _group(tree, "posterior")
    latents = texts(tree.attrs.get("latents", list(posterior.data_vars)))
    variables = [posterior[name] for name in latents if name in posterior]
    if most is None or not variables:
        return efficiency_of(tree, [measure(variable) for variable in variables])
    return efficiency_of(tree, list(map(measure, variables, slowest(variables, most))))


def summary(tree: xarray.DataTree, var_names: Iterable[str] | None = None) -> Summary:
    """A table with one row a scalar: its posterior, how well it is known, and λ.

    >>> table = summary(tree)
    >>> table.to_dict()["theta[0]"]["ess_bulk"]
    """
    posterior = _group(tree, "posterior")
    names = [str(name) for name in posterior.data_vars]
    if var_names is not None:
        asked = [var_names] if isinstance(var_names, str) else list(var_names)
        for name in asked:
            if name not in names:
                raise AutoreparamError(f"var_names: no variable '{name}'; there are {known(names)}")
        names = asked
    measured = {name: measure(posterior[name]) for name in names}
    parts = [m.columns() for m in measured.values()]
    columns = {key: np.concatenate([np.empty(0), *(p[key] for p in parts)]) for key in COLUMNS}
    columns |= lam_columns(tree, {name: len(m.labels) for name, m in measured.items()})
    latents = texts(tree.attrs.get("latents", names))
    footer = ""
    if all(name in measured for name in latents):
        footer = _in_a_line(efficiency_of(tree, [measured[name] for name in latents]))
    return Summary(tuple(label for m in measured.values() for label in m.labels), columns, footer)


def warnings_for(tree: xarray.DataTree, found: Efficiency | None = None) -> list[str]:
    """What is wrong with a run and what to do, a sentence each; none if all is well."""
    found = found or efficiency(tree, most=affordable(_group(tree, "posterior").sizes))
    attrs, said = tree.attrs, []
    transitions = found.chains * found.draws
    if attrs.get("interrupted", 0):
        said.append(
            f"The run was interrupted after {found.draws} draws per chain. The draws are valid but "
            "fewer than asked for; with a checkpoint, ar.resume finishes it."
        )
    if found.draws == 0:
        return said
    if not attrs.get("fit_converged", 1):
        said.append(
            "The fit of the parameterization did not converge: λ may be far from the best, the "
            "draws are valid all the same. Give it more steps, or use parameterization='auto'."
        )
    if found.divergences:
        said.append(
            f"{found.divergences} of {transitions} transitions diverged: the sampler could not "
            "follow the posterior there and may have missed a part of it. Raise target_accept "
            "(0.95, say), or look for priors that leave a scale close to zero."
        )
    if found.r_hat > R_HAT_LIMIT:
        said.append(
            f"R-hat is {found.r_hat:.3f} for {found.worst_r_hat} (it should be below "
            f"{R_HAT_LIMIT}): the chains do not agree. Use a longer warmup and more draws; if it "
            "stays, the posterior may have several modes."
        )
    if found.chains == 1:
        said.append("One chain cannot show whether chains agree (no R-hat). Use chains=4.")
    wanted = ESS_PER_CHAIN * found.chains
    if np.isnan(found.ess):
        said.append(
            f"The effective sample size of {found.worst_ess or 'every latent'} could not be "
            "computed: too few draws, or draws that are not finite. Use more draws, and check the "
            "model for overflow."
        )
    elif found.ess < wanted:
        said.append(
            f"The effective sample size is {found.ess:.0f} for {found.worst_ess} (it should be at "
            f"least {wanted}, {ESS_PER_CHAIN} per chain): means and intervals are rough. Use more "
            "draws."
        )
    if found.e_bfmi < E_BFMI_LIMIT:
        said.append(
            f"E-BFMI is {found.e_bfmi:.2f} (it should be above {E_BFMI_LIMIT}): the sampler moves "
            "slowly between energies, as it does where tails are heavy. Use a longer warmup, or "
            "priors with lighter tails."
        )
    if found.saturated > 0:
        said.append(
            f"{found.saturated:.1%} of the transitions stopped at the greatest tree depth "
            f"({attrs['max_tree_depth']}): they are valid but slow. Raise max_tree_depth, or use a "
            "longer warmup."
        )
    return said


def affordable(sizes: Mapping[Any, int]) -> int:
    """How many scalars can be measured in a few seconds."""
    draws = sizes.get("chain", 0) * sizes.get("draw", 0)
    return max(LEAST_MEASURED, min(MOST_MEASURED, DRAWS_MEASURED // max(draws, 1)))


def efficiency_of(tree: xarray.DataTree, measured: list[Measured]) -> Efficiency:
    """The measures of a run from those of its scalars."""
    labels = [name for m in measured for name, moves in zip(m.labels, m.varies) if moves]

    def varying(parts: Iterable[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.empty(0), *(p[m.varies] for p, m in zip(parts, measured))])

    ess, worst_ess = _worst(varying(np.minimum(m.bulk, m.tail) for m in measured), labels)
    mean, worst_mean = _worst(varying(m.means for m in measured), labels)
    negative, worst_r_hat = _worst(-varying(m.r_hat for m in measured), labels)
    ledger = {
        purpose: int(tree.attrs.get(f"gradients_{purpose}", 0))
        for purpose in ("learning", "warmup", "sampling")
    }
    sampling, total = ledger["sampling"], sum(ledger.values())
    sizes = _group(tree, "posterior").sizes
    stats = tree["sample_stats"].dataset if "sample_stats" in tree else {}
    return Efficiency(
        ess=ess,
        ess_mean=mean,
        ess_per_1000_sampling=_ratio(1000 * ess, sampling),
        ess_per_1000_total=_ratio(1000 * ess, total),
        ess_mean_per_1000_sampling=_ratio(1000 * mean, sampling),
        ess_mean_per_1000_total=_ratio(1000 * mean, total),
        r_hat=-negative,
        divergences=int(np.asarray(stats["diverging"]).sum()) if "diverging" in stats else 0,
        e_bfmi=_e_bfmi(stats["energy"].values) if "energy" in stats else np.nan,
        saturated=_saturated(tree.attrs, stats),
        worst_ess=worst_ess,
        worst_ess_mean=worst_mean,
        worst_r_hat=worst_r_hat,
        gradients_sampling=sampling,
        gradients_total=total,
        chains=sizes.get("chain", 0),
        draws=sizes.get("draw", 0),
    )


def _worst(values: np.ndarray, labels: list[str]) -> tuple[float, str]:
    """The smallest value and whose it is; a NaN is worse than any number."""
    if not values.size:
        return np.nan, ""
    index = int(np.argmin(values))  # numpy takes the first NaN for the minimum
    return float(values[index]), labels[index]


def _ratio(value: float, count: int) -> float:
    return value / count if count else np.nan


def _e_bfmi(energy: np.ndarray) -> float:
    """The smallest over chains and, in interleaved runs, parameterizations."""
    from arviz_stats.base import array_stats

    if energy.shape[1] < 4:
        return np.nan
    with np.errstate(all="ignore"):
        series = np.moveaxis(energy.reshape(*energy.shape[:2], -1), 2, 0)
        values = array_stats.bfmi(series).ravel()
    values = values[np.isfinite(values)]
    return float(values.min()) if values.size else np.nan


def _saturated(attrs, stats) -> float:
    if "tree_depth" not in stats or "max_tree_depth" not in attrs or not stats["tree_depth"].size:
        return 0.0
    return float((stats["tree_depth"].values >= attrs["max_tree_depth"]).mean())


def _in_a_line(found: Efficiency) -> str:
    return (
        f"{found.chains} chains of {found.draws} draws, {found.divergences} divergences. "
        f"Smallest ESS {found.ess:.0f}; per 1000 gradients {found.ess_per_1000_sampling:.3g} "
        f"sampling, {found.ess_per_1000_total:.3g} in total."
    )


def _group(tree: xarray.DataTree, name: str) -> xarray.Dataset:
    if name not in tree:
        raise AutoreparamError(f"the tree has no group '{name}'; its groups: {known(tree)}")
    return tree[name].dataset
