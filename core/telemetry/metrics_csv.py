"""CsvTail: the metrics.csv of Lightning's CSVLogger: a row for each logged step, empty cells where a metric was not logged."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from trainwiz.core.language import tr
from trainwiz.core.telemetry.event_file import Scalar
from trainwiz.core.telemetry.tail import ByteTail

METRICS_CSV = "metrics.csv"
NOT_METRICS = frozenset({"", "step", "created_at"})
LONGEST_LINE_BYTES = 1024 * 1024


class CsvTail(ByteTail):
    """New scalars of the file. Rows have no time: `last_time_s` is when the file was last changed.

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
        self._note_time()
        try:
            rows = list(csv.reader(line.decode("utf-8", "replace").replace("\0", "") for line in lines))
        except csv.Error as error:
            self.refusal = tr("{path} is not a table of metrics: {reason}.", path=self.path, reason=error)
            return []
        rows = [row for row in rows if row]
        # The file was written when its last row was; when the rows before it were, nobody knows.
        return [
            scalar
            for number, row in enumerate(rows, start=1)
            for scalar in self._read_row(row, (self.last_time_s or 0.0) if number == len(rows) else 0.0)
        ]

    def _read_row(self, row: list[str], time_s: float) -> list[Scalar]:
        if self._names is None:
            self._names = [name.strip().removeprefix("\ufeff") for name in row]
            return []
        cells = dict(zip(self._names, row, strict=False))
        step = _number(cells.get("step", ""))
        self._rows += 1
        at = int(step) if step is not None and math.isfinite(step) else self._rows - 1
        return [
            (name, at, value, time_s)
            for name, cell in cells.items()
            if name not in NOT_METRICS and (value := _number(cell)) is not None
        ]

    def _note_time(self) -> None:
        try:
            status = self.path.stat()
        except OSError:
            return
        self.last_time_s = status.st_mtime


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
