"""system.jsonl: samples of the machine, small however long a run takes."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.files import ends_a_line, open_file
from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.run.folder import PARTIAL, RunFolder
from trainwiz.core.supervise.ending import GpuLedger
from trainwiz.core.supervise.order import log
from trainwiz.core.telemetry.peaks import Peaks
from trainwiz.core.telemetry.processes import ProcessSampler

# SampleFile: system.jsonl, which stays small however long a run takes.
#
# The rule: the newest NEWEST_BYTES are whole, an hour or so at one sample a second. Of what is older,
# samples are kept about evenly spread over time, as close together as fits into OLDER_BYTES: of a day
# one in half a minute, of a month one in a quarter of an hour. The file is thinned when it reaches MOST_BYTES, by a
# new file that takes the old one's place in one step: whoever is killed meanwhile, one of the two is
# there as a whole, and readers see a file that was replaced. Each sample carries its time, so that a
# gap can be told from a pause; what a thinned sample knew of peaks is in `so_far` of later ones.

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


# The recorder: writes system.jsonl, in a thread of its own, so that a hanging driver never delays a stop.

SHARE_OF_A_CORE = 0.005
REMEMBERED_BYTES = 1024**2
"""Of an earlier attempt's samples, so many are read again; `so_far` is written often enough to be among them."""
SO_FAR_EVERY_BYTES = REMEMBERED_BYTES // 4


class Recorder:
    """Appends one line every `every_s` seconds; less often where a sample is so dear that it would cost a core."""

    def __init__(
        self,
        run: RunFolder,
        every_s: float,
        listener: Callable[[dict[str, Any]], None] | None = None,
        *,
        stands: Callable[[], bool] = lambda: True,
    ) -> None:
        """`listener` is handed each sample, in the recorder's thread. `stands`: whether the folder is still the run's own."""
        self.run = run
        self.every_s = every_s
        self._listener = listener
        self._stands = stands
        self.ledger = GpuLedger()
        self._file = SampleFile(run.system_jsonl)
        self._so_far = Peaks()
        self._so_far_at_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._record, name="recorder", daemon=True)
        self.problem: str | None = None
        """Why the last line could not be written; None while all is well."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; does not wait for a driver that hangs."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def _record(self) -> None:
        from trainwiz.core.telemetry.machine import MachineSampler

        self._report(self._try(self._remember))
        machine = MachineSampler(self.run.path)
        processes = ProcessSampler(os.getpid())
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            started_wall, started_cpu = time.monotonic(), time.thread_time()
            problem = self._try(lambda: self._write(machine.sample(processes.sample())))
            interval_s = max(self.every_s, (time.thread_time() - started_cpu) / SHARE_OF_A_CORE)
            # Thinning is rare; a pause after it to make up for its cost would be a gap for nothing.
            self._report(problem or self._try(self._thin))
            wait_s = max(0.05, interval_s - (time.monotonic() - started_wall))
        machine.close()

    @staticmethod
    def _try(step: Callable[[], object]) -> str | None:
        """Why it did not work, in a sentence: a sensor must never end a run."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next sample may work
            return f"The machine could not be sampled: {type(error).__name__}: {error}"
        return None

    def _report(self, problem: str | None) -> None:
        if problem is not None and problem != self.problem:
            log(problem)
        self.problem = problem

    def _remember(self) -> None:
        """What earlier attempts saw, so that the peaks are those of the run."""
        for row in JsonLinesTail(self.run.system_jsonl, window_bytes=REMEMBERED_BYTES).read_new():
            self._so_far.add(row)

    def _write(self, row: dict[str, Any]) -> None:
        self._so_far.add(row)
        self.ledger.note(row)
        if self._file.size_bytes >= self._so_far_at_bytes:
            row["so_far"] = self._so_far.to_json()
        if self._listener is not None:
            # Also where the disk is full: those who watch it are the ones to know.
            self._listener(row)
        if not self._stands():
            return
        self._file.append(row)
        if "so_far" in row:
            self._so_far_at_bytes = self._file.size_bytes + SO_FAR_EVERY_BYTES

    def _thin(self) -> None:
        if self._stands() and self._file.thin():
            self._so_far_at_bytes = self._file.size_bytes
