"""EventRuns: all event files of a folder (or one file), as runs: a folder that holds some is a run, as in TensorBoard."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from trainwiz.core.language import tr
from trainwiz.core.telemetry.event_file import EventFileTail
from trainwiz.core.telemetry.metrics_csv import METRICS_CSV, CsvTail
from trainwiz.core.telemetry.paths import is_file
from trainwiz.core.telemetry.scalars import Scalars

EVENT_MARK = "tfevents"
LOOK_FOR_FILES_S = 5.0
"""New files are looked for this often, in large trees as often as SHARE_OF_A_CORE_FOR_LOOKS allows."""
SHARE_OF_A_CORE_FOR_LOOKS = 0.003
SAME_TIME_S = 120.0
MOST_FOLDERS = 5_000
DEEPEST = 8

_BEGUN = re.compile(r"tfevents\.(\d+)")

FileTail = EventFileTail | CsvTail
FindFiles = Callable[[], dict[str, list[Path]]]
"""Gives the files of each run, as `find_scalar_files` does."""


def find_scalar_files(root: Path, skip: re.Pattern[str] | None = None) -> dict[str, list[Path]]:
    """Run name ("." for `root` itself) -> its event files by name, which holds their time and number; for a folder
    without one Lightning's metrics.csv. Runs are in the order in which their first files were begun.

    At most MOST_FOLDERS folders, DEEPEST levels; links to folders and names that match `skip` are not
    followed."""
    if is_file(root):
        return {".": [root]}
    found: dict[str, list[Path]] = {}
    for folder, names in _folders(root, skip):
        files = sorted(
            (name for name in names if EVENT_MARK in name and not name.endswith(".profile-empty")), key=_in_order
        )
        if not files and METRICS_CSV in names:
            files = [METRICS_CSV]
        if files:
            found[folder.relative_to(root).as_posix()] = [folder / name for name in files]
    return dict(sorted(found.items(), key=lambda item: _begun_s(item[1][0])))


def _in_order(name: str) -> list[str | int]:
    """Files of one second are numbered: 9 before 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _begun_s(path: Path) -> float:
    """When an event file was begun, by its name (events.out.tfevents.<Unix time>...); a table's own time."""
    found = _BEGUN.search(path.name)
    if found:
        return float(found[1])
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


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
        self.was_rewritten = False
        """A file turned out to be another one: what was read no longer holds."""
        self.tails: list[FileTail] = []
        self.behind = False
        self._stamps: dict[Path, tuple[int, int]] = {}

    def update_files(self, files: list[Path]) -> None:
        known = {tail.path for tail in self.tails}
        new = [
            CsvTail(path) if path.name == METRICS_CSV else EventFileTail(path) for path in files if path not in known
        ]
        self.tails.extend(new)

    def read(self, deadline: float) -> bool:
        """Read what is new until time.monotonic() is `deadline`; whether anything was new."""
        self.behind = False
        grew = False
        for tail in self.tails:
            while self._may_have_more(tail):
                resets = tail.resets
                scalars = tail.read_new()
                if tail.resets != resets:
                    self.was_rewritten = self.behind = True
                    return True
                grew = grew or bool(scalars)
                old = isinstance(tail, EventFileTail) and tail.file_version < 2
                self.scalars.add_all(scalars, steps_back_purge=old)
                if time.monotonic() > deadline:
                    self.behind = True
                    return grew
        return grew

    def _may_have_more(self, tail: FileTail) -> bool:
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
    def event_tails(self) -> list[EventFileTail]:
        return [tail for tail in self.tails if isinstance(tail, EventFileTail)]

    @property
    def first_time_s(self) -> float | None:
        times = [tail.first_time_s for tail in self.tails if tail.first_time_s is not None]
        return min(times, default=None)

    @property
    def last_time_s(self) -> float | None:
        """Unix time of the newest event, by the clock of the machine that wrote it."""
        times = [tail.last_time_s for tail in self.tails if tail.last_time_s is not None]
        return max(times, default=None)

    def text(self, tag: str) -> str | None:
        texts = [tail.texts[tag] for tail in self.event_tails if tag in tail.texts]
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
        self.root = root
        self._new_scalars = new_scalars
        self._find = find or (lambda: find_scalar_files(root, skip))
        self.rewritten = 0
        """How often everything was read anew, because a file turned out to be another one."""
        self._forget()

    def _forget(self) -> None:
        self.runs: dict[str, EventRun] = {}
        self.behind = False
        self.grew = False
        self._next_look = 0.0

    def read(self, deadline: float) -> None:
        if time.monotonic() >= self._next_look:
            self._look_for_files()
        self.grew = self.behind = False
        for run in self.runs.values():
            self.grew = run.read(deadline) or self.grew
            if run.was_rewritten:
                self.rewritten += 1
                self._forget()
                self.grew = self.behind = True
                return
            if run.behind:
                # The runs of one training follow each other: a later one waits.
                self.behind = True
                return

    def _look_for_files(self) -> None:
        started_s = time.thread_time()
        for name, files in self._find().items():
            if name not in self.runs:
                self.runs[name] = EventRun(name, self._new_scalars())
            self.runs[name].update_files(files)
        cost_s = time.thread_time() - started_s
        self._next_look = time.monotonic() + max(LOOK_FOR_FILES_S, cost_s / SHARE_OF_A_CORE_FOR_LOOKS)

    @property
    def tails(self) -> list[FileTail]:
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

    @property
    def event_tails(self) -> list[EventFileTail]:
        return [tail for run in self.runs.values() for tail in run.event_tails]

    def text(self, tag: str) -> str | None:
        """Of the newest run; else of one in its folder, as `add_hparams` begins a run of its own below it."""
        newest = self.newest
        if newest is None:
            return None
        near = [run for run in self.runs.values() if Path(newest.name) in Path(run.name).parents]
        above = [run for run in self.runs.values() if Path(run.name) in Path(newest.name).parents]
        return next((text for run in (newest, *near[-1:], *above[-1:]) if (text := run.text(tag)) is not None), None)

    def others(self) -> Counter[str]:
        """What is not a scalar, by kind."""
        return sum((tail.others for tail in self.tails if isinstance(tail, EventFileTail)), Counter())

    def problems(self) -> list[str]:
        """What could not be read, one sentence each."""
        return [sentence for tail in self.tails for sentence in problems_of(tail)]


def problems_of(tail: FileTail) -> list[str]:
    sentences = [sentence for sentence in (tail.problem, tail.refusal) if sentence]
    if isinstance(tail, EventFileTail) and tail.damaged_bytes and not tail.refusal:
        sentences.append(
            tr("{path}: {count} bytes are damaged and left out.", path=tail.path, count=f"{tail.damaged_bytes:,}")
        )
    return sentences
