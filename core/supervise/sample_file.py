"""SampleFile: system.jsonl, which stays small however long a run takes.

The rule: the newest NEWEST_BYTES are whole, an hour or so at one sample a second. Of what is older,
samples are kept about evenly spread over time, as close together as fits into OLDER_BYTES: of a day
one in half a minute, of a month one in a quarter of an hour. The file is thinned when it reaches MOST_BYTES, by a
new file that takes the old one's place in one step: whoever is killed meanwhile, one of the two is
there as a whole, and readers see a file that was replaced. Each sample carries its time, so that a
gap can be told from a pause; what a thinned sample knew of peaks is in `so_far` of later ones.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.run.folder import PARTIAL
from trainwiz.core.small_file import open_file

MIB = 1024**2
MOST_BYTES = 12 * MIB
NEWEST_BYTES = 4 * MIB
OLDER_BYTES = 4 * MIB

_TIME = re.compile(rb'"time_s":\s*(-?[0-9.eE+-]+)')


class SampleFile:
    """The only writer of one system.jsonl."""

    def __init__(
        self,
        path: Path,
        *,
        most_bytes: int = MOST_BYTES,
        newest_bytes: int = NEWEST_BYTES,
        older_bytes: int = OLDER_BYTES,
    ) -> None:
        self.path = path
        self.size_bytes = 0
        """After the last append."""
        self._most_bytes = most_bytes
        self._newest_bytes = newest_bytes
        self._older_bytes = older_bytes
        self._thin_at_bytes = most_bytes
        self._whole_line = False

    def append(self, row: Mapping[str, Any]) -> None:
        """One line. Raises OSError."""
        line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        with self.path.open("ab") as file:
            if not self._whole_line and not ends_a_line(self.path):
                # A keeper that was killed while it wrote left half a line: the new one is not its end.
                line = b"\n" + line
            self._whole_line = False
            file.write(line)
            self.size_bytes = file.tell()
        self._whole_line = True

    def thin(self) -> bool:
        """Thin the file out where it is time; whether it was. Raises OSError, and then tries again later."""
        if self.size_bytes < self._thin_at_bytes:
            return False
        self._thin_at_bytes = self.size_bytes + self._most_bytes // 8
        fresh = self.path.with_name(self.path.name + PARTIAL)
        try:
            self._write_thinned(fresh)
            fresh.replace(self.path)
        finally:
            fresh.unlink(missing_ok=True)
        self.size_bytes = self.path.stat().st_size
        self._thin_at_bytes = max(self._most_bytes, self.size_bytes + self._most_bytes // 8)
        return True

    def _write_thinned(self, fresh: Path) -> None:
        older_end = self.size_bytes - self._newest_bytes
        spacing_s = _spacing(self._older_samples(older_end), self._older_bytes)
        with open_file(self.path) as source, fresh.open("wb") as target:
            shutil.copymode(self.path, fresh)
            last_s: float | None = None
            while source.tell() < older_end:
                line = source.readline()
                time_s = _time_of(line)
                if time_s is not None and _far_enough(last_s, time_s, spacing_s):
                    target.write(line)
                    last_s = time_s
            shutil.copyfileobj(source, target)
            target.flush()
            os.fsync(target.fileno())

    def _older_samples(self, end: int) -> list[tuple[float, int]]:
        """(time, length) of the lines that begin before `end`; a line without a time is none."""
        return [(time_s, size) for time_s, size in self._lines_before(end) if time_s is not None]

    def _lines_before(self, end: int) -> Iterator[tuple[float | None, int]]:
        with open_file(self.path) as file:
            while file.tell() < end:
                line = file.readline()
                yield _time_of(line), len(line)


def ends_a_line(path: Path) -> bool:
    """True for an empty file too."""
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return True
        file.seek(size - 1)
        return file.read(1) == b"\n"


def _time_of(line: bytes) -> float | None:
    """None of a line that is no sample."""
    found = _TIME.search(line)
    try:
        return float(found.group(1)) if found and line.endswith(b"\n") else None
    except ValueError:
        return None


def _far_enough(last_s: float | None, time_s: float, spacing_s: float) -> bool:
    """Where the clock was set back, a new count begins."""
    return last_s is None or time_s < last_s or time_s - last_s >= spacing_s


def _spacing(samples: list[tuple[float, int]], most_bytes: int) -> float:
    """The least of 1, 2, 4, ... seconds at which the samples fit. Doubling keeps what earlier thinnings kept."""
    spacing_s = 1.0
    while True:
        kept, last_s = 0, None
        for time_s, size in samples:
            if _far_enough(last_s, time_s, spacing_s):
                kept += size
                last_s = time_s
        if kept <= most_bytes or spacing_s > 1e9:
            return spacing_s
        spacing_s *= 2
