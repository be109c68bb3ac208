"""Panels of the monitor: they fold, have the screen alone, keep the focus, and say what a card does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from textual.widget import Widget
from trainwiz.core.telemetry.advice import advise
from trainwiz.core.telemetry.metrics import NO_PACE, MetricSummary
from trainwiz.core.telemetry.snapshot import Planned, Snapshot
from trainwiz.tui.screens.log_card import LogCard
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.screens.monitor_cards import GpuCard
from trainwiz.tui.widgets.device_panel import DevicePanel
from trainwiz.tui.widgets.frame import KeyBar
from trainwiz.tui.widgets.host_panel import HostPanel, PacePanel, batch_parts, memory_parts, step_parts
from trainwiz.tui.widgets.metric_panel import MetricPanel

from tests.core.telemetry.written_run import GIB, write_run
from tests.each import each
from tests.tui.test_monitor import WIDE, monitored, notices, screen_of
from tests.tui.wizard_keys import shown as screen_text


def shown(screen: MonitorScreen) -> list[Widget]:
    """The panels that have room on the screen."""
    return [panel for panel in screen.panels if panel.is_on_screen and panel.region.area > 0]


async def test_panels_have_the_focus_fold_and_take_the_screen_alone(tmp_path: Path) -> None:
    async with monitored(write_run(tmp_path / "run")) as (screen, pilot):
        host, plot, pace = screen.query_one(HostPanel), screen.query_one(MetricPanel), screen.query_one(PacePanel)
        await pilot.press("f")
        assert not screen.query(".-folded") and any("tab" in message for message in notices(pilot))

        # The focus is told without a colour, and resizing keeps it.
        assert "▸" not in screen_text(pilot.app)
        titles = ("loss", "speed", "GPU 0", "RAM and disk", "advice", "log")
        for panel, title in zip(screen.panels[:-1], titles, strict=True):
            await pilot.press("tab")
            await pilot.pause()
            assert screen.focused is panel and screen_text(pilot.app).count("▸") == 1
            assert f"▸ {title}" in screen_text(pilot.app)
        await pilot.press("shift+tab", "shift+tab")
        await pilot.resize_terminal(60, 20)
        await pilot.press("x")
        await pilot.pause(0.1)
        assert screen.focused is host and shown(screen) == [host]
        await pilot.press("x")
        await pilot.resize_terminal(*WIDE)
        await pilot.pause(0.1)
        assert screen.focused is host

        # A panel has the screen alone and gives it back.
        for size in ((60, 20), WIDE):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.05)
            before = shown(screen)
            for place, panel in enumerate(screen.panels, start=1):
                await pilot.press(str(place))
                await pilot.pause()
                assert shown(screen) == [panel] and screen.focused is panel
                assert panel.region.width == size[0] and panel.region.height >= size[1] - 4
                assert screen.query_one(KeyBar).region.bottom == size[1]
            await pilot.press("escape")
            await pilot.pause()
            assert shown(screen) == before
        await pilot.press("1", "tab")
        await pilot.pause()
        assert shown(screen) == [screen.panels[1]]
        await pilot.press("x")
        await pilot.pause()
        assert len(shown(screen)) > 1

        # A folded panel leaves its room to the others.
        heights = plot.region.height, pace.region.height
        pace.focus()
        await pilot.press("f")
        await pilot.pause()
        assert screen.focused is pace
        assert (plot.region.height, pace.region.height) == (heights[0] + heights[1] - 1, 1)
        assert "speed" in screen_text(pilot.app) and "tokens/s" not in screen_text(pilot.app)
        await pilot.press("f")
        await pilot.pause()
        assert (plot.region.height, pace.region.height) == heights
        # Without the panel that takes what is left, the last open one of the column takes it.
        await pilot.press("shift+tab", "f")
        await pilot.pause()
        assert (plot.region.height, pace.region.height) == (1, sum(heights) - 1)
        await pilot.click(HostPanel)
        await pilot.press("f")
        await pilot.pause()
        assert host.region.height == 1


async def test_a_click_on_the_key_bar_does_what_the_key_does(tmp_path: Path) -> None:
    async with monitored(write_run(tmp_path / "run", gpus=8), size=(200, 50)) as (screen, pilot):
        bar = screen.query_one(KeyBar)
        place = str(bar.render()).index(" log") + 1
        await pilot.click(KeyBar, offset=(place, 0))
        await pilot.pause(0.1)
        assert isinstance(pilot.app.screen, LogCard)
        await pilot.press("escape", "tab", "tab", "tab")
        await pilot.pause()
        # A key of the focused panel stands in the bar while the panel has the focus.
        await pilot.press("down", "down")
        await pilot.pause()
        assert screen.query_one(DevicePanel).content().plain.splitlines()[2].startswith("2▸")
        place = str(bar.render()).index("open GPU") + 1
        await pilot.click(KeyBar, offset=(place, 0))
        await pilot.pause(0.2)
        assert isinstance(pilot.app.screen, GpuCard)
        assert "GPU 2 · RTX 2080 SUPER" in screen_text(pilot.app) and "UUID     GPU-2" in screen_text(pilot.app)
        await pilot.press("left")
        # A key with a negative number in its action is no markup.
        place = str(pilot.app.screen.query_one(KeyBar).render()).index("previous GPU") + 1
        await pilot.click(KeyBar, offset=(place, 0))
        await pilot.pause(0.2)
        assert "UUID     GPU-0" in screen_text(pilot.app)
        await pilot.press("escape")
        assert screen_of(pilot) is pilot.app.screen


@each(("peak_gib", "sign"), [(0.5, "· less"), (0.9, "✓"), (1.2, "! more")])
def test_only_what_is_inside_of_the_plan_is_ticked(peak_gib: float, sign: str) -> None:
    planned = Planned(
        memory_bytes=int(0.8 * GIB), memory_low_bytes=int(0.6 * GIB), memory_high_bytes=int(1.1 * GIB),
        step_low_s=10.0, step_high_s=20.0, effective_samples=1,
    )  # fmt: skip
    metrics = {"loss": MetricSummary(1.0, 1.0, 1, 1.0, 1.0, 0)}
    look = Snapshot("run", "", "", "running", 0.0, planned=planned, metrics=metrics, pace=replace(NO_PACE, step_s=5.0))
    look = replace(look, peak_memory_bytes=int(peak_gib * GIB))
    look = replace(look, advice=advise(look))
    assert memory_parts(look)[-1].plain == sign
    assert batch_parts(look)[0].plain.removeprefix("per step ") == "1 sequence"
    assert step_parts(look)[-1].plain == "· faster"
