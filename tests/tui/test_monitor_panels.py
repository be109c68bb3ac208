"""Panels of the monitor: they fold, have the screen alone, keep the focus; the palette of what works now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Input, OptionList
from trainwiz.core.telemetry.advice import advise
from trainwiz.core.telemetry.metrics import NO_PACE, MetricSummary
from trainwiz.core.telemetry.snapshot import Planned, Snapshot
from trainwiz.tui.screens.log_card import LogCard
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.screens.monitor_cards import GpuCard
from trainwiz.tui.screens.plan_card import PlanCard
from trainwiz.tui.widgets.device_panel import DevicePanel
from trainwiz.tui.widgets.frame import KeyBar
from trainwiz.tui.widgets.host_panel import HostPanel, PacePanel, batch_parts, memory_parts, step_parts
from trainwiz.tui.widgets.metric_panel import MetricPanel
from trainwiz.tui.widgets.monitor_panel import AdvicePanel

from tests.core.telemetry.written_run import GIB, write_run
from tests.each import each
from tests.tui.test_monitor import WIDE, monitored, notices, screen_of
from tests.tui.wizard_parts import shown as screen_text
from tests.tui.wizard_parts import until


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
        await pilot.click(AdvicePanel)
        await pilot.press("f")
        await pilot.pause()
        assert [panel for panel in screen.panels if panel.has_class("-fills")] == [pace, host]
        await pilot.click(HostPanel)
        await pilot.press("f")
        await pilot.pause()
        assert host.region.height == 1


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


async def opened(pilot: Pilot, key: str = "colon") -> CommandPalette:
    await pilot.press(key)
    await until(pilot, lambda: isinstance(pilot.app.screen, CommandPalette))
    palette = pilot.app.screen
    assert isinstance(palette, CommandPalette)
    return palette


def listed(palette: CommandPalette) -> list[str]:
    return [str(option.prompt) for option in palette.query_one(OptionList).options]


async def find(pilot: Pilot, words: str, first: str) -> None:
    """Type `words`, wait for `first` to lead the list, and take it."""
    palette = await opened(pilot)
    palette.query_one(Input).value = words
    await until(pilot, lambda: any(first in line for line in listed(palette)[:1]))
    await pilot.press("enter")
    await until(pilot, lambda: not isinstance(pilot.app.screen, CommandPalette))


async def click(pilot: Pilot, words: str) -> None:
    """On the key bar."""
    place = str(pilot.app.screen.query_one(KeyBar).render()).index(words) + 1
    await pilot.click(KeyBar, offset=(place, 0))
    await pilot.pause(0.1)


async def test_the_palette_and_clicks_on_the_key_bar_do_what_the_keys_do(tmp_path: Path) -> None:
    async with monitored(write_run(tmp_path / "run", gpus=8), size=(200, 50)) as (screen, pilot):
        palette = await opened(pilot, "ctrl+p")
        wanted = [row for row in screen.key_rows() if row.id != "app.palette"]
        await until(pilot, lambda: len(listed(palette)) == len(wanted))
        text = "\n".join(listed(palette))
        assert [row.id for row in wanted if f"{row.words} ({row.shown_key})" not in text] == []
        assert "stop (s)" in text and "resume" not in text
        await pilot.press("escape")
        await find(pilot, "plan", "plan (p)")
        await until(pilot, lambda: isinstance(pilot.app.screen, PlanCard))
        await pilot.press("escape")
        await click(pilot, " log")
        assert isinstance(pilot.app.screen, LogCard)
        # What the focused panel does is done there, and stands in the bar.
        await pilot.press("escape", "tab", "tab", "tab", "down")
        await find(pilot, "next GPU", "next GPU (down)")
        assert screen.query_one(DevicePanel).content().plain.splitlines()[2].startswith("2▸")
        await click(pilot, "open GPU")
        assert isinstance(pilot.app.screen, GpuCard)
        assert "GPU 2 · RTX 2080 SUPER" in screen_text(pilot.app) and "UUID     GPU-2" in screen_text(pilot.app)
        await pilot.press("left")
        # A key with a negative number in its action is no markup.
        await click(pilot, "previous GPU")
        assert "UUID     GPU-0" in screen_text(pilot.app)
        await pilot.press("escape")
        assert screen_of(pilot) is pilot.app.screen
        # A panel is found by its name.
        await find(pilot, "RAM", "RAM and disk (4)")
        await until(pilot, lambda: isinstance(screen.alone, HostPanel))
