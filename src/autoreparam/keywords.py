"""Unknown keywords: the error names the one that was meant, also in the words of other tools."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

from autoreparam.errors import KeywordError, known

P = ParamSpec("P")
R = TypeVar("R")

# What NumPyro, PyMC, Stan, BlackJAX and nutpie call it, by what it is called here.
ELSEWHERE = {
    "draws": "num_samples n_samples samples num_draws n_draws iter_sampling iter num_results",
    "warmup": "num_warmup n_warmup tune num_tune iter_warmup burn burn_in burnin n_burn num_burnin",
    "chains": "num_chains n_chains nchains parallel_chains cores n_jobs",
    "seed": "rng_key random_seed key random_state rng rng_seed prng_key",
    "target_accept": "target_accept_prob adapt_delta target_acceptance_rate delta accept_rate",
    "max_tree_depth": "max_treedepth maxdepth max_depth treedepth",
    "num_steps": "num_leapfrog_steps n_leapfrog trajectory_length path_length n_steps",
    "init": "initvals inits init_params init_values initial_params init_to_value initial_positions",
    "thin": "thinning thin_by",
    "progress": "progress_bar progressbar show_progress verbose",
    "save_warmup": "discard_tuned_samples collect_warmup keep_warmup",
    "kernel": "step sampler algorithm nuts_sampler engine method",
    "var_names": "vars variables parameters include sites",
    "checkpoint": "store output_dir save_to folder backend trace",
    "precision": "x64 dtype enable_x64 double",
    "posterior_predictive": "predictive",
    "args": "data model_args arguments",
    "kwargs": "model_kwargs",
    "objective": "loss",
    "steps": "num_steps n_iter iterations",
    "path": "out file filename output",
    "tree": "trace idata inferencedata",
}
# What there is no keyword for, and why.
NEEDLESS = {
    "chain_method": "chains run in parallel without being asked to",
    "dense_mass": "the metric is chosen during warm-up",
    "adapt_mass_matrix": "the metric is always adapted during warm-up",
    "adapt_step_size": "the step size is always adapted during warm-up",
    "step_size": "it is found during warm-up",
    "return_inferencedata": "the result is always a DataTree in the ArviZ schema",
    "jit_model_args": "everything is compiled",
}


def helpful(call: Callable[P, R]) -> Callable[P, R]:
    """The function, but an unknown keyword raises an error that names the near one."""
    accepted = inspect.signature(call).parameters
    names = [p.name for p in accepted.values() if p.kind is not p.VAR_KEYWORD]

    @wraps(call)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if len(names) == len(accepted):  # otherwise it takes others, and checks them itself
            refuse_unknown(call.__name__, kwargs, names)
        return call(*args, **kwargs)

    return checked


def refuse_unknown(function: str, given: Iterable[str], names: Iterable[str]) -> None:
    """Raises if a keyword is unknown, naming the one that was probably meant."""
    names = list(names)
    for keyword in given:
        if keyword in names:
            continue
        meant = [name for name in names if keyword in ELSEWHERE.get(name, "").split()]
        meant = meant or get_close_matches(keyword, names, n=1, cutoff=0.7)
        if meant:
            advice = f"Did you mean '{meant[0]}'?"
        elif keyword in NEEDLESS:
            advice = f"There is no need for it: {NEEDLESS[keyword]}."
        else:
            advice = f"Its keywords are {known(names)}."
        raise KeywordError(f"{function} has no keyword '{keyword}'. {advice}")
