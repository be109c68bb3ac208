"""Text from users, files and logs as harmless text: no markup, no escape codes, no line breaks."""

from __future__ import annotations

import re
import unicodedata

_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")


def plain_text(text: object, limit: int | None = None) -> str:
    """One line without control characters; longer than `limit` characters ends in "…".

    Escape sequences go as a whole, so that a colour code leaves no "[31m" behind. Characters that
    change the direction of writing go too: they could make a line look like another.
    """
    raw = str(text)
    if limit is not None and len(raw) > limit * 4:
        raw = raw[: limit * 4]
    cleaned = _ESCAPE_SEQUENCE.sub("", raw)
    line = "".join(
        " " if character in "\t\n\r\v\f" else character
        for character in cleaned
        if character in "\t\n\r\v\f" or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co"}
    )
    if limit is not None and len(line) > limit:
        return line[: max(limit - 1, 0)] + "…"
    return line
