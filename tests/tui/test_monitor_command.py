"""`trainwiz monitor`: which run it takes, one look, lines for pipes, and wrong targets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.tui.commands.monitor import choose_run, run_monitor

from tests.core.telemetry.written_run import NOW_S, write_json, write_run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two ended runs below runs/; the current folder."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "2026-11-20_1000-first", status="finished", steps=5)
    write_run(tmp_path / "runs" / "2026-11-21_1000-second", status="stopped", steps=5)
    age(tmp_path / "runs" / "2026-11-20_1000-first", 90_000)
    return tmp_path


def age(folder: Path, seconds: float) -> None:
    state = json.loads((folder / "state.json").read_text())
    write_json(folder / "state.json", {**state, "created_s": NOW_S - seconds})


def test_without_a_target_the_newest_run(runs: Path) -> None:
    assert choose_run(None).path.name == "2026-11-21_1000-second"


def test_without_a_target_the_active_run_wins(runs: Path) -> None:
    folder = write_run(runs / "runs" / "2026-11-19_1000-active", status="running", steps=5)
    state = json.loads((folder / "state.json").read_text())
    write_json(folder / "state.json", {**state, "created_s": 1.0, "heartbeat_s": 4e9})
    assert choose_run(None).path.name == "2026-11-19_1000-active"


@pytest.mark.parametrize("target", ["2026-11-20_1000-first", "2026-11-20", "first", "runs/2026-11-20_1000-first"])
def test_a_target_by_name_beginning_part_and_path(runs: Path, target: str) -> None:
    assert choose_run(target).path.name == "2026-11-20_1000-first"


@pytest.mark.parametrize("target", ["nothing", "2026-11", "/nowhere/at/all", "runs", ""])
def test_a_wrong_target_is_one_sentence(runs: Path, target: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_run(target)
    assert caught.value.exit_code == 2
    assert len(caught.value.findings) == 1


def test_no_runs_at_all_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="trainwiz --profile cpu-demo --yes"):
        choose_run(None)


def test_once_as_text(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(runs / "live", nan_at=(812,))
    assert run_monitor("live", once=True, as_json=False, plain=False, readonly=False) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    for part in ("step 1,600 of 500,000", "loss 2.614", "742 s a step (planned 460 to 1,150)", "GPU 0", "79 °C"):
        assert part in out
    assert "warning: The loss was not a number once, at step 812." in out


def test_once_as_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(runs / "live", nan_at=(1600,))
    assert run_monitor("live", once=True, as_json=True, plain=False, readonly=False) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    assert document["metrics"]["loss"]["last"] is None
    assert document["metrics"]["loss"]["non_finite"] == 1
    assert document["path"] == "live"


def test_plain_ends_with_the_run_and_says_how(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_monitor("second", once=False, as_json=False, plain=True, readonly=False, interval_s=0.1) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("stopped   step 20 of 500,000")
    assert lines[-1].startswith("Next: trainwiz runs resume")


def test_plain_json_is_one_document_a_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_monitor("first", once=False, as_json=True, plain=True, readonly=False) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["status"] == "finished"


def test_without_a_terminal_the_screen_is_refused_in_one_sentence(runs: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from trainwiz.tui.cli import main; import sys; sys.exit(main())",
        "monitor",
        "first",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=os.environ, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "--once" in done.stderr
