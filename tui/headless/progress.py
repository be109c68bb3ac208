"""Progress: a run as one reading of its folder, for whoever follows it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trainwiz.core.language import mark
from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.run.attempts import ADVICE_JSONL, Advice, AdviceFile, advice_of, phase_words, read_phase
from trainwiz.core.run.folder import MEETING_TOKEN, RunFolder
from trainwiz.core.run.state import RunState, read_state
from trainwiz.core.text import numbers_finite

# What the run record says beside its numbers: what the training does while no steps come, and new advice.

TOLD = frozenset({"error", "warning"})


class RecordReader:
    """Reads phase.json and advice.jsonl of a run again and again."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._advice = AdviceFile(JsonLinesTail(folder.file(ADVICE_JSONL)))
        self._told: set[tuple[str, str, str]] = set()

    def doing(self, state: RunState) -> str:
        """The work of the present attempt that is no training step, in words; empty where there is none."""
        now = read_phase(self._folder)
        since_s = state.attempts[-1].started_s if state.attempts else 0.0
        if now is None or now.phase == "training" or not state.is_active or now.since_s < since_s:
            return ""
        return phase_words(now)

    def new_advice(self, state: RunState) -> Iterator[Advice]:
        """Warnings and errors of the present attempt that were not told yet; a figure that changes is not told again."""
        since_s = state.attempts[-1].started_s if state.attempts else 0.0
        for row in self._advice.read():
            key = str(row.get("code") or row.get("text")), str(row.get("where")), str(row.get("severity"))
            if key not in self._told and (numbers_finite(row.get("time_s"), 0.0) or 0.0) >= since_s:
                self._told.add(key)
                yield from (advice for advice in advice_of([row]) if advice.level in TOLD)


# Progress: a run as one reading of its folder, for whoever follows it.

PACE_ROWS = 20
METRICS_WINDOW_BYTES = 4 * 1024 * 1024
"""Of a run that goes on this much is passed over row by row, and what is before it at once."""
SYSTEM_WINDOW_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Progress:
    """What a follower shows. Absent numbers are None."""

    state: RunState
    phase: str
    """What is being done now, translated where it is shown: "starting accelerate", "training", "stopping", ..."""
    phase_s: float
    """Seconds since this phase began; while training, since the last logged step."""
    step: int | None
    max_steps: int | None
    loss: float | None
    tokens_per_s: float | None
    """Real tokens, padding not counted."""
    memory_bytes: int | None
    """Of the fullest GPU, or of the run's processes where there is none."""
    left_s: float | None
    new_rows: tuple[dict[str, Any], ...] = field(default=())
    """Lines of metrics.jsonl that came since the last reading."""
    doing: str = ""
    """What the training says that it does while it makes no steps, in words: "tokenising 12,000 of 80,000 rows"."""
    new_advice: tuple[Advice, ...] = ()
    """Warnings and errors of watchers that came since the last reading."""


class ProgressReader:
    """Reads a run folder again and again; each `read` costs what is new."""

    def __init__(self, folder: RunFolder, *, resumed: bool = False) -> None:
        self.folder = folder
        self._metrics = JsonLinesTail(folder.metrics_jsonl, window_bytes=METRICS_WINDOW_BYTES)
        self._system = JsonLinesTail(folder.system_jsonl, window_bytes=SYSTEM_WINDOW_BYTES)
        self._record = RecordReader(folder)
        self._pace: deque[tuple[float, int]] = deque(maxlen=PACE_ROWS)
        self._row: dict[str, Any] = {}
        self._memory: int | None = None
        self._phase = ""
        self._loading = False
        self._attempts = 0
        self._phase_began = time.monotonic()
        if resumed:
            # Rows of earlier attempts are history: they say nothing about the pace of this one.
            self._new_rows()

    def read(self) -> Progress:
        state = read_state(self.folder)
        if len(state.attempts) != self._attempts:
            # The time between two attempts is no pace.
            self._attempts, self._loading = len(state.attempts), False
            self._pace.clear()
        rows = self._new_rows()
        for row in rows:
            self._take(row)
        for line in self._system.read_new():
            self._memory = memory_of(line) or self._memory
        self._enter(self._phase_of(state), restart=bool(rows))
        step = number(self._row, "step")
        max_steps = state.max_steps
        return Progress(
            state=state,
            phase=self._phase,
            phase_s=time.monotonic() - self._phase_began,
            step=None if step is None else int(step),
            max_steps=max_steps,
            loss=number(self._row, "loss"),
            tokens_per_s=number(self._row, "real_tokens_per_s"),
            memory_bytes=self._memory,
            left_s=self._left_s(step, max_steps),
            new_rows=tuple(rows),
            doing=self._record.doing(state),
            new_advice=tuple(self._record.new_advice(state)),
        )

    def _new_rows(self) -> list[dict[str, Any]]:
        rows = self._metrics.read_new()
        while self._metrics.behind:
            rows += self._metrics.read_new()
        return rows

    def _take(self, row: dict[str, Any]) -> None:
        self._row.update({key: value for key, value in row.items() if value is not None})
        time_s, step = number(row, "time_s"), number(row, "step")
        if time_s is not None and step is not None and number(row, "loss") is not None:
            self._pace.append((time_s, int(step)))

    def _left_s(self, step: float | None, max_steps: int | None) -> float | None:
        """Steps that are left at the pace of the last logged ones."""
        if step is None or max_steps is None or len(self._pace) < 2:
            return None
        (first_s, first_step), (last_s, last_step) = self._pace[0], self._pace[-1]
        if last_step <= first_step or last_s <= first_s:
            return None
        return max(0.0, max_steps - step) * (last_s - first_s) / (last_step - first_step)

    def _phase_of(self, state: RunState) -> str:
        if state.status == "starting":
            # The trainers may end before the launcher does: the phase never goes back.
            self._loading = self._loading or bool(state.workers)
            if self._loading:
                return mark("loading libraries, model and data")
            waits = self.folder.file(MEETING_TOKEN).exists()
            return mark("waiting for the other machines") if waits else mark("starting accelerate")
        if state.status == "running":
            return mark("training") if self._pace else mark("first step")
        return state.status

    def _enter(self, phase: str, *, restart: bool) -> None:
        if phase != self._phase or restart:
            self._phase = phase
            self._phase_began = time.monotonic()


def number(row: dict[str, Any], key: str) -> float | None:
    value = row.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def memory_of(line: dict[str, Any]) -> int | None:
    """Bytes in use by a line of system.jsonl: the fullest GPU of the run, else its processes together."""
    used = [gpu.get("memory_used_bytes") for gpu in line.get("gpus") or () if isinstance(gpu, dict)]
    known = [int(value) for value in used if isinstance(value, int | float)]
    if known:
        return max(known)
    resident = [process.get("rss_bytes") for process in line.get("processes") or () if isinstance(process, dict)]
    return sum(int(value) for value in resident if isinstance(value, int | float)) or None
