"""system.jsonl: samples of the machine, small however long a run takes; and what the run holds on its GPUs."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from trainwiz.core.files import append_line, open_file
from trainwiz.core.language import tr
from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.run.folder import PARTIAL, RunFolder
from trainwiz.core.supervise.ties import SideThread
from trainwiz.core.telemetry.machine import Peaks

# SampleFile: system.jsonl, which stays small however long a run takes.
#
# The rule: the newest NEWEST_BYTES are whole, an hour or so at one sample a second. Of what is older, one sample in
# each so many seconds is kept, so that it fits into OLDER_BYTES: of a day one in half a minute, of a month one in a
# quarter of an hour. The file is thinned when it reaches MOST_BYTES, by a new file that takes the old one's place in
# one step: readers see a file that was replaced.

MIB = 1024**2
MOST_BYTES = 12 * MIB
NEWEST_BYTES = 4 * MIB
OLDER_BYTES = 4 * MIB

_TIME = re.compile(rb'"time_s":\s*(-?\d+(?:\.\d+)?)[,}]')


class SampleFile:
    """The only writer of one system.jsonl."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = 0
        """After the last append."""
        self._thin_at_bytes = MOST_BYTES

    def append(self, row: Mapping[str, Any]) -> None:
        """One line. Raises OSError."""
        append_line(self.path, json.dumps(row, separators=(",", ":")).encode())
        self.size_bytes = self.path.stat().st_size

    def thin(self) -> bool:
        """Thin the file out where it is time; whether it was. Raises OSError, and then tries again."""
        if self.size_bytes < self._thin_at_bytes:
            return False
        self._thin_at_bytes = self.size_bytes + MOST_BYTES // 8
        fresh = self.path.with_name(self.path.name + PARTIAL)
        try:
            with open_file(self.path) as source, fresh.open("wb") as target:
                older, spacing_s = list(_samples(source, self.size_bytes - NEWEST_BYTES)), 1.0
                while len(older) > 1 and sum(len(line) for _, line in older) > OLDER_BYTES:
                    # Doubled again and again from one, so that what earlier thinnings kept is kept.
                    spacing_s *= 2
                    first_of = dict[float, tuple[float, bytes]]()
                    for time_s, line in older:
                        first_of.setdefault(time_s // spacing_s, (time_s, line))
                    older = list(first_of.values())
                target.writelines(line for _, line in older)
                shutil.copyfileobj(source, target)
            shutil.copymode(self.path, fresh)
            fresh.replace(self.path)
        finally:
            fresh.unlink(missing_ok=True)
        self.size_bytes, self._thin_at_bytes = self.path.stat().st_size, MOST_BYTES
        return True


def _samples(file: BinaryIO, end: int) -> Iterator[tuple[float, bytes]]:
    """Time and line up to a place in the file; lines that are no samples are left out."""
    while file.tell() < end:
        line = file.readline()
        if found := _TIME.search(line):
            yield float(found[1]), line


# GpuLedger: what the run holds on each GPU, so that after its end one can look whether all of it was given back.

LEAST_BYTES = 256 * 1024**2
"""Below this a card is not one that the run computes on: a CUDA context alone is larger."""
RELEASE_TAKES_AT_MOST_S = 15.0
"""A driver gives the memory of a killed process back after seconds, not at once."""
LEDGER_EVERY_S = 0.5
DRIVER_ANSWERS_WITHIN_S = 10.0
GIB = 1024**3

Verdict = Literal["free", "held", "unclear", "not_checked"]
Sample = Callable[[], tuple[list[dict[str, Any]], dict[str, str]]]
"""GpuSampler.sample."""


@dataclass(frozen=True, slots=True)
class GpuCheck:
    """What a look at the GPUs after the end of a run found."""

    verdict: Verdict
    """free: our processes are gone from the cards, or, where the driver names only those of the machine (in a
    container), the cards hold no more than before the run; unclear: such a card holds more."""
    held_bytes: int
    """What the run held before its end."""
    pids_left: tuple[int, ...] = ()
    reason: str = ""
    """One sentence for every verdict but `free`."""


class GpuLedger:
    """Is told of each line of system.jsonl, in the thread that samples."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._grown: dict[str, int] = {}
        self._ours: dict[str, int] = {}
        self._pids: set[int] = set()

    def note(self, row: Mapping[str, Any]) -> None:
        """One sample. The first one that shows a card is taken for what it held before the run."""
        own = {process["pid"] for process in row.get("processes") or ()}
        for gpu in row.get("gpus") or ():
            uuid, used = gpu.get("uuid"), gpu.get("memory_used_bytes")
            if uuid is None or used is None:
                continue
            ours = _held_by(gpu, own)
            self._pids |= ours.keys()
            grown = used - self._before.setdefault(uuid, used)
            # What was held last is remembered: samples go on for a moment after all is given back.
            for held, size in ((self._ours, sum(ours.values())), (self._grown, grown)):
                if size >= LEAST_BYTES:
                    held[uuid] = size

    def check(self, sample: Sample, *, patience_s: float = RELEASE_TAKES_AT_MOST_S) -> GpuCheck | None:
        """Look until all is given back, `patience_s` at most; None where the run held nothing on any GPU."""
        # By the growth of a card where the driver does not name our processes.
        held, pids = dict(self._ours or self._grown), set(self._pids)
        if not held and not pids:
            return None
        deadline = time.monotonic() + patience_s
        while True:
            found = self._look(sample, held, pids)
            if found.verdict in ("free", "not_checked") or time.monotonic() > deadline:
                return found
            time.sleep(LEDGER_EVERY_S)

    def _look(self, sample: Sample, held: Mapping[str, int], pids: set[int]) -> GpuCheck:
        # Imported here: the keeper has this module loaded all the time, and pynvml only where there is a GPU.
        from trainwiz.core.hardware.nvml import Unreadable, in_time

        total = sum(held.values())
        try:
            gpus, unavailable = in_time(sample, DRIVER_ANSWERS_WITHIN_S)
            problem = unavailable.get("gpus")
        except Unreadable as error:
            gpus, problem = [], error.reason
        if problem is not None:
            reason = tr("The GPUs could not be checked: {reason}.", reason=problem)
            return GpuCheck("not_checked", total, reason=reason)
        left = {pid: size for gpu in gpus for pid, size in _held_by(gpu, pids).items()}
        if left:
            reason = tr(
                "Process {pids} is still listed on a GPU, with {amount} GiB: check it with nvidia-smi.",
                pids=", ".join(map(str, left)),
                amount=f"{sum(left.values()) / GIB:.1f}",
            )
            return GpuCheck("held", total, tuple(left), reason)
        for gpu in [gpu for gpu in gpus if not pids and gpu.get("uuid") in held]:
            more = (gpu.get("memory_used_bytes") or 0) - self._before[gpu["uuid"]]
            if more >= LEAST_BYTES:
                reason = tr(
                    "GPU {index} has {amount} GiB more in use than before the run; the driver does not report which "
                    "process uses it.",
                    index=gpu.get("index"),
                    amount=f"{more / GIB:.1f}",
                )
                return GpuCheck("unclear", total, reason=reason)
        return GpuCheck("free", total)


def _held_by(gpu: Mapping[str, Any], pids: set[int]) -> dict[int, int]:
    """pid -> bytes of the card, of those processes that the driver names."""
    listed = gpu.get("processes") or ()
    return {one["pid"]: one.get("memory_used_bytes") or 0 for one in listed if one["pid"] in pids}


# The recorder: writes system.jsonl, in a thread of its own, so that a hanging driver never delays a stop.

SHARE_OF_A_CORE = 0.005
REMEMBERED_BYTES = 1024**2
"""Of an earlier attempt's samples, so many are read again; `so_far` is written often enough to be among them."""
SO_FAR_EVERY_BYTES = REMEMBERED_BYTES // 4


class Recorder(SideThread):
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
        super().__init__("recorder", "The machine could not be sampled")
        self._stands = stands
        self.run = run
        self.every_s = every_s
        self._listener = listener
        self.ledger = GpuLedger()
        self._file = SampleFile(run.system_jsonl)
        self._so_far = Peaks()
        self._so_far_at_bytes = 0

    def _work(self) -> None:
        from trainwiz.core.telemetry.machine import MachineSampler

        self._try(self._remember)
        machine = MachineSampler(self.run.path, os.getpid())
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            started_wall, started_cpu = time.monotonic(), time.thread_time()
            self._try(lambda: self._write(machine.sample()))
            interval_s = max(self.every_s, (time.thread_time() - started_cpu) / SHARE_OF_A_CORE)
            # Thinning is rare; a pause after it to make up for its cost would be a gap for nothing.
            if self.problem is None:
                self._try(self._thin)
            wait_s = max(0.05, interval_s - (time.monotonic() - started_wall))
        machine.close()

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
