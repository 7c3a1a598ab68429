"""Memory and time of runs that are large in one way each: `python -m benchmarks.memory [case ...]`.

Each case has a process of its own; `benchmarks/results/memory.json` gets its peak resident memory,
and for many runs in one process by how much it grew after the first hundred.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "memory.json"
MEGABYTE = 2**20
RUNS, SETTLED = 1000, 100


def resident() -> float:
    """Megabytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MEGABYTE


def groups(count: int, sites: int = 1):
    """A model with groups, as one site or as many."""
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        for i in range(sites):
            with numpyro.plate(f"group_{i}", count):
                theta = numpyro.sample(f"theta_{i}", dist.Normal(mu, tau))
                numpyro.sample(f"y_{i}", dist.Normal(theta, 1.0), obs=y[i])

    return model


def data(count: int, sites: int = 1, seed: int = 0):
    """Observations of such groups."""
    import numpy as np

    return (np.random.default_rng(seed).normal(size=(sites, count)),)


def many_runs() -> dict[str, float]:
    """A thousand runs in one process, each with data of its own."""
    import autoreparam as ar

    model, before = groups(8), 0.0
    for run in range(RUNS):
        ar.sample(model, data(8, seed=run), draws=25, warmup=50, chains=1, progress=False,
                  seed=run)  # fmt: skip
        if run == SETTLED:
            before = resident()
    return {"runs": RUNS, "grown": resident() - before}


def many_sites() -> dict[str, float]:
    """Three hundred sites."""
    import autoreparam as ar

    ar.sample(groups(2, 300), data(2, 300), draws=200, warmup=300, progress=False)
    return {"sites": 300}


def many_latents() -> dict[str, float]:
    """A hundred thousand latents."""
    import autoreparam as ar

    ar.sample(groups(100_000), data(100_000), draws=100, warmup=200, progress=False)
    return {"latents": 100_002, "draws": 100, "chains": 4}


def million_latents() -> dict[str, float]:
    """A million latents, a thousand draws of which are stored as they are made."""
    import autoreparam as ar

    (y,) = data(1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        tree = ar.sample(groups(1_000_000), (2 * y,), draws=500, warmup=200, chains=2, kernel="hmc",
                         checkpoint=path, var_names=["mu", "tau"], progress=False)  # fmt: skip
        size = sum(file.stat().st_size for file in path.iterdir())
    return {
        "latents": 1_000_002,
        "draws": 500,
        "chains": 2,
        "checkpoint": size / MEGABYTE,
        "mu": float(tree["posterior"]["mu"].mean()),
    }


def many_chains() -> dict[str, float]:
    """A thousand chains."""
    import autoreparam as ar

    ar.sample(groups(8), data(8), draws=200, warmup=300, chains=1000, progress=False)
    return {"chains": 1000, "draws": 200}


def many_draws() -> dict[str, float]:
    """Twenty thousand draws with a checkpoint, then the same read back from it."""
    import autoreparam as ar

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        ar.sample(groups(8), data(8), draws=20_000, checkpoint=path, progress=False)
        ar.resume(path, groups(8), data(8), progress=False)
        size = sum(file.stat().st_size for file in path.iterdir())
    return {"draws": 20_000, "chains": 4, "checkpoint": size / MEGABYTE}


CALLS = many_runs, many_sites, many_latents, million_latents, many_chains, many_draws
CASES = {call.__name__: call for call in CALLS}


def measure(case: str) -> dict[str, float]:
    """What a case took, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", "--here", case]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def here(case: str) -> None:
    """Runs a case in this process and prints what it took."""
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    found = CASES[case]()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = time.perf_counter() - began
    print(json.dumps({**found, "peak": peak, "seconds": seconds}))


def main(arguments: list[str]) -> None:
    """Measures the cases named, or all, and writes them down."""
    if arguments[:1] == ["--here"]:
        here(arguments[1])
        return
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for case in arguments or CASES:
        found[case] = {key: round(value, 1) for key, value in measure(case).items()}
        print(case, found[case], flush=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
