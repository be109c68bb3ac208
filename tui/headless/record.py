"""What the run record says beside its numbers: what the training does while no steps come, and new advice."""

from __future__ import annotations

from collections.abc import Iterator

from trainwiz.core.numbers import finite
from trainwiz.core.run.advice import Advice
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.phase import read_phase
from trainwiz.core.run.phase_words import phase_words
from trainwiz.core.run.state import RunState
from trainwiz.core.telemetry.recorded_advice import ADVICE_JSONL, AdviceFile, advice_of
from trainwiz.core.telemetry.tail import JsonLinesTail

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
            if key not in self._told and (finite(row.get("time_s"), 0.0) or 0.0) >= since_s:
                self._told.add(key)
                yield from (advice for advice in advice_of([row]) if advice.level in TOLD)
