"""A run of trainwiz as a source."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwiz.core.language import mark, tr, trn
from trainwiz.core.launch.actions import allowed
from trainwiz.core.lines import JsonLinesTail, TextTail, share_read, stamp_of
from trainwiz.core.run.attempts import ADVICE_JSONL, AdviceFile, PhaseNow, attempt_words, read_phase
from trainwiz.core.run.folder import RunFolder, name_for_commands, read_json
from trainwiz.core.run.state import ENDED, Attempt, RunExit, RunState, read_state, result_sentences
from trainwiz.core.telemetry.advice import advise
from trainwiz.core.telemetry.log import LogLines
from trainwiz.core.telemetry.machine import MachineHistory
from trainwiz.core.telemetry.metrics import NO_SERIES, Metrics
from trainwiz.core.telemetry.run_setup import CheckpointSize, saves_of, setup_of
from trainwiz.core.telemetry.snapshot import (
    AnswersFile,
    Ending,
    Planned,
    Snapshot,
    computes_on_cpu,
    finished_words,
    gpu_names,
    read_planned,
    with_changes,
)
from trainwiz.core.telemetry.target import Source
from trainwiz.core.telemetry.words import step_words
from trainwiz.core.text import object_in, whole_in

SYSTEM_WINDOW_BYTES = 1024 * 1024
"""A long run's system.jsonl is entered this far from its end: small charts need no more."""
POLL_S = 0.2
"""One look reads for this long at most; what is left is read by the next ones (`Snapshot.behind`)."""
GONE_REMEDY = mark("The data read before is shown; `trainwiz monitor FOLDER` opens the run at its new place.")
CLOCK_SLACK_S = 5.0
"""So far the clocks of the training's machine and of the viewer's may differ; a replay has not come to what is later."""


class RunSource(Source):
    def __init__(self, folder: RunFolder, *, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._clock = clock
        self._metrics = Metrics()
        self._metrics_tail = self._rows_of(folder.metrics_jsonl)
        self._machine = MachineHistory()
        self._system_tail = self._rows_of(folder.system_jsonl, SYSTEM_WINDOW_BYTES)
        self._log = LogLines(TextTail(folder.train_log))
        self._checkpoint_size = CheckpointSize(folder.path, clock=clock)
        self._advice_file = AdviceFile(self._rows_of(folder.file(ADVICE_JSONL)))
        self._answers = AnswersFile(self._rows_of(folder.generations_jsonl))
        self._plan: Mapping[str, Any] = {}
        self._plan_stamp: tuple[int, int] | None = None
        self._planned = Planned()
        self._last_state = RunState(name=folder.path.name)
        self._gone = ""

    def _rows_of(self, path: Path, window_bytes: int | None = None) -> JsonLinesTail:
        return JsonLinesTail(path, window_bytes)

    @property
    def plan(self) -> Mapping[str, Any]:
        """The document of plan.json as of the last look; empty where there is none."""
        return self._plan

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        # The state is read first: a run that has ended by then has written all its lines.
        state = self._state()
        self._read_plan()
        self._read_metrics()
        self._read_system()
        return self._snapshot(state, curves)

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
        exit_ = RunExit(1, "unknown", self._gone, tr(GONE_REMEDY))
        return replace(state, status="lost", ended_s=state.heartbeat_s, exit=exit_)

    def _read_plan(self) -> None:
        stamp = stamp_of(self.folder.plan_json)
        if stamp is not None and stamp != self._plan_stamp:
            self._plan_stamp = stamp
            self._plan = read_json(self.folder.plan_json) or {}
            self._planned = read_planned(self._plan)
            self._machine.gpu_names = gpu_names(self._plan)

    def _read_metrics(self) -> None:
        deadline = time.monotonic() + POLL_S
        while True:
            rows = self._metrics_tail.read_new()
            if self._metrics_tail.began_anew:
                self._metrics = Metrics()
            self._metrics.add_rows(rows)
            if not self._metrics_tail.behind or time.monotonic() > deadline:
                return

    def _read_system(self) -> None:
        rows = self._system_tail.read_new()
        if self._system_tail.began_anew:
            self._machine = MachineHistory(gpu_names(self._plan))
        self._machine.add_rows(rows)

    def _snapshot(self, state: RunState, curves: Iterable[str]) -> Snapshot:
        metrics, machine = self._metrics, self._machine
        attempt = state.newest
        ended, gone = state.status in ENDED, bool(self._gone)
        planned = with_changes(self._planned, attempt.changes if attempt else {})
        max_steps = state.max_steps or planned.steps or None
        step = whole_in(metrics.step if metrics.step is not None else (state.outcome or {}).get("step"))
        summaries, readings, setup = metrics.summaries(), machine.readings(), setup_of(state.engine)
        if ended or not summaries:
            # Nothing is used up any more; or a start loads model and data, which ends.
            readings["host"] = replace(readings["host"], disk_lasts_s=None, ram_lasts_s=None)
        if ended:
            readings["processes"] = ()
        snapshot = Snapshot(
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
            curves={name: metrics.curve(name) for name in curves},
            non_finite_steps=metrics.non_finite_steps("loss"),
            loss_trend=metrics.trend(),
            **readings,
            peak_memory_bytes=machine.peak_memory_bytes(on_cpu=computes_on_cpu(state.engine)),
            unavailable=machine.unavailable(),
            planned=planned,
            engine=state.engine,
            setup=setup,
            saves=None if ended else saves_of(setup, self._checkpoint_size, step),
            checkpoint_bytes=None if ended else self._checkpoint_size.next_bytes(),
            heartbeat_s=state.heartbeat_s,
            attempts=tuple(state.attempts),
            attempt_words=attempt_words(attempt, object_in(self._plan.get("batch"))) if attempt else "",
            phase=None if ended else self._phase(attempt),
            ending=ending_of(state, self.folder, step, max_steps, metrics) if ended else None,
            answers=self._answers.read(),
            log=self._log.read(),
            log_path=str(self.folder.train_log),
            actions=frozenset() if gone else allowed(state),
            problems=self._problems(),
            behind=self._metrics_tail.behind or self._system_tail.behind,
            read_share=share_read([self._metrics_tail]) if self._metrics_tail.behind else 1.0,
        )
        notes = [{"text": note, "severity": "note", "code": "note"} for note in state.notes]
        found = state.engine.get("findings")
        findings = found if isinstance(found, list) else []
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
        tails = (self._metrics_tail, self._system_tail, self._log)
        problems = [tail.problem for tail in tails if tail.problem]
        if self._gone and self._last_state.has_ended:
            problems.insert(0, self._gone)
        garbage = self._metrics_tail.garbage_lines
        if garbage:
            sentence = trn(
                "{file}: {n} line is not JSON and was skipped.",
                "{file}: {n} lines are not JSON and were skipped.",
                garbage,
                n=f"{garbage:,}",
                file=self.folder.metrics_jsonl.name,
            )
            problems.append(sentence)
        return tuple(problems)


# How a run ended: one sentence, and the command that goes on from there.


OUTCOMES = {
    "stopped": (mark("Stopped."), mark("Stopped at {place}.")),
    "lost": (
        mark("Lost: its processes disappeared without a final record."),
        mark("Lost at {place}: its processes disappeared without a final record."),
    ),
}


def ending_of(state: RunState, folder: RunFolder, step: int | None, max_steps: int | None, metrics: Metrics) -> Ending:
    """The supervisor's own words where it left some; for a finished run what came out of it."""
    place = None if step is None else step_words(step, max_steps)
    resume = f"trainwiz runs resume {name_for_commands(folder.path)}"
    if state.status == "finished":
        loss = metrics.series.get("loss", NO_SERIES)
        said = finished_words(place, loss.first, loss.last)
        if folder.final_model.is_dir():
            said = tr("{finished} The model is in {path}.", finished=said, path=folder.final_model)
        return Ending(" ".join([said, *result_sentences(state.outcome or {})]))
    exit_ = state.exit or RunExit(1, None, "", None)
    said, said_at = OUTCOMES.get(state.status, (mark("Failed."), mark("Failed at {place}.")))
    read_why = None if state.status in OUTCOMES else tr("See why in {path}.", path=folder.train_log)
    said = tr(said) if place is None else tr(said_at, place=place)
    return Ending(exit_.message or said, exit_.remedy or read_why or resume, resume, exit_.cause)
