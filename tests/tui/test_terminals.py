"""The monitor on a real pseudo-terminal: kinds of terminals, signals that end it, and a terminal that is gone."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.core.telemetry.written_run import write_run
from tests.each import each
from tools.benchmarks.terminal import Terminal

BROKEN = """
import sys
from trainwiz.tui.screens.monitor import MonitorScreen
MonitorScreen.on_mount = lambda screen: 1 / 0
from trainwiz.tui.cli import main
sys.exit(main())
"""


def monitor_in(folder: Path, term: str, *program: str) -> Terminal:
    """`program` watches a run in a terminal of this kind, whose size is the terminal's alone to tell."""
    command = ["env", "-u", "COLUMNS", "-u", "LINES", f"TERM={term}", sys.executable, *program, "monitor"]
    return Terminal([*command, str(write_run(folder / "run"))], os.environ, str(folder))


@each(("term", "signalled"), [("dumb", False), ("screen-256color", True)])
def test_a_terminal_shows_the_run_and_can_be_used_when_it_ends(tmp_path: Path, term: str, signalled: bool) -> None:
    with monitor_in(tmp_path, term, "-m", "trainwiz.tui") as terminal:
        terminal.seconds_until(b"1,600", timeout_s=120)
        if signalled:
            os.kill(terminal.pid, signal.SIGTERM)
        else:
            terminal.type(b"q")
        # Out of the other screen, and the cursor and the line editor are back.
        terminal.seconds_until(b"\x1b[?1049l", b"\x1b[?25h")
        assert terminal.wait() == (130 if signalled else 0)


def test_a_screen_that_breaks_is_no_success(tmp_path: Path) -> None:
    with monitor_in(tmp_path, "xterm-256color", "-c", BROKEN) as terminal:
        terminal.seconds_until(b"ZeroDivisionError", timeout_s=120)
        assert terminal.wait() == 1


@each("blocked", [False, True])
def test_a_terminal_that_is_gone_keeps_no_process(tmp_path: Path, blocked: bool) -> None:
    """`blocked`: also where nobody tells it (no SIGHUP) and its threads wait for the terminal."""
    program = tmp_path / "stays.py"
    program.write_text(
        "import signal\n"
        "from textual.screen import Screen\n"
        "from trainwiz.tui import app as terminal_gone\n"
        f"if {blocked}:\n"
        "    signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "    terminal_gone.ENDING = ()\n"
        "class Shown(Screen):\n"
        "    def on_mount(self):\n"
        "        self.set_interval(0.1, self.refresh)\n"
        "terminal_gone.TrainwizApp(lambda: Shown()).run()\n"
    )
    with Terminal([sys.executable, str(program)], os.environ, str(tmp_path)) as terminal:
        terminal.seconds_until(b"\x1b[?1049h", timeout_s=120)
        time.sleep(0.5)
        terminal.hang_up()
        for _ in range(400):
            if not Path(f"/proc/{terminal.pid}/fd/0").exists():
                return
            time.sleep(0.05)
        pytest.fail("it is still there")
