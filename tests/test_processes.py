"""One run on several processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import autoreparam as ar
from autoreparam.errors import AutoreparamError, SamplingError
from autoreparam.run import processes
from autoreparam.run.rescue import rescuing

PROGRAM = """
import sys
import jax
number, count, address, folder, draws = *map(int, sys.argv[1:3]), *sys.argv[3:5], int(sys.argv[5])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(address, count, number)
import numpy as np
import autoreparam as ar
from autoreparam.errors import SamplingError
problem = ar.zoo.load("eight_schools")
call = problem.model, problem.args, problem.kwargs
settings = dict(chains=4, warmup=60, kernel="hmc", progress=False)
try:
    ar.sample(*call, **settings, draws=draws, checkpoint=folder + "/run.zarr")
except SamplingError as error:
    open(folder + "/told", "w").write(str(error))
    raise SystemExit(3)
tree = ar.resume(folder + "/run.zarr", *call, draws=80, progress=False)
np.save(f"{folder}/{number}.npy", tree.posterior["theta"].values)
"""


def start(count, folder, draws=40):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    return [
        subprocess.Popen(
            [*command, str(number), str(count), address, str(folder), str(draws)],
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        )
        for number in range(count)
    ]


def wait_for(happened):
    give_up = time.monotonic() + 200
    while not happened():
        assert time.monotonic() < give_up
        time.sleep(0.1)


@pytest.mark.slow
def test_two_and_four_processes_are_one_run_that_one_of_them_stores(tmp_path):
    found = []
    for count in (2, 4):
        folder = tmp_path / str(count)
        folder.mkdir()
        assert [process.wait(timeout=300) for process in start(count, folder)] == [0] * count
        leader, *others = (np.load(folder / f"{number}.npy") for number in range(count))
        assert leader.shape == (4, 80, 8)
        for other in others:
            np.testing.assert_array_equal(other, leader)
        found.append(leader)
    # Sums over two and over four processes round differently, and step sizes follow.
    two, four = found
    error = np.sqrt((two.var() + four.var()) / 80)
    assert abs(two.mean() - four.mean()) < 4.5 * error


@pytest.mark.slow
def test_a_killed_process_ends_the_run_with_a_sentence_and_resume_goes_on(tmp_path):
    first, second = start(2, tmp_path, draws=100_000)
    store = tmp_path / "run.zarr"
    wait_for(lambda: len(list(store.glob("chunk-*"))) > 4)
    second.kill()
    wait_for(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text())
    first.kill()  # JAX would do so, a minute later
    assert (first.wait(), second.wait()) == (-signal.SIGKILL, -signal.SIGKILL)
    assert "one of them has ended" in (tmp_path / "told").read_text()
    problem = ar.zoo.load("eight_schools")
    tree = ar.resume(store, problem.model, problem.args, problem.kwargs, draws=1500, progress=False)
    assert tree.posterior["theta"].shape == (4, 1500, 8)


def test_chains_that_devices_cannot_share_are_refused(monkeypatch):
    monkeypatch.setattr(
        processes, "jax", SimpleNamespace(process_count=lambda: 2, device_count=lambda: 8)
    )
    processes.check_chains(16)
    with pytest.raises(AutoreparamError, match=r"multiple of the 8 devices.*found 12"):
        processes.check_chains(12)


def test_a_process_that_is_gone_is_a_sentence(monkeypatch):
    gone = jax.errors.JaxRuntimeError("UNKNOWN: Gloo AllGather failed: Connection closed by peer\n")
    assert processes.loss(gone) is None  # alone, it is something else
    monkeypatch.setattr(processes.jax, "process_count", lambda: 2)
    assert processes.loss(ValueError("a vector: expected")) is None
    assert processes.loss(ValueError(str(gone))) == processes.loss(gone)
    assert processes.loss(jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")) is None
    assert "one of them has ended (UNKNOWN: Gloo AllGather failed" in processes.loss(gone)
    with pytest.raises(SamplingError, match="Start all of them again"), rescuing():
        raise gone
