"""Metrics in what a training prints."""

from __future__ import annotations

import heapq
import os
import re
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from trainwiz.core.files import open_file
from trainwiz.core.lines import ByteTail, TextTail
from trainwiz.core.telemetry.event_file import Scalar
from trainwiz.core.telemetry.log import LogLines
from trainwiz.core.telemetry.metrics import NOT_METRICS, wall_step_s
from trainwiz.core.telemetry.scalars import Scalars
from trainwiz.core.telemetry.trainer_state import value_of
from trainwiz.core.text import numbers_finite, step_of

# StdoutMetrics: the metrics that a Trainer prints, dicts such as {'loss': '2.1', 'epoch': 0.3}, from the log they went to.

LOG_ENDINGS = (".log", ".out", ".txt", ".err")
LARGEST_DICT_BYTES = 16 * 1024
CLOCK_TELLS_S = 10
"""The clock of a bar has whole seconds."""
CLOCK_POINTS = 50
BEFORE_BYTES, AFTER_BYTES = 4096, 1024
"""Where a progress bar is looked for around a dict."""

_DICT = re.compile(rb"\{\s*['\"][^{}\r\n]{1,%d}\}" % LARGEST_DICT_BYTES)
_PAIR = re.compile(
    r"""['"](?P<name>[^'"]{1,200})['"]\s*:\s*['"]?(?P<value>[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity))\b"""
)
# A bar without a name before the percentage: the Trainer's own are, those of the data's are not.
_BAR = re.compile(
    rb"(?:^|[\r\n])(?:\x1b\[[\d;]*[A-Za-z])*[ \t]*\d{1,3}%\|[^|\r\n]*\|\s*(?P<at>\d{1,18})/(?P<total>\d{1,18})\s*\[(?P<times>[^\]\r\n]*)\]"
)
_CLOCK = re.compile(rb"((?:\d{1,4}:)?\d{1,2}:\d\d)<")
STEP_NAMES = ("step", "global_step")


class StdoutMetrics:
    """Scalars of a log, as it grows. A dict counts that names its epoch or step, as the Trainer's do.

    Steps, in this order: what the dict says; the training's progress bar right after or before it; else
    the dicts are counted, and `counted` is true.
    """

    def __init__(self, path: Path) -> None:
        self.tail = ByteTail(path)
        self._forget()

    def _forget(self) -> None:
        self.rows = 0
        self.counted = False
        self.max_steps: int | None = None
        self.epoch: float | None = None
        self.step: int | None = None
        self._training_rows = 0
        self._clock: deque[tuple[int, int]] = deque(maxlen=CLOCK_POINTS)
        """Step and seconds of the newest bars of this launch."""
        self._rest = b""

    @property
    def behind(self) -> bool:
        return self.tail.behind

    @property
    def step_s(self) -> float | None:
        """By the clock of the bar. The rate that it shows is none: a training that goes on from a checkpoint jumps to
        its step, and its bar takes the jump for speed, at its end too."""
        tells = len(self._clock) > 1 and self._clock[-1][1] - self._clock[0][1] >= CLOCK_TELLS_S
        return wall_step_s(self._clock) if tells else None

    def read_new(self) -> list[Scalar]:
        """Scalars of the next READ_BYTES at most. After a change of `tail.resets` all before it no longer holds."""
        data = self.tail.read_bytes()
        if self.tail.began_anew:
            self._forget()
        if not data:
            return []
        data = self._rest + data
        # A dict is printed whole; one without its end of line is waited for, but not for ever.
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end and len(data) > 2 * LARGEST_DICT_BYTES:
            end = len(data) - LARGEST_DICT_BYTES
        scalars: list[Scalar] = []
        for found in _DICT.finditer(data, 0, end):
            scalars += self._read_dict(data, found)
        self._look_for_bar(data[max(0, len(data) - BEFORE_BYTES) :])
        self._rest = data[end:]
        return scalars

    def _read_dict(self, data: bytes, found: re.Match[bytes]) -> list[Scalar]:
        values = _pairs_of(found.group().decode("utf-8", "replace"))
        names = _metrics_of(values)
        if not names:
            return []
        self.rows += 1
        training = "loss" in values
        self._training_rows += training
        step = self._step_of(values, data, found, training)
        self.epoch = numbers_finite(values.get("epoch"), self.epoch)
        return [(name, step, values[name], 0.0) for name in names]

    def _step_of(self, values: dict[str, float], data: bytes, found: re.Match[bytes], training: bool) -> int:
        at = next((step for name in STEP_NAMES if (step := step_of(values.get(name))) is not None), None)
        before = data[max(0, found.start() - BEFORE_BYTES) : found.start()]
        if at is None and self.max_steps is None:
            # The first bar is the training's: it stands before the dict where an evaluation's follows.
            self._look_for_bar(before)
        if at is None:
            # The bar before a dict may lag behind.
            after = data[found.end() : found.end() + AFTER_BYTES].split(b"{", 1)[0]
            bar = _BAR.search(after)
            at = (self._take_bar(bar) if bar else None) or self._look_for_bar(before)
        at = self.step if at is None else at
        if at is None:
            self.counted = True
            return max(1, self._training_rows)
        self.step = at
        return at

    def _look_for_bar(self, text: bytes) -> int | None:
        taken = [at for bar in _BAR.finditer(text) if (at := self._take_bar(bar)) is not None]
        return taken[-1] if taken else None

    def _take_bar(self, bar: re.Match[bytes]) -> int | None:
        """Where the bar stands, if it is the training's: the first one with a length; those of evaluations have another."""
        at, total = int(bar["at"]), int(bar["total"])
        if self.max_steps is None:
            self.max_steps = total
        if total != self.max_steps:
            return None
        clock = _CLOCK.match(bar["times"])
        if clock is not None and at:
            elapsed_s = sum(int(part) * 60**n for n, part in enumerate(reversed(clock[1].split(b":"))))
            if self._clock and (at < self._clock[-1][0] or elapsed_s < self._clock[-1][1]):
                self._clock.clear()
            if not self._clock or elapsed_s > self._clock[-1][1]:
                self._clock.append((at, elapsed_s))
        if self.step is None or at >= self.step:
            self.step = at
        return at


def _pairs_of(text: str) -> dict[str, float]:
    """The numbers of a printed dict by name, also those printed as text, nan and inf."""
    pairs = ((found["name"], value_of(found["value"])) for found in _PAIR.finditer(text))
    return {name: value for name, value in pairs if value is not None}


def _metrics_of(values: Mapping[str, float]) -> list[str]:
    """The names in a dict that are metrics; [] for one that names neither an epoch nor a step: no Trainer printed it."""
    if not values.keys() & {"epoch", *STEP_NAMES}:
        return []
    return [name for name in values if name not in NOT_METRICS and name not in STEP_NAMES]


def find_log(folder: Path) -> Path | None:
    """The newest log of a folder in which a Trainer printed metrics; else None. Looks at the end of each."""
    try:
        with os.scandir(folder) as entries:
            # There may be 100,000 files: no more is asked of one that is not called like a log.
            named = (one for one in entries if one.name.endswith(LOG_ENDINGS) and not one.name.startswith("."))
            logs = [(one.stat().st_mtime, Path(one.path)) for one in named if one.is_file()]
    except OSError:
        return None
    return next((path for _, path in heapq.nlargest(50, logs) if prints_metrics(path)), None)


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
    return any(
        _metrics_of(_pairs_of(found.group().decode("utf-8", "replace")))
        for text in texts
        for found in _DICT.finditer(text)
    )


# TrainerLog: the file that a Trainer's standard output goes to: its last lines and the metrics printed in it.


class TrainerLog:
    """Not thread-safe. Each read costs what is new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.printed = StdoutMetrics(path)
        self.scalars = Scalars()
        self.lines = LogLines()
        self._text = TextTail(path)

    @property
    def problem(self) -> str | None:
        return self._text.problem

    @property
    def written_s(self) -> float | None:
        """Time of the file."""
        try:
            return self.path.stat().st_mtime
        except OSError:
            return None

    def read(self, deadline: float) -> bool:
        """Read what is new until time.monotonic() is `deadline`; whether metrics were printed."""
        self._read_lines()
        grew = False
        while True:
            scalars = self.printed.read_new()
            if self.printed.tail.began_anew:
                self.scalars = Scalars()
            self.scalars.add_all(scalars)
            grew = grew or bool(scalars)
            if not self.printed.behind or time.monotonic() > deadline:
                return grew

    def _read_lines(self) -> None:
        text = self._text.read_new()
        if self._text.began_anew:
            self.lines.clear()
        self.lines.feed(text)
