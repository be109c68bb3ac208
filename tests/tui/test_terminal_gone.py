"""A monitor on a real pseudo-terminal: signals leave a terminal that can be used, a lost terminal leaves no process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.telemetry.written_run import write_run
from tools.benchmarks.terminal import Terminal


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    run = write_run(tmp_path / "run")
    command = [str(Path(sys.executable).parent / "trainwiz"), "monitor", str(run)]
    with Terminal(command, os.environ, str(run)) as terminal:
        terminal.seconds_until(b"loss", b"1,600")
        yield terminal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_ends_it_leaves_a_terminal_that_can_be_used(terminal: Terminal, number: int) -> None:
    os.kill(terminal.pid, number)
    # Out of the other screen, and the cursor and the line editor are back.
    terminal.seconds_until(b"\x1b[?1049l", b"\x1b[?25h")
    assert terminal.wait() == 130


@pytest.mark.parametrize("blocked", [False, True])
def test_a_terminal_that_is_gone_keeps_no_process(tmp_path: Path, blocked: bool) -> None:
    """`blocked`: also where nobody tells it (no SIGHUP) and its threads wait for the terminal."""
    program = tmp_path / "stays.py"
    program.write_text(
        "import signal\n"
        "from textual.screen import Screen\n"
        "from trainwiz.tui import app as terminal_gone\n"
        "from trainwiz.tui.app import TrainwizApp\n"
        f"if {blocked}:\n"
        "    signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "    terminal_gone.ENDING = ()\n"
        "class Shown(Screen):\n"
        "    def on_mount(self):\n"
        "        self.set_interval(0.1, self.refresh)\n"
        "TrainwizApp(lambda: Shown()).run()\n"
    )
    with Terminal([sys.executable, str(program)], os.environ, str(tmp_path)) as terminal:
        terminal.seconds_until(b"\x1b[?1049h")
        time.sleep(0.5)
        terminal.hang_up()
        for _ in range(200):
            if not Path(f"/proc/{terminal.pid}/fd/0").exists():
                return
            time.sleep(0.05)
        pytest.fail("it is still there")
