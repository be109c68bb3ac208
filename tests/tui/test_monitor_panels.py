"""Panels of the monitor: they have the screen alone, keep the focus; the palette of what works now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Input, OptionList
from trainwiz.core.telemetry.metrics import NO_PACE
from trainwiz.core.telemetry.snapshot import Planned, Snapshot
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.screens.monitor_cards import PlanCard
from trainwiz.tui.widgets.chooser import Chooser
from trainwiz.tui.widgets.frame import KeyBar
from trainwiz.tui.widgets.log_panel import LogPanel
from trainwiz.tui.widgets.machine_panels import DevicePanel, HostPanel
from trainwiz.tui.widgets.run_header import batch_parts, step_parts

from tests.core.telemetry.written_run import write_run
from tests.each import each
from tests.tui.test_monitor import monitored
from tests.tui.wizard_parts import WIDE, until
from tests.tui.wizard_parts import shown as screen_text


def shown(screen: MonitorScreen) -> list[Widget]:
    """The panels that have room on the screen."""
    return [panel for panel in screen.panels if panel.is_on_screen and panel.region.area > 0]


async def test_panels_have_the_focus_and_take_the_screen_alone(tmp_path: Path) -> None:
    async with monitored(write_run(tmp_path / "run")) as (screen, pilot):
        host = screen.query_one(HostPanel)
        # The focus is told without a colour.
        assert "▸" not in screen_text(pilot.app)
        titles = ("loss", "speed", "GPU 0", "RAM and disk", "advice", "log")
        for panel, title in zip(screen.panels[:-1], titles, strict=True):
            await pilot.press("tab")
            await pilot.pause()
            assert screen.focused is panel and screen_text(pilot.app).count("▸") == 1
            assert f"▸ {title}" in screen_text(pilot.app)
        await pilot.press("shift+tab", "shift+tab")
        await pilot.resize_terminal(60, 20)
        await pilot.press("4")
        await pilot.pause(0.1)
        assert screen.focused is host and shown(screen) == [host]
        await pilot.press("enter")
        await pilot.resize_terminal(*WIDE)

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
        await pilot.press("enter")
        await pilot.pause()
        assert len(shown(screen)) > 1


@each(("step_s", "sign"), [(5.0, "· faster"), (15.0, "✓"), (30.0, "! slower")])
def test_only_what_is_inside_of_the_plan_is_ticked(step_s: float, sign: str) -> None:
    planned = Planned(step_low_s=10.0, step_high_s=20.0, effective_samples=1)
    look = Snapshot("run", "", "", "running", 0.0, planned=planned, pace=replace(NO_PACE, step_s=step_s))
    assert step_parts(look)[0].plain.endswith(f"s/step {sign}")
    assert batch_parts(look)[0].plain.removeprefix("per step ") == "1 sequence"


async def opened(pilot: Pilot, key: str = "colon") -> Chooser:
    await pilot.press(key)
    await until(pilot, lambda: isinstance(pilot.app.screen, Chooser))
    palette = pilot.app.screen
    assert isinstance(palette, Chooser)
    return palette


def listed(palette: Chooser) -> list[str]:
    return [str(option.prompt) for option in palette.query_one(OptionList).options]


async def find(pilot: Pilot, words: str, first: str) -> None:
    """Type `words`, wait for `first` to lead the list, and take it."""
    palette = await opened(pilot)
    palette.query_one(Input).value = words
    await until(pilot, lambda: any(first in line for line in listed(palette)[:1]))
    await pilot.press("enter")
    await until(pilot, lambda: not isinstance(pilot.app.screen, Chooser))


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
        assert screen.maximized is screen.query_one(LogPanel)
        # What the focused panel does is done there, and stands in the bar.
        await pilot.press("escape", "tab", "tab", "tab", "down")
        await find(pilot, "next GPU", "next GPU (down)")
        assert screen.query_one(DevicePanel).content().plain.splitlines()[2].startswith("2▸")
        await pilot.press("enter")
        await pilot.pause(0.1)
        assert screen.maximized is screen.query_one(DevicePanel)
        assert "GPU 2 · RTX 2080 SUPER" in screen_text(pilot.app) and "238 of 250 W" in screen_text(pilot.app)
        await find(pilot, "GPU above", "GPU above (up)")
        assert "GPU 1 · RTX 2080 SUPER" in screen_text(pilot.app)
        # A panel is found by its name.
        await find(pilot, "RAM", "RAM and disk (4)")
        await until(pilot, lambda: isinstance(screen.maximized, HostPanel))
