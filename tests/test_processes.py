"""One run on several processes."""

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from autoreparam.errors import AutoreparamError
from autoreparam.run import processes

PROGRAM = """
import sys
import jax
number, address, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(address, 2, number)
import numpy as np
import autoreparam as ar
problem = ar.zoo.load("eight_schools")
call = problem.model, problem.args, problem.kwargs
run = folder + "/run.zarr"
ar.sample(*call, chains=4, warmup=60, draws=40, kernel="hmc", checkpoint=run, progress=False)
tree = ar.resume(run, *call, draws=80, progress=False)
np.save(f"{folder}/{number}.npy", tree.posterior["theta"].values)
"""


@pytest.mark.slow
def test_two_processes_are_one_run_that_one_of_them_stores(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, str(number), address, str(tmp_path)],
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        )
        for number in range(2)
    ]
    assert [process.wait(timeout=300) for process in started] == [0, 0]
    one, other = (np.load(tmp_path / f"{number}.npy") for number in range(2))
    assert one.shape == (4, 80, 8)
    np.testing.assert_array_equal(one, other)


def test_chains_that_devices_cannot_share_are_refused(monkeypatch):
    monkeypatch.setattr(
        processes, "jax", SimpleNamespace(process_count=lambda: 2, device_count=lambda: 8)
    )
    processes.check_chains(16)
    with pytest.raises(AutoreparamError, match=r"multiple of the 8 devices.*found 12"):
        processes.check_chains(12)
