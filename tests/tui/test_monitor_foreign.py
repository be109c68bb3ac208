"""The monitor on jobs that trainwiz did not start: how they ended, no actions, every Trainer folder of the real data."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from trainwiz.core.telemetry.discovery import find_target
from trainwiz.core.telemetry.snapshot import Action
from trainwiz.core.telemetry.target import open_source
from trainwiz.core.telemetry.trainer_folder import trainer_name
from trainwiz.tui.cli import main
from trainwiz.tui.screens.monitor import MonitorScreen

from tests.core.telemetry.event_writers import accumulated
from tests.each import each

CRASHES = {
    "oom": ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "cuda_oom", "ran out of memory"),
    "traceback": ("KeyError: 'labels'", "python_error", "KeyError"),
}


def crash_log(path: Path, line: str) -> Path:
    metrics = "".join(f"{{'loss': {3 - step / 10}, 'step': {step}, 'epoch': 0.{step}}}\n" for step in range(1, 5))
    trace = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    main()\n'
    path.write_text(f"{metrics}{trace}{line}\n")
    return path


@each(("name", "where"), [("oom", "file"), ("traceback", "folder"), ("oom", "process")])
def test_a_log_that_ends_in_a_crash_has_its_diagnosis(
    name: str, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, cause, words = CRASHES[name]
    folder = tmp_path / "my job"
    folder.mkdir()
    log = crash_log(folder / "train.log", line)
    if where == "process":
        # Its output goes to the log; it ends while it is watched.
        with log.open("ab") as output:
            process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=output, cwd=folder)
        source = open_source(find_target(str(process.pid)))
        assert source.read_all().diagnosis is None
        process.kill()
        process.wait()
        document = source.read_all().to_json()
        source.close()
    else:
        assert main(["monitor", str(log if where == "file" else folder), "--once", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["diagnosis"]["cause"], document["exit"]["cause"]) == ("failed", cause, cause)
    assert words in document["exit"]["message"]
    assert document["exit"]["remedy"].endswith(f"trainwiz diagnose '{log}'")
    assert document["diagnosis"]["evidence"][0]["line"] == 8
    assert document["advice"][0]["code"] == cause


def test_a_loss_that_is_no_number_is_diagnosed_and_what_was_survived_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"step": 1, "loss": 1.0}, {"step": 2, "loss": float("nan")}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": 2, "max_steps": 9, "log_history": rows}))
    assert main(["monitor", str(tmp_path), "--once", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["diagnosis"]["cause"]) == ("quiet", "nan_loss")
    log = crash_log(tmp_path / "other.log", CRASHES["traceback"][0])
    with log.open("a") as file:
        file.writelines(f"{{'loss': 1.0, 'step': {step}, 'epoch': 0.5}}\n" for step in range(5, 40))
    assert main(["monitor", str(log), "--once", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["diagnosis"]) == ("quiet", None)


def test_a_foreign_job_offers_no_action(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": 1, "max_steps": 9, "log_history": []}))
    screen = MonitorScreen(find_target(str(tmp_path)))
    screen.snapshot = open_source(screen.target).read_all()
    assert not [action for action in get_args(Action) if screen.offers(action)]
    assert not [row for row in screen.key_rows() if row.needs]


@each("name", ["my log.out", "nohup"])
def test_a_log_without_metrics_names_the_command_that_reads_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("Traceback (most recent call last):\nRuntimeError: CUDA out of memory\n")
    for path in (tmp_path / name, *([tmp_path] if "." in name else [])):
        assert main(["monitor", str(path), "--once"]) == 2
        said = capsys.readouterr().err
        assert f"trainwiz diagnose {shlex.quote(str(path))}" in " ".join(said.split())


def test_trainer_folders(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = sorted((shared_data / "wild" / "trainer").iterdir())
    assert len(folders) >= 15
    for folder in folders:
        code = main(["monitor", str(folder), "--once", "--json"])
        document = json.loads(capsys.readouterr().out)
        state = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
        logged = [item for row in state["log_history"] for item in row.items() if item[0] not in ("step", "epoch")]
        counts = dict(Counter(name for name, value in logged if isinstance(value, int | float)))
        for file in folder.rglob("*tfevents.*"):
            tags = {tag: len(points) for tag, points in accumulated(file).items() if tag != "train/epoch"}
            counts |= {trainer_name(tag): count for tag, count in tags.items()}
        assert (code, document["source"], document["problems"]) == (0, "trainer", []), folder
        assert (document["step"], document["max_steps"]) == (state["global_step"], state["max_steps"]), folder
        assert {name: metric["count"] for name, metric in document["metrics"].items()} == counts, folder
