"""Many short-lived processes that can be killed: forked from one that has the libraries loaded.

JAX's threads do not survive a fork, and importing BlackJAX, hence autoreparam, starts them. So this
process imports what the library needs except these two; each child imports the rest, in half a
second instead of four.
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

KINDS = {
    "hmc": {"kernel": "hmc", "num_steps": 3},
    "nuts": {"kernel": "nuts", "max_tree_depth": 4},
    "interleaved": {"parameterization": "interleaved", "kernel": "hmc", "num_steps": 3},
    "vip": {"parameterization": "vip", "kernel": "hmc", "num_steps": 3},
}
COMMON = {"draws": 200, "warmup": 150, "chains": 2, "seed": 5, "precision": "single",
          "progress": False}  # fmt: skip


class Zygote:
    """The process that forks; a child does a `job`, a dict, and leaves its result in a file."""

    def __init__(self, folder):
        from conftest import QUICKLY

        cache = Path(folder) / "compiled"
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": " ".join(QUICKLY),
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_ENABLE_COMPILATION_CACHE": "true",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment, cwd=folder,
        )  # fmt: skip

    def begin(self, **job):
        """The process id of a child that has begun the job."""
        return self._ask({**job, "do": job.get("do", "run")})

    def wait(self, child):
        """The exit status of a child, once it has ended; negative for the signal that ended it."""
        return self._ask({"do": "wait", "child": child})

    def ended(self, child):
        """Whether a child has ended."""
        return self._ask({"do": "ended", "child": child})

    def _ask(self, job):
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        """Ends the process."""
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


def serve():
    """Forks a child for each line of the standard input."""
    import arviz_base
    import arviz_stats.base
    import jax.scipy.linalg
    import numpyro.infer
    import optax
    import rich.progress
    import scipy.stats
    import xarray
    import zarr.storage

    del arviz_base, arviz_stats, jax, numpyro, optax, rich, scipy, xarray, zarr
    statuses = {}
    for line in sys.stdin:
        job = json.loads(line)
        if job["do"] in ("wait", "ended"):
            child, block = job["child"], job["do"] == "wait"
            if child not in statuses:
                found, status = os.waitpid(child, 0 if block else os.WNOHANG)
                if found:
                    statuses[child] = os.waitstatus_to_exitcode(status)
            answer = statuses.get(child) if block else child in statuses
        else:
            answer = os.fork()
            if answer == 0:
                work(job)
        print(json.dumps(answer), flush=True)


def work(job):
    """Does a job in the child, which then ends."""
    out, status = Path(job["out"]), 0
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the answers go through the standard output
    try:
        if job.get("only_read"):  # a killed process could leave half a compiled program
            import jax

            jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
        run(job, out)
    except KeyboardInterrupt as stopped:
        status = 130
        out.with_suffix(".txt").write_text(str(stopped))
    except Exception as error:
        from autoreparam.errors import AutoreparamError

        status = 1 if isinstance(error, AutoreparamError) else 2
        said = str(error) if status == 1 else traceback.format_exc()
        out.with_suffix(".txt").write_text(said)
    os._exit(status)


def run(job, out):
    """Samples into a folder, or continues what is there."""
    import warnings

    import numpy as np
    import numpyro
    import numpyro.distributions as dist

    import autoreparam as ar
    from autoreparam.results.storage import Store

    warnings.simplefilter("ignore")
    scale = job.get("scale", 2.0)

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, scale))
        with numpyro.plate("group", 4):
            theta = numpyro.sample("theta", dist.Normal(mu, 1.5))
            numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)

    args, path = (np.array([0.3, -1.0, 2.2, 0.7]),), job.get("path")
    if "suicide" in job:
        die_in_storage(path, job["suicide"])
    if "announce" in job:
        after_the_last_draw(Path(job["announce"]).touch)
    if job.get("dies_at_the_end"):
        after_the_last_draw(lambda: os.kill(os.getpid(), signal.SIGKILL))
    asked = {**COMMON, **KINDS[job["kind"]]}
    if path and (Path(path) / "manifest.json").exists() and Store.open(path).chunks:
        tree = ar.resume(path, model, args, draws=job.get("draws"), progress=False)
    else:
        tree = ar.sample(model, args, checkpoint=path, **asked)
    arrays = {"gradients": [tree.attrs[f"gradients_{p}"] for p in ("warmup", "sampling")]}
    for group in ("posterior", "sample_stats"):
        arrays |= {f"{group}/{name}": array.values for name, array in tree[group].items()}
    beside = out.with_suffix(".new.npz")
    np.savez(beside, **arrays)
    os.replace(beside, out)


def after_the_last_draw(do):
    """Does something once the last draw is made, before there is a tree."""
    from autoreparam import sampling

    build = sampling.build_tree

    def built(*given):
        do()
        return build(*given)

    sampling.build_tree = built


def die_in_storage(folder, events):
    """Kills this process when it is about to touch the folder for the n-th time.

    The interpreter tells of every file that is opened, renamed or removed; what it does not tell of
    is when files are made durable.
    """
    left, sync = events, os.fsync

    def count():
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    def watch(event, arguments):
        if event in ("open", "os.rename", "os.remove", "os.mkdir") and folder in str(arguments[0]):
            count()

    def counted(file):
        count()
        sync(file)
        count()

    os.fsync = counted
    sys.addaudithook(watch)


if __name__ == "__main__":
    serve()
