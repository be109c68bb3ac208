"""Tails of event files of TensorBoard and of CSV tables of metrics."""

from __future__ import annotations

import csv
import re
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path

from trainwiz.core.language import mark, tr
from trainwiz.core.lines import ByteTail
from trainwiz.core.telemetry.event_proto import masked_crc32c, parse_event, read_varint
from trainwiz.core.telemetry.metrics import MOST_NAMES, MetricSummary
from trainwiz.core.telemetry.series import Series
from trainwiz.core.text import FARTHEST_S, is_moment, step_of

# EventFileTail: the scalars that a TensorBoard event file gained since the last look.

Scalar = tuple[str | None, int, float, float]
"""Tag, step, value, Unix time. Tag None: the writer started again at this step."""

HEADER_BYTES = 12
FOOTER_BYTES = 4
LONGEST_CHECKED_BYTES = 4096
"""Longer records hold pictures and graphs: passed over by their (checked) length, their content unchecked."""
LARGE_RECORDS = mark("large records")
LONGEST_KEPT_BYTES = 1024 * 1024
MOST_LENGTHS = 4096
MOST_TAGS_KNOWN = 4096
LONGEST_RECORD_BYTES = 1 << 40
"""A length above this is no length."""
LFS_MARK = b"version https://git-lfs"

_LENGTH_HIGH = re.compile(rb"\x00+(?=\x00{12})|(?=....\x00\x00\x00\x00)", re.DOTALL)
"""Where a header may begin; long runs of zeros (space that was reserved, lost pages) in one piece, as none begins there."""
_header = struct.Struct("<QI")
_double = struct.Struct("<d")
_float = struct.Struct("<f")
_crc = struct.Struct("<I")


class EventFileTail(ByteTail):
    """New scalars of one event file, which may still grow. A record that is not whole yet waits.

    Damaged records are counted in `damaged_bytes`, and reading goes on at the next record that is
    whole. `refusal` is one sentence when the file is no event file at all. `others` counts what is
    not a scalar, by kind; `texts` holds the newest text of the tags in event_proto.KEPT_TEXTS.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._forget()

    def _forget(self) -> None:
        self.records = 0
        self.damaged_bytes = 0
        self.refusal: str | None = None
        self.file_version = 0.0
        self.first_time_s: float | None = None
        self.last_time_s: float | None = None
        self.others: Counter[str] = Counter()
        self.texts: dict[str, str] = {}
        self._scalar_tensors: set[str] = set()
        self._tags: dict[bytes, str] = {}
        self._lengths: dict[bytes, int] = {}
        """Headers that were checked: records of scalars come in few lengths."""
        self._rest = b""
        self._passing_bytes = 0

    def _restart(self) -> None:
        super()._restart()
        self._forget()

    def read_new(self) -> list[Scalar]:
        """Scalars of the next READ_BYTES at most, in file order; call again while `behind` is true."""
        data = self.read_bytes()
        if not data or self.refusal:
            return []
        if self._passing_bytes:
            passed = min(self._passing_bytes, len(data))
            self._passing_bytes -= passed
            data = data[passed:]
        data = self._rest + data
        if not self.records and not self._begins_well(data):
            return []
        scalars: list[Scalar] = []
        self._rest = data[self._read_records(data, scalars) :]
        return scalars

    def _begins_well(self, data: bytes) -> bool:
        """Whether the file can be an event file; False also while too little of it is there (that waits)."""
        if data.startswith(LFS_MARK):
            self.refusal = tr(
                "{path} is a Git LFS pointer, not the event file itself; fetch it with `git lfs pull`.", path=self.path
            )
        elif len(data) >= HEADER_BYTES and _length_of(data[:HEADER_BYTES]) is None:
            self.refusal = tr(
                "{path} is not a TensorBoard event file: it does not begin with a record.", path=self.path
            )
        elif len(data) < HEADER_BYTES:
            self._rest = data
        return self.refusal is None and len(data) >= HEADER_BYTES

    def _read_records(self, data: bytes, scalars: list[Scalar]) -> int:
        """Read the whole records of `data`; the position where the rest begins."""
        position, size = 0, len(data)
        lengths = self._lengths
        while size - position >= HEADER_BYTES:
            header = data[position : position + HEADER_BYTES]
            length = lengths.get(header)
            if length is None:
                length = _length_of(header)
                if length is None:
                    position = self._next_record(data, position + 1, position)
                    continue
                if len(lengths) < MOST_LENGTHS:
                    lengths[header] = length
            start = position + HEADER_BYTES
            end = start + length
            if end + FOOTER_BYTES > size:
                if length <= LONGEST_KEPT_BYTES:
                    break
                self.others[LARGE_RECORDS] += 1
                self._passing_bytes = end + FOOTER_BYTES - size
                return size
            record = data[start:end]
            if length <= LONGEST_CHECKED_BYTES and masked_crc32c(record) != _crc.unpack_from(data, end)[0]:
                self.damaged_bytes += end + FOOTER_BYTES - position
            else:
                self.records += 1
                if self.first_time_s is None and record[:1] == b"\x09" and length >= 9:
                    began_s = _double.unpack_from(record, 1)[0]
                    self.first_time_s = began_s if is_moment(began_s) else None
                if not self._read_scalar(record, scalars):
                    self._read_event(record, scalars)
            position = end + FOOTER_BYTES
        return position

    def _next_record(self, data: bytes, start: int, damaged_from: int) -> int:
        """Where the next record with a right length begins, or the last bytes that could begin one."""
        for found in _LENGTH_HIGH.finditer(data, start):
            at = found.end()
            if at + HEADER_BYTES <= len(data) and _length_of(data[at : at + HEADER_BYTES]) is not None:
                self.damaged_bytes += at - damaged_from
                return at
        end = max(start, len(data) - HEADER_BYTES + 1)
        self.damaged_bytes += end - damaged_from
        return end

    def _read_scalar(self, record: bytes, scalars: list[Scalar]) -> bool:
        """The common event, one scalar as SummaryWriter.add_scalar writes it; False for any other."""
        # Event: wall_time = 1 (double), step = 2 (varint, absent when 0), summary = 5;
        # Summary: value = 1; Value: tag = 1, simple_value = 2 (float). One-byte lengths only.
        size = len(record)
        if not 20 < size < 140 or record[0] != 0x09:
            return False
        position, step = 9, 0
        if record[9] == 0x10:
            step, position = record[10], 11
            if step >= 0x80:
                step, position = read_varint(record, 10)
                if step >> 63:
                    step -= 1 << 64
        if position + 6 > size or record[position] != 0x2A or record[position + 1] != size - position - 2:
            return False
        if record[position + 2] != 0x0A or record[position + 3] != size - position - 4 or record[position + 4] != 0x0A:
            return False
        tag_end = position + 6 + record[position + 5]
        if tag_end + 5 != size or record[tag_end] != 0x15:
            return False
        raw = record[position + 6 : tag_end]
        tag = self._tags.get(raw)
        if tag is None:
            tag = raw.decode("utf-8", "replace")
            if len(self._tags) < MOST_TAGS_KNOWN:
                self._tags[raw] = tag
        time_s = _double.unpack_from(record, 1)[0]
        if not -FARTHEST_S < time_s < FARTHEST_S:
            time_s = self.last_time_s or 0.0
        value = _float.unpack_from(record, tag_end + 1)[0]
        self.last_time_s = time_s
        scalars.append((tag, step, value, time_s))
        return True

    def _read_event(self, record: bytes, scalars: list[Scalar]) -> None:
        try:
            event = parse_event(record, self._scalar_tensors)
        except (ValueError, struct.error):
            self.damaged_bytes += len(record) + HEADER_BYTES + FOOTER_BYTES
            return
        time_s = event.wall_time if is_moment(event.wall_time) else self.last_time_s or 0.0
        self.last_time_s = time_s
        if event.file_version is not None:
            self.file_version = _version_of(event.file_version)
        if event.session_start:
            scalars.append((None, event.step, 0.0, time_s))
        for tag, value in event.scalars:
            scalars.append((tag, event.step, value, time_s))
        self.others.update(event.others)
        self.texts.update(event.texts)


def _length_of(header: bytes) -> int | None:
    """The length that a record's header gives; None where its checksum says that it is none."""
    length, crc = _header.unpack(header)
    return int(length) if length <= LONGEST_RECORD_BYTES and masked_crc32c(header[:8]) == crc else None


def _version_of(text: str) -> float:
    """ "brain.Event:2" -> 2.0; -1.0 for anything else, as TensorBoard has it."""
    prefix, _, number = text.rpartition(":")
    try:
        return float(number) if prefix == "brain.Event" else -1.0
    except ValueError:
        return -1.0


# Scalars: the series of one TensorBoard run, one for each tag. Tags keep steps of their own.

RECENT_POINTS = 50


class TagSeries:
    """One tag. Where a writer goes back to an earlier step without saying that it starts again (two
    launches into one folder), the curve shows the newest pass, while the counts and extremes are
    over everything that the files hold, as TensorBoard counts."""

    def __init__(self) -> None:
        self.series = Series()
        self.series.whole = False
        self.recent: deque[tuple[float, float]] = deque(maxlen=RECENT_POINTS)
        """Step and Unix time of the newest points, all of one session."""
        self._session: object = None
        self._superseded = 0
        self._superseded_non_finite = 0
        self._superseded_from: float | None = None
        self._minimum: float | None = None
        self._maximum: float | None = None

    def add(self, step: float, value: float, time_s: float, session: object = None) -> None:
        if session is not self._session:
            # The night between two launches is no step that took long.
            self._session = session
            self.recent.clear()
        last = self.series.last_step
        if last is not None and step < last:
            self._supersede(step)
        self.series.add(step, value)
        self.recent.append((step, time_s))

    def purge(self, step: float) -> None:
        """Forget `step` and all later ones: the writer starts again there."""
        self.series.rewind(step, keep_equal=False)
        self.recent.clear()
        if self._superseded_from is not None and step <= self._superseded_from:
            self._superseded = self._superseded_non_finite = 0
            self._superseded_from = self._minimum = self._maximum = None

    def _supersede(self, step: float) -> None:
        series = self.series
        count, non_finite = series.count, series.non_finite
        self._minimum = _either(min, self._minimum, series.minimum)
        self._maximum = _either(max, self._maximum, series.maximum)
        series.rewind(step, keep_equal=False)
        self._superseded += count - series.count
        self._superseded_non_finite += non_finite - series.non_finite
        self._superseded_from = step if self._superseded_from is None else min(step, self._superseded_from)
        self.recent.clear()

    def summary(self) -> MetricSummary:
        series = self.series
        return MetricSummary(
            series.last,
            series.last_step,
            series.count + self._superseded,
            _either(min, self._minimum, series.minimum),
            _either(max, self._maximum, series.maximum),
            series.non_finite + self._superseded_non_finite,
        )


class Scalars:
    """By tag, in the order of first appearance; at most MOST_NAMES tags."""

    def __init__(self) -> None:
        self.tags: dict[str, TagSeries] = {}
        self.names_left_out = 0
        self._left_out: set[str] = set()

    def add_all(self, scalars: Iterable[Scalar], *, steps_back_purge: bool = False, session: object = None) -> None:
        """`steps_back_purge`: the files are of version 1, where an earlier step of a tag is a restart.
        `session` is another object for each launch."""
        tags = self.tags
        for tag, step, value, time_s in scalars:
            if tag is None:
                self.purge(step)
                continue
            series = tags.get(tag)
            if series is None:
                if len(tags) >= MOST_NAMES:
                    self._leave_out(tag)
                    continue
                series = tags[tag] = TagSeries()
            elif steps_back_purge and series.series.last_step is not None and step < series.series.last_step:
                series.purge(step)
            series.add(step, value, time_s, session)

    def purge(self, step: float) -> None:
        for series in self.tags.values():
            series.purge(step)
        for tag in [tag for tag, series in self.tags.items() if not series.summary().count]:
            del self.tags[tag]

    @property
    def step(self) -> int | None:
        """The highest last step of any tag."""
        steps = [tag.series.last_step for tag in self.tags.values() if tag.series.last_step is not None]
        return int(max(steps)) if steps else None

    def last(self, tag: str) -> float | None:
        series = self.tags.get(tag)
        return series.series.last if series else None

    def _leave_out(self, tag: str) -> None:
        if len(self._left_out) < MOST_NAMES and tag not in self._left_out:
            self._left_out.add(tag)
            self.names_left_out += 1


def _either(pick: Callable[[float, float], float], first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return pick(first, second)


# CsvTail: the metrics.csv of Lightning's CSVLogger: a row for each logged step, empty cells where a metric was not logged.

METRICS_CSV = "metrics.csv"
NOT_METRICS = frozenset({"", "step", "created_at"})
LONGEST_LINE_BYTES = 1024 * 1024


class CsvTail(ByteTail):
    """New scalars of the file. Rows have no time: `last_time_s` is when the file was last changed, and `times` says
    for the last row of each look that came to the end of the file when it was written. Many rows come at once.

    The logger writes the file anew when a new metric appears; then `resets` counts and all is read again.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._forget()

    def _forget(self) -> None:
        self.refusal: str | None = None
        self.first_time_s: float | None = None
        self.last_time_s: float | None = None
        self._names: list[str] | None = None
        self._half = b""
        self._rows = 0
        self.times: deque[tuple[float, float]] = deque(maxlen=RECENT_POINTS)

    def _restart(self) -> None:
        super()._restart()
        self._forget()

    def read_new(self) -> list[Scalar]:
        data = self.read_bytes()
        if not data or self.refusal:
            return []
        *lines, self._half = (self._half + data).split(b"\n")
        if len(self._half) > LONGEST_LINE_BYTES:
            self.refusal = tr(
                "{path} is not a table of metrics: a line has over {most} bytes.",
                path=self.path,
                most=f"{LONGEST_LINE_BYTES:,}",
            )
            return []
        try:
            rows = list(csv.reader(line.decode("utf-8", "replace").replace("\0", "") for line in lines))
        except csv.Error as error:
            self.refusal = tr("{path} is not a table of metrics: {reason}.", path=self.path, reason=error)
            return []
        scalars = [scalar for row in rows if row for scalar in self._read_row(row)]
        self._note_time(scalars)
        return scalars

    def _read_row(self, row: list[str]) -> list[Scalar]:
        if self._names is None:
            self._names = [name.strip().removeprefix("\ufeff") for name in row]
            return []
        cells = dict(zip(self._names, row, strict=False))
        self._rows += 1
        step = step_of(_number(cells.get("step", "")))
        at = self._rows - 1 if step is None else step
        return [
            (name, at, value, 0.0)
            for name, cell in cells.items()
            if name not in NOT_METRICS and (value := _number(cell)) is not None
        ]

    def _note_time(self, scalars: list[Scalar]) -> None:
        try:
            self.last_time_s = self.path.stat().st_mtime
        except OSError:
            return
        if scalars and not self.behind:
            if self.times and scalars[-1][1] < self.times[-1][0]:
                self.times.clear()
            self.times.append((scalars[-1][1], self.last_time_s))


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
