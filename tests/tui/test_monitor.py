"""The monitor screen, driven by keys, on run folders in the real format."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.log import KEPT_LINES
from trainwiz.core.telemetry.target import Target
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.screens.monitor_cards import PlanCard
from trainwiz.tui.widgets.frame import KeyBar, fitting_keys
from trainwiz.tui.widgets.log_panel import LogPanel
from trainwiz.tui.widgets.machine_panels import DevicePanel
from trainwiz.tui.widgets.metric_panel import MetricPanel, Plot
from trainwiz.tui.widgets.run_header import RunHeader

from tests.core.telemetry.written_run import NOW_S, write_json, write_lines, write_run
from tests.tui.wizard_parts import WIDE, running, until


def monitor_app(what: Path | Target, *, interval_s: float = 3600.0, ascii_only: bool = False) -> TrainwizApp:
    """With a frozen clock."""
    target = Target.of_run(RunFolder(what)) if isinstance(what, Path) else what
    return TrainwizApp(lambda: MonitorScreen(target, interval_s=interval_s, clock=lambda: NOW_S), ascii_only=ascii_only)


@asynccontextmanager
async def monitored(
    what: Path | Target, *, size: tuple[int, int] = WIDE, **more: Any
) -> AsyncIterator[tuple[MonitorScreen, Pilot]]:
    """The monitor on the screen, after its first look."""
    async with running(monitor_app(what, **more), size) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, MonitorScreen)
        await until(pilot, lambda: screen.snapshot is not None)
        yield screen, pilot


def plot_text(screen: MonitorScreen) -> str:
    return "\n".join("".join(text for text, _ in row) for row in screen.query_one(Plot).rows)


def header_text(screen: MonitorScreen, width: int = 118) -> str:
    return "\n".join(line.plain for line in screen.query_one(RunHeader).lines_at(width))


def notices(pilot: Pilot) -> list[str]:
    return [notice.message for notice in pilot.app._notifications]


async def test_it_follows_the_files_and_many_lines_do_not_block(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=10, log_every=1, max_steps=20)
    async with monitored(folder, interval_s=0.05) as (screen, pilot):
        log = screen.query_one(LogPanel)
        with (folder / "metrics.jsonl").open("a") as file:
            file.write('{"step": 11, "loss": 1.25}\n')
        with (folder / "train.log").open("a") as file:
            file.write("a new line\n")
        await until(pilot, lambda: screen.snapshot is not None and screen.snapshot.step == 11)
        assert "step 11 of 20" in header_text(screen)
        assert str(screen.query_one("#values").render()).startswith("1.250 ")
        assert log.content().plain.splitlines()[-1] == "a new line"
        with (folder / "train.log").open("a") as file:
            file.write("".join(f"line {n}\n" for n in range(50_000)))
        await until(pilot, lambda: log.content().plain.endswith("line 49999"))
        assert len(log.rows_at(200)) <= KEPT_LINES + 1


async def test_a_run_by_keys_at_every_size_with_hostile_names(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", log="[red]\x1b]0;owned\x07[/red] [@click=app.quit]x[/]\n")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    write_lines(folder / "metrics.jsonl", [{**row, "[bold]\x1b[31mloss": 1.0} for row in rows])
    supervisor = {"pid": os.getpid(), "create_time": time.time()}
    state = json.loads((folder / "state.json").read_text()) | {"supervisor": supervisor, "heartbeat_s": time.time()}
    write_json(folder / "state.json", state)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    async with monitored(folder) as (screen, pilot):
        assert screen.query_one(LogPanel).content().plain == "[red][/red] [@click=app.quit]x[/]"
        panel = screen.query_one(MetricPanel)
        whole = plot_text(screen)
        await pilot.press("z")
        assert panel.title_text == "loss · from step 1,281"
        assert plot_text(screen) != whole
        assert {"1,281", "1,600"} <= set(plot_text(screen).splitlines()[-1].split())
        await pilot.press("z", "e")
        assert panel.title_text == "loss · log scale"
        await pilot.press("e", "full_stop")
        await until(pilot, lambda: screen.snapshot is not None and "learning_rate" in screen.snapshot.curves)
        assert panel.title_text == "learning_rate" and "e-4" in plot_text(screen)
        titles = set()
        for _ in range(12):
            await pilot.press("full_stop")
            titles.add(panel.title_text)
        assert "[bold]loss" in titles and "\x1b" not in "".join(titles)
        await pilot.press("p")
        assert isinstance(pilot.app.screen, PlanCard)
        text = str(pilot.app.screen.query_one("Static").render())
        assert "6 × 651 = 3,906 sequences" in text and "sm 7.5 has no bf16" in text
        await pilot.press("escape")
        screen.query_one(DevicePanel).focus()
        await pilot.press("f1")
        assert "planned peak" in " ".join(str(widget.render()) for widget in pilot.app.screen.query("Static"))
        await pilot.press("escape", "ctrl+c")
        assert notices(pilot) == ["Press ctrl+q to quit. A run that was started continues."]
        for size in ((60, 20), (120, 40), (500, 120)):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.05)
            assert "running" in header_text(screen, size[0] - 2)
            assert all(len(line) <= size[0] - 2 for line in header_text(screen, size[0] - 2).splitlines())
            assert screen.query_one(KeyBar).region.bottom == size[1]
            assert "monitor.stop" in {row.id for row in fitting_keys(screen.key_rows(), size[0] - 2)}
        # It runs on another machine.
        await pilot.press("s", "enter")
        await until(pilot, lambda: any("workstation" in message for message in notices(pilot)))
        assert pilot.app.screen is screen
        await pilot.press("q")
    # Watching and leaving changed nothing.
    assert pilot.app.return_value == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


async def test_an_ended_run_has_no_stop_its_end_is_a_sentence_and_leaving_says_it(tmp_path: Path) -> None:
    command = "trainwiz --profile cpu-demo --learning-rate 0.0002 --yes"
    message = "The loss is NaN at step 40. It was 2.7 at the step before. The last good one is checkpoint-30."
    remedy = f"Train again with a lower learning rate: 0.0002 instead of 0.001. {command}"
    exit_ = {"code": 1, "cause": "nan_loss", "message": message, "remedy": remedy}
    app = monitor_app(write_run(tmp_path / "runs" / "one", status="failed", exit_=exit_))
    app.farewell = "Started  run"
    async with running(app, WIDE) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, MonitorScreen)
        await until(pilot, lambda: screen.snapshot is not None)
        assert "✗ failed" in header_text(screen)
        assert "monitor.stop" not in {row.id for row in screen.key_rows()}
        await pilot.press("s")
        assert pilot.app.screen is screen
        assert app.farewell.startswith(message)
        # The command can be pasted, or, where it has no room, the one that shows it.
        for size, fits in (((120, 40), True), ((80, 24), True), ((60, 20), False)):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.1)
            header = screen.query_one(RunHeader)
            shown = header_text(screen, header.content_size.width).splitlines()[: header.size.height]
            assert "NaN at step 40" in shown[2]
            assert "Train again with a lower learning rate" in shown[-2]
            assert shown[-1].strip() == (command if fits else "trainwiz diagnose one")
