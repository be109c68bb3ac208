"""How a run ended: one sentence, and the command that goes on from there."""

from __future__ import annotations

import dataclasses
import math
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainwiz.core.errors import UsageError
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.advice import Advice
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.names import name_for_commands
from trainwiz.core.run.state import RunState
from trainwiz.core.telemetry.metrics import Metrics
from trainwiz.core.telemetry.on_machine import joined
from trainwiz.core.telemetry.snapshot import Ending, Snapshot
from trainwiz.core.telemetry.spans import step_words

if TYPE_CHECKING:
    from trainwiz.core.diagnosis.diagnosis import Diagnosis

LAST_BYTES = 8 * 1024 * 1024
"""Of a log its end is read: whatever came before has been survived."""
LOOK_EVERY_S = 5.0
SHARE_OF_A_CORE_FOR_LOOKS = 0.02
WRITTEN_BEFORE_S = 60.0
"""A log that was written so long before the last metrics is of another launch."""


def ending_of(state: RunState, folder: RunFolder, step: int | None, max_steps: int | None, metrics: Metrics) -> Ending:
    """The supervisor's own words where it left some; for a finished run what came out of it."""
    place = None if step is None else step_words(step, max_steps)
    resume = f"trainwiz runs resume {name_for_commands(folder.path)}"
    if state.status == "finished":
        loss = metrics.series.get("loss")
        said = finished_words(place, loss.first, loss.last) if loss is not None else finished_words(place, None, None)
        if folder.final_model.is_dir():
            said = tr("{finished} The model is in {path}.", finished=said, path=folder.final_model)
        return Ending(said, remedy=None, command=None, cause=None)
    message = state.exit.message if state.exit else ""
    remedy = state.exit.remedy if state.exit else None
    cause = state.exit.cause if state.exit else None
    if state.status == "stopped":
        said = tr("Stopped.") if place is None else tr("Stopped at {place}.", place=place)
        return Ending(message or said, remedy or resume, resume, cause)
    if state.status == "lost":
        said = tr("Lost: its processes are gone without a last word.")
        if place is not None:
            said = tr("Lost at {place}: its processes are gone without a last word.", place=place)
        return Ending(message or said, remedy or resume, resume, cause)
    said = tr("Failed.") if place is None else tr("Failed at {place}.", place=place)
    return Ending(message or said, remedy or tr("Read why in {path}.", path=folder.train_log), resume, cause)


def finished_words(place: str | None, first_loss: float | None, last_loss: float | None) -> str:
    """The sentence of a training that reached its end. `place`: as `step_words` says it."""
    if first_loss is None or last_loss is None:
        return tr("Finished.") if place is None else tr("Finished at {place}.", place=place)
    losses = f"{first_loss:.4g} → {last_loss:.4g}"
    if place is None:
        return tr("Finished, loss {losses}.", losses=losses)
    return tr("Finished at {place}, loss {losses}.", place=place, losses=losses)


class LogDiagnosis:
    """Why a job of another tool ended, as `trainwiz diagnose` says it of its log, in each snapshot."""

    def __init__(self) -> None:
        self._next_look_s = 0.0
        self._stamps: list[tuple[Path, int, int]] = []
        self._found: Diagnosis | None = None

    def add_to(self, snapshot: Snapshot, *, runs: bool) -> Snapshot:
        """`runs`: a process of it is alive, so that nothing has ended it; its loss may still be no number."""
        if snapshot.behind:
            return snapshot
        found = None if runs else self._of_log(snapshot)
        found = found or _of_loss(snapshot)
        if found is None or found.cause is None:
            return snapshot
        what = found.remedies[0].text if found.remedies else None
        advice = Advice(found.cause, "error", plain_text(found.message), what)
        if not any(item.code == found.cause for item in snapshot.advice):
            snapshot = dataclasses.replace(snapshot, advice=joined(snapshot.advice, (advice,)))
        snapshot = dataclasses.replace(snapshot, diagnosis=found)
        if snapshot.ending is None:
            return snapshot
        if found.cause == "nan_loss":
            return dataclasses.replace(snapshot, ending=dataclasses.replace(snapshot.ending, cause=found.cause))
        place = self._stamps[0][0] if len(self._stamps) == 1 else Path(snapshot.path)
        command = shlex.join(["trainwiz", "diagnose", str(place)])
        said = advice.text
        if snapshot.step is not None:
            where = step_words(snapshot.step, snapshot.max_steps)
            said = tr("Failed after {place}: {message}", place=where, message=said)
        remedy = tr("{what} The lines that prove it:", what=what or "").strip()
        ending = Ending(said, f"{remedy} {command}", command, found.cause)
        status = "stopped" if found.cause == "user_stop" else "failed"
        return dataclasses.replace(snapshot, status=status, ending=ending, eta_s=None)

    def _of_log(self, snapshot: Snapshot) -> Diagnosis | None:
        if time.monotonic() < self._next_look_s:
            return self._found
        from trainwiz.core.diagnosis.of_path import diagnose_logs

        started_s = time.thread_time()
        stamps = sorted(_logs_of(snapshot))
        if stamps != self._stamps:
            self._stamps, self._found = stamps, None
            try:
                found = diagnose_logs([path for path, *_ in stamps], LAST_BYTES) if stamps else None
            except UsageError:
                found = None
            if found is not None and (found.cause != "unknown" or found.signal is not None):
                # Lines of an end are not counted from the beginning: `trainwiz diagnose` does that.
                proofs = tuple(dataclasses.replace(proof, line=None) for proof in found.evidence)
                whole = all(size <= LAST_BYTES for _, size, _ in stamps)
                self._found = found if whole else dataclasses.replace(found, evidence=proofs)
        cost_s = time.thread_time() - started_s
        self._next_look_s = time.monotonic() + max(LOOK_EVERY_S, cost_s / SHARE_OF_A_CORE_FOR_LOOKS)
        return self._found


def _logs_of(snapshot: Snapshot) -> list[tuple[Path, int, int]]:
    """The log that is known, else those in the folder that were written to the last, with size and time."""
    from trainwiz.core.diagnosis.of_path import find_logs

    place = Path(snapshot.path)
    known = [Path(snapshot.log_path)] if snapshot.log_path else []
    if not known and snapshot.source != "process" and place.is_dir():
        known = find_logs(place)
    found = []
    for path in known:
        try:
            status = path.stat()
        except OSError:
            continue
        if status.st_mtime >= (snapshot.ended_s or 0.0) - WRITTEN_BEFORE_S:
            found.append((path, status.st_size, status.st_mtime_ns))
    return found


def _of_loss(snapshot: Snapshot) -> Diagnosis | None:
    """The last loss of the training is no number."""
    from trainwiz.core.diagnosis.diagnosis import Diagnosis, Proof
    from trainwiz.core.diagnosis.evidence import Settings
    from trainwiz.core.diagnosis.remedies import Place, remedies_for
    from trainwiz.core.diagnosis.words import of_cause
    from trainwiz.core.telemetry.foreign import loss_name

    name = loss_name(snapshot.metrics)
    last = snapshot.metrics[name].last if name else None
    if last is None or math.isfinite(last):
        return None
    source = Path(snapshot.read_from[-1]).name if snapshot.read_from else ""
    proof = Proof(None, f"{plain_text(name)} {last}", source)
    message, remedies = of_cause("nan_loss", "", snapshot.step), remedies_for("nan_loss", Place(None, Settings()))
    return Diagnosis("nan_loss", "high", message, (proof,), remedies, snapshot.step)
