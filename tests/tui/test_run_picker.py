"""The list of what can be watched: it follows what happens, and enter watches."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList, Static
from trainwiz.core.errors import usage_error
from trainwiz.core.telemetry.discovery import Found
from trainwiz.core.telemetry.target import Target
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens import run_picker
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.screens.run_picker import RunPicker
from trainwiz.tui.widgets.frame import HelpCard

from tests.core.telemetry.written_run import NOW_S, write_run
from tests.tui.wizard_parts import running, until


def found(folder: Path, status: str = "running", **more: object) -> Found:
    return Found(Target("run", folder, folder.name), status, "esm2-650m", started_s=NOW_S - 3600, **more)  # type: ignore[arg-type]


async def listed(pilot: Pilot[int], count: int) -> list[str]:
    options = pilot.app.screen.query_one(OptionList)
    await until(pilot, lambda: options.option_count == count)
    return [str(options.get_option_at_index(index).prompt) for index in range(count)]


def title(pilot: Pilot[int]) -> str:
    return str(pilot.app.screen.query_one("#title", Static).render())


async def test_it_lists_follows_what_happens_and_enter_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_picker, "REFRESH_S", 0.1)
    second = write_run(tmp_path / "second", steps=5)
    odd = Target("process", tmp_path, "\x1b[31m[red]x[/red]", pid=5)
    there = [
        found(tmp_path / "first", step=20, max_steps=500),
        found(second, "finished", step=500, max_steps=500, loss=2.5),
        Found(odd, "running", "[@click=app.quit]y[/]\n\x07"),
    ]
    fails = list[bool]()

    def find() -> list[Found]:
        if fails:
            raise usage_error("broken", "runs", "The folder runs cannot be read.")
        return list(there)

    def watch(target: Target) -> MonitorScreen:
        return MonitorScreen(target, interval_s=3600.0, clock=lambda: NOW_S)

    app = TrainwizApp(lambda: RunPicker(watch, find=find, clock=lambda: NOW_S), ascii_only=False)
    async with running(app, (120, 40)) as pilot:
        first, ended, hostile = await listed(pilot, 3)
        assert "● running" in first and "first" in first and "step 20 of 500" in first and "60 min ago" in first
        assert "✓ finished" in ended and title(pilot).startswith("2 running, 1 ended.")
        assert "[red]x[/red]" in hostile and "[@click=app.quit]y[/]" in hostile
        assert not {"\x1b", "\x07", "\n"} & set(hostile)
        await pilot.press("f1")
        assert isinstance(pilot.app.screen, HelpCard)
        await pilot.press("escape", "down")
        await pilot.resize_terminal(60, 20)
        options = pilot.app.screen.query_one(OptionList)
        await until(pilot, lambda: max(len(str(option.prompt)) for option in options.options) <= 58)
        # The mark stays on what it was on.
        there.insert(0, found(tmp_path / "new"))
        await listed(pilot, 4)
        assert pilot.app.screen.query_one(OptionList).highlighted == 2
        await pilot.press("enter")
        await pilot.pause()
        screen = pilot.app.screen
        assert isinstance(screen, MonitorScreen) and screen.target.name == "second"
        pilot.app.pop_screen()
        there.clear()
        await listed(pilot, 0)
        assert title(pilot) == "There is nothing left to monitor."
        await pilot.press("enter")
        assert isinstance(pilot.app.screen, RunPicker)
        fails.append(True)
        await until(pilot, lambda: title(pilot) == "The folder runs cannot be read.")
        await pilot.press("escape")
    assert pilot.app.return_value == 0
