"""The progress line: what it shows, when it is silent, and that it ends with the run."""

import io
import subprocess
import sys
import threading
import time
import types

import pytest
from rich.console import Console

from autoreparam.results.progress import Progress


def terminal():
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        force_interactive=True,
        width=120,
        color_system=None,
        legacy_windows=False,
        _environ={"TERM": "xterm"},
    )


def test_each_phase_has_a_line_with_what_is_known():
    console = terminal()
    with Progress(console=console) as bar:
        with bar.phase("warmup", 500):
            bar.update(250, divergences=3, step_size=0.25)
            bar.update(500, divergences=4, step_size=0.125)
        with bar.phase("sampling", 1000):
            bar.update(400, divergences=0, step_size=0.125, ess=321.4)
    lines = console.file.getvalue().splitlines()
    last = [[line for line in lines if name in line][-1] for name in ("warmup", "sampling")]
    assert "500/500" in last[0]
    assert "divergences 4  step size 0.12" in last[0]
    assert "400/1000" in last[1]
    assert "divergences 0  step size 0.12  ESS 321" in last[1]


@pytest.mark.parametrize("enabled", [True, False])
def test_it_is_silent_when_switched_off_or_in_a_log(enabled):
    log = Console(file=io.StringIO(), force_terminal=not enabled)
    with Progress(enabled, console=log) as bar, bar.phase("sampling", 10):
        bar.update(10, divergences=1, step_size=0.1, ess=5)
    assert log.file.getvalue() == ""


def test_a_log_is_not_taken_for_a_terminal_even_where_colors_are_forced():
    code = (
        "from autoreparam.results.progress import Progress\n"
        "with Progress() as bar, bar.phase('sampling', 10): bar.update(5, divergences=0)"
    )
    environment = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "JAX_PLATFORMS": "cpu"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


@pytest.mark.parametrize("exception", [KeyboardInterrupt, ValueError])
def test_an_exception_passes_and_leaves_terminal_and_threads_as_they_were(exception):
    console, before, streams = terminal(), threading.active_count(), (sys.stdout, sys.stderr)

    def run():
        with Progress(console=console) as bar, bar.phase("sampling", 10):
            bar.update(3)
            assert threading.active_count() > before
            raise exception

    with pytest.raises(exception):
        run()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
    assert (sys.stdout, sys.stderr) == streams
    shown = console.file.getvalue()
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")  # the cursor is back
    assert "3/10" in shown


def test_what_cannot_be_counted_shows_its_seconds_and_leaves_no_trace_if_it_is_short():
    console = terminal()
    with Progress(console=console) as bar, bar.waiting("compiling"):
        time.sleep(0.6)
    with Progress(console=console) as bar, bar.waiting("a moment"):
        pass
    last = console.file.getvalue().splitlines()
    assert "1 s" in [line for line in last if "compiling" in line][-1]
    assert "a moment" not in last[-1]


def test_an_update_outside_a_phase_does_nothing():
    with Progress(console=terminal()) as bar:
        bar.update(3)


def test_a_notebook_gets_one_table_that_is_redrawn_and_stays(monkeypatch):
    pages = []

    class Handle:
        def update(self, page):
            pages.append(page)

    def display(page, display_id):
        pages.append(page)
        return Handle()

    fake = types.ModuleType("IPython.display")
    fake.HTML, fake.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    with Progress(console=Console(force_jupyter=True)) as bar:
        with bar.waiting("compiling"):
            assert "compiling" in pages[-1]
        with bar.phase("sampling", 10):
            bar.update(10, divergences=1)
    assert "compiling" not in pages[-1]
    assert "10/10" in pages[-1]
    assert "divergences 1" in pages[-1]
    assert all("<table>" in page for page in pages)
