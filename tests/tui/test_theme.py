"""Themes: readable in every pair of text and ground, and chosen as the environment says."""

from __future__ import annotations

import itertools

from rich.cells import cell_len
from trainwiz.tui.theme import (
    PALETTES,
    Marks,
    ascii_text,
    default_theme_name,
    make_theme,
    wants_ascii,
)

from tests.each import each

TEXT_COLOURS = ("foreground", "muted", "accent", "success", "warning", "error")
GROUND_COLOURS = ("background", "surface", "panel")


def contrast_ratio(first: str, second: str) -> float:
    """Contrast of two "#rrggbb" colours, 1 to 21 (WCAG 2.1, relative luminance)."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@each("palette", PALETTES.values())
@each(("text", "ground"), itertools.product(TEXT_COLOURS, GROUND_COLOURS))
def test_text_is_readable(palette, text, ground):
    assert contrast_ratio(palette[text], palette[ground]) >= 4.5


@each("palette", PALETTES.values())
def test_inverted_and_selected_text_is_readable(palette):
    """The focused button, the cursor of a list, text marked in a field or, with the mouse, on the screen."""
    assert contrast_ratio(palette["background"], palette["accent"]) >= 4.5
    variables = make_theme("dark", palette).variables
    for kind in ("input", "screen"):
        ground = variables[f"{kind}-selection-background"]
        assert contrast_ratio(variables[f"{kind}-selection-foreground"], ground) >= 4.5
        assert ground not in [palette[name] for name in GROUND_COLOURS]


@each(
    ("environment", "name"),
    [
        ({}, "dark"),
        ({"TRAINWIZ_THEME": "High-Contrast"}, "high-contrast"),
        ({"TRAINWIZ_THEME": "nonsense"}, "dark"),
        ({"COLORFGBG": "0;15"}, "light"),
        ({"TERM": "xterm-16color"}, "high-contrast"),
        ({"TERM": "linux", "TRAINWIZ_THEME": "light"}, "light"),
    ],
)
def test_theme_follows_the_environment(environment, name):
    assert default_theme_name(environment) == name


@each(
    ("environment", "encoding", "ascii_only"),
    [
        ({}, "UTF-8", False),
        ({}, "ANSI_X3.4-1968", True),
        ({"TRAINWIZ_ASCII": "1"}, "UTF-8", True),
        ({"TRAINWIZ_ASCII": "0", "TERM": "dumb"}, "UTF-8", False),
        ({"TERM": "dumb"}, "UTF-8", True),
        ({"TERM": "linux"}, "UTF-8", False),
    ],
)
def test_ascii_follows_the_environment(environment, encoding, ascii_only):
    assert wants_ascii(environment, encoding) is ascii_only


def test_ascii_text_keeps_every_cell():
    assert "?" not in ascii_text("".join(value for value in vars(Marks).values() if isinstance(value, str)))
    drawn = "╭─ ✓ fits █▒░ ⣀⠀ × · 中文 é “a” …"
    assert ascii_text(drawn).isascii()
    assert len(ascii_text(drawn)) == cell_len(drawn)
