"""Four chains on a CPU: threads over groups of chains against XLA's host devices, in one run.

    python -m benchmarks.chains_on_cpu [--out FILE]

Each variant runs in its own process: four chains over threads or devices, NUTS, non-centered, 200
draws by the compiled chunk after compiling. `width` is the number of chains per call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

CODE = """
import json, sys, time, jax, numpy as np
from functools import partial
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import autoreparam as ar
from autoreparam.mcmc import chains as module
from autoreparam.mcmc.chains import Chains, run_chunk
from autoreparam.mcmc.hmc import Kernel, tuning_like
from autoreparam.mcmc.interleaved import stack_slots
from autoreparam.mcmc.step_size import begin
from autoreparam.program.target import Target

name, way, step = sys.argv[1], sys.argv[2], float(sys.argv[3])
problem = ar.zoo.load(name)
target = Target(ar.inspect(problem.model, problem.args, problem.kwargs))
lam = ar.Parameterization.noncentered(target.program)
kernel, keys = Kernel("nuts", 7), jax.random.split(jax.random.key(0), 4)
slots = stack_slots([lam], [tuning_like(target, step_size=step)])
positions = np.zeros((4, target.size), target.program.dtype)
states = jax.device_get(jax.vmap(lambda p: kernel.init(target, p, lam))(positions))
adaptation = begin(np.full((4, 2), step, target.program.dtype), False, 0.8)
chains = Chains(kernel, target, keys)
if way == "devices":
    mesh = Mesh(np.array(jax.devices()), ("chain",))
    spread = NamedSharding(mesh, PartitionSpec("chain"))
    keys, states, adaptation = jax.device_put((keys, states, adaptation), spread)
    def run(start, states):
        return jax.block_until_ready(
            run_chunk(kernel, 25, target, keys, start, 25, states, slots, adaptation))[0]
else:
    width = int(way)
    Chains.groups = property(lambda _: [slice(i, i + width) for i in range(0, 4, width)])
    def run(start, states):
        return chains.run(start, 25, states, slots, adaptation)[0]
states = run(0, states)
began = time.perf_counter()
for i in range(1, 9):
    states = run(25 * i, states)
print(json.dumps(time.perf_counter() - began))
"""
CASES = {"eight_schools": 0.3, "german_credit": 0.06}
WAYS = {"threads, 1 chain per call": "1", "threads, 2 chains per call": "2",
        "one call of 4 chains": "4", "host devices": "devices"}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="write the figures as JSON to this file")
    options = parser.parse_args()
    rows = []
    for model, step in CASES.items():
        for label, way in WAYS.items():
            environment = dict(os.environ)
            if way == "devices":
                count = min(4, os.cpu_count() or 1)
                environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
            command = [sys.executable, "-W", "ignore", "-c", CODE, model, way, str(step)]
            found = subprocess.run(command, check=True, env=environment, capture_output=True)
            seconds = json.loads(found.stdout.splitlines()[-1])
            rows.append({"model": model, "way": label, "seconds": seconds})
            print(f"{model:15s} {label:26s} {seconds:.2f} s", flush=True)
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
