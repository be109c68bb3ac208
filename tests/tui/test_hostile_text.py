"""No command prints an escape code, a bell or a direction mark that somebody else put into a run or a profile."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from trainwiz.core.run.folder import RunFolder, read_json, write_json_atomic
from trainwiz.core.run.state import read_state
from trainwiz.core.text import plain_text
from trainwiz.tui.commands.hardware import run_hardware
from trainwiz.tui.commands.monitor import run_monitor
from trainwiz.tui.commands.profiles import run_list as list_profiles
from trainwiz.tui.commands.profiles import run_show as show_profile
from trainwiz.tui.commands.profiles import run_validate
from trainwiz.tui.commands.runs import run_compare, run_list, run_show, run_stop
from trainwiz.tui.headless.ending import ending_rows
from trainwiz.tui.headless.reporters import Reporter
from trainwiz.tui.output import say_rows
from trainwiz.tui.widgets.monitor_panel import MonitorPanel

from tests.core.telemetry.written_run import write_run
from tests.each import each

HOSTILE = "\x1b[31mX\x1b]0;title\x07[bold]\u202e\x9b1m"


def poisoned(value: object) -> object:
    """Every text of a JSON document with something at its end that a terminal would obey."""
    if isinstance(value, dict):
        return {key: item if key == "status" and key in value else poisoned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item) for item in value]
    return value + HOSTILE if isinstance(value, str) else value


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A failed run with such a text in its folder's name and in every text of its files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", HOSTILE)
    folder = RunFolder(write_run(tmp_path / "runs" / f"evil{HOSTILE}", status="failed", steps=5))
    state = read_json(folder.state_json) or {}
    attempt = {"number": 1, "started_s": 1.0, "resume": "c", "set_aside": ["s"], "exit": {"message": "m"}}
    state |= {"notes": ["note"], "engine": {"planned": "p", "actual": "a"}, "attempts": [attempt]}
    state |= {"exit": {"code": 1, "cause": "c", "message": "m", "remedy": "r", "evidence": ["e"]}}
    for key in ("name", "profile", "model", "task", "host"):
        state[key] = key
    document = poisoned(state)
    assert isinstance(document, dict)
    document["attempts"][0]["status"] = f"failed{HOSTILE}"
    write_json_atomic(folder.state_json, document)
    folder.run_yaml.write_text(f"profile: {json.dumps(HOSTILE)}\n{json.dumps(HOSTILE)}: 1\n", encoding="utf-8")
    with folder.metrics_jsonl.open("a") as lines:
        lines.write(json.dumps({"step": 6, "loss": 1.0, f"mine{HOSTILE}": 2.0}) + "\n")
    with folder.train_log.open("a") as log:
        log.write(f"a line {HOSTILE}\n")
    (folder.path / f"checkpoint-7{HOSTILE}").mkdir()
    return folder


def evil_profile(tmp_path: Path) -> str:
    path = tmp_path / f"mine{HOSTILE}.yaml"
    path.write_text(f"description: {json.dumps(HOSTILE)}\nvalues: {{{json.dumps(HOSTILE)}: 1}}\n", encoding="utf-8")
    return str(path)


COMMANDS: dict[str, Callable[[RunFolder], object]] = {
    "runs list": lambda run: run_list(as_json=False),
    "runs show": lambda run: run_show("evil", as_json=False),
    "runs compare": lambda run: run_compare(["evil", "evil"], as_json=False),
    "runs stop": lambda run: run_stop(["evil"], now=False),
    "monitor --once": lambda run: run_monitor("evil", once=True, as_json=False, plain=False, readonly=True),
    "monitor --plain": lambda run: run_monitor("evil", once=False, as_json=False, plain=True, readonly=True),
    "profiles validate": lambda run: run_validate([evil_profile(run.path)], as_json=False),
    "profiles list": lambda run: list_profiles(as_json=False),
    "profiles show": lambda run: show_profile("cpu-demo", as_json=False),
    "hardware": lambda run: run_hardware(as_json=False),
    "headless, prepared": lambda run: Reporter("lines").prepared(run, []),
    "headless, note": lambda run: Reporter("lines").note(f"Monitor it: trainwiz monitor {run.path}"),
    "headless, end": lambda run: say_rows(ending_rows(run, read_state(run))),
}


@each("command", COMMANDS)
def test_output_is_plain(command: str, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    COMMANDS[command](run)
    printed = "".join(capsys.readouterr())
    assert printed.strip()
    obeyed = {ch for ch in printed if ch != "\n" and unicodedata.category(ch) in ("Cc", "Cf", "Cs")}
    assert obeyed == set()


TITLES = ("[$accent]loss", "[ red ]loss", "a\\[b]", "[[x]]", "[@click=app.quit]loss[/]", "lo\x1b[31mss\u202e")


def test_the_title_of_a_panel_is_text_as_wide_as_everywhere() -> None:
    titles = [str(vars(MonitorPanel(title))["_border_title"]) for title in TITLES]
    assert titles == [*TITLES[:-1], "loss"]
    assert plain_text("loss ❤\ufe0f \u2714\ufe0e") == "loss ❤ \u2714"
