"""Themes: dark, light and high contrast; and drawing in ASCII alone."""

from __future__ import annotations

import locale
import os
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

# AsciiFilter: draws every cell in ASCII, for terminals and fonts that have nothing else.

_BY_HAND = {
    **dict.fromkeys("─━═╌┄▔▁", "-"),
    **dict.fromkeys("│┃║▏▕╎┆▎▍▌▐", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝", "+"),
    **dict.fromkeys("█▇▆▅▄▉▊▋■●", "#"),
    **dict.fromkeys("▒▓", "="),
    **dict.fromkeys("░▃▂", "."),
    "✓": "+",
    "✗": "x",
    "×": "x",
    "·": "-",
    "−": "-",
    "–": "-",
    "…": "~",
    "▸": ">",
    "›": ">",
    "▾": "v",
    "▲": "^",
    "▼": "v",
    "↑": "^",
    "↓": "v",
    "→": ">",
    "←": "<",
    "°": "o",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
}


def ascii_text(text: str) -> str:
    """As many cells as `text`, all of them ASCII; what has no likeness becomes "?", and braille dots "*"."""
    return text if text.isascii() else "".join(_cells(character) for character in text)


def _cells(character: str) -> str:
    if character.isascii():
        return character
    if character in _BY_HAND:
        return _BY_HAND[character]
    if "\u2800" <= character <= "\u28ff":
        return " " if character == "\u2800" else "*"
    if unicodedata.combining(character) or unicodedata.category(character) in {"Cf", "Me", "Mn"}:
        return ""
    plain = unicodedata.normalize("NFKD", character)[:1]
    width = 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
    return (plain if plain.isascii() else "?").ljust(width, "?")


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

TEXT_COLOURS = ("foreground", "muted", "accent", "success", "warning", "error")
GROUND_COLOURS = ("background", "surface", "panel")


class Palette(NamedTuple):
    """The colours of one theme. `line` and `track` draw frames and empty bars; selected text lies on `track`."""

    name: str
    dark: bool
    background: str
    surface: str
    panel: str
    foreground: str
    muted: str
    accent: str
    success: str
    warning: str
    error: str
    line: str
    track: str


PALETTES: tuple[Palette, ...] = (
    Palette(
        name="dark",
        dark=True,
        background="#101418",
        surface="#151a1f",
        panel="#1d242b",
        foreground="#d9dfe5",
        muted="#93a1ae",
        accent="#62bfe0",
        success="#83c995",
        warning="#e3b35f",
        error="#f2817c",
        line="#333e48",
        track="#333e48",
    ),
    Palette(
        name="light",
        dark=False,
        background="#fbfaf7",
        surface="#f5f3ee",
        panel="#ebe8e0",
        foreground="#22272b",
        muted="#566069",
        accent="#0a638a",
        success="#1d6a3a",
        warning="#7d5200",
        error="#ad241c",
        line="#d0cbc0",
        track="#d0cbc0",
    ),
    Palette(
        name="high-contrast",
        dark=True,
        background="#000000",
        surface="#000000",
        panel="#1c1c1c",
        foreground="#ffffff",
        muted="#e6e6e6",
        accent="#5ce1ff",
        success="#6dff9c",
        warning="#ffd84d",
        error="#ff9c9c",
        line="#bdbdbd",
        track="#5a5a5a",
    ),
)


def make_theme(palette: Palette) -> Theme:
    """The Textual theme of a palette. Styles use $muted, $line and $track beside Textual's own names."""
    return Theme(
        name=palette.name,
        primary=palette.accent,
        secondary=palette.muted,
        accent=palette.accent,
        success=palette.success,
        warning=palette.warning,
        error=palette.error,
        foreground=palette.foreground,
        background=palette.background,
        surface=palette.surface,
        panel=palette.panel,
        boost=palette.panel,
        dark=palette.dark,
        variables={
            "muted": palette.muted,
            "line": palette.line,
            "track": palette.track,
            "text": palette.foreground,
            "text-muted": palette.muted,
            "text-disabled": palette.muted,
            "border": palette.accent,
            "border-blurred": palette.line,
            "block-cursor-foreground": palette.background,
            "block-cursor-background": palette.accent,
            "block-cursor-text-style": "none",
            "block-cursor-blurred-foreground": palette.foreground,
            "block-cursor-blurred-background": palette.panel,
            "block-hover-background": palette.panel,
            "input-cursor-background": palette.foreground,
            "input-cursor-foreground": palette.background,
            "input-selection-background": palette.track,
            "input-selection-foreground": palette.foreground,
            "screen-selection-background": palette.track,
            "screen-selection-foreground": palette.foreground,
            "scrollbar": palette.line,
            "scrollbar-hover": palette.muted,
            "scrollbar-active": palette.accent,
            "scrollbar-background": palette.background,
            "scrollbar-background-hover": palette.background,
            "scrollbar-background-active": palette.background,
            "scrollbar-corner-color": palette.background,
            "link-style": "none",
            "link-background-hover": palette.panel,
            "link-color-hover": palette.accent,
            "link-style-hover": "none",
            "footer-background": palette.background,
            "footer-key-foreground": palette.foreground,
            "footer-description-foreground": palette.muted,
        },
    )


THEMES: tuple[Theme, ...] = tuple(make_theme(palette) for palette in PALETTES)


def default_theme_name(environment: Mapping[str, str] | None = None) -> str:
    """The theme that TRAINWIZ_THEME names; else light where COLORFGBG tells of a light ground; else dark.

    A terminal of 16 colours or fewer gets high contrast: the quiet greys of the others would all be black there.
    """
    environment = os.environ if environment is None else environment
    wanted = environment.get(THEME_VARIABLE, "").strip().lower()
    if wanted in {palette.name for palette in PALETTES}:
        return wanted
    term = environment.get("TERM", "").strip().lower()
    if term and (term == "linux" or term.endswith("-16color") or not can_draw(environment)):
        return "high-contrast"
    ground = environment.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if ground in {"7", "15"} else "dark"


PLAIN_TERMINALS = ("dumb", "vt52", "vt100", "vt102", "vt220", "ansi", "cons25", "unknown")
"""Values of TERM (or their beginnings, up to a hyphen) of terminals that have ASCII and nothing else."""


def can_draw(environment: Mapping[str, str]) -> bool:
    """False for a terminal whose kind is known to have no more than ASCII."""
    return environment.get("TERM", "").strip().lower().partition("-")[0] not in PLAIN_TERMINALS


def wants_ascii(environment: Mapping[str, str] | None = None, encoding: str | None = None) -> bool:
    """True where only ASCII can be drawn: TRAINWIZ_ASCII=1, a terminal without more, or an encoding that is not Unicode.

    Python reads the locales C and POSIX as UTF-8; who sets one of them by name wants ASCII.
    """
    environment = os.environ if environment is None else environment
    flag = environment.get(ASCII_VARIABLE, "").strip().lower()
    if flag:
        return flag not in {"0", "no", "false"}
    if not can_draw(environment) or _locale_name(environment) in {"C", "POSIX"}:
        return True
    encoding = locale.getpreferredencoding(False) if encoding is None else encoding
    return "utf" not in encoding.lower()


def _locale_name(environment: Mapping[str, str]) -> str:
    """What decides about characters, in the order of POSIX; Python's own coercion to C.UTF-8 is not a wish."""
    kind = environment.get("LC_CTYPE", "")
    return environment.get("LC_ALL") or (kind if kind != "C.UTF-8" else "") or environment.get("LANG") or ""


class Marks(NamedTuple):
    """The marks that stand beside words, in Unicode or in ASCII."""

    ok: str = "✓"
    tight: str = "!"
    bad: str = "✗"
    here: str = "▸"
    changed: str = "●"
    menu: str = "▾"
    more: str = "›"
    times: str = "×"
    dot: str = "·"
    ellipsis: str = "…"
    full: str = "█"
    range: str = "▒"
    empty: str = "░"
    bar: str = "▏"
    minus: str = "−"


UNICODE_MARKS = Marks()
ASCII_MARKS = Marks(
    ok="+",
    tight="!",
    bad="x",
    here=">",
    changed="*",
    menu="v",
    more=">",
    times="x",
    dot="-",
    ellipsis="...",
    full="#",
    range="=",
    empty=".",
    bar="|",
    minus="-",
)


def marks(ascii_only: bool) -> Marks:
    return ASCII_MARKS if ascii_only else UNICODE_MARKS


def contrast_ratio(first: str, second: str) -> float:
    """Contrast of two "#rrggbb" colours, 1 to 21 (WCAG 2.1, relative luminance)."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
