"""JSON as text: reading what others wrote, and making values fit for writing."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping
from typing import Any

from trainwiz.core.language import tr

LONGEST_INT = 19
"""Characters, with the sign."""
MOST_BITS = 64


def parse_json(text: str | bytes) -> Any:
    """Like json.loads; nesting deeper than the parser goes is a ValueError as well.

    A whole number of more than 18 digits comes as a float: no count or time of ours has so many, and
    Python's own have no limit until something multiplies them or makes them a float.
    """
    try:
        return json.loads(text, parse_int=_whole)
    except RecursionError:
        raise ValueError(tr("it is nested too deeply")) from None


def is_text(text: str) -> bool:
    """False where a byte that is no UTF-8, in the name of a file, came along as half a surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= LONGEST_INT else float(digits)


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
