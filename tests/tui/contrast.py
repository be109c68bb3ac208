"""Contrast of all text as it reaches the terminal: 4.5:1 on its real ground, in every theme (WCAG 2.1, 1.4.3).

Lines of charts and frames are no text, and what lies in the shade of a window is not in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.color import Color as RichColor
from rich.style import Style
from textual.color import Color
from textual.pilot import Pilot
from textual.strip import Strip
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.theme import PALETTES, Palette

LEAST = 4.5
HALF = 0.5
"""What a terminal makes of the attribute "dim", about."""


def contrast_ratio(first: str, second: str) -> float:
    """Contrast of two "#rrggbb" colours, 1 to 21 (WCAG 2.1, relative luminance)."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def is_text(character: str) -> bool:
    """Letters, figures and the marks that stand for words; not braille, blocks and lines."""
    return character.isalnum() or character in "✓✗!▸●?"


async def faint_texts(pilot: Pilot[Any], palettes: Sequence[Palette] = PALETTES) -> list[str]:
    """What stands on the screen with too little contrast, in any of these themes."""
    app = pilot.app
    assert isinstance(app, TrainwizApp)
    faint = []
    for palette in palettes:
        app.theme = palette.name
        await pilot.pause()
        await pilot.pause()
        for strip in strips_in_use(app):
            for filter_ in app._filters:
                if filter_.enabled:
                    strip = strip.apply_filter(filter_, Color(0, 0, 0))
            for segment in strip:
                if segment.style is None or not any(map(is_text, segment.text)):
                    continue
                colour, ground = colours_of(segment.style)
                if contrast_ratio(colour, ground) < LEAST:
                    faint.append(f"{palette.name}: “{segment.text.strip()}” {colour} on {ground}")
    return faint


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
