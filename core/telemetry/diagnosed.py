"""The diagnosis of what somebody named, where it is not a run."""

from __future__ import annotations

import contextlib
import itertools
import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from trainwiz.core.diagnosis.cause import Diagnosis, Evidence, Proof, of_cause
from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.diagnosis.patterns import remedies_for
from trainwiz.core.diagnosis.sources import NotALogError, read_log, scan_stream
from trainwiz.core.errors import UsageError, os_reason, usage_error
from trainwiz.core.language import tr
from trainwiz.core.lines import Seldom, stamp_of
from trainwiz.core.run.attempts import Advice
from trainwiz.core.telemetry.advice import worst_first
from trainwiz.core.telemetry.metrics import loss_name
from trainwiz.core.telemetry.snapshot import Ending, Snapshot
from trainwiz.core.telemetry.trainer_files import (
    CHECKPOINT,
    LOG_ENDINGS,
    TRAINER_STATE,
    NewestState,
    TrainerState,
    folders_below,
    value_of,
    written_s,
)
from trainwiz.core.telemetry.words import step_words
from trainwiz.core.text import plain_text

MOST_LOGS = 64
DEEPEST = 3
"""Folders below the named one: torchrun keeps the output of rank 0 in <id>/attempt_0/0/stderr.log."""
PARTNER_CAUSES = ("nccl_error", "nccl_timeout")


def diagnose_stream(stream: BinaryIO, source: str) -> Diagnosis:
    """The log that comes through a pipe. Raises UsageError for what is not text."""
    try:
        return diagnose(Evidence(log=scan_stream(stream, source)))
    except NotALogError:
        raise _not_a_log(source) from None


def diagnose_log(path: Path, last_bytes: int | None = None) -> Diagnosis:
    """One log, or its end. Raises UsageError with the reason where it cannot be read, or is no text."""
    try:
        facts = read_log(path, last_bytes=last_bytes)
    except NotALogError:
        raise _not_a_log(str(path)) from None
    except OSError as error:
        message = tr("Cannot read {path}: {reason}.", path=path, reason=os_reason(error))
        raise usage_error("not_readable", str(path), message) from None
    found = diagnose(Evidence(log=facts))
    if facts.lines:
        return found
    return replace(found, message=tr("{path} is empty: there is nothing to diagnose.", path=path))


def diagnose_folder(path: Path) -> Diagnosis:
    """A folder that is no run: of a Trainer (or its trainer_state.json), with a log beside its record where there is
    one; or of logs. Raises UsageError where nothing in it can be read."""
    logs = find_logs(path) if path.is_dir() else []
    record = NewestState(path)
    state = record.look()
    of_log = diagnose_logs(logs) if logs else None
    if of_log is not None and (state is None or of_log.cause not in (None, "unknown")):
        return of_log
    if state is not None:
        return _of_state(state)
    if record.problems:
        raise usage_error("not_readable", str(path), record.problems[0])
    message = tr(
        "{path} contains no run, no {state} and no log ({endings}) that can be read; specify the log file itself.",
        path=path,
        state=TRAINER_STATE,
        endings=", ".join(LOG_ENDINGS),
    )
    raise usage_error("nothing_to_diagnose", str(path), message)


def _of_state(state: TrainerState) -> Diagnosis:
    rows = [row for row in state.rows if "loss" in row]
    name, step = state.path.name, state.step
    loss, norm = (value_of(rows[-1].get(key)) if rows else None for key in ("loss", "grad_norm"))
    # The Trainer logs a NaN as 0 where it filters them.
    if loss is not None and not math.isfinite(norm if loss == 0 and norm is not None else loss):
        said = tr("the last of {n} logged losses: {loss}", n=len(rows), loss=str(rows[-1])[:200])
        return _not_a_number(said, name, step)
    place = tr("an unknown step") if step is None else step_words(step, state.max_steps)
    proofs = (Proof(None, place, name),)
    if step is not None and state.max_steps is not None and step >= state.max_steps:
        return Diagnosis(None, "high", tr("The training finished."), proofs, (), step)
    message = tr("The log ends at {place} with no error, and no training log was found next to it.", place=place)
    return Diagnosis("unknown", "low", message, proofs, remedies_for("unknown", Evidence()), step)


def _not_a_number(said: str, source: str, step: int | None) -> Diagnosis:
    remedies, message = remedies_for("nan_loss", Evidence()), of_cause("nan_loss", "", step)
    return Diagnosis("nan_loss", "high", message, (Proof(None, said, source),), remedies, step)


def diagnose_logs(logs: list[Path], last_bytes: int | None = None) -> Diagnosis:
    """Several logs of one training, as of its ranks: the one that failed first, not the loudest. Raises UsageError."""
    found: list[tuple[tuple[bool, bool, float], Diagnosis]] = []
    refused: UsageError | None = None
    for path in logs:
        try:
            diagnosis = diagnose_log(path, last_bytes)
        except UsageError as error:
            refused = error
            continue
        nothing, last_s = diagnosis.cause in (None, "unknown"), written_s(path) or 0.0
        found.append(((nothing, diagnosis.cause in PARTNER_CAUSES, -last_s if nothing else last_s), diagnosis))
    if not found:
        raise refused or usage_error("nothing_to_diagnose", str(logs[0]), tr("{path} cannot be read.", path=logs[0]))
    return min(found, key=lambda one: one[0])[1]


def find_logs(folder: Path) -> list[Path]:
    """The files that are called like logs, down to DEEPEST folders, at most MOST_LOGS."""
    found = (
        place / name
        for place, names in folders_below(folder, CHECKPOINT, DEEPEST)
        for name in sorted(names)
        if name.endswith(LOG_ENDINGS) and not name.startswith(".")
    )
    return list(itertools.islice(found, MOST_LOGS))


def _not_a_log(source: str) -> UsageError:
    message = tr(
        "{path} is not a log: it is not text. Specify the file that contains the output of the training.", path=source
    )
    return usage_error("not_a_log", source, message)


# The same in each snapshot of a job of another tool.

LAST_BYTES = 8 * 1024 * 1024
"""Of a log its end is read: whatever came before has been survived."""
LOOK_EVERY_S = 5.0
SHARE_OF_A_CORE_FOR_LOOKS = 0.02
WRITTEN_BEFORE_S = 60.0
"""A log that was written so long before the last metrics is of another launch."""


class LogDiagnosis:
    """Why a job of another tool ended, as `trainwiz diagnose` says it of its log, in each snapshot."""

    def __init__(self) -> None:
        self._look = Seldom(LOOK_EVERY_S, SHARE_OF_A_CORE_FOR_LOOKS)
        self._stamps: list[tuple[Path, int, int]] = []
        self._found: Diagnosis | None = None

    def add_to(self, snapshot: Snapshot, *, runs: bool) -> Snapshot:
        """`runs`: a process of it is alive, so that nothing has ended it; its loss may still be no number."""
        if snapshot.behind:
            return snapshot
        if not runs:
            self._look.do(lambda: self._read_logs(snapshot))
        found = _of_loss(snapshot) if runs or self._found is None else self._found
        if found is None or found.cause is None:
            return snapshot
        what = found.remedies[0].text if found.remedies else None
        advice = Advice(found.cause, "error", plain_text(found.message), what)
        others = (item for item in snapshot.advice if item.code != found.cause)
        snapshot = replace(snapshot, diagnosis=found, advice=worst_first((advice,), others))
        if snapshot.ending is None:
            return snapshot
        if found.cause == "nan_loss":
            return replace(snapshot, ending=replace(snapshot.ending, cause=found.cause))
        place = self._stamps[0][0] if len(self._stamps) == 1 else Path(snapshot.path)
        command = shlex.join(["trainwiz", "diagnose", str(place)])
        remedy = tr("{what} See the lines that prove it: {command}", what=what or "", command=command).strip()
        status = "stopped" if found.cause == "user_stop" else "failed"
        return replace(snapshot, status=status, ending=Ending(advice.text, remedy, command, found.cause), eta_s=None)

    def _read_logs(self, snapshot: Snapshot) -> None:
        stamps = sorted(_logs_of(snapshot))
        if stamps == self._stamps:
            return
        self._stamps, self._found = stamps, None
        if not stamps:
            return
        with contextlib.suppress(UsageError):
            found = diagnose_logs([path for path, *_ in stamps], LAST_BYTES)
            if found.cause != "unknown" or found.signal is not None:
                self._found = found
        if self._found is not None and any(size > LAST_BYTES for _, size, _ in stamps):
            # Lines of an end are not counted from the beginning: `trainwiz diagnose` does that.
            proofs = tuple(replace(proof, line=None) for proof in self._found.evidence)
            self._found = replace(self._found, evidence=proofs)


def _logs_of(snapshot: Snapshot) -> list[tuple[Path, int, int]]:
    """The log that is known, else those in the folder that were written to the last, with size and time."""
    place = Path(snapshot.path)
    logs = [Path(snapshot.log_path)] if snapshot.log_path else []
    if not logs and snapshot.source != "process" and place.is_dir():
        logs = find_logs(place)
    since_ns = ((snapshot.ended_s or 0.0) - WRITTEN_BEFORE_S) * 1e9
    stamps = [(path, stamp) for path in logs if (stamp := stamp_of(path)) is not None]
    return [(path, *stamp) for path, stamp in stamps if stamp[1] >= since_ns]


def _of_loss(snapshot: Snapshot) -> Diagnosis | None:
    """The last loss of the training is no number."""
    name = loss_name(snapshot.metrics)
    last = snapshot.metrics[name].last if name else None
    if last is None or math.isfinite(last):
        return None
    source = "".join(Path(file).name for file in snapshot.read_from[-1:])
    return _not_a_number(f"{plain_text(name)} {last}", source, snapshot.step)
