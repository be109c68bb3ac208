"""Keys on a real pseudo-terminal: they arrive at once, in bursts and in pieces, and a dialog gets those meant for it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trainwiz.core.run.notes import read_notes

from tests.benchmarks.terminal import Terminal
from tests.core.telemetry.written_run import write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


@pytest.fixture
def terminal(run: Path) -> Iterator[Terminal]:
    command = [str(Path(sys.executable).parent / "trainwiz"), "monitor", str(run)]
    with Terminal(command, os.environ, str(run)) as terminal:
        terminal.seconds_until(b"loss", b"1,600")
        # Until the first look has been drawn and the loop is at rest, as the parser is.
        time.sleep(1.5)
        yield terminal


def soon(holds: Callable[[], object], seconds: float = 10.0) -> bool:
    for _ in range(int(seconds / 0.05)):
        if holds():
            return True
        time.sleep(0.05)
    return False


def test_a_note_typed_in_one_burst_is_whole(run: Path, terminal: Terminal) -> None:
    terminal.type("nlr was too high, né\r".encode())
    assert soon(lambda: read_notes(run))
    assert [note.text for note in read_notes(run)] == ["lr was too high, né"]


def test_keys_after_the_dialog_go_to_the_monitor(run: Path, terminal: Terminal) -> None:
    terminal.type(b"none\rntwo\rq")
    assert terminal.wait() == 0
    assert [note.text for note in read_notes(run)] == ["one", "two"]


def test_a_lone_escape_and_halves_of_a_key(run: Path, terminal: Terminal) -> None:
    terminal.type(b"n")
    terminal.seconds_until(b"Note")
    terminal.type(b"\x1b")
    time.sleep(0.5)
    # Half an arrow key, half a character: the rest comes after a pause that is shorter than that of an escape key.
    terminal.type(b"nab")
    time.sleep(0.5)
    terminal.type(b"\x1b[")
    time.sleep(0.03)
    terminal.type(b"Dc\xc3")
    time.sleep(1.5)
    terminal.type(b"\xa9\r")
    assert soon(lambda: read_notes(run))
    assert [note.text for note in read_notes(run)] == ["acéb"]


def test_waiting_for_keys_costs_nothing_and_ends_at_once(terminal: Terminal) -> None:
    time.sleep(1.0)

    def switches() -> dict[str, int]:
        found = {}
        for task in Path(f"/proc/{terminal.pid}/task").iterdir():
            lines = (task / "status").read_text(encoding="utf-8").splitlines()
            found[task.name] = next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))
        return found

    before = switches()
    time.sleep(3.0)
    after = switches()
    # Textual's own thread for keys alone would be thirty.
    assert max(after[task] - before[task] for task in after if task in before) < 25, (before, after)
    began = time.monotonic()
    terminal.type(b"q")
    assert terminal.wait() == 0
    assert time.monotonic() - began < 5


def test_bytes_of_another_encoding_are_no_end(run: Path, terminal: Terminal) -> None:
    terminal.type(b"n")
    terminal.seconds_until(b"Note")
    terminal.type(b"caf\xe9 \xff\r")
    assert soon(lambda: read_notes(run))
    assert [note.text for note in read_notes(run)] == ["caf\ufffd \ufffd"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_ends_it_leaves_a_terminal_that_can_be_used(terminal: Terminal, number: int) -> None:
    os.kill(terminal.pid, number)
    # Out of the other screen, and the cursor and the line editor are back.
    terminal.seconds_until(b"\x1b[?1049l", b"\x1b[?25h")
    assert terminal.wait() == 130


def test_keys_that_stand_in_a_paste_are_not_pressed(run: Path, terminal: Terminal) -> None:
    terminal.type(b"\x1b[200~x\x1b[31mq\nq\x1b[201~")
    time.sleep(0.5)
    terminal.type(b"nstill here\r")
    assert soon(lambda: read_notes(run))
    assert [note.text for note in read_notes(run)] == ["still here"]


def test_a_terminal_that_is_gone_keeps_no_process(tmp_path: Path) -> None:
    """More is written after it than the queue of the writing thread holds."""
    program = tmp_path / "gone.py"
    program.write_text(
        "import os\n"
        "from textual.screen import Screen\n"
        "from trainwiz.tui.app import TrainwizApp\n"
        "class Ends(Screen):\n"
        "    def on_mount(self):\n"
        "        self.set_timer(0.3, self.lose)\n"
        "    def lose(self):\n"
        "        os.dup2(os.open('/dev/full', os.O_WRONLY), 2)\n"
        "        for number in range(100):\n"
        "            self.app._driver.write('x' * 100)\n"
        "            self.app._driver.flush()\n"
        "        self.app.exit()\n"
        "TrainwizApp(lambda: Ends()).run()\n"
    )
    with Terminal([sys.executable, str(program)], {**os.environ}, str(tmp_path)) as terminal:
        assert soon(lambda: not Path(f"/proc/{terminal.pid}/fd/0").exists())


def test_a_screen_that_could_not_leave_its_terminal_keeps_no_process(tmp_path: Path) -> None:
    """Seen with a tmux that was killed: the application had ended, and its two threads had not been told."""
    program = tmp_path / "stays.py"
    program.write_text(
        "from textual.screen import Screen\n"
        "from trainwiz.tui.app import TrainwizApp\n"
        "from trainwiz.tui.driver import SleepingDriver\n"
        "SleepingDriver.stop_application_mode = SleepingDriver.disable_input = lambda self: None\n"
        "class Ends(Screen):\n"
        "    def on_mount(self):\n"
        "        self.set_timer(0.3, self.app.exit)\n"
        "TrainwizApp(lambda: Ends()).run()\n"
    )
    with Terminal([sys.executable, str(program)], {**os.environ}, str(tmp_path)) as terminal:
        assert soon(lambda: not Path(f"/proc/{terminal.pid}/fd/0").exists())
