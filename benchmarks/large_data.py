"""A logistic regression with millions of rows, spread over the devices there are.

    python -m benchmarks.large_data [--rows 10_000_000] [--precision double] [--host-devices N ...]
        [--out FILE]

Four chains of HMC, warm-up included. With `--host-devices`, a CPU stands for 1, 2, ... devices in a
fresh process each, and `--rows` are the rows of every device: from one line to the next the work
per device stays the same (weak scaling). Without, it runs on the devices that JAX finds. Results
are written as they are found.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "results" / "large_data.json"
COLUMNS, WARMUP, DRAWS = 10, 60, 60


def measure(rows: int, precision: str) -> dict[str, Any]:
    """One run on the devices of this process."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import numpyro
    import numpyro.distributions as dist

    import autoreparam as ar

    def model(x, y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        slopes = numpyro.sample("slopes", dist.Normal(0.0, scale).expand([COLUMNS]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ slopes), obs=y)

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, COLUMNS)).astype(np.float32)
    truth = rng.normal(size=COLUMNS).astype(np.float32)
    y = (rng.uniform(size=rows) < 1 / (1 + np.exp(-x @ truth))).astype(np.float32)
    keywords = {"shard": ("x", "y"), "kernel": "hmc", "precision": precision, "progress": False}
    ar.sample(model, (x, y), warmup=20, draws=1, **keywords)  # compiles
    began = time.perf_counter()
    tree = ar.sample(model, (x, y), warmup=WARMUP, draws=DRAWS, **keywords)
    seconds = time.perf_counter() - began
    found, devices = ar.efficiency(tree), jax.local_devices()
    number = 8 if precision == "double" else 4  # bytes
    peaks = [(one.memory_stats() or {}).get("peak_bytes_in_use") for one in devices]
    error = jnp.abs(tree.posterior["slopes"].values.mean((0, 1)) - truth).max()
    return {
        "device": devices[0].device_kind,
        "devices": len(devices),
        "precision": precision,
        "rows, millions": rows / 1e6,
        "seconds": seconds,
        "gradients": found.gradients_total,
        "rows per second, millions": rows * found.gradients_total / seconds / 1e6,
        "data per device, MB": number * rows * (COLUMNS + 1) / len(devices) / 1e6,
        "peak per device, MB": max(peaks) / 1e6 if all(peaks) else None,
        "nested R-hat" if found.nested else "R-hat": found.r_hat,
        "largest error of a slope": float(error),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    # The log density of millions of rows is so large that single precision rounds it.
    parser.add_argument("--precision", choices=["single", "double"], default="double")
    parser.add_argument("--host-devices", type=int, nargs="+", default=[])
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    kept = json.loads(options.out.read_text()) if options.out.exists() else []
    for count in options.host_devices or [0]:
        if count:
            flags = f"--xla_force_host_platform_device_count={count}"
            environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
            call = f"measure({options.rows * count}, '{options.precision}')"
            command = f"import json; from {__spec__.name} import *; print(json.dumps({call}))"
            done = subprocess.run([sys.executable, "-c", command], env=environment, check=True,
                                  stdout=subprocess.PIPE, text=True)  # fmt: skip
            row = json.loads(done.stdout.splitlines()[-1])
        else:
            row = measure(options.rows, options.precision)
        kept = [old for old in kept if _named(old) != _named(row)] + [row]
        print(row, flush=True)
        options.out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _named(row: dict[str, Any]) -> tuple:
    return row["device"], row["devices"], row["precision"], row["rows, millions"]


if __name__ == "__main__":
    main()
