"""Tests run in double precision, on this machine alone, and on data files only where they are."""

import gc
import os
import sys
from functools import cache

import jax
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

# Programs of tests are compiled once and run for milliseconds.
QUICKLY = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
    # XLA ends the process where it does not know a flag.
    *(["--xla_cpu_use_fusion_emitters=false"] if jax.__version_info__ < (0, 11) else []),
)
# So that no worker has a long one left when the other is done.
LONGEST = ("test_laws", "test_coupled", "test_sampling", "test_elbo", "test_score", "test_zoo",
           "test_spread", "test_processes", "test_calibration")  # fmt: skip
gc.set_threshold(200_000, 50, 50)  # tracing makes many small objects that live on
jax.config.update("jax_enable_x64", True)
# Programs that tests start, and kill, keep nothing; this one does, also in a worker.
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
jax.config.update("jax_enable_compilation_cache", True)


def pytest_configure(config):
    """Compiles quickly, and the same program only once."""
    # Long runs compute more than they compile. XLA reads this when the first program is compiled.
    if "not slow" in config.option.markexpr:
        os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *QUICKLY]).strip()
    # A folder per worker: JAX does not write a file at once, and another could read half of it.
    worker = getattr(config, "workerinput", {}).get("workerid", "main")
    jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir(f"jax-{worker}")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


# -- the network ------------------------------------------------------------------------------


def refuse_the_network(event, arguments):
    """No test connects to another machine; a hook of the interpreter sees every attempt."""
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        if not isinstance(address, tuple):  # a path: a socket of this machine
            return
        host = address[0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host
    if host not in (None, "", "localhost", "::1", "0.0.0.0", "::") and not host.startswith("127."):
        raise RuntimeError(f"a test asked for {host}: tests do not use the network")


sys.addaudithook(refuse_the_network)


# -- data files -------------------------------------------------------------------------------


@cache
def missing_files():
    from autoreparam.zoo.data import listing  # what it imports compiles, and that comes later

    return [file.name for file in listing() if not file.intact]


def pytest_collection_modifyitems(items):
    """What is marked `data` is skipped where the files are not at hand; long files come first."""
    items.sort(key=lambda item: item.path.stem not in LONGEST)
    needy = [item for item in items if item.get_closest_marker("data")]
    if needy and missing_files():
        names = ", ".join(missing_files())
        skip = pytest.mark.skip(reason=f"no data files here (set AUTOREPARAM_DATA): {names}")
        for item in needy:
            item.add_marker(skip)


# -- fixtures ---------------------------------------------------------------------------------


@pytest.fixture
def float32():
    with jax.enable_x64(False):
        yield


@pytest.fixture
def own_compilation_cache():
    """A test may choose JAX's folder of compiled programs; afterwards it is as before."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: jax.config.values[name] for name in names}
    reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    reset_cache()
