"""How well a run went: ESS, ESS per gradient, R-hat, divergences; and a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autoreparam.errors import AutoreparamError, known
from autoreparam.keywords import helpful
from autoreparam.results.labels import as_names
from autoreparam.results.lam import check_tree, lam_columns
from autoreparam.results.predicted import predicted_group, predicted_summary
from autoreparam.results.scalars import COLUMNS, Measured, measure, slowest, smallest, squares
from autoreparam.results.summary import Summary
from autoreparam.results.superchains import count_superchains, superchains
from autoreparam.results.tree import texts

if TYPE_CHECKING:
    import xarray

MOST_MEASURED, LEAST_MEASURED = 300, 50  # scalars to measure for the warnings at the end of a run
OTHERS_SHARE = 3  # one other quantity is measured for so many latents
DRAWS_MEASURED = 1_200_000  # over all of them together, since the time grows with the draws


@dataclass(frozen=True)
class Efficiency:
    """What a run delivered and what it cost; NaN where it is too short to tell."""

    ess: float  # the smaller of bulk and tail ESS, minimum over scalar latents that vary
    ess_mean: float  # the same for ESS of the means
    ess_per_1000_sampling: float  # per 1000 gradients of the sampling phase alone
    ess_per_1000_total: float  # per 1000 gradients, everything included
    ess_mean_per_1000_sampling: float
    ess_mean_per_1000_total: float
    r_hat: float  # the largest; of superchains, where chains are many
    divergences: int
    e_bfmi: float  # the smallest
    saturated: float  # share of transitions whose tree reached the maximum depth
    worst_ess: str  # names of the scalars that these minima and maxima belong to
    worst_ess_mean: str
    worst_r_hat: str
    ess_other: float  # of the log density, of deterministics and of squares
    r_hat_other: float
    worst_ess_other: str
    worst_r_hat_other: str
    gradients_sampling: int
    gradients_total: int
    chains: int
    draws: int
    superchains: (
        int  # groups of chains that R-hat compares: as many as chains, unless these are many
    )

    @property
    def nested(self) -> bool:
        """Whether R-hat is nested R-hat."""
        return self.superchains < self.chains

    @property
    def r_hat_name(self) -> str:
        """What to call it in a sentence."""
        return "nested R-hat" if self.nested else "R-hat"

    def to_dict(self) -> dict[str, Any]:
        """The measures by name."""
        return asdict(self)


@helpful
def efficiency(tree: xarray.DataTree, most: int | None = None) -> Efficiency:
    """ESS per gradient and other measures of a run, over its latent variables.

    Each scalar takes milliseconds. With `most`, only that many are measured: those that look
    worst in a quick scan of all.

    Args:
        tree: A run, as `ar.sample` returns it.
        most: How many scalars to measure; None measures all.
    """
    if most is not None and not (isinstance(most, int) and most > 0):
        raise AutoreparamError(f"most: expected a number of scalars, or None; found {most!r}")
    posterior = _group(tree, "posterior")
    latents = texts(tree.attrs.get("latents", list(posterior.data_vars)))
    variables = [posterior[name] for name in latents if name in posterior]
    others = _others(tree, variables)
    if most is None or not variables:
        return efficiency_of(tree, list(map(measure, variables)), list(map(measure, others)))
    return efficiency_of(
        tree,
        list(map(measure, variables, slowest(variables, most))),
        list(map(measure, others, slowest(others, most // OTHERS_SHARE))) if others else [],
    )


def _others(tree: xarray.DataTree, latents: list[xarray.DataArray]) -> list[xarray.DataArray]:
    """What else a run should know well: the log density, deterministics, squares of latents."""
    posterior, names = _group(tree, "posterior"), {latent.name for latent in latents}
    found = [variable for name, variable in posterior.data_vars.items() if name not in names]
    if "sample_stats" in tree and "lp" in tree["sample_stats"]:
        found.append(tree["sample_stats"]["lp"].rename("the log density"))
    return found + squares(latents)


@helpful
def summary(tree: xarray.DataTree, var_names: Iterable[str] | None = None) -> Summary:
    """A table with one row per scalar: its posterior, how well it was estimated, and λ.

    Of a tree of predictions it shows what was predicted.

    >>> table = summary(tree)
    >>> table.to_dataframe().loc["theta[0]", "ess_bulk"]

    Args:
        tree: A run, or predictions.
        var_names: Variables to show; None shows all.
    """
    if predicted := predicted_group(tree):
        return predicted_summary(predicted, _asked(predicted, var_names))
    posterior = _group(tree, "posterior")
    names = _asked(posterior, var_names)
    measured = {name: measure(posterior[name]) for name in names}
    parts = [m.columns() for m in measured.values()]
    columns = {key: np.concatenate([np.empty(0), *(p[key] for p in parts)]) for key in COLUMNS}
    columns |= lam_columns(tree, {name: len(m.labels) for name, m in measured.items()})
    latents = texts(tree.attrs.get("latents", names))
    own = [measured[name] for name in latents if name in measured]
    found = efficiency_of(tree, own)
    footer = _in_a_line(found, kept_every(tree)) if len(own) == len(latents) else ""
    if found.nested:
        named = f"r_hat is nested R-hat, of {found.superchains} superchains."
        footer = f"{footer} {named}".strip()
    return Summary(tuple(label for m in measured.values() for label in m.labels), columns, footer)


def _asked(group: Any, var_names: Iterable[str] | None) -> list[str]:
    """The variables to show."""
    names = [str(name) for name in group.data_vars]
    if var_names is None:
        return names
    asked = as_names(var_names)
    for name in asked:
        if name not in names:
            raise AutoreparamError(f"var_names: no variable '{name}'; there are {known(names)}")
    return asked


def affordable(tree: xarray.DataTree) -> int:
    """The number of scalars that can be measured in a few seconds."""
    sizes = _group(tree, "posterior").sizes
    return affordable_with(sizes.get("chain", 0) * sizes.get("draw", 0))


def affordable_with(draws: int) -> int:
    """The same, by how many draws all chains have."""
    return max(LEAST_MEASURED, min(MOST_MEASURED, DRAWS_MEASURED // max(draws, 1)))


def efficiency_of(
    tree: xarray.DataTree, measured: list[Measured], others: list[Measured] | None = None
) -> Efficiency:
    """The measures of a run from those of its scalars, and of others that it should know."""
    ess, worst_ess = smallest(measured, lambda m: np.minimum(m.bulk, m.tail))
    mean, worst_mean = smallest(measured, lambda m: m.means)
    negative, worst_r_hat = smallest(measured, lambda m: -m.r_hat)
    ess_other, worst_ess_other = smallest(others or [], lambda m: m.bulk)
    negative_other, worst_r_hat_other = smallest(others or [], lambda m: -m.r_hat)
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
        divergences=_counted(tree.attrs, stats),
        e_bfmi=float(tree.attrs["e_bfmi"]) if "e_bfmi" in tree.attrs else _e_bfmi_of(stats),
        saturated=_saturated(tree.attrs, stats),
        worst_ess=worst_ess,
        worst_ess_mean=worst_mean,
        worst_r_hat=worst_r_hat,
        ess_other=ess_other,
        r_hat_other=-negative_other,
        worst_ess_other=worst_ess_other,
        worst_r_hat_other=worst_r_hat_other,
        gradients_sampling=sampling,
        gradients_total=total,
        chains=sizes.get("chain", 0),
        draws=sizes.get("draw", 0),
        superchains=count_superchains(sizes.get("chain", 0)),
    )


def _ratio(value: float, count: int) -> float:
    return value / count if count else np.nan


def _counted(attrs: Mapping[Any, Any], stats: Any) -> int:
    """Divergences of all transitions, also those that thinning dropped."""
    kept = int(np.asarray(stats["diverging"]).sum()) if "diverging" in stats else 0
    return int(attrs.get("divergences", kept))


def _e_bfmi_of(stats: Any) -> float:
    return e_bfmi(stats["energy"].values) if "energy" in stats else np.nan


def e_bfmi(energy: np.ndarray) -> float:
    """The smallest over chains, or superchains, and over the slots of interleaved runs."""
    chains, draws = energy.shape[:2]
    if draws < 4:
        return np.nan
    with np.errstate(all="ignore"):
        series = np.moveaxis(energy.reshape(chains, draws, -1), 2, 0)
        # Of many chains, a short one does not show how far energies range.
        parts = np.split(series, 1 + np.flatnonzero(np.diff(superchains(chains))), axis=1)
        moves = [np.square(np.diff(part)).mean(axis=(1, 2)) for part in parts]
        values = np.ravel([a / part.var(axis=(1, 2), ddof=1) for a, part in zip(moves, parts)])
    values = values[np.isfinite(values)]
    return float(values.min()) if values.size else np.nan


def _saturated(attrs, stats) -> float:
    if "tree_depth" not in stats or "max_tree_depth" not in attrs or not stats["tree_depth"].size:
        return 0.0
    return float((stats["tree_depth"].values >= attrs["max_tree_depth"]).mean())


def kept_every(tree: xarray.DataTree) -> int:
    """Of how many draws in a row one was kept."""
    return int(tree.attrs.get("kept_every", 1))


def _in_a_line(found: Efficiency, every: int) -> str:
    if not found.draws:
        return "No draws: the run ended during warm-up. The λ is what it had learned by then."
    kept = f", one in {every} of those drawn" if every > 1 else ""
    return (
        f"{found.chains} chains of {found.draws} draws{kept}, {found.divergences} divergences. "
        f"Smallest ESS {found.ess:.0f}; per 1000 gradients {found.ess_per_1000_sampling:.3g} "
        f"sampling, {found.ess_per_1000_total:.3g} in total."
    )


def _group(tree: xarray.DataTree, name: str) -> xarray.Dataset:
    check_tree(tree)
    if name not in tree:
        raise AutoreparamError(f"the tree has no group '{name}'; its groups: {known(tree)}")
    return tree[name].dataset
