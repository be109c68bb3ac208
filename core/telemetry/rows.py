"""Values out of rows that anybody may have written: the right type, or None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.telemetry.metrics import finite


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
