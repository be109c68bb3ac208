"""The command palette: all keys that work now by name, from the one key table."""

from __future__ import annotations

from pathlib import Path

from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Input, OptionList
from trainwiz.tui.screens.monitor_cards import GpuCard
from trainwiz.tui.screens.plan_card import PlanCard
from trainwiz.tui.widgets.host_panel import HostPanel

from tests.core.telemetry.written_run import write_run
from tests.tui.test_monitor import monitored, screen_of
from tests.tui.wizard_keys import until


async def opened(pilot: Pilot, key: str = "colon") -> CommandPalette:
    await pilot.press(key)
    await until(pilot, lambda: isinstance(pilot.app.screen, CommandPalette))
    palette = pilot.app.screen
    assert isinstance(palette, CommandPalette)
    return palette


def listed(palette: CommandPalette) -> list[str]:
    options = palette.query_one(OptionList)
    return [str(options.get_option_at_index(place).prompt) for place in range(options.option_count)]


async def find(pilot: Pilot, words: str, first: str) -> None:
    """Type `words`, wait for `first` to lead the list, and take it."""
    palette = await opened(pilot)
    palette.query_one(Input).value = words
    await until(pilot, lambda: any(first in line for line in listed(palette)[:1]))
    await pilot.press("enter")
    await until(pilot, lambda: not isinstance(pilot.app.screen, CommandPalette))


async def test_it_lists_what_works_now_and_does_it(tmp_path: Path) -> None:
    async with monitored(write_run(tmp_path / "run", gpus=8)) as (screen, pilot):
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
        # What the focused panel does is done there.
        await pilot.press("tab", "tab", "tab")
        await find(pilot, "next GPU", "next GPU (down)")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, GpuCard))
        card = pilot.app.screen
        await until(pilot, lambda: str(card.query_one("VerticalScroll").border_title).startswith("GPU 1 "))
        await pilot.press("escape")
        # A panel is found by its name.
        await find(pilot, "RAM", "RAM and disk (4)")
        await until(pilot, lambda: isinstance(screen_of(pilot).alone, HostPanel))
