"""The log of a job that trainwiz did not start, how it ended, and the machine that it is on."""

from __future__ import annotations

import dataclasses
import math
import shlex
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trainwiz.core.errors import UsageError
from trainwiz.core.language import tr
from trainwiz.core.lines import TextTail
from trainwiz.core.run.attempts import Advice
from trainwiz.core.run.folder import RunFolder, name_for_commands
from trainwiz.core.run.state import RunState
from trainwiz.core.telemetry.advice_machine import LEVELS, advise
from trainwiz.core.telemetry.log import LONGEST_LINE, Bar, Levels, LogLine, parts_of
from trainwiz.core.telemetry.machine import MachineHistory
from trainwiz.core.telemetry.metrics import Metrics, Pace
from trainwiz.core.telemetry.snapshot import Ending, Planned, Snapshot
from trainwiz.core.telemetry.words import step_words
from trainwiz.core.text import plain_text

if TYPE_CHECKING:
    from trainwiz.core.diagnosis.cause import Diagnosis


# What is known of a job's machine, laid over what its files tell: one snapshot of both.

CPU_ENGINE = {"device": "cpu"}
"""What a snapshot's engine says of a job that has no graphics card open: the cards of the machine are not its own."""


def while_it_runs(snapshot: Snapshot) -> Snapshot:
    """`snapshot` of files whose writer is alive: they may rest, as in a long step, and the job does not.

    One that has reached its last step stays finished: its processes save, or wait in a notebook.
    """
    if snapshot.status == "finished":
        return snapshot
    step_s = snapshot.pace.wall_step_s or snapshot.pace.step_s
    known = snapshot.step is not None and snapshot.max_steps and step_s is not None
    left_s = max(0, (snapshot.max_steps or 0) - (snapshot.step or 0)) * (step_s or 0.0)
    return dataclasses.replace(
        snapshot, status="running", ending=None, ended_s=None, eta_s=left_s if known else snapshot.eta_s
    )


def with_machine(
    snapshot: Snapshot, machine: MachineHistory, *, uses_gpu: bool | None, checkpoint_bytes: int | None = None
) -> Snapshot:
    """`snapshot` with the readings of `machine`, their reasons and their advice added to its own.

    `uses_gpu`: whether the job has a card open; None where that is not known. `checkpoint_bytes`: what its
    next checkpoint takes.
    """
    gpus, host = machine.gpus(), machine.host()
    own_gpu = uses_gpu is not False or any(gpu.job_memory_bytes for gpu in gpus)
    reasons = machine.unavailable()
    if uses_gpu and gpus and not any(gpu.job_memory_bytes for gpu in gpus):
        reasons["job_gpu_memory"] = tr(
            "The driver names no process of this job on any card (in a container it uses the host's process numbers), "
            "so its own share of the memory is not known."
        )
    return dataclasses.replace(
        snapshot,
        gpus=gpus,
        host=host,
        processes=machine.processes(),
        job_cpu_history=machine.job_cpu_history(),
        unavailable={**snapshot.unavailable, **reasons},
        engine=snapshot.engine if own_gpu else {**snapshot.engine, **CPU_ENGINE},
        advice=joined(
            snapshot.advice,
            advise(
                status=snapshot.status,
                metrics={},
                non_finite_steps={},
                pace=Pace(None, None, None, None, None),
                gpus=gpus if own_gpu else (),
                host=host,
                planned=Planned(),
                peak_memory_bytes=None,
                checkpoint_bytes=checkpoint_bytes,
                now_s=snapshot.time_s,
            ),
        ),
    )


def with_reasons(snapshot: Snapshot, reasons: Mapping[str, str]) -> Snapshot:
    """`snapshot` with sentences that say why something is not shown: beside the value, and as notes to read."""
    notes = tuple(Advice(f"no_{what}", "note", reason) for what, reason in reasons.items())
    return dataclasses.replace(
        snapshot, unavailable={**snapshot.unavailable, **reasons}, advice=joined(snapshot.advice, notes)
    )


def joined(*advice: tuple[Advice, ...]) -> tuple[Advice, ...]:
    """All of it once, worst first."""
    every = dict.fromkeys(item for some in advice for item in some)
    return tuple(sorted(every, key=lambda item: LEVELS[item.level]))


# LogLines: the last lines of a log that arrives in pieces, progress bars folded into one line each.

KEPT_LINES = 1_000
MOST_BARS = 64


class LogLines:
    """The newest `kept` lines. `version` changes with the content.

    A newer version of a progress bar takes the place of the older one; where something was logged
    between the two, the bar moves down to the end, and one that had reached its end stays as it was.
    """

    def __init__(self, kept: int = KEPT_LINES) -> None:
        self._kept = kept
        self.version = 0
        self._begin()

    def _begin(self) -> None:
        self._lines: deque[LogLine | None] = deque(maxlen=self._kept)
        self._fed = 0
        self._last_text = 0
        self._bars: dict[str, tuple[int, bool]] = {}
        """Key -> (number of the line that shows the bar, whether it has reached its end)."""
        self._levels = Levels()
        self._half = ""
        self._shown: tuple[LogLine, ...] | None = None

    def feed(self, text: str) -> None:
        """Take text as it was appended to the log; it may end inside a line."""
        if not text:
            return
        self.version += 1
        self._shown = None
        *lines, half = (self._half + text).split("\n")
        # Of a line that is still being rewritten, only the last versions can matter.
        self._half = "\r" + half[-2 * LONGEST_LINE :] if len(half) > 4 * LONGEST_LINE else half
        for line in lines[-2 * self._kept :]:
            for part, bar in parts_of(line):
                self._add(part, bar)

    def clear(self) -> None:
        """Begin again, as with another file."""
        self._begin()
        self.version += 1

    def lines(self) -> tuple[LogLine, ...]:
        """All kept lines, the unfinished last one (a progress bar) included; the same object while nothing is new."""
        if self._shown is None:
            self._shown = self._with_half()
        return self._shown

    def _add(self, text: str, bar: Bar | None) -> None:
        if bar is not None:
            self._add_bar(bar, LogLine(text, "progress"))
            return
        self._append(LogLine(text, self._levels.level(text)))
        self._last_text = self._fed

    def _add_bar(self, bar: Bar, line: LogLine) -> None:
        number, done = self._bars.get(bar.key, (0, True))
        place = number - 1 - (self._fed - len(self._lines))
        if number and place >= 0:
            if number > self._last_text:
                self._lines[place] = line
                self._bars[bar.key] = (number, bar.done)
                return
            if not done or bar.done:
                self._lines[place] = None
        self._append(line)
        self._bars.pop(bar.key, None)
        self._bars[bar.key] = (self._fed, bar.done)
        if len(self._bars) > MOST_BARS:
            del self._bars[next(iter(self._bars))]

    def _append(self, line: LogLine) -> None:
        self._lines.append(line)
        self._fed += 1

    def _with_half(self) -> tuple[LogLine, ...]:
        kept, hidden = list(self._lines), self._fed - len(self._lines)
        for text, bar in parts_of(self._half):
            if bar is None:
                kept.append(LogLine(text, self._levels.peek(text)) if text else None)
                continue
            line = LogLine(text, "progress")
            number, done = self._bars.get(bar.key, (0, True))
            place = number - 1 - hidden
            if number and place >= 0 and number > self._last_text:
                kept[place] = line
                continue
            if number and place >= 0 and (bar.done or not done):
                kept[place] = None
            kept.append(line)
        return tuple(line for line in kept if line is not None)


class JobLog:
    """The log that the processes of a job write, for snapshots of files that have none."""

    def __init__(self) -> None:
        self._lines = LogLines()
        self._tail: TextTail | None = None

    @property
    def path(self) -> Path | None:
        return self._tail.path if self._tail is not None else None

    def follow(self, path: Path | None) -> None:
        """Read this file from now on; None changes nothing: what a process that has ended wrote is still there."""
        if path is not None and path != self.path:
            self._tail = TextTail(path)
            self._lines.clear()

    def laid_over(self, snapshot: Snapshot) -> Snapshot:
        if self._tail is None or snapshot.log:
            return snapshot
        self._lines.feed(self._tail.read_new())
        return dataclasses.replace(
            snapshot, log=self._lines.lines(), log_version=self._lines.version, log_path=str(self._tail.path)
        )


# How a run ended: one sentence, and the command that goes on from there.

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
        from trainwiz.core.telemetry.diagnosed import diagnose_logs

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
    from trainwiz.core.telemetry.diagnosed import find_logs

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
    from trainwiz.core.diagnosis.cause import Diagnosis, Proof, Settings, of_cause
    from trainwiz.core.diagnosis.patterns import Place, remedies_for
    from trainwiz.core.telemetry.foreign import loss_name

    name = loss_name(snapshot.metrics)
    last = snapshot.metrics[name].last if name else None
    if last is None or math.isfinite(last):
        return None
    source = Path(snapshot.read_from[-1]).name if snapshot.read_from else ""
    proof = Proof(None, f"{plain_text(name)} {last}", source)
    message, remedies = of_cause("nan_loss", "", snapshot.step), remedies_for("nan_loss", Place(None, Settings()))
    return Diagnosis("nan_loss", "high", message, (proof,), remedies, snapshot.step)
