"""Tracing time and gradient cost of the target, as ratios to NumPyro's own, in one run.

    python -m benchmarks.target_cost [--out FILE]

`inspect` is compared with NumPyro's `initialize_model`; one compiled value-and-gradient of the
target, at centered λ, with one of NumPyro's own potential for the same centered model.
"""

from __future__ import annotations

import argparse
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer.util import initialize_model

import autoreparam as ar
from autoreparam.program.target import Target


def many_sites(y=None, sites=50, size=40):
    """2,000 latent elements in 50 sites, each with its own location and scale."""
    for i in range(sites):
        mu = numpyro.sample(f"mu_{i}", dist.Normal(0.0, 1.0))
        log_tau = numpyro.sample(f"log_tau_{i}", dist.Normal(0.0, 1.0))
        with numpyro.plate(f"group_{i}", size):
            theta = numpyro.sample(f"theta_{i}", dist.Normal(mu, jnp.exp(log_tau)))
            numpyro.sample(f"y_{i}", dist.Normal(theta, 1.0), obs=y[i])


def one_site(y=None):
    """One site with as many elements as there are data."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    log_tau = numpyro.sample("log_tau", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", y.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, jnp.exp(log_tau)))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def seconds(call, repeats: int) -> float:
    """The shortest of several timings of one call."""
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        best = min(best, time.perf_counter() - start)
    return best


def measure(name: str, model, y: np.ndarray) -> dict:
    key, kwargs = jax.random.key(0), {"y": y}
    theirs = seconds(lambda: initialize_model(key, model, model_kwargs=kwargs).param_info.z, 2)
    ours = seconds(lambda: ar.inspect(model, (), kwargs).data, 2)

    info = initialize_model(key, model, model_kwargs=kwargs)
    target = Target(ar.inspect(model, (), kwargs))
    lam = jax.device_put(ar.Parameterization.centered(target.program))
    position = target.flatten(info.param_info.z)
    traces = []

    def count(position, target, lam):
        traces.append(1)
        return target.logdensity(position, lam)

    potential = jax.jit(jax.value_and_grad(info.potential_fn))
    density = jax.jit(jax.value_and_grad(count))
    z, target = info.param_info.z, jax.device_put(target)
    np.testing.assert_allclose(-potential(z)[0], density(position, target, lam)[0], rtol=1e-4)

    # Alternating, so that a noisy machine slows both equally.
    repeats, rounds = (5, 20) if y.size > 10_000 else (100, 20)
    pairs = [
        (
            seconds(lambda: potential(z), repeats),
            seconds(lambda: density(position, target, lam), repeats),
        )
        for _ in range(rounds)
    ]
    numpyro_gradient, gradient = np.median(pairs, axis=0)
    before = len(traces)
    density(position, Target(ar.inspect(model, (), {"y": y + 1})), lam)
    return {
        "model": name,
        "dtype": str(position.dtype),
        "trace_seconds": ours,
        "trace_ratio": ours / theirs,
        "gradient_microseconds": gradient * 1e6,
        "gradient_ratio": gradient / numpyro_gradient,
        "traces_for_new_data": len(traces) - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="write the figures as JSON to this file")
    options = parser.parse_args()
    rows = []
    for x64 in (True, False):
        with jax.enable_x64(x64):
            kind = np.float64 if x64 else np.float32
            draw = np.random.default_rng(0)
            rows.append(
                measure("50 sites, 2,000", many_sites, draw.normal(size=(50, 40)).astype(kind))
            )
            rows.append(
                measure("1 site, 1,000,000", one_site, draw.normal(size=1_000_000).astype(kind))
            )
    for row in rows:
        print("  ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}"
                        for k, v in row.items()))  # fmt: skip
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
