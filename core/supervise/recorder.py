"""system.jsonl: samples of the machine, small however long a run takes; and what the run holds on its GPUs."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from trainwiz.core.files import append_line, open_file
from trainwiz.core.language import tr
from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.run.folder import PARTIAL, RunFolder
from trainwiz.core.supervise.ties import SideWork
from trainwiz.core.telemetry.machine import Peaks, gpu_key, job_memory, pids_of

# system.jsonl, which stays small however long a run takes.
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


def append_sample(path: Path, row: Mapping[str, Any]) -> None:
    """One line, by the only writer of the file. Raises OSError; a file that could not be thinned out is with the next."""
    append_line(path, json.dumps(row, separators=(",", ":")).encode())
    size = path.stat().st_size
    if size < MOST_BYTES:
        return
    fresh = path.with_name(path.name + PARTIAL)
    try:
        with open_file(path) as source, fresh.open("wb") as target:
            older, spacing_s = list(_samples(source, size - NEWEST_BYTES)), 1.0
            while len(older) > 1 and sum(len(line) for _, line in older) > OLDER_BYTES:
                # Doubled again and again from one, so that what earlier thinnings kept is kept.
                spacing_s *= 2
                first_of = dict[float, tuple[float, bytes]]()
                for time_s, line in older:
                    first_of.setdefault(time_s // spacing_s, (time_s, line))
                older = list(first_of.values())
            target.writelines(line for _, line in older)
            shutil.copyfileobj(source, target)
        shutil.copymode(path, fresh)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


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

Verdict = Literal["free", "held", "not_checked"]
Sample = Callable[[], tuple[list[dict[str, Any]], dict[str, str]]]
"""GpuSampler.sample."""


@dataclass(frozen=True, slots=True)
class GpuCheck:
    """What a look at the GPUs after the end of a run found."""

    verdict: Verdict
    """free: our processes are gone from the cards, or, where the driver names only those of the machine (in a
    container), the cards hold no more than before the run; held: one holds more."""
    held_bytes: int
    """What the run held before its end."""
    pids_left: tuple[int, ...] = ()
    reason: str = ""
    """One sentence for every verdict but `free`."""


class GpuLedger:
    """Is told of each line of system.jsonl, in the thread that samples."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._held: dict[str, int] = {}
        """By card, what the run was seen to hold last: samples go on for a moment after all is given back."""
        self._pids: set[int] = set()
        """Its processes that the driver names; none in a container."""

    def note(self, row: Mapping[str, Any]) -> None:
        """One sample. The first one that shows a card is taken for what it held before the run."""
        own = pids_of(row.get("processes") or ())
        for gpu in row.get("gpus") or ():
            if gpu.get("memory_used_bytes") is None:
                continue
            named = own & pids_of(gpu.get("processes") or ())
            if named and not self._pids:
                # Until now it went by growth, which may have been another's.
                self._held.clear()
            self._pids |= named
            self._before.setdefault(gpu_key(gpu), gpu["memory_used_bytes"])
            if (held := self._of_run(gpu)) >= LEAST_BYTES:
                self._held[gpu_key(gpu)] = held

    def _of_run(self, gpu: Mapping[str, Any]) -> int:
        """Bytes of the card that its processes hold, or by which it has grown where the driver does not name them."""
        if self._pids:
            return job_memory(gpu, self._pids) or 0
        return (gpu.get("memory_used_bytes") or 0) - self._before.get(gpu_key(gpu), 0)

    def check(self, sample: Sample, *, patience_s: float = RELEASE_TAKES_AT_MOST_S) -> GpuCheck | None:
        """Look until all is given back, `patience_s` at most; None where the run held nothing on any GPU."""
        held = dict(self._held)
        deadline = time.monotonic() + patience_s
        while held:
            found = self._look(sample, held)
            if found.verdict != "held" or time.monotonic() > deadline:
                return found
            time.sleep(LEDGER_EVERY_S)
        return None

    def _look(self, sample: Sample, held: Mapping[str, int]) -> GpuCheck:
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
        for gpu in gpus:
            left = self._of_run(gpu)
            if gpu_key(gpu) in held and left >= LEAST_BYTES:
                reason = tr(
                    "GPU {index} still has {amount} GiB in use that it did not have before the run: check it with "
                    "nvidia-smi.",
                    index=gpu.get("index"),
                    amount=f"{left / GIB:.1f}",
                )
                listed = self._pids & pids_of(gpu.get("processes") or ())
                return GpuCheck("held", total, tuple(listed), reason)
        return GpuCheck("free", total)


# The recorder: writes system.jsonl, in a thread of its own, so that a hanging driver never delays a stop.

SHARE_OF_A_CORE = 0.005
REMEMBERED_BYTES = 64 * 1024
"""Of the samples of an earlier attempt: each has the peaks of those before it."""


class Recorder(SideWork):
    """Appends one line every `every_s` seconds; less often where a sample is so dear that it would cost a core."""

    def __init__(
        self,
        run: RunFolder,
        every_s: float,
        listener: Callable[[dict[str, Any]], None] = lambda row: None,
        *,
        stands: Callable[[], bool] = lambda: True,
    ) -> None:
        """`listener` is handed each sample, in the recorder's thread. `stands`: whether the folder is still the run's own."""
        super().__init__("The machine could not be sampled")
        self.run = run
        self.every_s = every_s
        self.ledger = GpuLedger()
        self._listener = listener
        self._stands = stands
        self._so_far = Peaks()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)

    def start(self) -> None:
        """A system that gives no more threads is not sampled; the run goes on."""
        self._try(self._thread.start)

    def stop(self) -> None:
        """Ends the thread; does not wait for a driver or a disk that hangs."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def _work(self) -> None:
        from trainwiz.core.telemetry.machine import MachineSampler

        # What earlier attempts saw, so that the peaks are those of the run.
        for row in JsonLinesTail(self.run.system_jsonl, window_bytes=REMEMBERED_BYTES).read_new():
            self._so_far.add(row)
        machine = MachineSampler(self.run.path, os.getpid())
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            started_wall, started_cpu = time.monotonic(), time.thread_time()
            self._try(lambda: self._write(machine.sample()))
            interval_s = max(self.every_s, (time.thread_time() - started_cpu) / SHARE_OF_A_CORE)
            wait_s = max(0.05, interval_s - (time.monotonic() - started_wall))
        machine.close()

    def _write(self, row: dict[str, Any]) -> None:
        self._so_far.add(row)
        row["so_far"] = self._so_far.to_json()
        self.ledger.note(row)
        # Also where the disk is full: those who watch it are the ones to know.
        self._listener(row)
        if self._stands():
            append_sample(self.run.system_jsonl, row)
