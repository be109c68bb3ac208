"""The bar in a real pseudo-terminal: one live line, which a pressed Ctrl-C does not break."""

from __future__ import annotations

import os
import pty
import sys
import termios
from pathlib import Path

import pytest
from trainwiz.core.run.state import RunState
from trainwiz.tui.headless.reporters import Progress, waiting_for

SHOW = """
import sys, time
from pathlib import Path
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunState
from trainwiz.tui.headless.reporters import BarReporter
from trainwiz.tui.headless.reporters import Progress
reporter = BarReporter()
def show(step):
    state = RunState(status="running", max_steps=120)
    reporter.progress(Progress(state, "training", 0.1, step, 120, 2.71, 18900.0, 2**30, 21.0))
show(70)
time.sleep(0.3)
show(71)
reporter.note("[bold]a note[/bold]")
reporter.close()
"""


def shown_in_terminal(columns: int) -> tuple[str, bool, bool]:
    """(what was written, whether "^C" is echoed while the bar is there, and after it)."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": str(columns)}
        os.execv(sys.executable, [sys.executable, "-c", SHOW])
    text, echoed = b"", True
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:
            break
        if not data:
            break
        if b"step 70" in text + data and b"step 71" not in text + data:
            echoed = bool(termios.tcgetattr(terminal)[3] & termios.ECHOCTL)
        text += data
    after = bool(termios.tcgetattr(terminal)[3] & termios.ECHOCTL)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, text.decode()
    return text.decode(), echoed, after


@pytest.mark.skipif(not Path("/dev/ptmx").exists(), reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("columns", "memory"), [(120, True), (60, False)])
def test_bar(columns: int, memory: bool) -> None:
    text, echoed, after = shown_in_terminal(columns)
    assert "step 71/120   loss 2.71" in text
    assert "0:21 left" in text
    assert ("18,900 tokens/s   1.0 GiB" in text) is memory
    assert "[bold]a note[/bold]" in text
    assert not echoed
    assert after


@pytest.mark.parametrize(
    ("step", "words"), [(119, "working on the steps after 119"), (120, "measuring and saving the model")]
)
def test_after_the_last_step_there_is_no_next_one(step: int, words: str) -> None:
    progress = Progress(RunState(status="running"), "training", 30.0, step, 120, 2.0, 1000.0, 2**30, 0.0)
    assert waiting_for(progress) == words
