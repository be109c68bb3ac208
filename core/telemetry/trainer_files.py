"""What transformers' Trainer leaves: trainer_state.json, its arguments, and the log that it prints to."""

from __future__ import annotations

import contextlib
import heapq
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.errors import os_reason
from trainwiz.core.files import is_folder, may_be_there, open_file, read_small
from trainwiz.core.language import tr
from trainwiz.core.lines import ByteTail, TextTail, stamp_of
from trainwiz.core.telemetry.event_file import Scalar
from trainwiz.core.telemetry.log import LogLines
from trainwiz.core.telemetry.metrics import NOT_METRICS, Scalars
from trainwiz.core.text import number, numbers_finite, object_in, parse_json, step_of

# What transformers' TrainingArguments say about a job, as its TensorBoard callback writes them down.


def parse_arguments(text: str) -> Mapping[str, Any]:
    """From the JSON text that the callback writes; empty for anything else."""
    try:
        return object_in(parse_json(text))
    except ValueError:
        return {}


def planned_steps(arguments: Mapping[str, Any], step: int | None, epoch: float | None) -> int | None:
    """Without a number of its own, by how far in the epochs `step` is (a guess within 1 %)."""
    epochs = numbers_finite(arguments.get("num_train_epochs"))
    if steps := _count(arguments.get("max_steps")):
        return steps
    if not step or not epoch or not epochs or epochs < 0:
        return None
    whole = step_of(step / epoch * epochs + 0.5)
    return None if whole is None else max(step, whole)


def _count(value: Any, least: int = 1) -> int | None:
    known = step_of(value)
    return known if known is not None and known >= least else None


# TrainerState: what transformers' Trainer leaves in trainer_state.json, in checkpoints and sometimes beside them.

TRAINER_STATE = "trainer_state.json"
CHECKPOINT = re.compile(r"checkpoint-(\d+)$")
LARGEST_BYTES = 512 * 1024 * 1024
MOST_CHECKPOINTS_READ = 8
"""Of the newest checkpoints this many are tried before the others are given up."""


@dataclass(frozen=True, slots=True)
class TrainerState:
    """None where the file does not say."""

    path: Path
    step: int | None
    max_steps: int | None
    epoch: float | None
    rows: tuple[Mapping[str, Any], ...]
    scalars: Scalars
    """Every number of every row; rows without a step stand at the step before."""
    written_s: float
    """Time of the file, Unix seconds."""

    def goes_through(self, earlier: TrainerState) -> bool:
        """Whether `earlier` can be a state of the same training: the last row it has is found here too."""
        count = len(earlier.rows)
        # As text: a loss that is not a number is not equal to itself.
        return not count or (count <= len(self.rows) and repr(self.rows[count - 1]) == repr(earlier.rows[-1]))


def _scalars_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[Scalar]:
    step = 0
    for row in rows:
        known = step_of(row.get("step"))
        step = step if known is None else known
        for name, raw in row.items():
            value = value_of(raw)
            if name not in NOT_METRICS and value is not None:
                yield str(name), step, value, 0.0


def value_of(raw: Any) -> float | None:
    """A number, also one that was written as text ("NaN", "2.5"); None for anything else."""
    if not isinstance(raw, str):
        return number(raw)
    try:
        return None if "_" in raw else float(raw)
    except ValueError:
        return None


def read_trainer_state(path: Path) -> TrainerState | str:
    """The state, or one sentence that says why it cannot be read."""
    try:
        data = read_small(path, LARGEST_BYTES)
        written_s = path.stat().st_mtime
    except OSError as error:
        return tr("Cannot read {path}: {reason}.", path=path, reason=os_reason(error))
    if not data.strip():
        return tr("{path} is empty: it is being written, or the write was interrupted.", path=path)
    try:
        document = parse_json(data.decode("utf-8-sig", errors="replace"))
    except ValueError as error:
        return tr("{path} is not complete JSON: {reason}.", path=path, reason=error)
    rows = document.get("log_history", []) if isinstance(document, dict) else None
    if not isinstance(rows, list) or not ("global_step" in document or "log_history" in document):
        return tr("{path} is not a Trainer state: it has no `global_step` and no `log_history` list.", path=path)
    rows = tuple(row for row in rows if isinstance(row, dict))
    scalars = Scalars()
    scalars.add_all(_scalars_of(rows))
    return TrainerState(
        path=path,
        step=_count(document.get("global_step"), 0),
        max_steps=_count(document.get("max_steps")),
        epoch=numbers_finite(document.get("epoch")),
        rows=rows,
        scalars=scalars,
        written_s=written_s,
    )


MOST_FOLDERS = 5_000
DEEPEST = 8


def folders_below(
    root: Path, skip: re.Pattern[str] | None = None, deepest: int = DEEPEST
) -> Iterator[tuple[Path, list[str]]]:
    """`root` and the folders below it, the upper ones first, each with the names of its files. Hidden ones, links and
    names that match `skip` are not entered."""
    waiting = deque([(root, 0)])
    for _ in range(MOST_FOLDERS):
        if not waiting:
            return
        folder, depth = waiting.popleft()
        names = []
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if not entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
                elif depth < deepest and not entry.name.startswith(".") and not (skip and skip.match(entry.name)):
                    waiting.append((folder / entry.name, depth + 1))
        yield folder, names


def checkpoints_in(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of each `checkpoint-N`, the highest first; [] where the folder cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            # There may be 100,000 other files, and this is asked at each look.
            paths = [Path(entry.path) for entry in entries if entry.name.startswith("checkpoint-")]
    except OSError:
        return []
    return sorted(((int(found[1]), path) for path in paths if (found := CHECKPOINT.match(path.name))), reverse=True)


def state_files(folder: Path) -> list[Path]:
    """The states of a folder: its own, then those of its checkpoints, the highest number first."""
    places = (folder, *(path for _, path in checkpoints_in(folder)))
    return [state for place in places if may_be_there(state := place / TRAINER_STATE)]


class NewestState:
    """The readable state with the highest step below a folder (or of one file). A file is read again when it changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: tuple[str, ...] = ()
        self._read: dict[Path, tuple[tuple[int, int] | None, TrainerState | str]] = {}

    def look(self) -> TrainerState | None:
        files = state_files(self.path) if is_folder(self.path) else [self.path]
        self._read = {file: read for file, read in self._read.items() if file in files}
        states, problems = list[TrainerState](), list[str]()
        for file in files[: MOST_CHECKPOINTS_READ + 1]:
            state = self._state_of(file)
            if isinstance(state, str):
                problems.append(state)
                continue
            states.append(state)
            if file.parent != self.path:
                break
        self.problems = tuple(problems)
        if not states:
            return None
        best = max(states, key=lambda state: state.step or 0)
        newest = self._state_of(max(files, key=lambda file: written_s(file) or 0.0))
        if isinstance(newest, str) or newest.written_s <= best.written_s or best.goes_through(newest):
            return best
        # Written last, by another training than the one that went furthest. Times alone say little: copies are in any order.
        return newest

    def _state_of(self, file: Path) -> TrainerState | str:
        stamp = stamp_of(file)
        if stamp is None or file not in self._read or self._read[file][0] != stamp:
            self._read[file] = stamp, read_trainer_state(file)
        return self._read[file][1]


def written_s(file: Path) -> float | None:
    stamp = stamp_of(file)
    return None if stamp is None else stamp[1] / 1e9


# TrainerLog: the metrics that a Trainer prints, dicts such as {'loss': '2.1', 'epoch': 0.3}, from the log they went to.

LOG_ENDINGS = (".log", ".out", ".txt", ".err")
LARGEST_DICT_BYTES = 16 * 1024
AFTER_BYTES = 1024
"""Where the progress bar of a dict is looked for behind it."""

_DICT = rb"\{\s*['\"][^{}\r\n]{1,%d}\}" % LARGEST_DICT_BYTES
# A bar without a name before the percentage: the Trainer's own are, those of the data's are not.
_BAR = (
    rb"(?:^|(?<=[\r\n]))(?:\x1b\[[\d;]*[A-Za-z])*[ \t]*\d{1,3}%\|[^|\r\n]*\|"
    rb"\s*(?P<at>\d{1,18})/(?P<total>\d{1,18})\s*\[(?:(?P<clock>(?:\d{1,4}:)?\d{1,2}:\d\d)<)?"
)
_DICTS, _BARS = re.compile(_DICT), re.compile(_BAR)
_EITHER = re.compile(_DICT + b"|" + _BAR)
_PAIR = re.compile(
    r"""['"](?P<name>[^'"]{1,200})['"]\s*:\s*['"]?(?P<value>[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity))\b"""
)
STEP_NAMES = ("step", "global_step")


class TrainerLog:
    """The lines and scalars of a log, as it grows. Not thread-safe. A dict counts that names its epoch or step, as the Trainer's do.

    Steps, in this order: what the dict says; the training's progress bar right after or before it; else
    the dicts are counted, and `counted` is true.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tail = ByteTail(path)
        self.lines = LogLines(TextTail(path))
        self._forget()

    def _forget(self) -> None:
        self.scalars = Scalars()
        self.rows = 0
        self.counted = False
        self.max_steps: int | None = None
        self.epoch: float | None = None
        self.step: int | None = None
        self._training_rows = 0
        self._rest = b""
        self._clock_s = 0.0
        self._launch = object()

    def read(self, deadline: float) -> bool:
        """Read what is new until time.monotonic() is `deadline`; whether metrics were printed."""
        grew = False
        while True:
            grew = bool(self.read_new()) or grew
            if not self.tail.behind or time.monotonic() > deadline:
                return grew

    def read_new(self) -> list[Scalar]:
        """Adds the scalars of the next READ_BYTES at most; their times are those of the bar's clock. Where `tail.began_anew` all before it no longer holds."""
        data = self.tail.read_bytes()
        if self.tail.began_anew:
            self._forget()
        data = self._rest + data
        # A dict is printed whole; one without its end of line is waited for, but not for ever.
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end and len(data) > 2 * LARGEST_DICT_BYTES:
            end = len(data) - LARGEST_DICT_BYTES
        scalars: list[Scalar] = []
        for found in _EITHER.finditer(data, 0, end):
            if found["at"]:
                self._take_bar(found)
                continue
            # The bar before a dict may lag behind.
            after = _BARS.search(data[found.end() : found.end() + AFTER_BYTES].split(b"{", 1)[0])
            new = self._read_dict(found.group(), after)
            self.scalars.add_all(new, session=self._launch)
            scalars += new
        self._rest = data[end:]
        if bar := _BARS.match(self._rest):
            self._take_bar(bar)
        return scalars

    def _read_dict(self, text: bytes, bar: re.Match[bytes] | None) -> list[Scalar]:
        """`bar`: the one right after it."""
        values = _pairs_of(text)
        names = _metrics_of(values)
        if not names:
            return []
        self.rows += 1
        self._training_rows += "loss" in values
        self.epoch = numbers_finite(values.get("epoch"), self.epoch)
        step = next((step for name in STEP_NAMES if (step := step_of(values.get(name))) is not None), None)
        if step is None:
            step = (self._take_bar(bar) if bar else None) or self.step
        self.step = step
        if step is None:
            self.counted, step = True, max(1, self._training_rows)
        return [(name, step, values[name], self._clock_s) for name in names]

    def _take_bar(self, bar: re.Match[bytes]) -> int | None:
        """Where the bar stands, if it is the training's: the first one with a length; those of evaluations have another."""
        at, total = int(bar["at"]), int(bar["total"])
        if self.max_steps is None:
            self.max_steps = total
        if total != self.max_steps:
            return None
        self.step = at if self.step is None else max(at, self.step)
        if bar["clock"]:
            clock_s = sum(int(part) * 60.0**place for place, part in enumerate(reversed(bar["clock"].split(b":"))))
            # The bar's own rate takes the jump to a checkpoint's step for speed; two of its rows do not.
            self._launch = self._launch if clock_s >= self._clock_s else object()
            self._clock_s = clock_s
        return at


def _pairs_of(text: bytes) -> dict[str, float]:
    """The numbers of a printed dict by name, also those printed as text, nan and inf."""
    found = _PAIR.finditer(text.decode("utf-8", "replace"))
    pairs = ((pair["name"], value_of(pair["value"])) for pair in found)
    return {name: value for name, value in pairs if value is not None}


def _metrics_of(values: Mapping[str, float]) -> list[str]:
    """The names in a dict that are metrics; [] for one that names neither an epoch nor a step: no Trainer printed it."""
    if not values.keys() & {"epoch", *STEP_NAMES}:
        return []
    return [name for name in values if name not in NOT_METRICS and name not in STEP_NAMES]


def find_log(folder: Path) -> Path | None:
    """The newest log of a folder in which a Trainer printed metrics; else None. Looks at the end of each."""
    names = next((names for _, names in folders_below(folder, deepest=0)), [])
    # There may be 100,000 files: no more is asked of one that is not called like a log.
    logs = [folder / name for name in names if name.endswith(LOG_ENDINGS) and not name.startswith(".")]
    newest = heapq.nlargest(50, logs, key=lambda log: written_s(log) or 0.0)
    return next((log for log in newest if prints_metrics(log)), None)


def prints_metrics(path: Path) -> bool:
    """Whether the first or the last MiB of the file holds a dict that a Trainer printed."""
    size = 1024 * 1024
    try:
        with open_file(path) as file:
            head = file.read(size)
            length = file.seek(0, 2)
            file.seek(max(size, length - size))
            texts = (head, file.read(size))
    except OSError:
        return False
    return any(_metrics_of(_pairs_of(found)) for text in texts for found in _DICTS.findall(text))
