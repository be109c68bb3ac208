"""A person at the wizard's keyboard: real keys from the first screen on, nothing set behind its back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from textual.events import Paste
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.widgets.field_row import FieldRow

from tests.tui.wizard_parts import settled

WIDE = (120, 40)


def shown(app: TrainwizApp) -> str:
    """All text that is on the screen."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def shown_in(pilot: Any, part: str = "#form") -> str:
    """The text of one part of the screen alone, its lines joined."""
    region = pilot.app.screen.query_one(part).region
    lines = shown(pilot.app).splitlines()[region.y : region.bottom]
    return " ".join(" ".join(line[region.x : region.right].strip("│ ") for line in lines).split())


async def until(pilot: Any, holds: Callable[[], object]) -> None:
    """Wait for an event; the limit is only there against hanging."""
    end = time.monotonic() + 60
    await pilot.pause()
    while not holds():
        assert time.monotonic() < end, shown(pilot.app)
        await asyncio.sleep(0.03)
    await pilot.pause()


async def go(pilot, *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


async def to_field(pilot, name: str) -> FieldRow:
    """Go to a field, on whichever step it is."""
    await pilot.app.screen._found(name)
    await pilot.pause()
    row = pilot.app.focused
    assert isinstance(row, FieldRow) and row.spec.id == name
    return row


async def type_into(pilot, text: str) -> None:
    await pilot.press("space")
    await pilot.pause()
    await pilot.press(*text)


async def change(pilot: Any, label: str, text: str) -> None:
    """One field, by its name and what a person would type: pasted, since the screen is then drawn once for all letters."""
    for key, words in (("slash", label), ("space", text)):
        await pilot.press(key)
        await pilot.pause()
        pilot.app.post_message(Paste(words))
        await pilot.pause()
        await pilot.pause()
        await go(pilot, "enter")
        row = pilot.app.focused
        assert isinstance(row, FieldRow) and row.spec.label == label, f"{label}: the focus is on {row}"
