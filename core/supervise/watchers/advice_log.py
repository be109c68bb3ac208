"""AdviceLog: advice.jsonl, one line at each change and none for a trouble of a moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.run.advice import Advice
from trainwiz.core.supervise.sample_file import ends_a_line
from trainwiz.core.telemetry.recorded_advice import ADVICE_JSONL, AdviceFile
from trainwiz.core.telemetry.tail import JsonLinesTail

QUIET_S = 60.0
"""What is not seen for this long is over; a trouble that comes and goes needs twice as long each time,"""
MOST_DOUBLINGS = 6
"""an hour at most."""
SAY_AGAIN_S = 600.0
"""Figures in a text that stands are brought up to date this often."""
WHERE = "keeper"


@dataclass
class Standing:
    """One advice that is seen, and perhaps written."""

    first_s: float
    last_s: float
    advice: Advice | None = None
    """As it was written last; None while nothing is written."""
    written_s: float = 0.0
    times: int = 0
    """How often it was written anew after it was over."""


class AdviceLog:
    """Of one run folder; the only writer of its codes. `tell` is called again and again with all that holds."""

    def __init__(self, folder: Path, after_s: Mapping[str, float], clock: Callable[[], float]) -> None:
        """`after_s`: code -> seconds that it must hold before it is worth a line; at once without."""
        self.path = folder / ADVICE_JSONL
        self._after_s = after_s
        self._clock = clock
        self._standing: dict[str, Standing] = {}
        self._times: dict[str, int] = {}
        self._whole_line = False

    def take_over(self, codes: Iterable[str]) -> None:
        """What an earlier keeper wrote and could not take back stands; it goes once it is not seen."""
        own, now = set(codes), self._clock()
        for row in AdviceFile(JsonLinesTail(self.path)).read():
            code = str(row.get("code"))
            if code in own and row.get("where") == WHERE:
                self._standing[code] = Standing(now, now, Advice(code, "note", str(row.get("text"))), now)

    def tell(self, advice: Iterable[Advice]) -> None:
        """Raises OSError."""
        now = self._clock()
        seen = {item.code: item for item in advice}
        for code, item in seen.items():
            standing = self._standing.setdefault(code, Standing(now, now, times=self._times.get(code, 0)))
            standing.last_s = now
            if self._is_due(standing, item, now):
                self._write(_row(item, now))
                standing.advice, standing.written_s = item, now
        for code in [code for code in self._standing if code not in seen]:
            self._miss(code, now)

    def clear(self, codes: Iterable[str]) -> None:
        """These are over, as the run is. Raises OSError."""
        now = self._clock()
        for code in codes:
            standing = self._standing.pop(code, None)
            if standing is not None and standing.advice is not None:
                self._write(_row(standing.advice, now, cleared=True))

    def _is_due(self, standing: Standing, item: Advice, now: float) -> bool:
        before = standing.advice
        if before is None:
            return now - standing.first_s >= self._after_s.get(item.code, 0.0)
        if before.level != item.level:
            return True
        return before != item and now - standing.written_s >= SAY_AGAIN_S

    def _miss(self, code: str, now: float) -> None:
        standing = self._standing[code]
        if standing.advice is None:
            # It has to hold without a break.
            del self._standing[code]
        elif now - standing.last_s >= QUIET_S * 2 ** min(standing.times, MOST_DOUBLINGS):
            self._write(_row(standing.advice, now, cleared=True))
            self._times[code] = standing.times + 1
            del self._standing[code]

    def _write(self, row: Mapping[str, Any]) -> None:
        line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        with self.path.open("ab") as file:
            if not self._whole_line and not ends_a_line(self.path):
                # A keeper that was killed while it wrote left half a line.
                line = b"\n" + line
            self._whole_line = False
            file.write(line)
        self._whole_line = True


def _row(advice: Advice, time_s: float, *, cleared: bool = False) -> dict[str, Any]:
    row: dict[str, Any] = {"time_s": round(time_s, 3), "where": WHERE, **advice.to_json()}
    return {**row, "severity": "cleared"} if cleared else row
