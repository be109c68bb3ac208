"""`trainwiz monitor`: what it takes, one look, lines for pipes, replays, and wrong requests."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import starmap
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.telemetry import discovery
from trainwiz.core.telemetry import target as target_module
from trainwiz.core.telemetry.discovery import Found
from trainwiz.core.telemetry.metrics import MetricSummary
from trainwiz.core.telemetry.snapshot import GpuReading, HostReading, Snapshot
from trainwiz.core.telemetry.target import Target
from trainwiz.tui.commands.monitor import (
    choose,
    follow,
    metric_text,
    plain_line,
    run_monitor,
    say_targets,
    summary_rows,
)
from trainwiz.tui.output import labelled

from tests.core.telemetry.written_run import NOW_S, write_json, write_run
from tests.each import each
from tests.tui.monitor_states import RUN_STATES

COMMAND = [sys.executable, "-c", "from trainwiz.tui.cli import main; import sys; sys.exit(main())", "monitor"]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two ended runs below runs/; the current folder."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "2026-11-20_1000-first", status="finished", steps=5)
    write_run(tmp_path / "runs" / "2026-11-21_1000-second", status="stopped", steps=5)
    return tmp_path


def beats(folder: Path) -> Path:
    """The run as one that goes on: its heartbeat is never old."""
    state = json.loads((folder / "state.json").read_text())
    write_json(folder / "state.json", {**state, "heartbeat_s": 4e9})
    return folder


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Found]]:
    """What there is to watch in the current folder: other jobs of this machine are not the test's."""
    everywhere = discovery.list_targets

    def listed() -> list[Found]:
        return [found for found in everywhere() if found.target.path.resolve().is_relative_to(Path.cwd())]

    monkeypatch.setattr(discovery, "list_targets", listed)
    return listed


def look(target: str | None, *, as_json: bool = False) -> int:
    return run_monitor(target, once=True, as_json=as_json, plain=False, readonly=False)


def test_without_a_name_the_one_that_runs_or_a_list(runs: Path) -> None:
    target, found = choose(None)
    assert target is None and len(found) == 2
    beats(write_run(runs / "runs" / "active-0", steps=5))
    target, _ = choose(None)
    assert target is not None and target.path.name == "active-0"
    beats(write_run(runs / "runs" / "active-1", steps=5))
    target, found = choose(None)
    assert target is None and [one.runs_now for one in found] == [True, True, False, False]


def test_the_list_as_text(runs: Path, here: Callable[[], list[Found]], capsys: pytest.CaptureFixture[str]) -> None:
    say_targets(here())
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["name", "status", "step", "loss", "what", "started"]
    assert rows[0].split()[0] in ("2026-11-20_1000-first", "2026-11-21_1000-second")
    assert {row.split()[1] for row in rows} == {"✓", "■"}
    assert all("20 of 500,000" in row and row.endswith("ago") for row in rows)
    target = Target("process", Path("/work"), "\x1b]0;owned\x07[red]", pid=77)
    say_targets([Found(target, "running", "python \x1b[31mx\x1b[0m\ny")])
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and len(out.splitlines()) == 2 and "77" in out


def test_once_as_text_and_as_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    beats(write_run(runs / "live", nan_at=(812,)))
    assert look("live") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    for part in (
        "step 1,600 of 500,000",
        "measured 742 s/step ✓   planned 460 to 1,150",
        "GPU 0",
        "79 °C",
        "warning: The loss was NaN or infinite in 1 of 400 logged steps, first at step 812.",
    ):
        assert part in out
    write_run(runs / "again", **RUN_STATES["recovered"])
    assert look("again") == 0
    attempt = "attempt 2, because GPU memory ran out; from step 1,200: 3 × 1,302 instead of 6 × 651"
    assert attempt in capsys.readouterr().out
    write_run(runs / "live", nan_at=(1600,))
    assert look("live", as_json=True) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    assert (document["metrics"]["loss"]["last"], document["metrics"]["loss"]["non_finite"]) == (None, 1)
    assert document["path"] == "live"


@each(
    ("name", "replay", "began", "last"),
    [
        ("second", None, "stopped   step 20 of 500,000", "Next: trainwiz runs resume"),
        ("first", "1e9", "2026-11-21", "Finished at step 20"),
    ],
)
def test_plain_lines_end_with_the_run_and_say_how(
    name: str, replay: str | None, began: str, last: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"once": False, "as_json": False, "plain": True, "readonly": False}
    assert run_monitor(name, **words, interval_s=0.1, replay=replay) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("step 20 of 500,000" in line and line.startswith(began) for line in lines)
    assert lines[-1].startswith(last)


@each(
    ("target", "options", "words"),
    [
        ("live", {"replay": "60", "plain": True}, "without --replay"),
        ("first", {"replay": "0", "plain": True}, "--replay needs a speed above"),
        ("first", {"replay": "soon", "plain": True}, "--replay needs a speed above"),
        ("first", {"replay": "60", "once": True}, "--once"),
        ("first", {}, "needs a terminal; without one use --once"),
    ],
)
def test_what_cannot_be_is_one_sentence(runs: Path, target: str, options: dict[str, Any], words: str) -> None:
    if target == "live":
        beats(write_run(runs / "runs" / "live", steps=5))
    with pytest.raises(UsageError, match=words) as caught:
        run_monitor(target, **{"once": False, "as_json": False, "plain": False, "readonly": False, **options})
    assert len(caught.value.findings) == 1


def test_a_replay_without_a_name_is_of_what_has_ended(runs: Path) -> None:
    beats(write_run(runs / "runs" / "live", steps=5))
    target, found = choose(None, ended=True)
    assert target is None
    assert {one.status for one in found} == {"finished", "stopped"}
    shutil.rmtree(runs / "runs" / "2026-11-21_1000-second")
    target, _ = choose(None, ended=True)
    assert target is not None and target.path.name == "2026-11-20_1000-first"
    shutil.rmtree(target.path)
    with pytest.raises(UsageError, match="to monitor or replay"):
        choose(None, ended=True)
    shutil.rmtree(runs / "runs")
    with pytest.raises(UsageError, match="trainwiz --profile cpu-demo --yes"):
        choose(None)


def test_ctrl_c_and_a_reader_that_goes_away(runs: Path) -> None:
    folder = beats(write_run(runs / "live", steps=5))
    for ending, code in (("ctrl-c", 0), ("closed", 141)):
        words = [*COMMAND, folder.name, "--plain", "--json", "--every", "0.1"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline().startswith("{")
        if ending == "closed":
            process.stdout.close()
            process.stdout = None
        else:
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (code, "")


def test_a_line_is_said_once_while_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = [Snapshot("tensorboard", "x", "x", status, 0.0) for status in ("running", "running", "quiet", "finished")]
    monkeypatch.setattr(target_module, "open_source", lambda target: Mock(read_all=Mock(side_effect=looks)))
    assert follow(Mock(), as_json=False, interval_s=0.0) == 0
    assert capsys.readouterr().out.split() == ["running", "quiet", "finished"]


def test_the_line_names_one_metric_and_stays_short() -> None:
    """Which one tells most: test_plot.py."""
    for name, line in (("train/loss", "train/loss 2.500"), ("tokens", "quiet"), ("a/" * 60 + "loss", "loss 2.500")):
        metrics = {name: MetricSummary(2.5, 5.0, 1, 2.5, 2.5, 0)}
        said = plain_line(Snapshot("tensorboard", "x", "x", "quiet", 0.0, metrics=metrics))
        assert said.endswith(line) and len(said) < 80


def test_lines_name_what_is_infinite_and_cards_that_are_not_used() -> None:
    shown = [metric_text("grad_norm", value) for value in (math.inf, -math.inf, math.nan)]
    assert shown == ["grad_norm infinite", "grad_norm −infinite", "grad_norm NaN"]
    card = GpuReading(0, "NVIDIA A100", "GPU-0", *[None] * 6, (), None, None, mig="disabled")
    host = HostReading(sample={"cpu": 1})
    known = {"gpus": (card,), "engine": {"device": "cpu"}, "job_cpu_history": (90.0,), "host": host}
    on_cpu = Snapshot("process", "x", "x", "running", NOW_S, **known)  # type: ignore[arg-type]
    lines = "\n".join(starmap(labelled, summary_rows(on_cpu)))
    assert "job 90%   This machine has a GPU, but the run uses the CPU." in lines
    assert "MIG" not in str(summary_rows(dataclasses.replace(on_cpu, engine={})))
