"""Text from users, files and logs as harmless text: no markup, no escape codes, no line breaks."""

from __future__ import annotations

import re
import unicodedata

_ESCAPE_SEQUENCE = re.compile(
    r"[\x1b]\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and the like, up to their terminator
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]",
    re.DOTALL,
)

_SELECTORS = {0xFE0E: None, 0xFE0F: None}
"""Choose between the text and the picture of a character, and with it its width."""


def plain_text(text: object, limit: int | None = None) -> str:
    """One line without control characters; longer than `limit` cells of a terminal ends in "…".

    Escape sequences go as a whole, so that a colour code leaves no "[31m" behind. Characters that
    change the direction of writing go too: they could make a line look like another.
    """
    raw = str(text)
    if limit is not None and len(raw) > limit * 4:
        raw = raw[: limit * 4]
    # Nearly all lines are printable, and asking that costs nothing.
    cleaned = raw if raw.isprintable() else _ESCAPE_SEQUENCE.sub("", raw)
    line = (
        cleaned
        if cleaned.isprintable()
        else "".join(
            " " if character in "\t\n\r\v\f" else character
            for character in cleaned
            if character in "\t\n\r\v\f" or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co"}
        )
    )
    if not line.isascii():
        # A heart with a selector is one cell wide in some terminals and two in others; without it all agree.
        line = line.translate(_SELECTORS)
    if limit is None or len(line) * 2 <= limit:
        return line
    return _cut(line, limit)


def _cut(line: str, limit: int) -> str:
    """At most `limit` cells of a line; Chinese letters take two of them, accents that stand alone none."""
    if line.isascii():
        return line if len(line) <= limit else line[: max(limit - 1, 0)] + "…"
    used = 0
    room = 0  # letters that fit with the mark behind them
    for place, letter in enumerate(line):
        used += 2 if unicodedata.east_asian_width(letter) in "WF" else 0 if unicodedata.combining(letter) else 1
        if used < limit:
            room = place + 1
        if used > limit:
            return line[:room] + "…"
    return line
