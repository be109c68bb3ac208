"""The next attempt of a run: the files and the command of its own settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.launch import start
from trainwiz.core.launch.prepare import prepare_run, run_yaml_text
from trainwiz.core.launch.start import changed_config, own_launcher, prepare_again, read_run_config, setup_of
from trainwiz.core.run.attempts import RECOVERY_JSON, Recovery, write_recoveries
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.identity import IDENTITY_JSON, Identity, settings_now
from trainwiz.core.supervise.recovery import Setup

from tests.core.launch.plans import small_plan
from tests.each import each

FILES = ("accelerate.yaml", "launch.sh", "deepspeed.json")
HALF = {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 16}


def prepared(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> RunFolder:
    plan = small_plan(batch__micro_batch_size=6, batch__gradient_accumulation_steps=8, **changes)
    run = prepare_run(plan, folder)
    monkeypatch.chdir(run.path)
    return run


def texts(run: RunFolder) -> dict[str, str]:
    return {name: run.file(name).read_text() for name in FILES if run.file(name).exists()}


def change(run: RunFolder, **changes: Any) -> None:
    write_recoveries(run, [Recovery(2, "cuda_oom", 5, 0.0, changes)])


def test_files_that_leave_the_batch_to_the_trainer_stay_and_the_plan_keeps_its_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(tmp_path / "one", monkeypatch, engine__strategy="zero2", engine__processes=2)
    before = texts(run)
    answer = prepare_again(run)
    assert texts(run) == before and not (run.path / "attempts").exists(), "without a change all stays as prepared"
    assert Setup.from_json(answer["setup"]) == setup_of(read_run_config(run))
    change(run, **HALF)
    answer = prepare_again(run)
    assert texts(run) == before
    assert json.loads(before["deepspeed.json"])["train_micro_batch_size_per_gpu"] == "auto"
    assert (answer["setup"]["micro_batch_size"], answer["setup"]["gradient_accumulation_steps"]) == (3, 16)
    assert run.file("launch.sh").stat().st_mode & 0o111
    # The plan's own word stays.
    assert yaml.safe_load(run.run_yaml.read_text())["batch"]["micro_batch_size"] == 6
    assert changed_config(run).batch.micro_batch_size == 3


def own_file(path: Path, micro: Any, accumulation: Any) -> Path:
    document = {
        "zero_optimization": {"stage": 2},
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
        "train_batch_size": "auto",
        "bf16": {"enabled": "auto"},
        "gradient_clipping": "auto",
    }
    path.write_text(json.dumps(document))
    return path


@each("numbers", [(6, 8), ("auto", "auto")])
def test_a_deepspeed_file_of_the_users_changes_in_its_numbers_alone(
    numbers: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own_file(tmp_path / "mine.json", *numbers)
    engine = {"engine__strategy": "zero2", "engine__processes": 2, "engine__deepspeed_file": str(file)}
    run = prepared(tmp_path / "one", monkeypatch, **engine)
    assert run.file("deepspeed.json").read_text() == file.read_text()
    change(run, **HALF)
    prepare_again(run)
    expected = json.loads(file.read_text())
    if numbers == (6, 8):
        expected |= {"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 16}
        assert (run.path / "attempts" / "planned" / "deepspeed.json").read_text() == file.read_text()
    assert json.loads(run.file("deepspeed.json").read_text()) == expected
    if numbers == (6, 8):
        # recovery.json is written first: a start finds its own files, whatever a killed keeper has left.
        change(run, **{"batch.micro_batch_size": 1, "batch.gradient_accumulation_steps": 48})
        monkeypatch.setattr(start, "start_keeper", lambda folder, order: {})
        with pytest.raises(CannotRunError):
            start.start_run(run, resume="auto")
        assert json.loads(run.file("deepspeed.json").read_text())["train_micro_batch_size_per_gpu"] == 1
        assert (run.path / "attempts" / "planned" / "deepspeed.json").read_text() == file.read_text(), "the first one"


def test_the_child_answers_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepared(tmp_path / "one", monkeypatch)
    change(run, **HALF)
    child = [sys.executable, "-P", "-m", "trainwiz.core.launch.start", str(run.path)]
    done = subprocess.run(child, capture_output=True, text=True, cwd="/", check=True)
    answer = json.loads(done.stdout)
    assert answer["command"][:4] == [sys.executable, "-P", "-m", "accelerate.commands.launch"]
    assert answer["command"] == own_launcher(answer["command"])
    assert answer["setup"]["micro_batch_size"] == 3
    run.run_yaml.write_text("name: [")
    done = subprocess.run(child, capture_output=True, text=True, cwd="/", check=True)
    assert "run.yaml is not valid at line 1" in json.loads(done.stdout)["error"]


@each("changes", [{"batch.micro_batch_size": "many"}, {"no.such.section": 3}])
def test_changes_that_are_nonsense_are_refused_in_a_sentence(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(tmp_path / "one", monkeypatch)
    change(run, **changes)
    with pytest.raises(UsageError) as caught:
        prepare_again(run)
    (finding,) = caught.value.findings
    assert RECOVERY_JSON in finding.message and "\n" not in finding.message


def test_other_processes_that_were_accepted_reach_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepared(tmp_path / "one", monkeypatch)
    config = read_run_config(run)
    Identity(settings_now(config, run.path)).write(run.file(IDENTITY_JSON))
    two = {"engine.processes": 2, "engine.strategy": "ddp", "batch.gradient_accumulation_steps": 4}
    run.run_yaml.write_text(run_yaml_text(config.with_values(two, "you")))
    monkeypatch.setattr(start, "start_keeper", lambda folder, order: {})
    with pytest.raises(CannotRunError):
        start.start_run(run, resume="auto", accept=["processes", "engine"])
    assert yaml.safe_load(run.file("accelerate.yaml").read_text())["num_processes"] == 2
