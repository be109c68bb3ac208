"""Advice: one sentence about a run with its severity, and the file in which the keeper notes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.text import plain_text, text_in

# Advice: one line about a run, with its level.

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


# Advice that the run record carries: written by whoever watches the run, shown without knowing by whom.

ADVICE_JSONL = "advice.jsonl"
"""In a run folder, one object a line: `{time_s, code, severity, text, remedy, where}`.

`severity` is error, warning, note or ok; `text` is a sentence; `remedy` a sentence or a command, or
absent. A later line with the same `code` and `where` takes the place of an earlier one, and one with
`"severity": "cleared"` takes it away.
"""
MOST_ADVICE = 50
LONGEST_TEXT = 1_000
LEVELS: Mapping[str, AdviceLevel] = {"error": "error", "warning": "warning", "note": "note", "ok": "ok"}


class AdviceFile:
    """advice.jsonl of one run; each look reads what is new of its tail."""

    def __init__(self, tail: JsonLinesTail) -> None:
        self._tail = tail
        self._standing: dict[tuple[str, str], Mapping[str, Any]] = {}

    def read(self) -> list[Mapping[str, Any]]:
        """What stands now, the newest MOST_ADVICE."""
        rows = self._tail.read_new()
        if self._tail.began_anew:
            self._standing.clear()
        for row in rows:
            key = str(row.get("code") or row.get("text")), str(row.get("where"))
            self._standing.pop(key, None)
            if row.get("severity") != "cleared":
                self._standing[key] = row
        while len(self._standing) > MOST_ADVICE:
            del self._standing[next(iter(self._standing))]
        return list(self._standing.values())


def advice_of(recorded: Iterable[Any]) -> Iterable[Advice]:
    """Objects with `text` (or `message`) and perhaps `severity` (or `level`), `code` and `remedy`; others are passed over."""
    for item in recorded:
        if not isinstance(item, Mapping):
            continue
        text = text_in(item.get("text")) or text_in(item.get("message"))
        if text is None:
            continue
        level = LEVELS.get(str(item.get("severity") or item.get("level")), "note")
        remedy = _remedy(item)
        yield Advice(
            plain_text(item.get("code") or "recorded", 80),
            level,
            plain_text(text, LONGEST_TEXT),
            None if remedy is None else plain_text(remedy, LONGEST_TEXT),
        )


def _remedy(item: Mapping[str, Any]) -> str | None:
    """A sentence, or an object with `text` or `command`."""
    remedy = item.get("remedy")
    if isinstance(remedy, Mapping):
        return text_in(remedy.get("text")) or text_in(remedy.get("command"))
    return text_in(remedy)
