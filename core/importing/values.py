"""Values of foreign files, read as their programs read them."""

from __future__ import annotations

import json
from typing import Any

from trainwiz.core.importing.report import Collector
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text

LARGEST_COUNT = 2.0**64
LONGEST_VALUE = 60
YES, NO = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0", "none", ""})


def as_bool(value: Any) -> bool | None:
    """A yes or no, also as text; None for all else."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    return True if word in YES else False if word in NO else None


def as_number(value: Any) -> float | None:
    """A number, also as text ("1e-5", which YAML 1.1 leaves as text)."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if number - number == 0 else None


def as_count(value: Any) -> int | None:
    """A whole number, also as text or as 5e8; 1e299 counts nothing."""
    number = as_number(value)
    return int(number) if number is not None and abs(number) < LARGEST_COUNT and number == int(number) else None


def is_auto(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == "auto"


def shown(value: Any) -> str:
    """A foreign value inside a sentence: one line, as JSON writes it, not too long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return plain_text(text, LONGEST_VALUE)


def map_number(collector: Collector, name: str, value: Any, key: str, number: float | None, line: int | None) -> None:
    """Maps what is a number; all else is kept as unknown, with a finding."""
    if number is not None:
        collector.map(name, value, key, number, line)
        return
    collector.unknown(name, value, line)
    message = tr(
        "{file}: {name} is {value}, which is no number; it is left out.",
        file=collector.file,
        name=plain_text(name, LONGEST_VALUE),
        value=shown(value),
    )
    collector.find("bad_value", "warning", message, line)
