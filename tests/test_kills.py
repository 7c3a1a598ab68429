"""Real faults: kills at random moments, two processes on a folder, full and read-only disks."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from bad_inputs import Y, groups
from zygote import KINDS, Zygote

import autoreparam as ar
from autoreparam.errors import AutoreparamError, CheckpointError, DiskError
from autoreparam.results.files import read_tree, write_tree
from autoreparam.results.storage import Store
from autoreparam.results.tree import Draws, to_tree

pytestmark = [
    pytest.mark.faults,
    pytest.mark.xdist_group("one"),
    pytest.mark.skipif(sys.platform == "win32", reason="no fork and no SIGKILL there"),
]
GROUPS = {"hmc": "one", "vip": "one", "nuts": "two", "interleaved": "two"}  # of workers
each_kind = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.xdist_group(GROUPS[kind])) for kind in KINDS]
)
KILLS = 13  # per kind and way of killing: 104 in all
LIMIT = 120  # seconds that a process may take


@pytest.fixture(scope="module")
def zygote(tmp_path_factory):
    zygote = Zygote(tmp_path_factory.mktemp("zygote"))
    yield zygote
    zygote.close()


@pytest.fixture(scope="module")
def whole(zygote, tmp_path_factory):
    """The draws of uninterrupted runs, made on demand; compiled programs are kept for all."""
    folder, found = tmp_path_factory.mktemp("whole"), {}

    def of(kind):
        if kind not in found:
            finish(zygote, kind=kind, path=str(folder / kind), out=str(folder / f"{kind}.npz"))
            # Once more for the programs that only resuming needs.
            finish(zygote, kind=kind, path=str(folder / kind), out=str(folder / f"{kind}.npz"))
            found[kind] = dict(np.load(folder / f"{kind}.npz"))
        return found[kind]

    of.last = lambda kind: chunks(folder / kind)  # of its chunks
    return of


def finish(zygote, **job):
    """Lets a job end, which must go well."""
    status = zygote.wait(zygote.begin(**job))
    said = Path(job["out"]).with_suffix(".txt")
    assert status == 0, said.read_text() if said.exists() else status


def assert_draws(out, whole):
    found = dict(np.load(out))
    assert found.keys() == whole.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def chunks(path):
    return len([name for name in os.listdir(path) if name.startswith("chunk-")]) if (
        os.path.isdir(path)
    ) else 0  # fmt: skip


def committed(path):
    manifest = Path(path) / "manifest.json"
    return len(json.loads(manifest.read_text())["chunks"]) if manifest.exists() else 0


def reached(path, goal, out):
    return chunks(path) >= goal or os.path.exists(out)


@each_kind
def test_a_run_killed_at_random_moments_ends_in_the_same_draws(tmp_path, zygote, whole, kind):
    """In warm-up, while sampling and in a commit, over and over."""
    rng, expected, killed, runs = random.Random(kind), whole(kind), 0, 0
    while killed < KILLS:
        runs += 1
        path, out = str(tmp_path / str(runs)), str(tmp_path / f"{runs}.npz")
        before = 0
        while not os.path.exists(out):
            child = zygote.begin(kind=kind, path=path, out=out, only_read=True)
            goal = min(before + rng.randint(1, 4), whole.last(kind))
            wait_for(partial(reached, path, goal, out), zygote, child)
            time.sleep(rng.uniform(0, 0.05))
            if killed < KILLS:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            status = zygote.wait(child)
            assert status in (0, -signal.SIGKILL), status
            killed += status == -signal.SIGKILL
            before = chunks(path)
        assert_draws(out, expected)


@each_kind
def test_a_run_killed_after_its_last_draw_has_it(tmp_path, zygote, whole, kind):
    expected, path, out = whole(kind), str(tmp_path / "run"), str(tmp_path / "out.npz")
    job = {"kind": kind, "path": path, "out": out, "only_read": True}
    assert zygote.wait(zygote.begin(**job, dies_at_the_end=True)) == -signal.SIGKILL
    assert chunks(path) == whole.last(kind)
    assert not os.path.exists(out)
    finish(zygote, **job)
    assert_draws(out, expected)


@each_kind
def test_a_run_killed_within_its_storage_ends_in_the_same_draws(tmp_path, zygote, whole, kind):
    """Whenever it is about to open, sync, rename or remove a file."""
    rng, expected, killed, runs = random.Random(kind), whole(kind), 0, 0
    while killed < KILLS:
        runs += 1
        path, out = str(tmp_path / str(runs)), str(tmp_path / f"{runs}.npz")
        while not os.path.exists(out):
            job = {"kind": kind, "path": path, "out": out, "only_read": True}
            if killed < KILLS:
                # A store is opened in two files per chunk; a commit takes about twenty events.
                job["suicide"] = 3 * chunks(path) + rng.randint(1, 90)
            status = zygote.wait(zygote.begin(**job))
            assert status in (0, -signal.SIGKILL), status
            killed += status == -signal.SIGKILL
        assert_draws(out, expected)


def wait_for(condition, zygote, child):
    began = time.monotonic()
    while not condition() and not zygote.ended(child):
        assert time.monotonic() - began < LIMIT, "it hangs"
        time.sleep(0.002)


@pytest.mark.parametrize("moment", range(6))
def test_ctrl_c_after_the_last_draw_leaves_the_draws_in_hand(tmp_path, zygote, whole, moment):
    """As a tree, or in a folder whose name is in the message."""
    expected, out = whole("hmc"), tmp_path / "out.npz"
    job = {"kind": "hmc", "out": str(out), "only_read": True, "announce": str(tmp_path / "end")}
    child = zygote.begin(**job)
    wait_for((tmp_path / "end").exists, zygote, child)
    time.sleep(0.15 * moment)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGINT)
    status = zygote.wait(child)
    if not out.exists():
        assert status == 130, status
        found = re.search(r"The draws are in (\S+): ar.resume", (tmp_path / "out.txt").read_text())
        finish(zygote, kind="hmc", path=found[1], out=str(out), only_read=True)
    names = [name for name in expected if name != "gradients"]
    drawn = dict(np.load(out))
    for name in names:
        np.testing.assert_array_equal(drawn[name], expected[name])


# -- two processes ----------------------------------------------------------------------------


def test_of_two_processes_on_a_folder_one_is_told_to_wait(tmp_path, zygote, whole):
    expected, path = whole("hmc"), str(tmp_path / "run")
    first, second = str(tmp_path / "first.npz"), str(tmp_path / "second.npz")
    one = zygote.begin(kind="hmc", path=path, out=first, only_read=True)
    wait_for(lambda: committed(path) >= 2, zygote, one)
    os.kill(one, signal.SIGSTOP)  # in the middle of its run, for as long as it takes
    before = (tmp_path / "run" / "manifest.json").read_bytes()
    other = zygote.begin(kind="hmc", path=path, out=second, only_read=True)
    assert zygote.wait(other) == 1, "both write"
    assert (tmp_path / "run" / "manifest.json").read_bytes() == before
    assert f"is in use by process {one}" in (tmp_path / "second.txt").read_text()
    os.kill(one, signal.SIGCONT)
    assert zygote.wait(one) == 0
    assert_draws(first, expected)


HOLD = """
import os, sys, time
from autoreparam.results.storage import Store
store = Store.create(sys.argv[1], {}, {})
if os.fork() == 0:  # as a pool of the user's would
    time.sleep(60)
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_does_not_outlive_its_process_in_a_fork(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", HOLD, str(tmp_path / "run")]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CheckpointError, match=f"in use by process {holder.pid}"):
            Store.create(tmp_path / "run", {}, {})
        holder.kill()
        holder.wait()
        Store.create(tmp_path / "run", {}, {}).close()
    finally:
        os.killpg(holder.pid, signal.SIGKILL)  # the fork, in a session of its own
        holder.stdout.close()


def test_a_killed_process_leaves_no_lock(tmp_path, zygote, whole):
    expected, path, out = whole("hmc"), str(tmp_path / "run"), str(tmp_path / "out.npz")
    one = zygote.begin(kind="hmc", path=path, out=out, only_read=True)
    wait_for(lambda: chunks(path) >= 1, zygote, one)
    os.kill(one, signal.SIGKILL)
    finish(zygote, kind="hmc", path=path, out=out, only_read=True)
    assert_draws(out, expected)


def test_processes_that_resume_at_once_end_in_the_same_draws_or_a_sentence(tmp_path, zygote, whole):
    expected, path = whole("hmc"), str(tmp_path / "run")
    child = zygote.begin(kind="hmc", path=path, out=str(tmp_path / "0.npz"), suicide=150)
    assert zygote.wait(child) == -signal.SIGKILL
    outs = [str(tmp_path / f"{i}.npz") for i in (1, 2, 3)]
    children = [zygote.begin(kind="hmc", path=path, out=out, only_read=True) for out in outs]
    statuses = [zygote.wait(child) for child in children]
    assert set(statuses) <= {0, 1}, statuses
    assert 0 in statuses
    for out, status in zip(outs, statuses):
        if status == 0:
            assert_draws(out, expected)
        else:
            said = Path(out).with_suffix(".txt").read_text()
            assert "in use by" in said or "changed by another run" in said


def test_another_model_in_another_process_is_refused_and_the_same_one_is_not(
    tmp_path, zygote, whole
):
    expected, path, out = whole("hmc"), str(tmp_path / "run"), str(tmp_path / "out.npz")
    child = zygote.begin(kind="hmc", path=path, out=out, suicide=150)
    assert zygote.wait(child) == -signal.SIGKILL
    child = zygote.begin(kind="hmc", path=path, out=out, scale=2.0001)
    assert zygote.wait(child) == 1
    said = (tmp_path / "out.txt").read_text()
    assert "the log density of 'mu' is not that of the run; 'scale', which it captures" in said
    finish(zygote, kind="hmc", path=path, out=out, only_read=True)
    assert_draws(out, expected)


FORK = """
import multiprocessing, warnings
warnings.simplefilter("ignore")
import numpyro, numpyro.distributions as dist
import autoreparam as ar
def model():
    numpyro.sample("x", dist.Normal(0.0, 1.0))
def work(_):
    try:
        return ar.{call}
    except ValueError as error:
        return str(error)
ar.inspect(model)  # as the parent has JAX's threads, too
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.map(work, [0])[0])
"""


@pytest.mark.parametrize(
    "call",
    [
        "sample(model, draws=5, warmup=5, progress=False)",
        "inspect(model)",
        "log_joint(model)({'x': 0.0})",
        "learn(model, steps=5)",
        "predict(model)",
    ],
)
def test_a_fork_does_not_hang(call):
    command = [sys.executable, "-c", FORK.replace("{call}", call)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as parent:
        try:
            said = parent.communicate(timeout=LIMIT)[0]
        except subprocess.TimeoutExpired:
            os.killpg(parent.pid, signal.SIGKILL)  # the child, which hangs, too
            raise
    assert "this process was forked" in said


# -- disks ------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own, and a way to change it."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options):
        again = "remount," if os.path.ismount(place) else ""
        command = ["mount", "-t", "tmpfs", "-o", again + options, "tmpfs", str(place)]
        return subprocess.run(command, capture_output=True).returncode == 0

    if shutil.which("mount") is None or not mount("size=200k"):
        pytest.skip("mounting is not allowed here")
    yield place, mount
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_stops_a_run_that_goes_on_once_there_is_space(disk, tmp_path, zygote, whole):
    (place, mount), expected, out = disk, whole("hmc"), str(tmp_path / "out.npz")
    job = {"kind": "hmc", "path": str(place / "run"), "out": out, "only_read": True}
    assert zygote.wait(zygote.begin(**job)) == 1
    said = (tmp_path / "out.txt").read_text()
    assert "The disk is full" in said
    assert "continue with ar.resume" in said
    assert mount("size=20m")
    finish(zygote, **job)
    assert_draws(out, expected)


def test_a_read_only_disk_still_gives_its_draws_and_refuses_more(disk, tmp_path, zygote, whole):
    (place, mount), expected, out = disk, whole("hmc"), str(tmp_path / "out.npz")
    assert mount("size=20m")
    job = {"kind": "hmc", "path": str(place / "run"), "out": out, "only_read": True}
    finish(zygote, **job)
    assert mount("ro,size=20m")
    os.remove(out)
    finish(zygote, **job)
    assert_draws(out, expected)
    assert zygote.wait(zygote.begin(**job, draws=300)) == 1
    assert "cannot be written: it is read-only here" in (tmp_path / "out.txt").read_text()
    job |= {"path": str(place / "other")}
    assert zygote.wait(zygote.begin(**job)) == 1
    assert "Read-only file system" in (tmp_path / "out.txt").read_text()


@pytest.mark.parametrize("ending", ["zarr", "nc"])
def test_a_tree_that_does_not_fit_leaves_the_old_one(disk, ending):
    place, _ = disk
    program, rng = ar.inspect(groups, (Y,)), np.random.default_rng(0)
    lam = ar.Parameterization.constant(program, 0.5)

    def tree(draws):
        values = {site.name: rng.normal(size=(2, draws, *site.shape)) for site in program.latents}
        return to_tree(program, Draws(values, {}), parameterizations=[lam], ledger={}, attrs={},
                       observed={"y": Y}, constant={})  # fmt: skip

    assert disk[1]("size=1m")
    write_tree(tree(10), place / f"run.{ending}")
    with pytest.raises(DiskError, match=r"could not be written"):
        write_tree(tree(100_000), place / f"run.{ending}")
    assert read_tree(place / f"run.{ending}").posterior.sizes["draw"] == 10
    assert len(os.listdir(place)) == 1


# -- damage -----------------------------------------------------------------------------------


def test_every_damaged_file_is_a_sentence(tmp_path, zygote, whole):
    whole("hmc")
    good = tmp_path / "good"
    finish(zygote, kind="hmc", path=str(good), out=str(tmp_path / "out.npz"), only_read=True)
    rng = random.Random(0)
    for file in sorted(good.iterdir()):
        for damage in ("cut", "flip", "remove"):
            copy = tmp_path / "copy"
            shutil.copytree(good, copy)
            victim = copy / file.name
            content = bytearray(victim.read_bytes())
            if damage == "cut":
                victim.write_bytes(content[: len(content) // 2])
            elif damage == "flip":
                content[rng.randrange(len(content))] ^= 1
                victim.write_bytes(content)
            else:
                victim.unlink()
            # A change of white space in the manifest, or of the lock, is no damage: it is read,
            # and found to belong to another model than this.
            with pytest.raises(
                AutoreparamError, match=r"damaged|missing|no manifest|format|different model"
            ):
                ar.resume(copy, groups, (Y,), progress=False)
            shutil.rmtree(copy)
