"""Themes: dark, light and high contrast; and drawing in ASCII alone."""

from __future__ import annotations

import locale
import os
from collections.abc import Mapping

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

# AsciiFilter: draws every cell in ASCII, for terminals and fonts that have nothing else.

_PLAIN = str.maketrans(
    "─━═╌┄▔−–│┃║▏▕╎┆▎▍▌▐┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝▉▊▋■●○◌▁▂▃▄▅▆▇█▓▒░·✓✗×…▸›▾▲▼↑↓→←°“”‘’",
    "--------|||||||||||+++++++++++++++++####*oo_.:-=+*#=+..+xx~>>v^v^v><o\"\"''",
)
_PLAIN |= {0x2800: ord(" ")} | dict.fromkeys(range(0x2801, 0x2900), ord("*"))
"""What looks most like it; all braille dots are one."""


def ascii_text(text: str) -> str:
    """As many cells as `text`, all of them ASCII; a letter without a likeness becomes "?"."""
    return "".join(letter if letter.isascii() else "?" * cell_len(letter) for letter in text.translate(_PLAIN))


class AsciiFilter(LineFilter):
    """Applied to every line on its way to the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isascii() else Segment(ascii_text(segment.text), segment.style, segment.control)
            for segment in segments
        ]


# Themes: dark, light and high contrast. Quiet greys, one accent, three colours for verdicts.
#
# Every pair of text colour and ground here has a contrast of at least 4.5:1 (WCAG 2.1, 1.4.3);
# a test computes it. A colour never carries meaning alone: a word or a mark stands beside it.

THEME_VARIABLE = "TRAINWIZ_THEME"
ASCII_VARIABLE = "TRAINWIZ_ASCII"


COLOURS = [
    "background",
    "surface",
    "panel",
    "foreground",
    "muted",
    "accent",
    "success",
    "warning",
    "error",
    "line",
    "track",
]
"""`line` and `track` draw frames and empty bars; selected text lies on `track`."""
PALETTES: dict[str, dict[str, str]] = {
    name: dict(zip(COLOURS, values.split(), strict=True))
    for name, values in {
        "dark": "#101418 #151a1f #1d242b #d9dfe5 #93a1ae #62bfe0 #83c995 #e3b35f #f2817c #333e48 #333e48",
        "light": "#fbfaf7 #f5f3ee #ebe8e0 #22272b #566069 #0a638a #1d6a3a #7d5200 #ad241c #d0cbc0 #d0cbc0",
        "high-contrast": "#000000 #000000 #1c1c1c #ffffff #e6e6e6 #5ce1ff #6dff9c #ffd84d #ff9c9c #bdbdbd #5a5a5a",
    }.items()
}

VARIABLES = {
    "background": (
        "block-cursor-foreground input-cursor-foreground scrollbar-background scrollbar-background-hover "
        "scrollbar-background-active scrollbar-corner-color footer-background"
    ),
    "panel": "block-cursor-blurred-background block-hover-background link-background-hover",
    "foreground": (
        "text block-cursor-blurred-foreground input-cursor-background input-selection-foreground "
        "screen-selection-foreground footer-key-foreground"
    ),
    "muted": "muted text-muted text-disabled scrollbar-hover footer-description-foreground",
    "accent": "border block-cursor-background scrollbar-active link-color-hover",
    "line": "line border-blurred scrollbar",
    "track": "track input-selection-background screen-selection-background",
}
"""A colour -> the variables of Textual's style sheets, and our own, that have it."""


def make_theme(name: str, palette: Mapping[str, str]) -> Theme:
    """The Textual theme of a palette. Styles use $muted, $line and $track beside Textual's own names."""
    variables = {name: palette[colour] for colour, names in VARIABLES.items() for name in names.split()}
    return Theme(
        name=name,
        primary=palette["accent"],
        secondary=palette["muted"],
        boost=palette["panel"],
        dark=name != "light",
        variables=variables | dict.fromkeys(("block-cursor-text-style", "link-style", "link-style-hover"), "none"),
        foreground=palette["foreground"],
        accent=palette["accent"],
        success=palette["success"],
        warning=palette["warning"],
        error=palette["error"],
        background=palette["background"],
        surface=palette["surface"],
        panel=palette["panel"],
    )


THEMES: tuple[Theme, ...] = tuple(make_theme(name, palette) for name, palette in PALETTES.items())


def default_theme_name(environment: Mapping[str, str] = os.environ) -> str:
    """The theme that TRAINWIZ_THEME names; else light where COLORFGBG tells of a light ground; else dark.

    A terminal of 16 colours or fewer gets high contrast: the quiet greys of the others would all be black there.
    """
    wanted, term = environment.get(THEME_VARIABLE, "").lower(), environment.get("TERM", "")
    if wanted in PALETTES:
        return wanted
    if term in ("linux", *PLAIN_TERMINALS) or term.endswith("-16color"):
        return "high-contrast"
    return "light" if environment.get("COLORFGBG", "").endswith((";7", ";15")) else "dark"


PLAIN_TERMINALS = ("dumb", "vt100", "vt220")
"""Values of TERM of terminals that have ASCII and nothing else."""


def can_draw(environment: Mapping[str, str]) -> bool:
    """False for a terminal whose kind is known to have no more than ASCII."""
    return environment.get("TERM", "") not in PLAIN_TERMINALS


def wants_ascii(environment: Mapping[str, str] = os.environ, encoding: str | None = None) -> bool:
    """True where only ASCII can be drawn: TRAINWIZ_ASCII=1, a terminal without more, or an encoding that is not Unicode."""
    flag = environment.get(ASCII_VARIABLE, "").lower()
    if flag:
        return flag not in {"0", "no", "false"}
    return not can_draw(environment) or "utf" not in (encoding or locale.getpreferredencoding(False)).lower()


class Marks:
    """The marks that stand beside words; AsciiFilter draws its own for them."""

    ok = "✓"
    tight = "!"
    bad = "✗"
    here = "▸"
    changed = "●"
    menu = "▾"
    more = "›"
    times = "×"
    dot = "·"
    ellipsis = "…"
    full = "█"
    range = "▒"
    empty = "░"
    minus = "−"
    arrow = "→"
    stroke = "│"
    heavy = "━"
    light = "─"
    fills = "█▓▒░"
    levels = "▁▂▃▄▅▆▇█"
    ascii_only = False
    """Whether this process, which has one terminal, draws with ASCII alone."""


marks = Marks()
