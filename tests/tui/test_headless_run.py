"""The headless run as a shell starts it: real processes, real training, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.listing import last_metrics
from trainwiz.core.run.state import read_state
from trainwiz.core.supervise.ties import marked_processes
from trainwiz.tui.cli import main

from tests.each import each

SMALL = ("--length", "32", "--micro-batch", "2", "--target-samples", "4", "--set", "data.sources.0.max_rows=120")
PATIENCE_S = 600.0


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    for state_json in tmp_path.rglob("state.json"):
        for pid in marked_processes(read_state(RunFolder(state_json.parent)).mark or "none"):
            os.kill(pid, signal.SIGKILL)


def start(*arguments: str) -> subprocess.Popen[str]:
    """`trainwiz` in the current folder, its output in pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "trainwiz.tui.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(reached: Callable[[], Any], what: str, process: subprocess.Popen[str] | None = None) -> None:
    """Until `reached`; fails early, with what it said, when `process` has ended before."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"ended with {process.returncode} before {what}: {process.communicate()}")
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {what}"
        time.sleep(0.1)


def has_steps(folder: Path) -> bool:
    metrics = folder / "metrics.jsonl"
    return metrics.is_file() and metrics.stat().st_size > 0


def processes_of(folder: Path) -> list[int]:
    mark = read_state(RunFolder(folder)).mark
    assert mark
    return list(marked_processes(mark))


@pytest.mark.real
def test_a_run_as_json_lines(tmp_path: Path) -> None:
    process = start("--yes", *SMALL, "--max-steps", "4", "--output-dir", "run", "--json")
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "")
    events = [json.loads(line) for line in out.splitlines()]
    names = [event["event"] for event in events]
    assert names[:2] == ["plan", "prepared"]
    assert names[-1] == "end"
    assert [event["step"] for event in events if event["event"] == "metrics" and "loss" in event] == [1, 2, 3, 4]
    end = events[-1]
    assert (end["status"], end["exit_code"], end["step"], end["model"]) == ("finished", 0, 4, "run/final_model")
    assert end["seconds"] > 0 and end["first_loss"] > 0 and end["last_loss"] > 0
    assert (tmp_path / "run" / "final_model" / "model.safetensors").is_file()
    assert read_json(tmp_path / "run" / "plan.json") is not None
    assert not processes_of(tmp_path / "run")


@pytest.mark.real
def test_ctrl_c_once_keeps_a_checkpoint_and_twice_ends_at_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start("--yes", *SMALL, "--max-steps", "5000", "--output-dir", "run")
    wait_for(lambda: has_steps(run), "the first step", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, "")
    assert "Stopping after this step, with a checkpoint." in out
    last = out.splitlines()[-1]
    step = read_state(RunFolder(run)).outcome["step"]  # type: ignore[index]
    assert last == f"Stopped   at step {step}, saved as checkpoint-{step}. Resume: trainwiz --resume --output-dir run"
    assert not {"\x1b", "\r"} & set(out)
    assert not processes_of(run)

    resumed = start("--resume", "--output-dir", "run", "--plain")
    wait_for(lambda: last_metrics(run / "metrics.jsonl").get("step", 0) > step, "a step after the resume", resumed)
    resumed.send_signal(signal.SIGINT)
    resumed.send_signal(signal.SIGINT)
    time.sleep(0.5)
    resumed.send_signal(signal.SIGINT)
    out, err = resumed.communicate(timeout=PATIENCE_S)
    # The third one may come while the program is on its way out; a shell shows 130 for both.
    assert resumed.returncode in (130, -signal.SIGINT) and err == ""
    assert "Stopping immediately." in out
    assert f"step {step + 1}/5,000" in out
    assert f"step {step}/5,000" not in out
    assert not processes_of(run)
    assert (run / f"checkpoint-{step}" / "trainer_state.json").is_file()


@pytest.mark.real
def test_a_run_does_not_outlive_its_foreground_command(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start("--yes", *SMALL, "--max-steps", "5000", "--output-dir", "run")
    wait_for(lambda: has_steps(run), "the first step", process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    wait_for(lambda: not processes_of(run), "the end of all processes")
    assert read_state(RunFolder(run)).status == "stopped"
    assert list(run.glob("checkpoint-*/trainer_state.json"))


def test_missing_hardware_is_refused_with_what_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--profile", "2080super", "--learning-rate", "3e-4", "--yes")
    assert main(asked) == 3
    text = capsys.readouterr().err
    for words in (
        "2080super is for 1 × RTX 2080 Super",
        "--dataset FILE",
        "trainwiz --profile 2080super --smoke --yes",
        "trainwiz --profile 2080super --learning-rate 3e-4 --dry-run",
        "trainwiz plan --profile 2080super --learning-rate 3e-4 --gpu 'RTX 2080 Super'",
        "trainwiz --profile cpu-demo --yes",
    ):
        assert words in text
    assert main([*asked, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["exit_code"], document["event"]) == (3, "refused")
    assert "missing_hardware" in {finding["code"] for finding in document["findings"]}
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


@each(
    ("arguments", "words"),
    [
        (("--resume", "--output-dir", "nothing"), "no such folder"),
        (("--resume", "--output-dir", "."), "it contains no run.yaml"),
        (("--resume", "--output-dir", ".", "--micro-batch", "4"), "--micro-batch: a resumed run keeps"),
        (("--yes", "--profile", "2080supr"), "Did you mean 2080super"),
        (("--yes", "--set", "batch.micro_batch=4"), "batch.micro_batch_size"),
        (("--yes", "--dataset", "missing.parquet"), "missing.parquet"),
        (("--yes", "--name", "../out"), "'../out'"),
        (("--yes", "--gpu", "RTX 3080 10GB"), "use it with `trainwiz plan` or --dry-run"),
        (("--yes", "--profile", "cpu-demo", "--peft", "lora"), "✗"),
        (("--yes", "--profile", "cpu-demo", "--task", "seq2seq"), "✗"),
        (("--yes", "--profile", "cpu-demo", "--strategy", "fsdp"), "✗"),
        (("--yes", "--profile", "cpu-demo", "--gpus", "0"), "✗"),
        (("--yes", "--profile", "cpu-demo", "--report-to", "nowhere"), "✗"),
    ],
)
def test_wrong_requests_write_nothing(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code = main(arguments)
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert code in (2, 3) and words in text and "Traceback" not in text, text
    assert not list(Path.cwd().iterdir())
