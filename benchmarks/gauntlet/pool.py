"""Worker processes, each on a core of its own, that work through a list of tasks."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.gauntlet.tasks import Task

TASKS_PER_WORKER = 25  # then a new process: compiled programs are kept as long as one lives
TICK = 0.5  # seconds between looks at the clock while a worker works
STARTING = 120.0  # seconds that a new worker may spend on imports before its first task counts


class Pool:
    """Runs tasks until all are done or time is up, and gives each row to `record` at once."""

    def __init__(self, tasks: Iterable[Task], limit: float, stop_at: float,
                 record: Callable[[Task, dict[str, Any]], None]):  # fmt: skip
        self.limit, self.stop_at, self.record = limit, stop_at, record
        self.waiting = iter(list(tasks))
        self.lock, self.stopping = threading.Lock(), threading.Event()

    def run(self, workers: int) -> None:
        """Works with so many processes; what is under way when time is up is not recorded."""
        cores = sorted(os.sched_getaffinity(0))
        threads = [
            threading.Thread(target=self._serve, args=(cores[i % len(cores)],), daemon=True)
            for i in range(workers)
        ]
        before = signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(TICK)
        except KeyboardInterrupt:
            self.stopping.set()
            for thread in threads:
                thread.join()
        finally:
            signal.signal(signal.SIGTERM, before)

    def _serve(self, core: int) -> None:
        worker, served = None, 0
        while not self._late():
            with self.lock:
                task = next(self.waiting, None)
            if task is None:
                break
            if worker is None or served == TASKS_PER_WORKER or worker.x64 != task.x64:
                if worker is not None:
                    worker.end()
                worker, served = Worker(core, task.x64), 0
            row = worker.ask(task, self.limit + (0 if served else STARTING), self._late)
            served += 1
            if row is not None:
                with self.lock:
                    self.record(task, row)
            if row is None or "lost" in row:
                worker.end()
                worker = None
        if worker is not None:
            worker.end()

    def _late(self) -> bool:
        return self.stopping.is_set() or time.monotonic() > self.stop_at


class Worker:
    """A process bound to a core."""

    def __init__(self, core: int, x64: bool):
        self.x64 = x64
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.messages = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gauntlet.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.messages, text=True,
            env={**os.environ, **one, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu",
                 "JAX_ENABLE_X64": str(int(x64))},
            start_new_session=True,
        )  # fmt: skip
        # The process has not yet imported JAX, so every thread it starts will be bound as well.
        os.sched_setaffinity(self.process.pid, {core})

    def ask(self, task: Task, limit: float, late: Callable[[], bool]) -> dict[str, Any] | None:
        """The row of a task; None where time was up before it was done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        began = time.monotonic()
        try:
            self.process.stdin.write(json.dumps(task.to_dict()) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return self._lost(began)
        while not select.select([self.process.stdout], [], [], TICK)[0]:
            if late():
                return None
            if time.monotonic() - began > limit:
                return _failure("timeout", began)
        answer = self.process.stdout.readline()
        return json.loads(answer) if answer else self._lost(began)

    def end(self) -> None:
        """Ends the process, with whatever it has started, and waits until it is gone."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.messages.close()

    def _lost(self, began: float) -> dict[str, Any]:
        """The row of a run that took its process with it: out of memory, say."""
        self.process.wait()
        self.messages.seek(0)
        last = self.messages.read()[-500:].decode(errors="replace")
        return _failure(f"the process ended with {self.process.returncode}: {last}", began)


def _failure(message: str, began: float) -> dict[str, Any]:
    """The row of a run whose process has to be replaced."""
    seconds = round(time.monotonic() - began, 2)
    return {"failure": message, "lost": True, "warnings": [], "seconds": seconds}


def append(path: Path, row: dict[str, Any]) -> None:
    """Adds a line to a file of results that others may be writing too."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; a last line cut short by a crash is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows
