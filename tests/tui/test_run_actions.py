"""The keys of the monitor that do something to a run: asked first, refused in a sentence, kept in the folder."""

from __future__ import annotations

from pathlib import Path

from textual.pilot import Pilot
from trainwiz.core.launch.actions import StopCost
from trainwiz.core.telemetry.target import Target
from trainwiz.tui.run_words import now_words, with_checkpoint_words
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.screens.monitor_cards import AskDialog
from trainwiz.tui.widgets.chooser import Chooser
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.log_panel import LogPanel

from tests.core.run.checkpoint_files import write_checkpoint
from tests.core.supervise.conftest import Starter, assert_gone
from tests.core.telemetry.written_run import source_of, write_run
from tests.each import each
from tests.tui.test_monitor import monitored, notices
from tests.tui.wizard_parts import shown as screen_text
from tests.tui.wizard_parts import until


def asked(pilot: Pilot) -> str:
    return " ".join(str(sentence.render()) for sentence in pilot.app.screen.query(".sentence"))


async def test_the_stop_dialog_says_what_each_way_costs(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    write_checkpoint(folder, 1580)
    async with monitored(folder, size=(60, 20)) as (_, pilot):
        await pilot.press("s")
        assert isinstance(pilot.app.screen, AskDialog)
        button = pilot.app.screen.focused
        assert isinstance(button, ActionButton) and button.action == "checkpoint"
        assert all(one.region.right <= 58 for one in pilot.app.screen.query(ActionButton))
        await until(pilot, lambda: "checkpoint-1580" in asked(pilot))
        assert "loses 20 steps, about 4.1 h of work (since checkpoint-1580)" in asked(pilot)
        buttons = [button.action for button in pilot.app.screen.query(ActionButton)]
        assert buttons == ["checkpoint", "cancel", "now"]


def cost(wait_s: float | None = 70.0, **more: object) -> StopCost:
    known = {"checkpoint": None, "lost_steps": 3, "lost_s": 1.0, **more}
    return StopCost(wait_s, **known)  # type: ignore[arg-type]


@each(
    ("cost", "with_checkpoint", "now"),
    [
        (cost(2400.0, lost_s=7200.0), "may take 40 min", "3 steps, about 2 h of work (everything so far: no checkpoint yet)"),
        (cost(save_s=30.0, checkpoint="checkpoint-9", lost_steps=1, lost_s=None), "take 100 s", "1 step (since checkpoint-9)"),
        (cost(0.3, checkpoint="checkpoint-9", lost_steps=0, lost_s=0.0), "take 1 s", "0 steps (since checkpoint-9)"),
        (cost(phase="paused"), "is waiting for disk space", "3 steps"),
        (cost(phase="tokenising", lost_steps=None), "has not started", "No step has been logged yet"),
        (cost(waits_to_start=True), "is waiting to restart", "3 steps"),
        (cost(None), "continues from there.", "3 steps"),
    ],
)  # fmt: skip
def test_what_each_way_costs_in_words(cost: StopCost, with_checkpoint: str, now: str) -> None:
    assert with_checkpoint in with_checkpoint_words(cost) and now in now_words(cost)


async def test_of_a_stopped_run_the_command_is_shown_and_a_resume_is_asked_about(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", status="stopped")
    (folder / "launch.sh").write_text('#!/bin/bash\nexec accelerate launch -m \\\n  x . "$@"\n')
    write_checkpoint(folder, 1600)
    before = (folder / "state.json").read_bytes()
    async with monitored(folder) as (screen, pilot):
        await pilot.press("c")
        assert isinstance(pilot.app.screen, Chooser)
        assert "resume it" in screen_text(pilot.app)
        await pilot.press("enter")
        assert pilot.app.clipboard == f"bash {folder}/launch.sh"
        await pilot.press("c", "down", "enter")
        assert pilot.app.clipboard == f"cd {folder} && accelerate launch -m x ."
        assert notices(pilot)[-1] == f"Copied: {pilot.app.clipboard}"
        await pilot.press("r")
        assert isinstance(pilot.app.screen, AskDialog)
        await until(pilot, lambda: "checkpoint-1600 (step 1,600)" in asked(pilot))
        await pilot.press("right", "enter")
        assert pilot.app.screen is screen
        assert (folder / "state.json").read_bytes() == before
        (folder / "run.yaml").write_text("name: [")
        await pilot.press("r", "enter")
        await until(pilot, lambda: any("run.yaml, line 1, column" in message for message in notices(pilot)))


async def test_a_replay_is_held_refuses_what_changes_the_run_and_shows_no_future(tmp_path: Path) -> None:
    log = "".join(f"step {step}/80  loss 2.5\n" for step in range(4, 81, 4))
    folder = write_run(tmp_path / "run", status="finished", steps=20, log=log)
    target = Target("run", folder, folder.name, replay_speed=0.001)
    async with monitored(target, interval_s=0.3) as (screen, pilot):
        for key in "sr":
            await pilot.press(key)
            assert pilot.app.screen is screen
        assert all("replay" in message for message in notices(pilot)) and len(notices(pilot)) == 2
        await pilot.press("space")
        await until(pilot, lambda: screen.snapshot is not None and screen.snapshot.replay_speed == 0.0)
        await pilot.press("l")
        await pilot.pause(0.5)
        assert screen.maximized is screen.query_one(LogPanel)
        shown = screen.query_one(LogPanel).content().plain.splitlines()
        assert not [line for line in shown if line.startswith("step 80/80")]
        assert all(line in log.splitlines()[:1] for line in shown if line.startswith("step"))


@each("readonly", [False, True])
def test_a_read_only_monitor_offers_nothing_that_changes_a_run(readonly: bool, tmp_path: Path) -> None:
    screen = MonitorScreen(Target("run", tmp_path, "run"), readonly)
    screen.snapshot = source_of(write_run(tmp_path / "run")).poll()
    assert screen.offers("plan") and screen.offers("stop") is screen.offers("stop_now") is not readonly


async def test_a_run_that_goes_on_is_stopped_from_the_monitor(start: Starter) -> None:
    started = start(STEPS=100_000)
    started.wait_for_steps(3)
    async with monitored(started.run.path, interval_s=0.2) as (screen, pilot):
        await pilot.press("s", "enter")
        assert "Requesting a stop." in notices(pilot)
        await until(pilot, lambda: screen.snapshot is not None and screen.snapshot.status == "stopped")
    assert list(started.run.path.glob("checkpoint-*/trainer_state.json"))
    assert_gone(started.mark)
