"""One run of one model by one method, as a row of data; a failure is a row too."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpyro.infer import MCMC, NUTS

import autoreparam as ar
from benchmarks.gauntlet.exact import exact_moments
from benchmarks.gauntlet.generator import describe, draw_spec
from benchmarks.gauntlet.known import load_known
from benchmarks.gauntlet.measure import measure_draws
from benchmarks.gauntlet.models import build_model
from benchmarks.gauntlet.simulate import draw_data
from benchmarks.gauntlet.tasks import ENGINE, NUMPYRO, Task, model_seed

CHAINS, WARMUP, DRAWS = 4, 500, 1000
PILOT = (500, 500)  # of a reference, in both ends
LONG = (2000, 10_000)  # of a reference, in the better one
REFERENCE_ACCEPT = 0.95


@dataclass(frozen=True)
class Run:
    """Draws of the latents, their log density, and what they cost."""

    draws: dict[str, np.ndarray]
    log_density: np.ndarray
    gradients: dict[str, int]  # by purpose
    notes: dict[str, Any]


def load(name: str) -> tuple[Callable, dict[str, Any], str]:
    """A model of the gauntlet, its arguments, and a line about it."""
    seed = model_seed(name)
    if seed is None:
        return *load_known(name), name
    spec = draw_spec(seed)
    return build_model(spec), draw_data(spec)[0], describe(spec)


def perform(task: Task) -> dict[str, Any]:
    """The row of a task: what the run gave, or the message that it failed with."""
    began, used = time.perf_counter(), time.process_time()
    row: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            row |= _measured(task, began)
        except Exception as error:  # whatever it is, it is what a user would have met
            row |= {"failure": f"{type(error).__name__}: {error}"[:1000]}
            row["seconds"] = round(time.perf_counter() - began, 2)
    # On a machine that others use too, the processor's time says more than the clock.
    row["cpu_seconds"] = round(time.process_time() - used, 2)
    said = [one for one in caught if issubclass(one.category, UserWarning)]
    row["warnings"] = list(dict.fromkeys(str(one.message) for one in said))
    row["other_warnings"] = len(caught) - len(said)
    return row


def _measured(task: Task, began: float) -> dict[str, Any]:
    model, data, line = load(task.model)
    if task.method == "reference":
        known = exact_moments(task.model)
        if known is not None:
            return {"about": line, "exact": known, "seconds": round(time.perf_counter() - began, 2)}
        run = _reference(model, data, task.seed)
    elif task.method in ENGINE:
        run = _engine(model, data, task.method, task.seed)
    else:
        run = _numpyro(model, data, task.method, task.seed)
    seconds = time.perf_counter() - began
    found = measure_draws(run.draws, run.log_density)
    total = sum(run.gradients.values())
    return {
        "about": line,
        "seconds": round(seconds, 2),
        "total": 1000 * found["ess"] / total,
        "gradients": run.gradients,
        **run.notes,
        **found,
    }


def _engine(model: Callable, data: dict, method: str, seed: int) -> Run:
    tree = ar.sample(model, (), data, parameterization=method, seed=seed, chains=CHAINS,
                     warmup=WARMUP, draws=DRAWS, progress=False)  # fmt: skip
    latents = list(np.atleast_1d(tree.attrs["latents"]))
    draws = {name: tree["posterior"][name].values for name in latents}
    stats, lam = tree["sample_stats"], ar.parameterization(tree)
    lams = [np.ravel(lam[name]) for name in lam.sites]
    purposes = ("learning", "warmup", "sampling")
    return Run(
        draws,
        stats["lp"].values,
        {one: int(tree.attrs.get(f"gradients_{one}", 0)) for one in purposes},
        {
            "divergences": int(stats["diverging"].values.sum()),
            "step_size": float(np.mean(stats["step_size"].values)),
            "acceptance": float(np.nanmean(stats["acceptance_rate"].values)),
            "integrator": str(tree.attrs.get("integrator", "")),
            "kernel": str(tree.attrs.get("kernel", "")),
            "lam": float(np.concatenate(lams).mean()) if lams else None,
        },
    )


def _numpyro(
    model: Callable, data: dict, method: str, seed: int, accept: float = 0.8,
    warmup: int = WARMUP, count: int = DRAWS,
) -> Run:  # fmt: skip
    """NumPyro's NUTS on the model as written, or moved to the non-centered end."""
    program = ar.inspect(model, (), data)
    written = model
    if method == "numpyro_noncentered" and program.candidates:
        model = ar.reparameterize(model, ar.Parameterization.noncentered(program))
    mcmc = MCMC(NUTS(model, target_accept_prob=accept), num_warmup=warmup, num_samples=count,
                num_chains=CHAINS, chain_method="sequential", progress_bar=False)  # fmt: skip
    wanted = ("num_steps", "diverging", "adapt_state.step_size", "accept_prob")
    mcmc.warmup(jax.random.PRNGKey(seed), **data, extra_fields=wanted, collect_warmup=True)
    learned = int(np.sum(mcmc.get_extra_fields()["num_steps"]))
    mcmc.run(mcmc.post_warmup_state.rng_key, **data, extra_fields=wanted)
    fields, samples = mcmc.get_extra_fields(), mcmc.get_samples(group_by_chain=True)
    draws = {site.name: np.asarray(samples[site.name]) for site in program.latents}
    density = jax.jit(lambda values: jax.lax.map(ar.log_joint(written, (), data), values))
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
    return Run(
        draws,
        np.asarray(density(flat)).reshape(CHAINS, count),
        {"learning": 0, "warmup": learned, "sampling": int(np.sum(fields["num_steps"]))},
        {
            "divergences": int(np.sum(fields["diverging"])),
            "step_size": float(np.mean(fields["adapt_state.step_size"])),
            "acceptance": float(np.mean(fields["accept_prob"])),
            "integrator": "leapfrog",
            "kernel": "nuts",
            "lam": float(method == "numpyro_centered") if program.candidates else None,
        },
    )


def _reference(model: Callable, data: dict, seed: int) -> Run:
    """A long run of NumPyro's NUTS in the end that a short run of each finds the better."""
    worth = {}
    for method in NUMPYRO:
        try:
            pilot = _numpyro(model, data, method, seed, REFERENCE_ACCEPT, *PILOT)
            found = measure_draws(pilot.draws, pilot.log_density)
            worth[method] = found["ess"] / sum(pilot.gradients.values())
        except Exception:  # one end may fail where the other does not
            worth[method] = -1.0
    better = max(worth, key=lambda method: worth[method])
    run = _numpyro(model, data, better, seed, REFERENCE_ACCEPT, *LONG)
    return Run(run.draws, run.log_density, run.gradients, {**run.notes, "end": better})
