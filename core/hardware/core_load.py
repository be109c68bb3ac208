"""CoreLoad: whether other processes want the cores that this process may use."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from trainwiz.core.hardware.cgroup import cpu_groups, cpu_used_s
from trainwiz.core.hardware.host import own_cores

BUSY = ("user", "nice", "system", "irq", "softirq")
"""Of psutil's times. A guest's are in the user's, and what a hypervisor took is nobody's here."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Cores that this process shares with others: those of its affinity, or the quota of a cgroup."""

    cores: float
    used_s: Callable[[], float | None]
    """Processor seconds that all processes within took so far, this one's included; None: nobody says."""


class CoreLoad:
    """What others take of some bounds, from one look to the next."""

    def __init__(
        self,
        bounds: Sequence[Bound],
        own_s: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bounds = tuple(bounds)
        self._own_s = own_s
        self._clock = clock
        self._before = self._look()

    def missing(self, threads: int) -> float:
        """Cores that are too few for `threads` of this process beside what others took since the last look.

        Below zero: so many are free. The tightest bound counts; infinite where a bound says nothing.
        """
        (before_s, own_before_s, used_before), self._before = self._before, self._look()
        now_s, own_s, used = self._before
        elapsed_s, own_s = max(now_s - before_s, 1e-3), own_s - own_before_s
        found = []
        for bound, first, last in zip(self._bounds, used_before, used, strict=True):
            if first is None or last is None:
                return math.inf
            found.append(max(0.0, (last - first - own_s) / elapsed_s) + threads - bound.cores)
        return max(found)

    def _look(self) -> tuple[float, float, list[float | None]]:
        return self._clock(), self._own_s(), [bound.used_s() for bound in self._bounds]


def bounds_of_this_process(root: Path = Path("/")) -> list[Bound]:
    """The cores of its affinity, and the quota of each cgroup that has one. `root` holds proc/ and sys/."""
    cores = own_cores()
    quotas = [Bound(quota, partial(cpu_used_s, group)) for group, quota in cpu_groups(root)]
    return [Bound(len(cores), partial(_busy_s, cores)), *quotas]


def _busy_s(cores: Sequence[int]) -> float | None:
    try:
        every = psutil.cpu_times(percpu=True)
    except (OSError, psutil.Error, RuntimeError):  # Some containers hide /proc/stat.
        return None
    # A container may be shown fewer CPUs than its affinity has numbers for.
    shown = [every[core] for core in cores if core < len(every)]
    named = shown if len(shown) == len(cores) else every
    busy_s = sum(getattr(times, name, 0.0) for times in named for name in BUSY)
    # Nothing at all is what a sandbox shows that counts nothing.
    return float(busy_s) or None
