"""Panels of the monitor: they fold, have the screen alone, keep the focus, and say what a card does."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widget import Widget
from trainwiz.core.telemetry.advice import advise
from trainwiz.core.telemetry.metrics import NO_PACE, MetricSummary
from trainwiz.core.telemetry.snapshot import Planned, ProcessReading, Snapshot
from trainwiz.tui.screens.log_card import LogCard
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.screens.monitor_cards import GpuCard
from trainwiz.tui.theme import UNICODE_MARKS
from trainwiz.tui.widgets.device_panel import DevicePanel
from trainwiz.tui.widgets.frame import KeyBar
from trainwiz.tui.widgets.host_panel import HostPanel, MonitorSummary
from trainwiz.tui.widgets.metric_panel import MetricPanel
from trainwiz.tui.widgets.monitor_panel import AdvicePanel
from trainwiz.tui.widgets.pace_panel import PacePanel, memory_parts, step_parts

from tests.core.telemetry.written_run import GIB, system_row, write_lines, write_run
from tests.tui.test_monitor import WIDE, looked, monitor_app, screen_of

SIZES = [(60, 20), (80, 24), (120, 40), (200, 60)]


def shown(screen: MonitorScreen) -> list[Widget]:
    """The panels that have room on the screen."""
    return [panel for panel in screen.panels if panel.is_on_screen and panel.region.area > 0]


def text_of(pilot: Pilot) -> str:
    """What stands on the terminal."""
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


def write_machine(folder: Path, gpus: int = 1, **changes: Any) -> None:
    """Samples whose first card has `changes`; `unavailable` and `processes` are those of the row."""
    rows = [system_row(index, gpus) for index in range(120)]
    for row in rows:
        for key in ("unavailable", "processes"):
            if key in changes:
                row[key] = changes[key]
        if gpus:
            row["gpus"][0] |= {key: value for key, value in changes.items() if key not in row or key == "processes"}
    write_lines(folder / "system.jsonl", rows)


@pytest.mark.parametrize("size", SIZES)
async def test_a_panel_has_the_screen_alone_and_gives_it_back(tmp_path: Path, size: tuple[int, int]) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=size) as pilot:
        screen = await looked(pilot)
        before = shown(screen)
        for place, panel in enumerate(screen.panels, start=1):
            await pilot.press(str(place))
            await pilot.pause()
            assert shown(screen) == [panel]
            assert panel.region.width == size[0]
            assert panel.region.height >= size[1] - 4
            assert screen.focused is panel
            assert screen.query_one(KeyBar).region.bottom == size[1]
        await pilot.press("escape")
        await pilot.pause()
        assert shown(screen) == before


async def test_tab_goes_on_to_the_next_panel_while_one_is_alone(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=(60, 20)) as pilot:
        screen = await looked(pilot)
        await pilot.press("tab", "x")
        await pilot.pause()
        for kind in (MetricPanel, PacePanel, DevicePanel, HostPanel, AdvicePanel):
            assert [type(panel) for panel in shown(screen)] == [kind]
            await pilot.press("tab")
            await pilot.pause()
        assert [panel.id for panel in shown(screen)] == ["log"]
        await pilot.press("tab")
        await pilot.pause()
        assert [type(panel) for panel in shown(screen)] == [MetricPanel]
        await pilot.press("shift+tab", "x")
        await pilot.pause()
        assert len(shown(screen)) > 1


async def test_the_summary_says_it_in_lines_where_panels_have_no_room(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run", gpus=8)).run_test(size=(60, 20)) as pilot:
        screen = await looked(pilot)
        summary = screen.query_one(MonitorSummary)
        assert summary.content().plain.splitlines()[0].startswith("8 GPUs  66 to 96 %   5.3 to 6.0 GiB")
        await pilot.press("3")
        await pilot.pause()
        assert not summary.display


async def test_a_folded_panel_leaves_its_room_to_the_others(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        plot, pace = screen.query_one(MetricPanel), screen.query_one(PacePanel)
        heights = plot.region.height, pace.region.height
        await pilot.press("tab", "tab", "f")
        await pilot.pause()
        assert screen.focused is pace
        assert (plot.region.height, pace.region.height) == (heights[0] + heights[1] - 1, 1)
        assert "pace" in text_of(pilot) and "tokens/s" not in text_of(pilot)
        await pilot.press("f")
        await pilot.pause()
        assert (plot.region.height, pace.region.height) == heights
        # Without the panel that takes what is left, the last open one of the column takes it.
        await pilot.press("shift+tab", "f")
        await pilot.pause()
        assert (plot.region.height, pace.region.height) == (1, sum(heights) - 1)


async def test_folding_needs_a_panel(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        await pilot.press("f")
        assert not screen.query(".-folded")
        assert any("tab" in notice.message for notice in pilot.app._notifications)


async def test_resizing_keeps_the_focus(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        host = screen.query_one(HostPanel)
        await pilot.press("tab", "tab", "tab", "tab")
        assert screen.focused is host
        for size in ((80, 24), (60, 20), (20, 6), (60, 20), WIDE):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.1)
        assert screen.focused is host
        await pilot.press("x")
        await pilot.resize_terminal(60, 20)
        await pilot.pause(0.1)
        assert screen.focused is host
        assert shown(screen) == [host]


async def test_the_focus_is_told_without_a_colour(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        assert "▸" not in text_of(pilot)
        titles = ("loss", "pace", "GPU 0", "RAM and disk", "advice", "log")
        for panel, title in zip(screen.panels, titles, strict=True):
            await pilot.press("tab")
            await pilot.pause()
            assert screen.focused is panel
            assert text_of(pilot).count("▸") == 1
            assert f"▸ {title}" in text_of(pilot)


async def test_a_click_chooses_a_panel(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        await pilot.click(HostPanel)
        await pilot.press("f")
        await pilot.pause()
        assert screen.query_one(HostPanel).region.height == 1


async def test_enter_opens_the_gpu_that_the_arrows_chose(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", gpus=8)
    async with monitor_app(folder).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        await pilot.press("3", "3", "tab", "shift+tab", "down", "down")
        await pilot.pause()
        panel = screen.query_one(DevicePanel)
        assert screen.focused is panel
        assert panel.content().plain.splitlines()[2].startswith("2▸")
        await pilot.press("enter")
        await pilot.pause(0.1)
        assert isinstance(pilot.app.screen, GpuCard)
        assert "GPU 2 · RTX 2080 SUPER" in text_of(pilot) and "UUID     GPU-2" in text_of(pilot)
        await pilot.press("right")
        await pilot.pause(0.1)
        assert "UUID     GPU-3" in text_of(pilot)
        await pilot.press("escape")
        assert screen_of(pilot) is pilot.app.screen


async def test_eight_gpus_are_all_told_of_in_three_lines(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run", gpus=8)).run_test(size=(80, 24)) as pilot:
        text = (await looked(pilot)).query_one(DevicePanel).content().plain
        assert len(text.splitlines()) <= 3
        assert [number for number in "01234567" if f"{number}:" in text.replace("\n", " ")] == list("01234567")


async def test_a_lost_gpu_says_so_and_hides_no_other(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", gpus=2)
    blank = dict.fromkeys(("utilization_percent", "memory_used_bytes", "temperature_c", "power_w"))
    write_machine(folder, 2, **blank, unavailable={"gpus.0": "GPU is lost"})
    async with monitor_app(folder).run_test(size=WIDE) as pilot:
        first, second = (await looked(pilot)).query_one(DevicePanel).content().plain.splitlines()
        assert "GPU is lost" in first
        assert "5.4 of 7.8 GiB" in second
    async with monitor_app(folder).run_test(size=(60, 20)) as pilot:
        assert "1 not readable" in (await looked(pilot)).query_one(MonitorSummary).content().plain


async def test_clock_fan_partition_and_other_jobs_of_a_card(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    write_machine(
        folder,
        fan_percent=62,
        clock_mhz=1815.0,
        clock_limit_mhz=2100.0,
        mig="1g.10gb",
        throttle_reasons=["power limit"],
    )
    rows = [json.loads(line) for line in (folder / "system.jsonl").read_text().splitlines()]
    for row in rows:
        row["gpus"][0]["processes"] = [
            {"pid": 200, "name": "python", "kind": "compute", "memory_used_bytes": 3 * GIB},
            {"pid": 777, "name": "[bold]game", "kind": "graphics", "memory_used_bytes": 2 * GIB},
        ]
    write_lines(folder / "system.jsonl", rows)
    async with monitor_app(folder).run_test(size=WIDE) as pilot:
        panel = (await looked(pilot)).query_one(DevicePanel)
        text = panel.content().plain
        assert "this job 3.0   others 2.0" in text
        assert "clock    1,815 MHz   held by power limit   fan 62 %" in text
        assert panel.title_text == "GPU 0 · RTX 2080 SUPER · MIG 1g.10gb"
        await pilot.press("3", "enter")
        await pilot.pause(0.1)
        card = text_of(pilot)
        assert "The clock is held back by power limit" in card
        mine, other = (line for line in card.splitlines() if " GiB  " in line and ("python" in line or "game" in line))
        assert "200" in mine and "3.0 GiB" in mine and "this job" in mine
        assert "777" in other and "2.0 GiB" in other and "other" in other and "[bold]game" in other


async def test_a_table_of_the_processes_has_room_alone(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        await pilot.press("4")
        await pilot.pause()
        text = screen.query_one(HostPanel).content().plain
        assert "200  trainer         9.8   180 %" in text
        assert text.count("worker ") == 12


async def test_memory_and_pace_stand_against_the_plan(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        text = screen.query_one(PacePanel).content().plain
        assert "memory planned 5.4 GiB   measured 5.3   ✓" in text
        assert "a step 3,906 sequences   1,999,872 tokens" in text
        assert screen.snapshot is not None
        document = screen.snapshot.to_json()
        assert document["peak_memory_bytes"] == int(5.3 * GIB)
        assert document["planned"]["effective_samples"] == 3906


async def test_on_a_cpu_all_training_processes_stand_against_the_plan(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        assert screen.snapshot is not None
        processes = [ProcessReading(pid, role, GIB, 0.0) for pid, role in enumerate(("trainer", "trainer", "worker"))]
        planned = Planned(memory_bytes=2 * GIB)
        on_cpu = replace(screen.snapshot, gpus=(), processes=tuple(processes), planned=planned)
        panel = screen.query_one(DevicePanel)
        panel.show(on_cpu)
        assert "trainers " in panel.content().plain
        assert re.search(r"trainers .* 2\.0 of ", panel.content().plain)
        panel.show(replace(on_cpu, planned=Planned()))
        assert re.search(r"RAM .* 3\.0 of ", panel.content().plain)


async def test_a_click_on_the_key_bar_does_what_the_key_does(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run", gpus=8)).run_test(size=(200, 50)) as pilot:
        screen = await looked(pilot)
        bar = screen.query_one(KeyBar)
        place = str(bar.render()).index(" log") + 1
        await pilot.click(KeyBar, offset=(place, 0))
        await pilot.pause(0.1)
        assert isinstance(pilot.app.screen, LogCard)
        await pilot.press("escape", "tab", "tab", "tab")
        await pilot.pause()
        # A key of the focused panel stands in the bar while the panel has the focus.
        place = str(bar.render()).index("open GPU") + 1
        await pilot.click(KeyBar, offset=(place, 0))
        await pilot.pause(0.2)
        assert isinstance(pilot.app.screen, GpuCard)
        # A key with a negative number in its action is no markup.
        place = str(pilot.app.screen.query_one(KeyBar).render()).index("GPU before") + 1
        await pilot.click(KeyBar, offset=(place, 0))
        await pilot.pause(0.2)
        assert "UUID     GPU-7" in text_of(pilot)


@pytest.mark.parametrize("size", [(20, 6), (500, 120)])
async def test_very_small_and_very_large(tmp_path: Path, size: tuple[int, int]) -> None:
    folder = write_run(tmp_path / "run", gpus=8, throttled=True)
    async with monitor_app(folder).run_test(size=size) as pilot:
        screen = await looked(pilot)
        for key in "123456":
            await pilot.press(key)
            await pilot.pause()
            assert len(shown(screen)) == 1
        await pilot.press("5")
        await pilot.pause()
        lines = screen.query_one(AdvicePanel).content().plain.splitlines()
        if size == (20, 6):
            assert "more lines" in text_of(pilot) or len(lines) <= 1
        else:
            assert "more lines" not in text_of(pilot)


@pytest.mark.parametrize(("peak_gib", "sign"), [(0.5, "· less"), (0.9, "✓"), (1.2, "! more")])
def test_only_what_is_inside_of_the_plan_is_ticked(peak_gib: float, sign: str) -> None:
    planned = Planned(
        memory_bytes=int(0.8 * GIB), memory_low_bytes=int(0.6 * GIB), memory_high_bytes=int(1.1 * GIB),
        step_low_s=10.0, step_high_s=20.0,
    )  # fmt: skip
    metrics = {"loss": MetricSummary(1.0, 1.0, 1, 1.0, 1.0, 0)}
    look = Snapshot("run", "", "", "running", 0.0, planned=planned, metrics=metrics, pace=replace(NO_PACE, step_s=5.0))
    look = replace(look, peak_memory_bytes=int(peak_gib * GIB))
    look = replace(look, advice=advise(look))
    assert memory_parts(look, UNICODE_MARKS)[-1].plain == sign
    assert step_parts(look, UNICODE_MARKS)[-1].plain == "· faster"
