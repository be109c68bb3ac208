"""A person at the wizard's keyboard: real keys from the first screen on, nothing set behind its back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.events import Paste
from textual.widgets import Input, OptionList
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_fields import STEPS
from trainwiz.tui.widgets.chooser import Chooser
from trainwiz.tui.widgets.field_row import FieldRow

from tests.tui.wizard_parts import settled

KEY_NAMES = {
    " ": "space", "/": "slash", ".": "full_stop", "-": "minus", "_": "underscore", ",": "comma", "~": "tilde",
    ":": "colon", "=": "equals_sign", "+": "plus",
}  # fmt: skip
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
    for _ in range(3000):
        await pilot.pause(0.02)
        if holds():
            return
    raise AssertionError(shown(pilot.app))


def keys_of_text(text: str) -> list[str]:
    return [KEY_NAMES.get(letter, letter) for letter in text]


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
    await pilot.press(*keys_of_text(text))


class Typist:
    """Presses keys and looks at the screen. Longer texts are pasted: the screen is drawn once, not for every letter."""

    def __init__(self, pilot: Any) -> None:
        self.pilot = pilot

    @property
    def screen(self) -> PlanScreen:
        (screen,) = (one for one in self.pilot.app.screen_stack if isinstance(one, PlanScreen))
        return screen

    async def press(self, *keys: str) -> None:
        await go(self.pilot, *keys)

    async def _search(self, key: str, text: str) -> Chooser:
        await self.pilot.press(key)
        await self.pilot.pause()
        chooser = self.pilot.app.screen
        assert isinstance(chooser, Chooser)
        self.pilot.app.post_message(Paste(text))
        await self.pilot.pause()
        await self.pilot.pause()
        return chooser

    async def find(self, label: str) -> None:
        """Go to a field by its name, wherever it is: / and the name."""
        names = [offer.label for offer in (await self._search("slash", label))._shown]
        assert label in names, f"/ does not find {label}: {names}"
        await self.pilot.press(*["down"] * names.index(label))
        await self.press("enter")
        row = self.pilot.app.focused
        assert isinstance(row, FieldRow) and row.spec.label == label, f"{label}: the focus is on {row}"

    async def choose(self, value: str) -> None:
        """Take a value from the list of the focused field."""
        chooser = await self._search("space", value)
        values = [offer.value for offer in chooser._shown]
        assert value in values, f"no {value} among {values}"
        await self.pilot.press(*["down"] * values.index(value))
        assert chooser.query_one(OptionList).highlighted == values.index(value)
        await self.press("enter")

    async def write(self, text: str) -> None:
        """Type a text into the focused field."""
        await self.pilot.press("space")
        await self.pilot.pause()
        assert self.pilot.app.screen.query(Input)
        self.pilot.app.post_message(Paste(text))
        await self.pilot.pause()
        await self.press("enter")

    async def change(self, label: str, text: str) -> None:
        """One field, by its name and what a person would type."""
        await self.find(label)
        row = self.pilot.app.focused
        assert isinstance(row, FieldRow)
        await (self.choose(text) if row.spec.opens_a_list else self.write(text))

    async def to_the_end(self) -> None:
        """Enter from the present step to the last one."""
        while self.screen.state.step < len(STEPS) - 1:
            before = self.screen.state.step
            await self.press("enter")
            assert self.screen.state.step == before + 1
