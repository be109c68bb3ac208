"""A run started by hand (launch.sh), without a keeper: its folder tells the truth, and nothing starts beside it."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.launch.start import start_run, stop_run
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import recorded_runs, remove_run
from trainwiz.core.run.state import read_state

from tests.core.training.runs import metrics, start, tiny_config, write_run

pytestmark = pytest.mark.real


def test_a_run_by_hand_is_seen_guarded_stopped_and_gone_on_with(tmp_path: Path) -> None:
    config = tiny_config(training__max_steps=5000, checkpoint__every_steps=5000)
    folder = write_run(tmp_path / "by hand", config)
    run = RunFolder(folder)
    process = start(folder, config)
    _wait_until_it_trains(run, process)
    assert read_state(run).engine["actual"] == "single"
    assert recorded_runs() == [run]

    assert _refusal(folder) == "by hand runs already. Watch it with: trainwiz monitor " + shlex.quote(str(folder))
    for meddle in (lambda: start_run(run, resume="auto"), lambda: remove_run(run)):
        with pytest.raises(UsageError):
            meddle()
    assert not list(folder.glob("failure-rank*"))

    state = stop_run(run)
    assert state.status == "stopped" and state.outcome is not None
    stopped = state.outcome["step"]
    assert process.wait(60) == 0
    assert state.exit is not None
    assert (
        state.exit.message
        == f"Stopped at step {stopped:,} by you. checkpoint-{stopped} is the newest complete checkpoint."
    )
    assert max(line["step"] for line in metrics(folder)) == stopped

    assert _refusal(folder) == (
        f"by hand was trained before, up to step {stopped:,}; nothing is overwritten. "
        f"Go on with: ./launch.sh --resume checkpoint-{stopped}"
    )
    assert read_state(run).status == "stopped"

    process = start(folder, config, "--resume", f"checkpoint-{stopped}")
    _wait_until_it_trains(run, process)
    state = stop_run(run, now=True)
    assert state.status == "stopped" and state.exit is not None and "at once" in state.exit.message
    assert process.wait(60) != 0
    assert [attempt.resume for attempt in state.attempts] == [None, f"checkpoint-{stopped}"]


def _refusal(folder: Path) -> str:
    """What a second start says, as the launcher would start it."""
    command = [sys.executable, "-m", "trainwiz.core.training", "."]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 2
    return ended.stderr.strip()


def _wait_until_it_trains(run: RunFolder, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while read_state(run).status != "running":
        assert process.poll() is None and time.monotonic() < deadline, run.train_log.read_text()[-4000:]
        time.sleep(0.05)
