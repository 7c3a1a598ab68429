"""The store on disk: all or nothing at every commit, damage is found, refusals say what to do."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from autoreparam.errors import CheckpointError
from autoreparam.results import storage
from autoreparam.results.storage import Store

IDENTITY = {"sites": [["theta", [8]]], "data": "abc"}
SETTINGS = {"draws": 1000, "seed": 0}


def chunk(index, draws=5):
    rng = np.random.default_rng(index)
    return {
        "theta": rng.normal(size=(2, draws, 3)),
        "a/b": rng.normal(size=(2, draws)).astype(np.float32),
        "a": rng.integers(0, 9, size=(2, draws)),
        "diverging": rng.random((2, draws)) < 0.5,
        "nothing": np.zeros((2, draws, 0)),
    }


def state(index):
    return {
        "key": np.array([index, 2**32 - 1], dtype=np.uint32),
        "step_size": np.asarray(0.1 * index),
        "position": np.full(4, float(index)),
    }


def filled(path, chunks=3):
    store = Store.create(path, IDENTITY, SETTINGS)
    for index in range(chunks):
        store.commit(chunk(index), state(index), {"phase": "sampling", "index": index})
    return store


def assert_holds(store, chunks):
    assert store.chunks == chunks
    assert [info["index"] for info in store.infos] == list(range(chunks))
    found = list(store.read_chunks())
    assert len(found) == chunks
    for index, arrays in enumerate(found):
        assert_same(arrays, chunk(index))
    assert_same(store.state, state(chunks - 1) if chunks else {})


def assert_same(found, expected):
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


# -- what goes in comes out -------------------------------------------------------------------


def test_a_store_gives_back_what_was_committed(tmp_path):
    written = filled(tmp_path / "run.zarr")
    assert_holds(written, 3)
    store = Store.open(tmp_path / "run.zarr")
    assert_holds(store, 3)
    assert (store.identity, store.settings) == (IDENTITY, SETTINGS)


def test_an_opened_store_can_be_continued(tmp_path):
    filled(tmp_path / "run.zarr", 2)
    store = Store.open(tmp_path / "run.zarr")
    store.commit(chunk(2), state(2), {"index": 2})
    assert_holds(Store.open(tmp_path / "run.zarr"), 3)


def test_a_store_without_chunks_is_valid(tmp_path):
    Store.create(tmp_path / "deep" / "run.zarr", IDENTITY, SETTINGS)
    assert_holds(Store.open(tmp_path / "deep" / "run.zarr"), 0)


def test_a_chunk_may_have_no_draws(tmp_path):
    store = Store.create(tmp_path / "run.zarr", IDENTITY, SETTINGS)
    store.commit({}, state(0), {"phase": "warmup"})
    assert list(Store.open(tmp_path / "run.zarr").read_chunks()) == [{}]


def test_numpy_numbers_and_nan_in_infos_are_kept(tmp_path):
    store = Store.create(tmp_path / "run.zarr", {"shape": (1, 2)}, {"seed": np.int64(3)})
    for _ in range(2):
        store.commit({}, {}, {"step_size": np.float32(0.5), "elbo": float("nan")})
    store = Store.open(tmp_path / "run.zarr")
    assert (store.identity, store.settings) == ({"shape": [1, 2]}, {"seed": 3})
    assert store.infos[1]["step_size"] == 0.5
    assert np.isnan(store.infos[1]["elbo"])


def test_only_the_last_state_is_kept(tmp_path):
    filled(tmp_path / "run.zarr", 4)
    names = sorted(file.name for file in (tmp_path / "run.zarr").iterdir())
    chunks = [f"chunk-{index:06d}.zip" for index in range(4)]
    assert names == [*chunks, "lock", "manifest.json", "state-000003.zip"]


def test_leftovers_of_a_crash_are_ignored_and_overwritten(tmp_path):
    path = tmp_path / "run.zarr"
    filled(path, 2)
    for name in ("chunk-000002.zip", "state-000002.zip", "state-000000.zip", "manifest.json.new"):
        (path / name).write_bytes(b"half a file")
    store = Store.open(path)
    assert_holds(store, 2)
    store.commit(chunk(2), state(2), {"index": 2})
    assert_holds(Store.open(path), 3)
    assert not (path / "state-000000.zip").exists()


# -- refusals ---------------------------------------------------------------------------------


def test_an_existing_run_is_not_overwritten(tmp_path):
    filled(tmp_path / "run.zarr")
    with pytest.raises(CheckpointError, match=r"already holds a run.*ar.resume"):
        Store.create(tmp_path / "run.zarr", IDENTITY, SETTINGS)
    assert_holds(Store.open(tmp_path / "run.zarr"), 3)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"not empty.*'thesis.tex'.*another path"):
        Store.create(tmp_path, IDENTITY, SETTINGS)
    with pytest.raises(CheckpointError, match="is a file"):
        Store.create(tmp_path / "thesis.tex", IDENTITY, SETTINGS)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_folder_left_by_a_killed_create_can_be_used(tmp_path):
    (tmp_path / "manifest.json.new").write_text("{")
    with pytest.raises(CheckpointError, match=r"has no manifest.json"):
        Store.open(tmp_path)
    Store.create(tmp_path, IDENTITY, SETTINGS)
    assert Store.open(tmp_path).chunks == 0


def _truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def _flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _remove(path):
    path.unlink()


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("chunk-000001.zip", _truncate, r"chunk 2 of 3 is damaged .*Restore .*sample again"),
        ("chunk-000001.zip", _flip, r"chunk 2 of 3 is damaged"),
        ("chunk-000000.zip", _remove, r"chunk 1 of 3 is missing"),
        ("state-000002.zip", _flip, r"the sampler's state is damaged"),
        ("state-000002.zip", _remove, r"the sampler's state is missing"),
        ("manifest.json", _truncate, r"manifest.json is damaged"),
        ("manifest.json", _flip, r"manifest.json is damaged|is of format"),
        ("manifest.json", _remove, r"has no manifest.json"),
    ],
)
def test_damage_is_found_and_named(tmp_path, file, damage, message):
    filled(tmp_path / "run.zarr")
    damage(tmp_path / "run.zarr" / file)
    with pytest.raises(CheckpointError, match=message):
        Store.open(tmp_path / "run.zarr")


def test_every_single_changed_byte_of_the_manifest_is_noticed(tmp_path):
    filled(tmp_path / "run.zarr", 1)
    manifest = tmp_path / "run.zarr" / "manifest.json"
    original = manifest.read_bytes()
    expected = json.loads(original)
    for place in random.Random(0).sample(range(len(original)), 100):
        changed = bytearray(original)
        changed[place] ^= 1
        manifest.write_bytes(changed)
        try:
            store = Store.open(tmp_path / "run.zarr")
        except CheckpointError:
            continue
        # White space between the words carries nothing.
        assert store.settings == expected["settings"]
        assert json.loads(bytes(changed)) == expected


def test_another_version_and_a_missing_folder_are_refused_in_words(tmp_path):
    filled(tmp_path / "run.zarr")
    manifest = tmp_path / "run.zarr" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 99}))
    with pytest.raises(CheckpointError, match=r"version 99; this release reads .* version 4"):
        Store.open(tmp_path / "run.zarr")
    with pytest.raises(CheckpointError, match="there is nothing there"):
        Store.open(tmp_path / "rum.zarr")
    with pytest.raises(CheckpointError, match="it is a file"):
        Store.open(manifest)


def test_a_folder_has_one_writer_at_a_time(tmp_path):
    path = tmp_path / "run.zarr"
    first = filled(path, 1)
    in_use = rf"in use by process {os.getpid()}, .* choose another path"
    with pytest.raises(CheckpointError, match=in_use):
        Store.open(path, alone=True)
    with pytest.raises(CheckpointError, match=in_use):
        Store.open(path).commit(chunk(1), state(1), {"index": 1})
    with pytest.raises(CheckpointError, match="already holds a run"):
        Store.create(path, IDENTITY, SETTINGS)
    first.close()
    second = Store.open(path, alone=True)
    second.commit(chunk(1), state(1), {"index": 1})
    assert_holds(Store.open(path), 2)


def test_a_second_run_on_the_same_store_is_stopped_even_without_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(storage.Lock, "take", lambda self: None)
    first = filled(tmp_path / "run.zarr", 1)
    second = Store.open(tmp_path / "run.zarr")
    second.commit(chunk(1), state(1), {"index": 1})
    with pytest.raises(CheckpointError, match="changed by another run"):
        first.commit(chunk(7), state(7), {"index": 7})
    assert_holds(Store.open(tmp_path / "run.zarr"), 2)


# -- a disk that refuses ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "disk is full.*free some space"),
        (errno.EDQUOT, "quota is reached"),
        (errno.EROFS, "cannot be written.*permissions"),
        (errno.EACCES, "cannot be written.*permissions"),
        (errno.EIO, "Check the disk"),
    ],
)
@pytest.mark.parametrize("where", ["fsync", "replace", "open"])
def test_a_failed_commit_changes_nothing_and_says_what_to_do(
    tmp_path, monkeypatch, number, remedy, where
):
    path = tmp_path / "run.zarr"
    store = filled(path, 2)
    before = sorted(file.name for file in path.iterdir())

    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        if where == "open":
            patch.setattr(storage, "write_arrays", refuse)
        else:
            patch.setattr(os, where, refuse)
        with pytest.raises(CheckpointError, match=remedy) as caught:
            store.commit(chunk(2), state(2), {"index": 2})
    assert str(path) in str(caught.value)
    assert_holds(Store.open(path), 2)
    assert sorted(file.name for file in path.iterdir()) == before
    store.commit(chunk(2), state(2), {"index": 2})
    assert_holds(Store.open(path), 3)


CHILD = """
    import resource
    import sys
    sys.path.insert(0, {tests!r})
    from test_storage import *
    path = sys.argv[1]
"""


def child(code, *arguments):
    program = textwrap.dedent(CHILD).format(tests=os.path.dirname(__file__)) + textwrap.dedent(code)
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


@pytest.mark.faults
@pytest.mark.skipif(sys.platform == "win32", reason="no limits on file sizes there")
def test_a_limit_of_the_system_on_file_size_is_survived(tmp_path):
    code = """
    store = filled(path, 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    try:
        store.commit(chunk(2, draws=10_000), state(2), {"index": 2})
    except CheckpointError as error:
        print(error)
    store.commit(chunk(2), state(2), {"index": 2})
    """
    process = child(code, tmp_path / "run.zarr")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "The disk is full, or a quota is reached" in output
    assert_holds(Store.open(tmp_path / "run.zarr"), 3)


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal there")
@pytest.mark.faults
@pytest.mark.parametrize("kills", [1, 5])
def test_kill_9_at_any_moment_leaves_exactly_the_committed_chunks(tmp_path, kills):
    path, rng = tmp_path / "run.zarr", random.Random(0)
    code = """
    store = Store.open(path) if os.path.exists(path + "/manifest.json") else filled(path, 0)
    assert_holds(store, store.chunks)
    print(store.chunks, flush=True)
    while True:
        index = store.chunks
        store.commit(chunk(index), state(index), {"index": index})
        print(store.chunks, flush=True)
    """
    for _ in range(kills):
        process = child(code, path)
        try:
            said = process.stdout.readline() + process.stdout.readline()  # it has committed one
            time.sleep(rng.uniform(0, 0.3))
        finally:
            process.send_signal(signal.SIGKILL)
        said = (said + process.communicate()[0]).split()
        store = Store.open(path)
        # The last commit may have been made without the time to say so.
        assert store.chunks in (int(said[-1]), int(said[-1]) + 1)
        assert_holds(store, store.chunks)
    assert store.chunks > 0
