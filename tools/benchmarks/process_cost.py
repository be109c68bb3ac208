"""What a set of processes costs: seconds on the CPU to the nanosecond, memory as the kernel divides it. Linux only."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.telemetry.processes import tree_of

from tests.fakes.marked import marked_pids

KIB = 1024


@dataclass(frozen=True)
class Memory:
    """Of several processes together, in bytes."""

    pss: int
    """Each page divided by the number of processes that hold it: those of the set are counted once."""
    uss: int
    """Pages that no other process holds, whether of the set or not."""
    rss: int
    """Every page in every process that holds it: more than there is."""


class OwnProcesses:
    """The processes of a run that are not its training: what carries its mark and never was in the launcher's tree."""

    def __init__(self, mark: str, launcher: int) -> None:
        self._mark = mark
        self._launcher = launcher
        self._training: set[int] = set()

    def now(self) -> list[int]:
        """The pids that live."""
        # A rank that outlives its launcher becomes a child of the keeper and stays the training's.
        self._training |= {member.pid for member in tree_of(self._launcher)}
        return [pid for pid in marked_pids(self._mark) if pid not in self._training]


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """pid -> user and system seconds so far, of ended threads and collected children too; without those that are gone."""
    spent: dict[int, float] = {}
    for pid in pids:
        try:
            # MAKE_PROCESS_CPUCLOCK of linux/posix-timers.h with CPUCLOCK_SCHED.
            spent[pid] = time.clock_gettime((~pid << 3) | 2) + _of_children(pid)
        except OSError:
            continue
    return spent


def _of_children(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def memory_of(pids: Collection[int]) -> Memory:
    """Those that are gone count nothing."""
    totals = dict.fromkeys(("Pss", "Rss", "Private_Clean", "Private_Dirty"), 0)
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            name, _, rest = line.partition(":")
            if name in totals:
                totals[name] += int(rest.split()[0]) * KIB
    return Memory(totals["Pss"], totals["Private_Clean"] + totals["Private_Dirty"], totals["Rss"])
