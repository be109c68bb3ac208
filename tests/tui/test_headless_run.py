"""The headless run as a shell starts it: a real training, and what writes nothing. Real runs to their end, with Ctrl-C
and resume: tests/engines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import read_state
from trainwiz.core.supervise.ties import marked_processes
from trainwiz.tui.cli import main

SMALL = ("--length", "32", "--micro-batch", "2", "--target-samples", "4", "--set", "data.sources.0.max_rows=120")
PATIENCE_S = 600.0


@pytest.fixture(autouse=True)
def _empty_folder(here: Path) -> Iterator[None]:
    yield
    for state_json in here.rglob("state.json"):
        for pid in marked_processes(read_state(RunFolder(state_json.parent)).mark or "none"):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.real
def test_a_run_as_json_lines_does_not_outlive_its_foreground_command(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    words = ("--yes", *SMALL, "--max-steps", "5000", "--output-dir", "run", "--json")
    process = subprocess.Popen([sys.executable, "-m", "trainwiz.tui.cli", *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    events: list[dict[str, Any]] = []
    while not events or "loss" not in events[-1]:
        events.append(json.loads(process.stdout.readline()))
    assert [event["event"] for event in events][:2] == ["plan", "prepared"]
    assert (events[-1]["event"], events[-1]["step"]) == ("metrics", 1)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    mark = read_state(run).mark
    assert mark
    deadline = time.monotonic() + PATIENCE_S
    while list(marked_processes(mark)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert read_state(run).status == "stopped"
    assert list(run.path.glob("checkpoint-*/trainer_state.json"))


def test_missing_hardware_is_refused_with_what_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--profile", "2080super", "--learning-rate", "3e-4", "--yes")
    assert main(asked) == 3
    text = capsys.readouterr().err
    for words in (
        "2080super is for 1 × RTX 2080 Super",
        "--dataset FILE",
        "trainwiz --profile 2080super --smoke --yes",
        "trainwiz --profile cpu-demo --yes",
    ):
        assert words in text
    assert main([*asked, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["exit_code"], document["event"]) == (3, "refused")
    assert "missing_hardware" in {finding["code"] for finding in document["findings"]}
    for line, words in (("--dataset missing.parquet", "missing.parquet"), ("--peft lora", "✗"), ("--gpus 0", "✗")):
        assert main(("--yes", "--profile", "cpu-demo", *line.split())) in (2, 3)
        assert words in "".join(capsys.readouterr())
    assert not list(tmp_path.iterdir())


def test_dry_run_writes_and_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile", "2080super", "--dry-run", "--output-dir", "run"]) == 0
    assert "1,999,872 tokens per step" in capsys.readouterr().out
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert {"run.yaml", "plan.json", "accelerate.yaml", "launch.sh", "state.json", "deepspeed.json"} <= set(before)
    assert read_state(RunFolder(tmp_path / "run")).status == "prepared"
    assert main(["--profile", "cpu-demo", "--dry-run", "--output-dir", "run"]) == 2
    assert "already contains a run" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
