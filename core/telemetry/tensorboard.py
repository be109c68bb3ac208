"""A folder of event files: the runs that wrote them, and their metrics."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainwiz.core.files import is_file
from trainwiz.core.language import tr
from trainwiz.core.lines import Seldom, share_read
from trainwiz.core.telemetry.event_file import EVENT_MARK, EventFileTail, begun_s
from trainwiz.core.telemetry.metrics import MOST_NAMES, NO_PACE, Scalars, TagSeries, loss_name, wall_step_s
from trainwiz.core.telemetry.target import NOTHING, Reading
from trainwiz.core.telemetry.trainer_files import parse_arguments

LOOK_FOR_FILES_S = 5.0
SAME_TIME_S = 120.0
EPOCH_TAGS = ("epoch", "train/epoch")
MOST_FOLDERS = 5_000
DEEPEST = 8

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


def folders_below(root: Path, skip: re.Pattern[str] | None, deepest: int = DEEPEST) -> Iterator[tuple[Path, list[str]]]:
    """`root` and the folders below it, each with the names of its files; hidden ones are not entered."""
    for count, (folder, subfolders, names) in enumerate(os.walk(root)):
        path = Path(folder)
        depth = len(path.relative_to(root).parts)
        kept = sorted(name for name in subfolders if not name.startswith(".") and not (skip and skip.match(name)))
        subfolders[:] = kept if depth < deepest else []
        yield path, names
        if count >= MOST_FOLDERS:
            return


class EventRun:
    """One run: its files in the order in which they were begun, as one series for each tag."""

    def __init__(self, name: str, scalars: Scalars) -> None:
        self.name = name
        self.scalars = scalars
        self.tails: list[EventFileTail] = []

    def read(self, deadline: float) -> tuple[bool, bool]:
        """Read what is new until time.monotonic() is `deadline`: (whether anything was, whether more is left)."""
        grew = False
        for tail in self.tails:
            while True:
                scalars = tail.read_new()
                grew = grew or bool(scalars)
                self.scalars.add_all(scalars, session=tail)
                if time.monotonic() > deadline:
                    return grew, tail.behind or tail is not self.tails[-1]
                if not tail.behind:
                    break
        return grew, False

    @property
    def newest(self) -> EventFileTail:
        """The file that was written to last, by the clock of the machine that wrote it."""
        return max(self.tails, key=_last_s)


def _last_s(written: EventFileTail | EventRun) -> float:
    newest = written.newest if isinstance(written, EventRun) else written
    return newest.last_time_s or 0.0


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
        runs, grew, behind = list(self._runs.values()), False, False
        for run in runs:
            more, behind = run.read(deadline)
            grew = grew or more
            if behind:
                # The runs of one training follow each other: a later one waits.
                break
        if not runs:
            return Reading()
        series, newest = self._by_name(), max(runs, key=_last_s)
        # The run that was written to last, and those written to shortly before, that first.
        others = [run for run in runs if run is not newest and _last_s(run) >= _last_s(newest) - SAME_TIME_S]
        current = [newest, *others]
        step = max((run.scalars.step for run in current if run.scalars.step is not None), default=None)
        epochs = (run.scalars.last(tag) for run in current for tag in EPOCH_TAGS)
        epoch = next((epoch for epoch in epochs if epoch is not None), None)
        said = (tail.arguments for tail in reversed(newest.tails) if tail.arguments is not None)
        arguments = parse_arguments(next(said, ""))
        loss = loss_name(name for run in current for name in self._names_of(run) if name in series)
        tails = [tail for run in runs for tail in run.tails]
        shown = replace(
            NOTHING,
            step=step,
            max_steps=arguments.steps_in_all(step, epoch),
            epoch=epoch,
            pace=replace(NO_PACE, wall_step_s=wall_step_s(series[loss].recent) if loss else None),
            started_s=newest.newest.first_time_s,
            written_s=newest.newest.last_time_s,
            hyperparameters=arguments.shown,
            read_from=tuple(str(tail.path) for tail in tails),
            problems=tuple(_problems(tails)),
            behind=behind,
            read_share=share_read(tails) if behind else 1.0,
        )
        is_empty = not series and not behind and any(tail.records for tail in tails)
        notes = (tr("The event files contain no scalars."),) if is_empty else ()
        return Reading(shown, series, loss, grew=grew, notes=notes)

    def _look_for_files(self) -> None:
        for name, files in self._find().items():
            if name not in self._runs:
                self._runs[name] = EventRun(name, self._new_scalars())
            tails = self._runs[name].tails
            known = {tail.path for tail in tails}
            tails += [EventFileTail(path) for path in files if path not in known]

    def _by_name(self) -> dict[str, TagSeries]:
        named = (zip(self._names_of(run), run.scalars.tags.values(), strict=True) for run in self._runs.values())
        return dict(itertools.islice(itertools.chain.from_iterable(named), MOST_NAMES))

    def _names_of(self, run: EventRun) -> list[str]:
        plain = run.name == "." or sum(bool(run.scalars.tags) for run in self._runs.values()) < 2
        return [tag if plain else f"{run.name}/{tag}" for tag in run.scalars.tags]


def _problems(tails: list[EventFileTail]) -> Iterator[str]:
    """What could not be read, one sentence each."""
    for tail in tails:
        yield from (sentence for sentence in (tail.problem, tail.refusal) if sentence)
        if tail.damaged_bytes and not tail.refusal:
            count = f"{tail.damaged_bytes:,}"
            yield tr("{path}: {count} bytes are damaged and were skipped.", path=tail.path, count=count)
