"""Text and numbers from anywhere as harmless values, moments in words, JSON as text."""

from __future__ import annotations

import json
import math
import re
import time
import unicodedata
from collections.abc import Mapping
from typing import Any

from trainwiz.core.language import tr

# Text from users, files and logs as harmless text: no markup, no escape codes, no line breaks.

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
    line = str(text)
    if limit is not None:
        line = line[: limit * 4]
    # Nearly all lines are printable, and asking that costs nothing.
    if not line.isprintable():
        spaced = re.sub(r"[\t\n\r\v\f]", " ", _ESCAPE_SEQUENCE.sub("", line))
        line = "".join(one for one in spaced if one == " " or unicodedata.category(one) not in {"Cc", "Cf", "Cs", "Co"})
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


# Moments in words: a Unix time as this machine's calendar and clock have it.

DATE_AND_MINUTE = "%Y-%m-%d %H:%M"
FARTHEST_S = 1e15
"""Thirty million years: what is farther from now is no time, whatever a clock may have said."""


def is_moment(time_s: float) -> bool:
    """Whether it is a Unix time at all; files may hold anything."""
    return -FARTHEST_S < time_s < FARTHEST_S


def moment_words(time_s: float, form: str = DATE_AND_MINUTE) -> str:
    """Local time in the words of time.strftime; "an unknown time" for one that no calendar has, as files may hold."""
    try:
        return time.strftime(form, time.localtime(time_s))
    except (OverflowError, ValueError, OSError):
        return tr("an unknown time")


# JSON as text: reading what others wrote, and making values fit for writing.

LONGEST_INT = 19
"""Characters, with the sign."""
MOST_BITS = 64


def parse_json(text: str | bytes) -> Any:
    """Like json.loads; nesting deeper than the parser goes is a ValueError as well.

    A whole number of more than 18 digits comes as a float: no count or time of ours has so many, and
    Python's own have no limit until something multiplies them or makes them a float.
    """
    try:
        return json.loads(text, parse_int=lambda digits: (int if len(digits) <= LONGEST_INT else float)(digits))
    except RecursionError:
        raise ValueError(tr("it is nested too deeply")) from None


def is_text(text: str) -> bool:
    """False where a byte that is no UTF-8, in the name of a file, came along as half a surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def within_bounds(whole: int) -> int | float:
    """The same for a whole number that was read from another notation, such as hexadecimal digits."""
    try:
        return whole if whole.bit_length() < MOST_BITS else float(whole)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def finite(value: Any) -> Any:
    """`value` with every float that JSON cannot hold (NaN, infinities) replaced by None, and all keys as text."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def json_line(value: Any) -> str:
    """`value` as one line of JSON that people can read and a terminal can show, whatever texts are in it.

    json.dumps leaves DEL, the C1 controls (one of them starts an escape sequence), the characters that
    turn the direction of writing and the separators of lines as they are; here they are escaped too.
    """
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    hidden = {character for character in text if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    return text.translate({ord(character): json.dumps(character)[1:-1] for character in hidden})


# Numbers and texts out of values that anybody may have written: the right type, or None.

FARTHEST_STEP = 1e15


def number(value: Any) -> float | None:
    """A JSON number as float (inf where it is too large for one); None for anything else, true and false included."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def step_of(value: Any) -> int | None:
    """The step that a value names; None for what no training counts to, as files may hold."""
    known = number(value)
    return int(known) if known is not None and -FARTHEST_STEP < known < FARTHEST_STEP else None


def numbers_finite(value: Any, otherwise: float | None = None) -> float | None:
    """A finite number, or `otherwise`."""
    converted = number(value)
    return otherwise if converted is None or not math.isfinite(converted) else converted


def object_in(value: Any) -> Mapping[str, Any]:
    """Empty for anything else."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def texts_in(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def text_in(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def whole_in(value: Any) -> int | None:
    converted = numbers_finite(value)
    return None if converted is None else int(converted)
