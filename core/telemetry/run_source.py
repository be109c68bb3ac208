"""A run of trainwiz as a source: as it goes on, or a finished one once more at any speed."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwiz.core.errors import usage_error
from trainwiz.core.language import mark, tr
from trainwiz.core.launch.actions import allowed
from trainwiz.core.lines import JsonLinesTail, TextTail, share_read, stamp_of
from trainwiz.core.run.attempts import ADVICE_JSONL, AdviceFile, PhaseNow, attempt_words, read_phase
from trainwiz.core.run.folder import RunFolder, name_for_commands, read_json
from trainwiz.core.run.state import ENDED, Attempt, RunExit, RunState, read_state, result_sentences
from trainwiz.core.telemetry.advice import advise
from trainwiz.core.telemetry.log import LogLines
from trainwiz.core.telemetry.machine import CheckpointSize, MachineHistory, saves_of
from trainwiz.core.telemetry.metrics import Metrics
from trainwiz.core.telemetry.snapshot import (
    AnswersFile,
    Ending,
    Planned,
    Snapshot,
    computes_on_cpu,
    finished_words,
    read_planned,
    with_changes,
)
from trainwiz.core.telemetry.target import POLL_S, Source
from trainwiz.core.telemetry.words import step_words
from trainwiz.core.text import numbers_finite, object_in, objects_in, plain_text, whole_in

SYSTEM_WINDOW_BYTES = 1024 * 1024
"""A long run's system.jsonl is entered this far from its end: small charts need no more."""
METRICS_WINDOW_BYTES = 4 * 1024 * 1024
CLOCK_SLACK_S = 5.0
"""So far the clocks of the training's machine and of the viewer's may differ; a replay has not come to what is later."""


def _read_rows(tail: JsonLinesTail, metrics: Metrics) -> Metrics:
    """What is new, for POLL_S at most; other metrics where the file is another one."""
    deadline = time.monotonic() + POLL_S
    while True:
        rows = tail.read_new()
        if tail.began_anew:
            metrics = Metrics()
        metrics.add_rows(rows)
        if not tail.behind or time.monotonic() > deadline:
            return metrics


class RunSource(Source):
    def __init__(self, folder: RunFolder, *, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._clock = clock
        self._metrics = self._all_metrics = Metrics()
        self._metrics_tail = self._rows_of(folder.metrics_jsonl)
        self._end_tail: JsonLinesTail | None = None
        """Of a long file that is still being read: what it says last is shown until then."""
        self._machine = MachineHistory()
        self._system_tail = self._rows_of(folder.system_jsonl, SYSTEM_WINDOW_BYTES)
        self._log = LogLines(TextTail(folder.train_log))
        self._checkpoint_size = CheckpointSize(folder.path, clock=clock)
        self._advice_file = AdviceFile(self._rows_of(folder.file(ADVICE_JSONL)))
        self._answers = AnswersFile(self._rows_of(folder.generations_jsonl))
        self._plan_stamp: tuple[int, int] | None = None
        self.plan: Mapping[str, Any] = {}
        """The document of plan.json as of the last look; empty where there is none."""
        self._planned = Planned()
        self._last_state = RunState(name=folder.path.name)
        self._gone = ""

    def _rows_of(self, path: Path, window_bytes: int | None = None) -> JsonLinesTail:
        return JsonLinesTail(path, window_bytes)

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        # The state is read first: a run that has ended by then has written all its lines.
        state = self._state()
        stamp = stamp_of(self.folder.plan_json)
        if stamp is not None and stamp != self._plan_stamp:
            self._plan_stamp = stamp
            self.plan = read_json(self.folder.plan_json) or {}
            self._planned = read_planned(self.plan)
        self._read_metrics()
        rows = self._system_tail.read_new()
        if self._system_tail.began_anew:
            self._machine = MachineHistory()
        self._machine.add_rows(rows)
        return self._with_advice(self._snapshot(state, curves), state)

    def _state(self) -> RunState:
        """What state.json says; of a folder that is gone, what it said last."""
        if self.folder.path.is_dir():
            self._gone = ""
            self._last_state = read_state(self.folder, self._clock())
            return self._last_state
        self._gone = tr(
            "{path} is missing: it was removed or moved, or its disk is unavailable.", path=self.folder.path
        )
        state = self._last_state
        if state.has_ended:
            return state
        remedy = tr("The data read before is shown; `trainwiz monitor FOLDER` opens the run at its new place.")
        return replace(state, status="lost", ended_s=state.heartbeat_s, exit=RunExit(1, "unknown", self._gone, remedy))

    def _read_metrics(self) -> None:
        self._all_metrics = _read_rows(self._metrics_tail, self._all_metrics)
        if not self._metrics_tail.behind:
            self._metrics, self._end_tail = self._all_metrics, None
            return
        if self._end_tail is None:
            self._metrics, self._end_tail = Metrics(), self._rows_of(self.folder.metrics_jsonl, METRICS_WINDOW_BYTES)
        self._metrics = _read_rows(self._end_tail, self._metrics)

    def _snapshot(self, state: RunState, curves: Iterable[str]) -> Snapshot:
        metrics, machine, attempt = self._metrics, self._machine, state.newest
        ended = state.status in ENDED
        planned = with_changes(self._planned, attempt.changes if attempt else {})
        max_steps = state.max_steps or planned.steps or None
        step = whole_in(metrics.step if metrics.step is not None else (state.outcome or {}).get("step"))
        summaries, readings = metrics.summaries(), machine.readings()
        if ended or not summaries:
            # Nothing is used up any more; or a start loads model and data, which ends.
            readings["host"] = replace(readings["host"], disk_lasts_s=None, ram_lasts_s=None)
        if ended:
            readings["processes"] = ()
        return Snapshot(
            source="run",
            path=str(self.folder.path),
            name=self.folder.path.resolve().name,
            status=state.status,
            time_s=self._clock(),
            step=step,
            max_steps=max_steps,
            epoch=metrics.epoch,
            started_s=state.started_s,
            ended_s=state.ended_s,
            pace=metrics.pace(),
            metrics=summaries,
            curves={name: metrics.of(name).curve() for name in curves},
            non_finite_steps=metrics.of("loss").non_finite_steps,
            logged_s=metrics.time_s,
            pause_s=metrics.pause_s(),
            **readings,
            peak_memory_bytes=machine.peak_memory_bytes(on_cpu=computes_on_cpu(state.engine)),
            unavailable=machine.unavailable(),
            planned=planned,
            engine=state.engine,
            saves=None if ended else saves_of(state.engine, self._checkpoint_size, step),
            heartbeat_s=state.heartbeat_s,
            attempts=tuple(state.attempts),
            attempt_words=attempt_words(attempt, object_in(self.plan.get("batch"))) if attempt else "",
            phase=None if ended else self._phase(attempt),
            ending=ending_of(state, self.folder, step, max_steps, metrics) if ended else None,
            answers=self._answers.read(),
            log=self._log.read(),
            log_path=str(self.folder.train_log),
            actions=frozenset() if self._gone else allowed(state),
            problems=self._problems(),
            behind=self._metrics_tail.behind or self._system_tail.behind,
            read_share=share_read([self._metrics_tail]) if self._metrics_tail.behind else 1.0,
        )

    def _with_advice(self, snapshot: Snapshot, state: RunState) -> Snapshot:
        notes = [{"text": note, "severity": "note", "code": "note"} for note in state.notes]
        findings = objects_in(state.engine.get("findings"))
        advice = advise(snapshot, [*findings, *self._advice_file.read(), *notes])
        # A start may begin anew, a stop ends long before the last step, and what stands still does not finish.
        stands = snapshot.behind or any(item.code == "stalled" for item in advice)
        goes_on = state.status == "running" and not stands
        return replace(snapshot, advice=advice, eta_s=snapshot.left_s if goes_on else None)

    def _phase(self, attempt: Attempt | None) -> PhaseNow | None:
        """What the training says that it does; what an earlier attempt said is over."""
        now = read_phase(self.folder)
        return now if now and attempt and attempt.started_s <= now.since_s <= self._clock() + CLOCK_SLACK_S else None

    def _problems(self) -> tuple[str, ...]:
        gone = self._gone if self._last_state.has_ended else ""
        found = (gone, self._metrics_tail.problem, self._system_tail.problem, self._log.problem)
        problems = [problem for problem in found if problem]
        if garbage := self._metrics_tail.garbage_lines:
            name = self.folder.metrics_jsonl.name
            problems.append(tr("{file}: lines that are not JSON were skipped: {n}.", n=f"{garbage:,}", file=name))
        return tuple(problems)


# How a run ended: one sentence, and the command that goes on from there.


OUTCOMES = {
    "stopped": mark("Stopped."),
    "lost": mark("Lost: its processes disappeared without a final record."),
}


def ending_of(state: RunState, folder: RunFolder, step: int | None, max_steps: int | None, metrics: Metrics) -> Ending:
    """The supervisor's own words where it left some; for a finished run what came out of it."""
    if state.status == "finished":
        loss, place = metrics.of("loss"), None if step is None else step_words(step, max_steps)
        said = finished_words(place, loss.first, loss.last)
        if folder.final_model.is_dir():
            said = tr("{finished} The model is in {path}.", finished=said, path=folder.final_model)
        return Ending(" ".join([said, *result_sentences(state.outcome or {})]))
    exit_ = state.exit or RunExit(1, None, "", None)
    resume = f"trainwiz runs resume {name_for_commands(folder.path)}"
    read_why = None if state.status in OUTCOMES else tr("See why in {path}.", path=folder.train_log)
    said = exit_.message or tr(OUTCOMES.get(state.status, mark("Failed.")))
    return Ending(said, exit_.remedy or read_why or resume, resume, exit_.cause)


# A finished run once more: its files as far as they had grown at a moment, which goes on at a chosen speed.

FASTEST = 1e9


def parse_speed(text: str) -> float:
    """ "60", "60x" or "0.5" as seconds of the run in one second. Raises UsageError for anything else."""
    try:
        speed = float(text.strip().lower().removesuffix("x"))
    except ValueError:
        speed = math.nan
    if not 0 < speed <= FASTEST:
        message = tr(
            "--replay needs a speed above 0, such as 60 or 0.5x (seconds of the run per second), not {text}.",
            text=repr(text),
        )
        raise usage_error("bad_speed", "--replay", message)
    return speed


class TimedRows(JsonLinesTail):
    """Rows of a JSON-lines file whose `time_s` has come; one without a time goes with the row before it."""

    def __init__(self, path: Path, moment: Callable[[], float]) -> None:
        super().__init__(path)
        self._moment = moment
        self._waiting: deque[dict[str, Any]] = deque()
        self._last_time_s = 0.0
        self._more = False
        """Whether the file goes on after the rows that wait."""

    def read_new(self) -> list[dict[str, Any]]:
        """Rows up to the present moment, as many as one read holds; call again while `behind` is true."""
        if not self._waiting:
            self._waiting.extend(super().read_new())
            self._more = self.behind
        moment, due = self._moment(), []
        while self._waiting:
            time_s = numbers_finite(self._waiting[0].get("time_s"), self._last_time_s) or 0.0
            if time_s > moment:
                break
            self._last_time_s = time_s
            due.append(self._waiting.popleft())
        self.behind = self._more and not self._waiting
        return due


class ReplaySource(RunSource):
    """A run folder, played: its attempts one after the other, the nights between them left out. The log carries no
    times, and is shown at the end. `clock` counts the viewer's seconds. Not thread-safe but for `toggle`."""

    def __init__(self, folder: RunFolder, speed: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises UsageError for a run that is going on or that carries no times."""
        self._final = read_state(folder)
        self._spans = spans_of(folder, self._final)
        self._viewer_clock = clock
        self._full_speed = speed
        self._play: tuple[float, float, float] = (0.0, clock(), speed)
        """Seconds that were played at a moment of the viewer's clock, and the speed since then, 0 while it pauses:
        replaced as a whole, for the screen pauses it while a look reads it."""
        super().__init__(folder, clock=self._moment)

    def _rows_of(self, path: Path, window_bytes: int | None = None) -> JsonLinesTail:
        return TimedRows(path, self._moment)

    def toggle(self) -> None:
        """Pause, or go on. Any thread may call it."""
        now = self._viewer_clock()
        self._play = self._played_s(now), now, 0.0 if self._play[2] else self._full_speed

    def _played_s(self, now: float) -> float:
        played_s, since, speed = self._play
        return played_s + (now - since) * speed

    def _moment(self) -> float:
        """The Unix time of the run that is shown now."""
        left_s = self._played_s(self._viewer_clock())
        for begin, end in self._spans:
            if left_s < end - begin:
                return begin + left_s
            left_s -= end - begin
        return self._spans[-1][1]

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        snapshot = super().poll(curves)
        snapshot = replace(snapshot, actions=frozenset({"plan", "command"}), replayed_s=snapshot.time_s)
        if snapshot.ending is not None:
            return replace(snapshot, replay_speed=0.0)
        # The file holds what is still to come.
        reasons = {**snapshot.unavailable, "log": tr("A replay shows the log once it has reached the end.")}
        return replace(snapshot, log=(), log_path=None, unavailable=reasons, replay_speed=self._play[2])

    def _state(self) -> RunState:
        """The state as it was: no end, no checkpointed outcome, no attempt that was still to come."""
        moment = self._moment()
        if moment >= self._spans[-1][1]:
            return self._final
        begun = [attempt for attempt in self._final.attempts if attempt.started_s <= moment]
        # Whether the training speaks yet is in its metrics.
        self._read_metrics()
        since_s = begun[-1].started_s if begun else 0.0
        speaks = self._metrics.time_s is not None and self._metrics.time_s >= since_s
        return replace(
            self._final,
            status="running" if speaks else "starting",
            attempts=begun,
            ended_s=None,
            exit=None,
            outcome=None,
            notes=[],
            stop=None,
        )


def spans_of(folder: RunFolder, state: RunState) -> list[tuple[float, float]]:
    """When the run was trained: (begin, end) of each attempt, in Unix time. Raises UsageError, as ReplaySource does."""
    name = plain_text(folder.path.resolve().name)
    if state.is_active:
        message = tr(
            "{name} is {status}: only a run that has ended can be replayed. Monitor it live without --replay.",
            name=name,
            status=tr(state.status),
        )
        raise usage_error("still_running", "--replay", message)
    last_s = state.ended_s or state.heartbeat_s
    begun = [(attempt.started_s, attempt.ended_s) for attempt in state.attempts] or [(state.started_s or 0.0, last_s)]
    followed = [*(begin_s for begin_s, _ in begun[1:]), last_s]
    known = ((begin_s, end_s or after_s) for (begin_s, end_s), after_s in zip(begun, followed, strict=True))
    spans = [(begin_s, end_s) for begin_s, end_s in known if begin_s and end_s is not None and begin_s < end_s]
    if not spans:
        message = tr("{name} cannot be replayed: its record does not say when it was trained.", name=name)
        raise usage_error("nothing_to_replay", "--replay", message)
    return spans
