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
from trainwiz.core.lines import share_read
from trainwiz.core.telemetry.event_file import EventFileTail
from trainwiz.core.telemetry.metrics import MOST_NAMES, NO_PACE, Scalars, TagSeries, loss_name, summary_of, wall_step_s
from trainwiz.core.telemetry.target import NOTHING, Reading
from trainwiz.core.telemetry.trainer_files import ARGUMENTS_TAG, parse_arguments

EVENT_MARK = "tfevents"
LOOK_FOR_FILES_S = 5.0
"""New files are looked for this often, in large trees as often as SHARE_OF_A_CORE_FOR_LOOKS allows."""
SHARE_OF_A_CORE_FOR_LOOKS = 0.003
SAME_TIME_S = 120.0
MOST_FOLDERS = 5_000
DEEPEST = 8

_BEGUN = re.compile(r"tfevents\.(\d+)")

FindFiles = Callable[[], Mapping[str, Sequence[Path]]]
"""Gives the files of each run, as `find_scalar_files` does."""


def find_scalar_files(root: Path, skip: re.Pattern[str] | None = None) -> dict[str, list[Path]]:
    """Run name ("." for `root` itself) -> its event files by name, which holds their time and number. Runs are in the
    order in which their first files were begun.

    At most MOST_FOLDERS folders, DEEPEST levels; links to folders and names that match `skip` are not
    followed."""
    if is_file(root):
        return {".": [root]}
    found: dict[str, list[Path]] = {}
    for folder, names in _folders(root, skip):
        # Files of one second are numbered: 9 before 10.
        files = sorted(
            (name for name in names if EVENT_MARK in name and not name.endswith(".profile-empty")),
            key=lambda name: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)],
        )
        if files:
            found[folder.relative_to(root).as_posix()] = [folder / name for name in files]
    return dict(sorted(found.items(), key=lambda item: _begun_s(item[1][0])))


def _begun_s(path: Path) -> float:
    """When an event file was begun, by its name (events.out.tfevents.<Unix time>...)."""
    found = _BEGUN.search(path.name)
    return float(found[1]) if found else 0.0


def _folders(root: Path, skip: re.Pattern[str] | None) -> Iterator[tuple[Path, list[str]]]:
    for count, (folder, subfolders, names) in enumerate(os.walk(root)):
        path = Path(folder)
        depth = len(path.relative_to(root).parts)
        kept = sorted(name for name in subfolders if not name.startswith(".") and not (skip and skip.match(name)))
        subfolders[:] = kept if depth < DEEPEST else []
        yield path, names
        if count >= MOST_FOLDERS:
            return


class EventRun:
    """One run: the files of one folder in the order in which they were begun, as one series for each tag."""

    def __init__(self, name: str, scalars: Scalars) -> None:
        self.name = name
        self.scalars = scalars
        self.tails: list[EventFileTail] = []
        self._stamps: dict[Path, tuple[int, int]] = {}

    @property
    def began_s(self) -> float | None:
        """When the file that was written to last began."""
        newest = max(self.tails, key=lambda tail: tail.last_time_s or 0.0, default=None)
        return newest.first_time_s if newest else None

    def read(self, deadline: float) -> tuple[bool, bool]:
        """Read what is new until time.monotonic() is `deadline`: (whether anything was, whether more is left)."""
        grew = False
        for tail in self.tails:
            while self._may_have_more(tail):
                scalars = tail.read_new()
                grew = grew or bool(scalars)
                self.scalars.add_all(scalars, session=tail)
                if time.monotonic() > deadline:
                    return grew, True
        return grew, False

    def _may_have_more(self, tail: EventFileTail) -> bool:
        if tail.behind:
            return True
        try:
            status = tail.path.stat()
        except OSError:
            return tail.problem is None and tail.offset == 0 and tail.path not in self._stamps
        stamp = (status.st_size, status.st_mtime_ns)
        changed = self._stamps.get(tail.path) != stamp
        self._stamps[tail.path] = stamp
        return changed

    @property
    def last_time_s(self) -> float | None:
        """Unix time of the newest event, by the clock of the machine that wrote it."""
        times = [tail.last_time_s for tail in self.tails if tail.last_time_s is not None]
        return max(times, default=None)

    def text(self, tag: str) -> str | None:
        texts = [tail.texts[tag] for tail in self.tails if tag in tail.texts]
        return texts[-1] if texts else None


class EventRuns:
    """Not thread-safe. `read` costs what is new, and a look for new files every LOOK_FOR_FILES_S."""

    def __init__(
        self,
        root: Path,
        *,
        new_scalars: Callable[[], Scalars] = Scalars,
        skip: re.Pattern[str] | None = None,
        find: FindFiles | None = None,
    ) -> None:
        """`new_scalars` makes what takes the scalars of a run; `find` names the files, else all below `root` are read."""
        self._new_scalars = new_scalars
        self._find = find or (lambda: find_scalar_files(root, skip))
        self.runs: dict[str, EventRun] = {}
        self.behind = False
        self.grew = False
        self._next_look = 0.0

    def read(self, deadline: float) -> None:
        if time.monotonic() >= self._next_look:
            self._look_for_files()
        self.grew = self.behind = False
        for run in self.runs.values():
            grew, self.behind = run.read(deadline)
            self.grew = grew or self.grew
            if self.behind:
                # The runs of one training follow each other: a later one waits.
                return

    def _look_for_files(self) -> None:
        started_s = time.thread_time()
        for name, files in self._find().items():
            if name not in self.runs:
                self.runs[name] = EventRun(name, self._new_scalars())
            tails = self.runs[name].tails
            known = {tail.path for tail in tails}
            tails += [EventFileTail(path) for path in files if path not in known]
        cost_s = time.thread_time() - started_s
        self._next_look = time.monotonic() + max(LOOK_FOR_FILES_S, cost_s / SHARE_OF_A_CORE_FOR_LOOKS)

    @property
    def tails(self) -> list[EventFileTail]:
        return [tail for run in self.runs.values() for tail in run.tails]

    @property
    def newest(self) -> EventRun | None:
        """The run that was written to last."""
        return max(self.runs.values(), key=lambda run: run.last_time_s or 0.0, default=None)

    def current(self) -> list[EventRun]:
        """The run that was written to last, and those written to within SAME_TIME_S of it, that first."""
        newest = self.newest
        last_s = newest.last_time_s if newest else None
        if newest is None or last_s is None:
            return list(self.runs.values())
        others = [run for run in self.runs.values() if (run.last_time_s or 0.0) >= last_s - SAME_TIME_S]
        return [newest, *(run for run in others if run is not newest)]

    def problems(self) -> list[str]:
        """What could not be read, one sentence each."""
        sentences = [sentence for tail in self.tails for sentence in (tail.problem, tail.refusal) if sentence]
        return sentences + [
            tr("{path}: {count} bytes are damaged and were skipped.", path=tail.path, count=f"{tail.damaged_bytes:,}")
            for tail in self.tails
            if tail.damaged_bytes and not tail.refusal
        ]


# All of them as one reading.

EPOCH_TAGS = ("epoch", "train/epoch")


class ScalarsReader:
    """Metrics are named by their tags; where there are several runs, "run/tag". Step, epoch and pace
    are those of the runs that were written to last, as a job may write several (train and validation)."""

    def __init__(self, path: Path, *, find: FindFiles | None = None) -> None:
        """`find` names the files, else all below the folder are read."""
        self._path = path
        self._runs = EventRuns(path, find=find)
        self._several = False

    def read(self, deadline: float) -> Reading:
        runs = self._runs
        runs.read(deadline)
        series = self._by_name()
        newest = runs.newest
        arguments = parse_arguments((newest.text(ARGUMENTS_TAG) if newest else None) or "")
        current = runs.current()
        step = max((run.scalars.step for run in current if run.scalars.step is not None), default=None)
        epochs = (run.scalars.last(tag) for run in current for tag in EPOCH_TAGS)
        epoch = next((epoch for epoch in epochs if epoch is not None), None)
        metrics = {name: summary_of(tag.series) for name, tag in series.items()}
        loss = loss_name(name for run in current for name in self._names_of(run) if name in series)
        recent: Sequence[tuple[float, float]] = series[loss].recent if loss else ()
        problems = runs.problems()
        if not runs.tails:
            problems.append(tr("{path} no longer contains event files.", path=self._path))
        shown = replace(
            NOTHING,
            metrics=metrics,
            step=step,
            max_steps=arguments.steps_in_all(step, epoch),
            epoch=epoch,
            pace=replace(NO_PACE, wall_step_s=wall_step_s(recent)),
            started_s=newest.began_s if newest else None,
            written_s=newest.last_time_s if newest else None,
            hyperparameters=arguments.shown,
            read_from=tuple(str(tail.path) for tail in runs.tails),
            problems=tuple(problems),
            behind=runs.behind,
            read_share=share_read(runs.tails) if runs.behind else 1.0,
        )
        notes = self._notes(bool(metrics), newest.scalars.launches if newest else 0)
        return Reading(shown, series, loss, recent, grew=runs.grew, notes=notes)

    def _by_name(self) -> dict[str, TagSeries]:
        with_scalars = [run for run in self._runs.runs.values() if run.scalars.tags]
        self._several = len(with_scalars) > 1
        named = (zip(self._names_of(run), run.scalars.tags.values(), strict=True) for run in with_scalars)
        return dict(itertools.islice(itertools.chain.from_iterable(named), MOST_NAMES))

    def _names_of(self, run: EventRun) -> list[str]:
        plain = not self._several or run.name == "."
        return [tag if plain else f"{run.name}/{tag}" for tag in run.scalars.tags]

    def _notes(self, has_scalars: bool, launches: int) -> tuple[str, ...]:
        notes = [joined_words(launches)] if launches > 1 else []
        if not has_scalars and any(tail.records for tail in self._runs.tails) and not self._runs.behind:
            notes.append(tr("The event files contain no scalars."))
        return tuple(notes)


def joined_words(launches: int) -> str:
    return tr(
        "{n} launches wrote these files one after another: they are joined by step, the later launch where both "
        "have a step; time and speed are those of the last launch.",
        n=f"{launches:,}",
    )
