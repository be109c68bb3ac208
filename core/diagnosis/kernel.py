"""What the kernel says about memory and cards: its control group's counter and its log, where they may be read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from trainwiz.core.diagnosis.evidence import KernelFacts
from trainwiz.core.run.processid import boot_time_s

KMSG = Path("/dev/kmsg")
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
MOST_RECORDS = 100_000
MOST_LINES = 5
AFTER_THE_END_S = 10.0
"""The launcher ends a little after the process that the kernel killed, or before its line is written."""

_RECORD = re.compile(r"^\d+,\d+,(\d+),[^;]*;(.*)$")
_MEMORY = re.compile(r"out of memory: killed process \d+ \((?:python|pt_|torch|train|ray)", re.IGNORECASE)
_CARD = re.compile(r"NVRM: Xid.{0,60}: (?:79|48|94|95|119|120)\b|GPU has fallen off the bus", re.IGNORECASE)


def kernel_facts(since_s: float | None, until_s: float | None, oom_kills: int | None = None) -> KernelFacts:
    """What happened between two Unix times. `oom_kills` is what the control group counted in between, where known."""
    lines = read_kmsg() if since_s is not None else None
    end_s = None if until_s is None else until_s + AFTER_THE_END_S
    inside = [text for when_s, text in lines or () if when_s >= (since_s or 0.0) and (end_s is None or when_s <= end_s)]
    return KernelFacts(
        told=oom_kills is not None or lines is not None,
        oom_kills=max(oom_kills or 0, 0),
        lines=tuple(text for text in inside if _MEMORY.search(text))[-MOST_LINES:],
        card_lines=tuple(text for text in inside if _CARD.search(text))[:MOST_LINES],
    )


def read_kmsg(path: Path = KMSG) -> list[tuple[float, str]] | None:
    """(Unix time, text) of the records of the kernel's log; None where it may not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    records: list[str] = []
    try:
        for _ in range(MOST_RECORDS):
            try:
                # One call is one record; the next one would block where there is none.
                record = os.read(descriptor, 8192)
            except BrokenPipeError:
                continue
            except OSError:
                break
            if not record:
                break
            records += record.decode("utf-8", "replace").splitlines()
    finally:
        os.close(descriptor)
    return parse_kmsg(records, boot_time_s())


def parse_kmsg(records: Iterable[str], booted_s: float) -> list[tuple[float, str]]:
    """Records as /dev/kmsg has them: "priority,sequence,microseconds since the start,flags;text"."""
    found = [_RECORD.match(record) for record in records]
    return [(booted_s + int(one[1]) / 1e6, one[2]) for one in found if one]


def kernel_oom_kills() -> int:
    """Processes that the kernel has killed for memory in this control group so far; 0 where it does not tell."""
    return counted_oom_kills() or 0


def counted_oom_kills() -> int | None:
    """The same; None where it does not tell.

    cgroup v2: memory.events, key oom_kill (https://docs.kernel.org/admin-guide/cgroup-v2.html).
    cgroup v1: memory.oom_control, the same key.
    """
    try:
        groups = OWN_CGROUP.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for group in groups:
        _, _, place = group.partition(":")
        controllers, _, path = place.partition(":")
        if not controllers:
            counted = _counted(CGROUPS / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            counted = _counted(CGROUPS / "memory" / path.lstrip("/") / "memory.oom_control")
        else:
            continue
        if counted is not None:
            return counted
    return None


def _counted(file: Path) -> int | None:
    try:
        lines = file.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    except (OSError, ValueError, IndexError, StopIteration, UnicodeDecodeError):
        return None
