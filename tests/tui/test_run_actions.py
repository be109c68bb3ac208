"""The keys of the monitor that do something to a run: asked first, refused in a sentence, kept in the folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Static
from trainwiz.core.launch.actions import StopCost
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import read_state
from trainwiz.core.supervise.ties import marked_processes
from trainwiz.core.telemetry.target import Target
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.cli import main
from trainwiz.tui.run_words import now_words, with_checkpoint_words
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.screens.monitor_cards import AskDialog, CommandCard
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.log_view import LogView

from tests.core.run.checkpoint_files import write_checkpoint
from tests.core.telemetry.written_run import NOW_S, write_run
from tests.each import each
from tests.tui.test_monitor import WIDE, looked, until

SMALL = ("--length", "32", "--micro-batch", "2", "--target-samples", "4", "--set", "data.sources.0.max_rows=120")


def monitor_app(target: Target, *, readonly: bool = False, clock: Callable[[], float] = lambda: NOW_S) -> TrainwizApp:
    return TrainwizApp(lambda: MonitorScreen(target, readonly, interval_s=0.3, clock=clock), ascii_only=False)


def of(folder: Path, replay_speed: float | None = None) -> Target:
    return Target("run", folder, folder.name, replay_speed=replay_speed)


@asynccontextmanager
async def monitored(
    target: Target, *, size: tuple[int, int] = WIDE, **more: Any
) -> AsyncIterator[tuple[MonitorScreen, Pilot[int]]]:
    """The monitor of a run on the screen, after its first look."""
    async with monitor_app(target, **more).run_test(size=size) as pilot:
        yield await looked(pilot), pilot


def said(app: App[int]) -> list[str]:
    return [notice.message for notice in app._notifications]


def asked(pilot: Pilot[int]) -> str:
    return " ".join(str(sentence.render()) for sentence in pilot.app.screen.query(".sentence"))


def words_of(pilot: Pilot[int], selector: str) -> str:
    return str(pilot.app.screen.query_one(selector, Static).render())


async def test_the_stop_dialog_says_what_each_way_costs(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    write_checkpoint(folder, 1580)
    async with monitored(of(folder), size=(60, 20)) as (screen, pilot):
        # The key decides which way is offered first.
        for key, focused in (("S", "now"), ("s", "checkpoint")):
            await pilot.press(key)
            button = pilot.app.screen.focused
            assert isinstance(button, ActionButton) and button.action == focused
            assert all(one.region.right <= 58 for one in pilot.app.screen.query(ActionButton))
            await pilot.press("escape")
            assert pilot.app.screen is screen
        await pilot.press("s")
        assert isinstance(pilot.app.screen, AskDialog)
        await until(pilot, lambda: "checkpoint-1580" in asked(pilot))
        assert "loses 20 steps, about 4.1 h of work (since checkpoint-1580)" in asked(pilot)
        assert "up to 12 min of work will be repeated" in asked(pilot)
        buttons = [button.action for button in pilot.app.screen.query(ActionButton)]
        assert buttons == ["checkpoint", "cancel", "now"]
        await pilot.press("enter")
        assert "Requesting a stop." in said(pilot.app)


def cost(
    wait_s: float | None = 70.0, again_s: float | None = 0.0, patience_s: float = 200.0, **more: object
) -> StopCost:
    known = {"checkpoint": None, "lost_steps": 3, "lost_s": 1.0, **more}
    return StopCost(wait_s, again_s, patience_s, **known)  # type: ignore[arg-type]


@each(
    ("cost", "words"),
    [
        (cost(2400.0, 0.0, 5000.0), ["may take 40 min; it is", "still running after 83 min is killed"]),
        (cost(again_s=2400.0, work="micro_step", save_s=30.0), ["within 70 s", "Saving takes about 30 s"]),
        (cost(phase="paused"), ["is waiting for disk space"]),
        (cost(phase="tokenising"), ["has not started"]),
        (cost(phase="evaluating"), ["is canceled without a result", "may take 70 s"]),
        (cost(waits_to_start=True), ["is waiting to restart"]),
        (cost(0.3, 0.4), ["within 1 s"]),
        (cost(None, None, lost_steps=None, lost_s=None), ["continues from there"]),
    ],
)
def test_the_wait_for_a_checkpoint_in_words(cost: StopCost, words: list[str]) -> None:
    text = with_checkpoint_words(cost)
    assert all(word in text for word in words), text
    assert ("will be repeated" in text) == bool(cost.again_s and cost.again_s > 10)


@each(
    ("cost", "words"),
    [
        (cost(lost_s=7200.0), "3 steps, about 2 h of work (everything so far: no checkpoint yet)"),
        (cost(checkpoint="checkpoint-9", lost_steps=1, lost_s=None), "1 step (since checkpoint-9)"),
        (cost(checkpoint="checkpoint-9", lost_steps=0), "loses nothing (since checkpoint-9)"),
        (cost(lost_steps=None), "No step has been logged yet"),
    ],
)
def test_what_a_stop_at_once_loses_in_words(cost: StopCost, words: str) -> None:
    assert words in now_words(cost)


async def test_the_command_is_shown_and_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run", status="stopped")
    (folder / "launch.sh").write_text('#!/bin/bash\nexec accelerate launch -m \\\n  x . "$@"\n')
    async with monitored(of(folder)) as (_, pilot):
        await pilot.press("c")
        assert isinstance(pilot.app.screen, CommandCard)
        assert pilot.app.clipboard == f"bash {folder}/launch.sh"
        await pilot.press("2")
        assert pilot.app.clipboard == f"cd {folder} && accelerate launch -m x ."
        await pilot.press("9")
        assert words_of(pilot, "#copied") == "Copied 2: the command this runs."
        text = " ".join(str(widget.render()) for widget in pilot.app.screen.query(Static))
        assert f"trainwiz runs resume {folder}" in text


async def test_resume_asks_and_what_cannot_be_resumed_is_a_sentence(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", status="stopped")
    write_checkpoint(folder, 1600)
    before = (folder / "state.json").read_bytes()
    async with monitored(of(folder)) as (screen, pilot):
        await pilot.press("r")
        assert isinstance(pilot.app.screen, AskDialog)
        await until(pilot, lambda: "checkpoint-1600 (step 1,600)" in asked(pilot))
        await pilot.press("right", "enter")
        assert pilot.app.screen is screen
        assert (folder / "state.json").read_bytes() == before
        (folder / "run.yaml").write_text("name: [")
        await pilot.press("r", "enter")
        await until(pilot, lambda: any("run.yaml is not valid at line 1" in message for message in said(pilot.app)))


async def test_a_replay_is_held_refuses_what_changes_the_run_and_shows_no_future(tmp_path: Path) -> None:
    log = "".join(f"step {step}/80  loss 2.5\n" for step in range(4, 81, 4))
    folder = write_run(tmp_path / "run", status="finished", steps=20, log=log)
    async with monitored(of(folder), readonly=True) as (screen, pilot):
        await pilot.press("s", "r")
        assert pilot.app.screen is screen and all("read-only" in message for message in said(pilot.app))
    async with monitored(of(folder, replay_speed=0.001)) as (screen, pilot):
        for key in "sr":
            await pilot.press(key)
            assert pilot.app.screen is screen
        assert all("replay" in message for message in said(pilot.app)) and len(said(pilot.app)) == 2
        await pilot.press("space")
        await until(pilot, lambda: screen.snapshot is not None and screen.snapshot.replay_speed == 0.0)
        await pilot.press("l")
        await pilot.pause(0.5)
        assert screen.alone is screen.query_one(LogView)
        shown = screen.query_one(LogView).shown_lines
        assert not [line for line in shown if line.startswith("step 80/80")]
        assert all(line in log.splitlines()[:1] for line in shown if line.startswith("step"))


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; whatever was started in it is ended."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for state_json in tmp_path.rglob("state.json"):
        for pid in marked_processes(read_state(RunFolder(state_json.parent)).mark or "none"):
            os.kill(pid, 9)


@pytest.mark.real
async def test_a_detached_run_goes_on_alone_and_is_stopped_and_resumed_from_the_monitor(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--yes", *SMALL, "--max-steps", "200", "--output-dir", "run", "--detach", "--plain")
    assert main(arguments) == 0 and "trainwiz monitor run" in capsys.readouterr().out
    run = RunFolder(own_folder / "run")
    async with monitored(of(run.path), clock=time.time) as (screen, pilot):
        await until(pilot, lambda: screen.snapshot is not None and (screen.snapshot.step or 0) >= 3, 600)
        await pilot.press("s", "enter")
        await until(pilot, lambda: screen.snapshot is not None and screen.snapshot.status == "stopped", 600)
        assert list(run.path.glob("checkpoint-*"))
        stopped_at = screen.snapshot.step if screen.snapshot else None
        assert stopped_at is not None and stopped_at < 200
        await pilot.press("r")
        await pilot.press("enter")
        await until(pilot, lambda: screen.snapshot is not None and screen.snapshot.status == "finished", 600)
        assert screen.snapshot is not None and screen.snapshot.step == 200
    attempts = json.loads(run.state_json.read_text())["attempts"]
    assert [attempt["resume"] for attempt in attempts] == [None, f"checkpoint-{stopped_at}"]
