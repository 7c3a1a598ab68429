"""Compiled programs kept on disk, so that the next session need not compile them again."""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from pathlib import Path

import jax
import platformdirs

from autoreparam.disk import check_folder
from autoreparam.keywords import helpful

WORTH_KEEPING = 0.0  # seconds of compiling: even the smallest takes longer than to read it back


@helpful
def compilation_cache(folder: str | os.PathLike | None = None) -> None:
    """Keeps compiled programs in a folder, so that the next session need not compile them again.

    This sets JAX's own persistent cache for the whole process. A changed model is compiled anew.

    Args:
        folder: Where to keep them; it is made if it is not there. None is a folder in the user's
            cache, for this kind of machine and this version of JAX.
    """
    folder = own_folder() if folder is None else check_folder(folder, "folder")
    os.makedirs(folder, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", os.fspath(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)


def keep_compiled() -> None:
    """The same in the user's cache, unless JAX was told otherwise or no folder can be made."""
    told = jax.config.values
    if told["jax_compilation_cache_dir"] is None and told["jax_enable_compilation_cache"]:
        with suppress(OSError):
            compilation_cache()


def own_folder() -> Path:
    """The folder in the user's cache.

    Machines that share a home do not share programs: what one compiles another may not understand.
    """
    machine = [platform.machine(), platform.processor()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        machine += sorted({line for line in lines if line.startswith(("flags", "Features"))})
    kind = hashlib.sha256("\n".join(machine).encode()).hexdigest()[:12]
    return platformdirs.user_cache_path("autoreparam") / f"jax-{jax.__version__}-{kind}"
