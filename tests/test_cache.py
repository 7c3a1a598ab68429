"""Compiled programs are kept for the next process, where the user lets us."""

import os
import subprocess
import sys

import jax
import platformdirs
import pytest

import autoreparam as ar
from autoreparam.run.cache import keep_compiled, own_folder

pytestmark = pytest.mark.usefixtures("own_compilation_cache")


@pytest.fixture
def users_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / name)
    jax.config.update("jax_compilation_cache_dir", None)
    return tmp_path / "autoreparam"


def test_without_an_argument_the_folder_is_the_users_for_this_machine_and_version(users_cache):
    ar.compilation_cache()
    assert jax.config.values["jax_compilation_cache_dir"] == str(own_folder())
    assert own_folder().parent == users_cache
    assert jax.__version__ in own_folder().name
    assert own_folder().is_dir()


def test_commands_keep_programs_unless_jax_was_told_where_or_not_to(users_cache, tmp_path):
    jax.config.update("jax_enable_compilation_cache", False)
    keep_compiled()
    assert jax.config.values["jax_compilation_cache_dir"] is None
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    keep_compiled()
    assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path)
    assert not users_cache.exists()


def test_a_cache_that_cannot_be_made_is_done_without(users_cache):
    users_cache.write_text("a file where a folder should be")
    keep_compiled()
    assert jax.config.values["jax_compilation_cache_dir"] is None


def run(folder, *words):
    environment = os.environ | {
        "XDG_CACHE_HOME": str(folder), "LOCALAPPDATA": str(folder), "HOME": str(folder),
        "JAX_ENABLE_COMPILATION_CACHE": "true",
    }  # fmt: skip
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    call = ["sample", "zoo:funnel", "--set", "n=3", "--draws", "20", "--warmup", "30", *words]
    done = subprocess.run([sys.executable, "-m", "autoreparam.cli", *call], cwd=folder,
                          env=environment, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {path.name for path in folder.rglob("*run_chunk*-cache")}  # what takes longest


@pytest.mark.slow
def test_the_second_process_uses_the_programs_of_the_first(tmp_path):
    assert not run(tmp_path, "--no-cache")
    first = run(tmp_path)
    assert len(first) == 1
    assert run(tmp_path) == first
    changed = run(tmp_path, "--set", "n=4")  # another shape is another program
    assert changed > first
    for path in tmp_path.rglob("*-cache"):  # what is damaged is compiled again
        path.write_bytes(b"nothing of use")
    assert run(tmp_path) == changed
