"""The output folder of a Trainer: its sessions in event files, its newest state, its log; and which of them goes furthest."""

from __future__ import annotations

import math
import shlex
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from trainwiz.core.files import is_file
from trainwiz.core.language import mark, tr
from trainwiz.core.lines import share_read
from trainwiz.core.run.folder import read_json
from trainwiz.core.telemetry.event_file import Scalar
from trainwiz.core.telemetry.metrics import MetricSummary, Pace, Scalars, last_step, summary_of, wall_step_s
from trainwiz.core.telemetry.snapshot import Planned, Snapshot
from trainwiz.core.telemetry.target import NOTHING, Reading
from trainwiz.core.telemetry.tensorboard import (
    SHARE_OF_A_CORE_FOR_LOOKS,
    EventRun,
    EventRuns,
    joined_words,
)
from trainwiz.core.telemetry.trainer_files import (
    ARGUMENTS_TAG,
    CHECKPOINT,
    NewestState,
    TrainerArguments,
    TrainerLog,
    TrainerState,
    find_log,
    parse_arguments,
    written_s,
)
from trainwiz.core.text import numbers_finite

LOOK_FOR_LOG_S = 15.0
COUNTED = mark("The log contains no steps and no progress bar: its points are counted instead.")
SEVERAL = mark(
    "Several trainings write to this folder at the same time; the one that started last is shown. The others: "
    "{commands}"
)
MOST_NAMED = 3
NOTHING_LOGGED = mark("The job has started but logged nothing yet.")


# TrainerScalars: what the TensorBoard callback of a Trainer wrote, over all its sessions, under the Trainer's own names.

EPOCH = "epoch"
TRAIN = "train/"
OTHER_SETS = ("eval/", "test/")
MOST_BEFORE = 1_000
LEAST_STEP = -(1 << 63)


def trainer_name(tag: str) -> str:
    """The name before transformers' `rewrite_logs` made a tag of it: train/loss -> loss, eval/loss -> eval_loss."""
    if tag.startswith(TRAIN):
        return tag[len(TRAIN) :]
    for prefix in OTHER_SETS:
        if tag.startswith(prefix):
            return f"{prefix[:-1]}_{tag[len(prefix) :]}"
    return tag


class TrainerScalars(Scalars):
    """All sessions as one training. Each start of the Trainer writes a folder of its own: where a later
    one trains from an earlier step (it resumed a checkpoint, or began anew), what lies after that
    step is forgotten. Of two that train at the same time only the one that began last is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.training_began_s: float | None = None
        """Unix time of the first point of the newest session that trains."""
        self.current: Scalars | None = None
        """The newest session that trains."""
        self.last_trained_s = -math.inf
        self.apart: list[Scalars] = []
        """Sessions that train beside `current`, and are left out."""


class _Session(Scalars):
    def __init__(self, whole: TrainerScalars) -> None:
        super().__init__()
        self._whole = whole
        self._trains = False
        self._before: deque[Scalar] = deque(maxlen=MOST_BEFORE)
        """What it said before it trained: the values of an evaluation come before the epoch they are logged with."""

    def add_all(self, scalars: Iterable[Scalar], *, session: object = None) -> None:
        self._whole.add_all(self._renamed(scalars), session=self)

    def _renamed(self, scalars: Iterable[Scalar]) -> Iterable[Scalar]:
        whole = self._whole
        for tag, step, value, time_s in scalars:
            if self._trains and whole.current is not self:
                if tag is not None and tag.startswith(TRAIN) and self not in whole.apart:
                    whole.apart.append(self)
                continue
            if tag is None:
                yield tag, step, value, time_s
                continue
            if tag.startswith(TRAIN):
                if not self._trains:
                    first = step
                    if whole.current is not None and time_s < whole.last_trained_s:
                        whole.apart.append(whole.current)
                        first = LEAST_STEP
                    self._trains, whole.current, whole.training_began_s = True, self, time_s
                    whole.last_trained_s = time_s
                    whole.purge(first)
                    yield from (said for said in self._before if said[1] >= first)
                    self._before.clear()
                whole.last_trained_s = max(whole.last_trained_s, time_s)
            elif not self._trains:
                self._before.append((trainer_name(tag), step, value, time_s))
                if not step and whole.step:
                    # A model evaluated by a process of its own knows no step; it says nothing of the training's course.
                    continue
            yield trainer_name(tag), step, value, time_s


# Which place tells most.


class TrainerReader:
    """Metrics come from the event files, which are written live; from the newest readable state where
    that reaches further, or there are none; from the log where that reaches further than a state."""

    def __init__(self, path: Path, log: Path | None = None) -> None:
        """`log`: where its standard output goes, for whom knows; else it is looked for in the folder."""
        self._path = path
        self._folder = None if is_file(path) else path
        is_log = self._folder is None and path.suffix != ".json"
        self._state = None if is_log else NewestState(path)
        self._last_state: TrainerState | None = None
        self._begin_events()
        path_of_log = path if is_log else log
        self._log = TrainerLog(path_of_log) if path_of_log is not None else None
        self._next_look_for_log = 0.0

    def _begin_events(self) -> None:
        self._scalars = TrainerScalars()
        find = None if self._folder is not None else dict[str, list[Path]]
        self._events = EventRuns(self._path, new_scalars=partial(_Session, self._scalars), skip=CHECKPOINT, find=find)

    def read(self, deadline: float) -> Reading:
        alone = not self._scalars.apart
        self._events.read(deadline)
        if alone and self._scalars.apart:
            # Once it is known that two train, what the other wrote before is not joined either.
            self._begin_events()
            self._events.read(deadline)
        state = self._state.look() if self._state else None
        grew = self._read_log(deadline) or self._events.grew or state is not self._last_state
        self._last_state = state
        chosen, arguments, log = self._choose(state), self._arguments(), self._log
        tags, shown = chosen.series, chosen.shown
        metrics = {name: summary_of(tag.series) for name, tag in tags.items() if name != EPOCH}
        has_ended = _has_ended(metrics)
        behind = self._events.behind or bool(log and log.tail.behind)
        shown = replace(
            shown,
            metrics=metrics,
            max_steps=self._max_steps(shown, state, arguments),
            pace=self._pace(chosen, metrics, has_ended),
            planned=Planned(model=self._model),
            hyperparameters=arguments.shown,
            log=log.lines.lines() if log else (),
            log_path=str(log.path) if log else None,
            problems=self._problems(bool(metrics) or behind),
            behind=behind,
            read_share=share_read([*self._events.tails, *([log.tail] if log else ())]) if behind else 1.0,
        )
        return replace(
            chosen,
            shown=shown,
            loss="loss",
            recent=tags["loss"].recent if "loss" in tags else (),
            ended=has_ended,
            grew=grew,
            notes=self._notes(chosen),
        )

    def _read_log(self, deadline: float) -> bool:
        if self._log is None and self._folder is not None and time.monotonic() >= self._next_look_for_log:
            started_s = time.thread_time()
            found = find_log(self._folder)
            cost_s = time.thread_time() - started_s
            self._next_look_for_log = time.monotonic() + max(LOOK_FOR_LOG_S, cost_s / SHARE_OF_A_CORE_FOR_LOOKS)
            self._log = TrainerLog(found) if found is not None else None
        return self._log is not None and self._log.read(deadline)

    def _choose(self, state: TrainerState | None) -> Reading:
        """The one place that the metrics are taken from."""
        scalars, log, places = self._scalars, self._log, list[Reading]()
        newest = self._events.newest
        nothing = Reading(written_by_file_time=True)
        if newest is not None:
            # Where a job has begun its event file and logged nothing, these are its files.
            began_s = (self._current_run or newest).began_s
            files = tuple(str(tail.path) for tail in (self._events if scalars.tags else newest).tails)
            shown = replace(NOTHING, read_from=files, written_s=newest.last_time_s, started_s=began_s)
            nothing = Reading(shown)
            if scalars.tags:
                shown = replace(shown, step=scalars.step, epoch=scalars.last(EPOCH))
                places.append(Reading(shown, scalars.tags))
        if scalars.apart:
            # Whose states and lines the others are, nothing says.
            return places[0] if places else nothing
        # A state may be left by a training before the one that writes the events now, however far it went.
        if state is not None and state.written_s >= (scalars.training_began_s or -math.inf):
            step = state.step if state.step is not None else state.scalars.step
            places.append(_of_file(state.scalars, step, state.epoch, state.path, state.written_s))
        if log is not None and log.rows:
            places.append(_of_file(log.scalars, log.step, log.epoch, log.path, written_s(log.path)))
        # On a tie the first: event files are the finest, a log is rounded. A state's own step may lie after its last row.
        return max(places, key=lambda place: last_step(place.series.values()) or -1, default=nothing)

    @property
    def _current_run(self) -> EventRun | None:
        """The session that trains, or trained last; without one what was written last."""
        current = self._scalars.current
        return next((run for run in self._events.runs.values() if run.scalars is current), self._events.newest)

    def _arguments(self) -> TrainerArguments:
        newest = self._current_run
        texts = [run.text(ARGUMENTS_TAG) for run in (*self._events.runs.values(), *([newest] if newest else ()))]
        return parse_arguments(next((text for text in reversed(texts) if text), ""))

    def _max_steps(self, shown: Snapshot, state: TrainerState | None, arguments: TrainerArguments) -> int | None:
        for planned in (arguments.max_steps, state.max_steps if state else None):
            if planned and (shown.step is None or shown.step <= planned):
                return planned
        if self._log is not None and self._log.max_steps:
            return self._log.max_steps
        return arguments.steps_in_all(shown.step, shown.epoch)

    def _pace(self, chosen: Reading, metrics: Mapping[str, MetricSummary], has_ended: bool) -> Pace:
        wall = None
        if chosen.series is self._scalars.tags:
            wall = wall_step_s(chosen.series["loss"].recent) if "loss" in chosen.series else None
        elif self._log is not None and chosen.series is self._log.scalars.tags:
            wall = self._log.step_s
        # At its end a Trainer may divide by the planned steps, whatever was done of them.
        tokens_per_s = None if has_ended else _last(metrics, "train_tokens_per_second")
        return Pace(_last(metrics, "step_time"), wall, tokens_per_s, None, None)

    @cached_property
    def _model(self) -> str | None:
        return None if self._folder is None else model_name(self._folder)

    def _notes(self, chosen: Reading) -> tuple[str, ...]:
        log, launches = self._log, self._scalars.launches
        if not chosen.series and chosen.shown.read_from:
            return (tr(NOTHING_LOGGED),)
        if apart := self._scalars.apart:
            others = [self._path / run.name for run in self._events.runs.values() if run.scalars in apart]
            commands = "; ".join(shlex.join(["trainwiz", "monitor", str(path)]) for path in others[:MOST_NAMED])
            return (tr(SEVERAL, commands=commands),)
        if chosen.series is self._scalars.tags and launches > 1:
            return (joined_words(launches),)
        return (tr(COUNTED),) if log is not None and chosen.series is log.scalars.tags and log.counted else ()

    def _problems(self, has_metrics: bool) -> tuple[str, ...]:
        problems = [*(self._state.problems if self._state else ()), *self._events.problems()]
        problems += [self._log.problem] if self._log and self._log.problem else []
        if has_metrics or problems or self._events.tails:
            return tuple(problems)
        return (tr("{path} contains no metrics yet: event files, states and logs have none.", path=self._path),)


def _of_file(scalars: Scalars, step: int | None, epoch: float | None, path: Path, written_s: float | None) -> Reading:
    shown = replace(NOTHING, step=step, epoch=epoch, read_from=(str(path),), written_s=written_s)
    return Reading(shown, scalars.tags, written_by_file_time=True)


def _has_ended(metrics: Mapping[str, MetricSummary]) -> bool:
    """The Trainer writes its runtime once, when its training is over; a resumed one logs losses after that."""
    runtime, loss = metrics.get("train_runtime"), metrics.get("loss")
    if runtime is None or runtime.last_step is None:
        return False
    return loss is None or loss.last_step is None or runtime.last_step >= loss.last_step


def _last(metrics: Mapping[str, MetricSummary], name: str) -> float | None:
    return numbers_finite(metrics[name].last) if name in metrics else None


# What model a folder of a training holds, by the settings that transformers and peft save.


def model_name(folder: Path) -> str | None:
    """The base model by its hub id, or the last part of its path, else its kind; None where nothing says."""
    keys = {"adapter_config.json": ("base_model_name_or_path",), "config.json": ("_name_or_path", "model_type")}
    for place in (folder, *sorted(folder.glob("checkpoint-*"), reverse=True)[:1]):
        for file, names in keys.items():
            config = read_json(place / file) or {}
            for name in (config.get(key) for key in names):
                if isinstance(name, str) and name:
                    is_id = name.count("/") <= 1 and not name.startswith((".", "/", "~"))
                    return name if is_id else Path(name).name or name
    return None
