"""Contrast of all text as it reaches the terminal: 4.5:1 on its real ground, in every theme (WCAG 2.1, 1.4.3).

The themes' pairs of colours are tested in test_theme.py; here whole screens are drawn, with text that is dimmed,
selected, searched for, focused or disabled. Lines of charts and frames are no text, and what lies in the shade
of a window is not in use (it comes back when the window closes).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from rich.color import Color as RichColor
from rich.style import Style
from textual.color import Color
from textual.pilot import Pilot
from textual.strip import Strip
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_fields import STEPS, TRAINING
from trainwiz.tui.theme import PALETTES
from trainwiz.tui.widgets.plan_panel import PlanPanel
from trainwiz.tui.widgets.plan_strip import PlanStrip

from tests.tui.test_monitor_snapshots import _frozen_world, app_for, drawn
from tests.tui.test_theme import contrast_ratio
from tests.tui.wizard_parts import MISSING, FrozenReader, frozen, settled

LEAST = 4.5
HALF = 0.5
"""What a terminal makes of the attribute "dim", about."""


frozen_world = _frozen_world
"""A fixture for all tests here, too."""


def is_text(character: str) -> bool:
    """Letters, figures and the marks that stand for words; not braille, blocks and lines."""
    return character.isalnum() or character in "✓✗!▸●?"


def faint_texts(app: TrainwizApp) -> list[tuple[str, str, str, float]]:
    """(text, colour, ground, contrast) of what stands on the screen with too little contrast."""
    found = {}
    for strip in strips_in_use(app):
        for filter_ in app._filters:
            if filter_.enabled:
                strip = strip.apply_filter(filter_, Color(0, 0, 0))
        for segment in strip:
            if segment.style is None or not any(map(is_text, segment.text)):
                continue
            colour, ground = colours_of(segment.style)
            ratio = contrast_ratio(colour, ground)
            if ratio < LEAST:
                found[colour, ground] = (segment.text.strip(), colour, ground, round(ratio, 2))
    return list(found.values())


def strips_in_use(app: TrainwizApp) -> Iterator[Strip]:
    """The lines of the screen; of a window over another screen those of the window."""
    strips = app.screen._compositor.render_strips()
    if not app.screen.is_modal:
        yield from strips
        return
    for child in app.screen.children:
        region = child.region.intersection(app.screen.region)
        for y in range(region.y, region.bottom) if child.display else ():
            yield strips[y].crop(region.x, region.right)


def colours_of(style: Style) -> tuple[str, str]:
    """Colour of the text and of its ground, as they are drawn."""
    assert style.color is not None and style.bgcolor is not None
    colour, ground = style.color, style.bgcolor
    if style.dim:
        colour = RichColor.from_triplet(
            type(ground.get_truecolor())(
                *(
                    round(b + (a - b) * HALF)
                    for a, b in zip(colour.get_truecolor(), ground.get_truecolor(), strict=True)
                )
            )
        )
    pair = colour.get_truecolor().hex, ground.get_truecolor().hex
    return (pair[1], pair[0]) if style.reverse else pair


async def faint_in_all_themes(pilot: Pilot[Any]) -> list[str]:
    app = pilot.app
    assert isinstance(app, TrainwizApp)
    faint = []
    for palette in PALETTES:
        app.theme = palette.name
        await pilot.pause()
        await pilot.pause()
        faint += [
            f"{palette.name}: “{text}” {colour} on {ground}: {ratio}"
            for text, colour, ground, ratio in faint_texts(app)
        ]
    return faint


MONITOR_KEYS: dict[str, tuple[tuple[str, ...], ...]] = {
    "running": (
        (),
        ("5",),
        ("s",),
        ("p",),
        ("c",),
        ("tab", "g", *"9-4", "enter"),
        ("f1",),
        ("l", "slash", *"saved", "enter"),
        ("colon", *"log"),
        ("f",),
    ),
    "nan": ((), ("tab", "end", "left")),
    "failed": ((), ("r",)),
    "eight-gpus": (("tab", "tab", "tab", "down"), ("enter",)),
}
"""State -> keys, each after the window of the ones before is closed."""


async def faint_after_each(pilot: Pilot[Any], cases: tuple[tuple[str, ...], ...]) -> list[str]:
    screen, faint = pilot.app.screen, list[str]()
    for keys in cases:
        await pilot.press(*keys)
        await pilot.pause(0.3)
        faint += [f"{keys}: {found}" for found in await faint_in_all_themes(pilot)]
        for _ in range(4):
            if pilot.app.screen is not screen:
                await pilot.press("escape")
                await pilot.pause(0.1)
        assert pilot.app.screen is screen
    return faint


@pytest.mark.parametrize("state", MONITOR_KEYS)
async def test_monitor(state: str) -> None:
    async with app_for(state, "dark").run_test(size=(120, 40)) as pilot:
        await drawn(pilot)
        assert "\n".join(await faint_after_each(pilot, MONITOR_KEYS[state])) == ""


WINDOWS = (("f1",), ("slash", *"nothing at all"), ("colon",))


async def test_wizard() -> None:
    async with frozen(size=(80, 24)) as (_app, pilot):
        for step in STEPS:
            if step == STEPS[TRAINING]:
                await pilot.press("space", *"x%", "enter")
            assert "\n".join(await faint_after_each(pilot, ((), *(WINDOWS if step == STEPS[0] else ())))) == ""
            await pilot.press("escape" if step == STEPS[TRAINING] else "enter", "enter")
            await settled(pilot)


async def test_an_old_plan_is_dimmed_and_readable() -> None:
    async with frozen(FrozenReader((MISSING,)), size=(120, 40)) as (app, pilot):
        before = drawn_colours(app)
        screen = app.screen
        assert isinstance(screen, PlanScreen)
        for view in (screen.query_one(PlanPanel), screen.query_one(PlanStrip)):
            view.show(replace(screen.state, slow=True))
        await pilot.pause()
        await pilot.pause()
        assert drawn_colours(app) != before
        assert "\n".join(await faint_in_all_themes(pilot)) == ""


def drawn_colours(app: TrainwizApp) -> list[tuple[str, str]]:
    strips = app.screen._compositor.render_strips()
    return [colours_of(segment.style) for strip in strips for segment in strip if segment.style and segment.style.color]
