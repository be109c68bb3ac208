"""Check: one thing that a training may need, whether it is here, and what cures it if it is not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

CheckStatus = Literal["ok", "warning", "missing"]


@dataclass(frozen=True, slots=True)
class Check:
    """`reason` says what was found; `remedy` what to do, and `command` does it, where a command can."""

    feature: str
    """Stable name for programs: "driver", "bf16", "shared_memory", ..."""
    title: str
    status: CheckStatus
    reason: str
    remedy: str | None = None
    command: str | None = None
    required: bool = False
    """Nothing can be trained here while this is missing."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def can_train(checks: tuple[Check, ...]) -> bool:
    """Nothing that every training needs is missing."""
    return not any(check.required and check.status == "missing" for check in checks)
