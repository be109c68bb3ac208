"""The output folder of a Trainer: its sessions in event files, its newest state, its log; and which of them goes furthest."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from trainwiz.core.files import is_file
from trainwiz.core.language import tr
from trainwiz.core.lines import Seldom, share_read
from trainwiz.core.telemetry.event_file import EVENT_MARK, EventFileTail, Scalar, begun_s
from trainwiz.core.telemetry.metrics import (
    MOST_NAMES,
    NO_PACE,
    NO_SERIES,
    Scalars,
    Series,
    last_step,
    loss_name,
    wall_step_s,
)
from trainwiz.core.telemetry.target import NOTHING, Reading
from trainwiz.core.telemetry.trainer_files import (
    CHECKPOINT,
    NewestState,
    TrainerLog,
    TrainerState,
    find_log,
    folders_below,
    parse_arguments,
    planned_steps,
    written_s,
)

# A folder of event files: the runs that wrote them, and their metrics.


LOOK_FOR_FILES_S = 5.0
SAME_TIME_S = 120.0
EPOCH_TAGS = ("epoch", "train/epoch")

FindFiles = Callable[[], Mapping[str, Sequence[Path]]]
"""Gives the files of each run, as `find_scalar_files` does."""


def find_scalar_files(root: Path, skip: re.Pattern[str] | None = None) -> dict[str, list[Path]]:
    """Run name ("." for `root` itself) -> its event files by name, which begins with their time. Runs are in the
    order in which their first files were begun.

    At most MOST_FOLDERS folders, DEEPEST levels; links to folders and names that match `skip` are not
    followed."""
    if is_file(root):
        return {".": [root]}
    found: dict[str, list[Path]] = {}
    for folder, names in folders_below(root, skip):
        if files := sorted(folder / name for name in names if EVENT_MARK in name):
            found[folder.relative_to(root).as_posix()] = files
    return dict(sorted(found.items(), key=lambda item: begun_s(item[1][0])))


@dataclass
class EventRun:
    """One run: its files in the order in which they were begun, as one series for each tag."""

    name: str
    scalars: Scalars
    tails: list[EventFileTail] = field(default_factory=list)

    @property
    def newest(self) -> EventFileTail:
        """The file that was written to last, by the clock of the machine that wrote it."""
        return max(self.tails, key=lambda tail: tail.last_time_s or 0.0)

    @property
    def last_s(self) -> float:
        return self.newest.last_time_s or 0.0


def names_arguments(file: Path) -> bool:
    """Whether it is an event file that begins with the arguments of a Trainer."""
    tail = EventFileTail(file)
    tail.read_new()
    return tail.arguments is not None


class EventsReader:
    """Metrics are named by their tags; where there are several runs, "run/tag". Step, epoch and pace
    are those of the runs that were written to last, as a job may write several (train and validation).

    Not thread-safe. A reading costs what is new, and a look for new files every LOOK_FOR_FILES_S."""

    def __init__(self, find: FindFiles, new_scalars: Callable[[], Scalars] = Scalars) -> None:
        """`find` names the files; `new_scalars` makes what takes the scalars of a run."""
        self._find = find
        self._new_scalars = new_scalars
        self._look = Seldom(LOOK_FOR_FILES_S)
        self._runs: dict[str, EventRun] = {}

    def read(self, deadline: float) -> Reading:
        self._look.do(self._look_for_files)
        runs, grew = list(self._runs.values()), False
        # The files of one training follow each other: a later one waits.
        unread = deque((run, tail) for run in runs for tail in run.tails)
        while unread:
            run, tail = unread[0]
            scalars = tail.read_new()
            grew = grew or bool(scalars)
            run.scalars.add_all(scalars, session=tail)
            if not tail.behind:
                unread.popleft()
            if time.monotonic() > deadline:
                break
        return Reading() if not runs else self._reading(runs, grew=grew, behind=bool(unread))

    def _reading(self, runs: list[EventRun], *, grew: bool, behind: bool) -> Reading:
        by_time = sorted(runs, key=lambda run: run.last_s, reverse=True)
        newest = by_time[0]
        # The run that was written to last, and those written to shortly before.
        current = [run for run in by_time if run.last_s >= newest.last_s - SAME_TIME_S]
        names = {run.name: self._names_of(run) for run in runs}
        every = (
            (name, tag) for run in runs for name, tag in zip(names[run.name], run.scalars.series.values(), strict=True)
        )
        series = dict(itertools.islice(every, MOST_NAMES))
        step = max((run.scalars.step for run in current if run.scalars.step is not None), default=None)
        epochs = (run.scalars.series[tag].last for run in current for tag in EPOCH_TAGS if tag in run.scalars.series)
        epoch = next(epochs, None)
        said = (tail.arguments for tail in reversed(newest.tails) if tail.arguments is not None)
        arguments = parse_arguments(next(said, ""))
        loss = series.get(
            loss_name(name for run in current for name in names[run.name] if name in series) or "", NO_SERIES
        )
        tails = [tail for run in runs for tail in run.tails]
        shown = replace(
            NOTHING,
            step=step,
            max_steps=planned_steps(arguments, step, epoch),
            epoch=epoch,
            pace=replace(NO_PACE, wall_step_s=wall_step_s(loss.recent)),
            started_s=newest.newest.first_time_s,
            written_s=newest.newest.last_time_s,
            read_from=tuple(str(tail.path) for tail in tails),
            problems=tuple(_problems(tails)),
            behind=behind,
            read_share=share_read(tails) if behind else 1.0,
        )
        return Reading(shown, series, loss, grew=grew)

    def _look_for_files(self) -> None:
        for name, files in self._find().items():
            run = self._runs.setdefault(name, EventRun(name, self._new_scalars()))
            known = {tail.path for tail in run.tails}
            run.tails += [EventFileTail(path) for path in files if path not in known]

    def _names_of(self, run: EventRun) -> list[str]:
        plain = run.name == "." or sum(bool(run.scalars.series) for run in self._runs.values()) < 2
        return [tag if plain else f"{run.name}/{tag}" for tag in run.scalars.series]


def _problems(tails: list[EventFileTail]) -> Iterator[str]:
    """What could not be read, one sentence each."""
    for tail in tails:
        yield from (sentence for sentence in (tail.problem, tail.refusal) if sentence)
        if tail.damaged_bytes and not tail.refusal:
            count = f"{tail.damaged_bytes:,}"
            yield tr("{path}: {count} bytes are damaged and were skipped.", path=tail.path, count=count)


LOOK_FOR_LOG_S = 15.0

PREFIXES = {"train/": "", "eval/": "eval_", "test/": "test_"}


def trainer_name(tag: str) -> str:
    """The name before transformers' `rewrite_logs` made a tag of it: train/loss -> loss, eval/loss -> eval_loss."""
    prefix = next((prefix for prefix in PREFIXES if tag.startswith(prefix)), "")
    return PREFIXES.get(prefix, "") + tag[len(prefix) :]


class TrainerScalars(Scalars):
    """All sessions as one training. Each start of the Trainer writes event files in a folder of its own: where a later
    one begins at an earlier step (it resumed a checkpoint, or began anew), what lies after that
    step is forgotten, and what an earlier session goes on to say is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.training_began_s: float | None = None
        """Unix time of the first point of the newest session."""
        self._sessions: list[Path] = []
        """The newest last."""

    def add_all(self, scalars: Iterable[Scalar], *, session: Any = None) -> None:
        folder = session.path.parent
        if folder not in self._sessions[:-1]:
            super().add_all(self._renamed(scalars, folder), session=folder)

    def _renamed(self, scalars: Iterable[Scalar], session: Path) -> Iterable[Scalar]:
        for tag, step, value, time_s in scalars:
            if session not in self._sessions:
                if not step and self.step:
                    # A model evaluated by a process of its own knows no step; it says nothing of the training's course.
                    continue
                self._sessions.append(session)
                self.training_began_s = time_s
                self.purge(step)
            yield trainer_name(tag), step, value, time_s


class TrainerReader:
    """Metrics come from the event files, which are written live; from the newest readable state where
    that reaches further, or there are none; from the log where that reaches further than a state."""

    def __init__(self, path: Path, log: Path | None = None, find: FindFiles | None = None) -> None:
        """For whom knows: `log` is where its standard output goes, `find` names its event files; else they are looked for
        in the folder."""
        self._path = path
        self._is_folder = not is_file(path)
        is_log = not self._is_folder and path.suffix != ".json"
        self._state = None if is_log else NewestState(path)
        self._last_state: TrainerState | None = None
        self._scalars = TrainerScalars()
        self._find = find or partial(find_scalar_files, path, CHECKPOINT)
        self._events = EventsReader(self._event_files, lambda: self._scalars)
        log = path if is_log else log
        self._log = TrainerLog(log) if log is not None else None
        self._look = Seldom(LOOK_FOR_LOG_S)

    def _event_files(self) -> dict[str, list[Path]]:
        """Those of all sessions as one run."""
        files = [file for run in self._find().values() for file in run] if self._is_folder else []
        return {".": files} if files else {}

    def read(self, deadline: float) -> Reading:
        events = self._events.read(deadline)
        state = self._state.look() if self._state else None
        if self._log is None and self._is_folder:
            self._look.do(self._look_for_log)
        log = self._log
        grew = log is not None and log.read(deadline)
        grew, self._last_state = grew or events.grew or state is not self._last_state, state
        # A state may be left by a training before the one that writes the events now, however far it went.
        if state is not None and state.written_s < (self._scalars.training_began_s or -math.inf):
            state = None
        places = [events] if events.series else []
        if state is not None:
            step = state.step if state.step is not None else state.scalars.step
            places.append(_of_file(state.path, step, state.epoch, state.written_s, state.scalars))
        if log is not None and log.rows:
            places.append(_of_file(log.path, log.step, log.epoch, written_s(log.path), log.scalars))
        # On a tie the first: event files are the finest, a log is rounded. A state's own step may lie after its last row.
        chosen = max(places, key=lambda place: last_step(place.series.values()) or -1, default=events)
        planned = [source.max_steps for source in (state, log, chosen.shown, events.shown) if source]
        problems = [*(self._state.problems if self._state else ()), *events.shown.problems]
        problems += [log.tail.problem] if log and log.tail.problem else []
        if log and log.counted and chosen.shown.read_from == (str(log.path),):
            problems.append(tr("The log contains no steps and no progress bar: its points are counted instead."))
        behind_log = log is not None and log.tail.behind
        behind = events.shown.behind or behind_log
        if not (chosen.series or behind or problems or events.shown.read_from):
            said = tr("{path} contains no metrics yet: event files, states and logs have none.", path=self._path)
            problems.append(said)
        shown = replace(
            chosen.shown,
            max_steps=next((steps for steps in planned if steps and steps >= (chosen.shown.step or 0)), None),
            log=log.lines.read() if log else (),
            log_path=str(log.path) if log else None,
            problems=tuple(problems),
            behind=behind,
            read_share=share_read([log.tail]) if log and behind_log else events.shown.read_share,
        )
        # The epoch is no metric: the look has it itself.
        series = {name: tag for name, tag in chosen.series.items() if name != "epoch"}
        return replace(
            chosen,
            shown=shown,
            series=series,
            loss=series.get("loss", NO_SERIES),
            ended=_has_ended(chosen.series),
            grew=grew,
        )

    def _look_for_log(self) -> None:
        found = find_log(self._path)
        self._log = TrainerLog(found) if found is not None else None


CLOCK_TELLS_S = 10.0


def _of_file(path: Path, step: int | None, epoch: float | None, at_s: float | None, scalars: Scalars) -> Reading:
    recent = scalars.series.get("loss", NO_SERIES).recent
    # The clock of a progress bar has whole seconds.
    tells = bool(recent) and recent[-1][1] - recent[0][1] >= CLOCK_TELLS_S
    pace = replace(NO_PACE, wall_step_s=wall_step_s(recent)) if tells else NO_PACE
    shown = replace(NOTHING, step=step, epoch=epoch, read_from=(str(path),), written_s=at_s, pace=pace)
    return Reading(shown, scalars.series, written_by_file_time=True)


def _has_ended(series: Mapping[str, Series]) -> bool:
    """The Trainer writes its samples a second once, when its training is over; a resumed one logs losses after that. Its
    runtime is no sign: one that counts its tokens logs it with every loss."""
    end, loss = series.get("train_samples_per_second"), series.get("loss", NO_SERIES)
    return end is not None and (end.last_step or 0) >= (loss.last_step or 0)
