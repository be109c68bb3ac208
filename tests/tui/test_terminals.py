"""The monitor in a real pseudo-terminal, as the kinds of terminals drive it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.telemetry.written_run import write_run
from tests.each import each

PATIENCE_S = 300.0


@each("term", ["dumb", "unknown", "vt100", "linux", "screen-256color"])
def test_every_kind_of_terminal_shows_the_run_and_lets_go(tmp_path: Path, term: str) -> None:
    command = [sys.executable, "-m", "trainwiz.tui", "monitor", str(write_run(tmp_path / "run"))]
    with started(command, term) as (process, ours):
        read_until(ours, b"1,600")
        os.write(ours, b"q")
        read_until(ours, None)
        assert process.wait(PATIENCE_S) == 0


BROKEN = """
import sys
from trainwiz.tui.screens.monitor import MonitorScreen
MonitorScreen.on_mount = lambda screen: 1 / 0
from trainwiz.tui.cli import main
sys.exit(main())
"""


def test_a_screen_that_breaks_is_no_success(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BROKEN, "monitor", str(write_run(tmp_path / "run"))]
    with started(command, "xterm-256color") as (process, ours):
        read_until(ours, b"ZeroDivisionError")
        read_until(ours, None)
        assert process.wait(PATIENCE_S) == 1


@contextlib.contextmanager
def started(command: list[str], term: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The program in a terminal of its own, and what reads and writes there."""
    ours, theirs = pty.openpty()
    # Not 80 x 25, which is what Rich takes for a dumb terminal whatever its size.
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 90, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")} | {"TERM": term}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def read_until(terminal: int, wanted: bytes | None) -> None:
    """Reads what the program draws until `wanted` was drawn, or until it closes the terminal."""
    seen = b""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            part = os.read(terminal, 65_536)
        except OSError:
            part = b""
        if not part:
            assert wanted is None, "the program ended"
            return
        seen += part
        if wanted is not None and wanted in seen:
            return
    pytest.fail(f"{wanted!r} did not come in {PATIENCE_S:g} s; the last that did: {seen[-300:]!r}")
