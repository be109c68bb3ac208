"""Numbers and texts out of values that anybody may have written: the right type, or None."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

FARTHEST_STEP = 1e15


def number(value: Any) -> float | None:
    """A JSON number as float (inf where it is too large for one); None for anything else, true and false included."""
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


def finite(value: Any, otherwise: float | None = None) -> float | None:
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
    converted = finite(value)
    return None if converted is None else int(converted)
