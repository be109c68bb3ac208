"""Advice: one line about a run, with its level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

AdviceLevel = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Advice:
    """One line of the advice panel."""

    code: str
    level: AdviceLevel
    text: str
    remedy: str | None = None
    """What to do about it, as a sentence or a command."""

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "severity": self.level, "text": self.text, "remedy": self.remedy}
