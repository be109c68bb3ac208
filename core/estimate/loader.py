"""How many loader workers hide the loading: from the time of making a micro-batch and that of computing one."""

from __future__ import annotations

import math

SPARE = 1.1
"""Workers are counted so much too slow: batches differ, and a number that is just enough is none."""
USUAL_PREFETCH = 2
"""Batches that each worker keeps ready, where nothing asks for more; torch's own number too."""
MOST_PREFETCH = 256
MOST_SHARED = 64
"""Batches that are not pinned wait in /dev/shm, of which a container has 64 MiB, each with some open files."""
WORTH_SHARE = 0.05
"""Of a step: less waiting than this is not worth a process."""


def loading_ratio(
    step_s: float, wait_s: float, workers: int, batches: int = 1, prefetch: int = USUAL_PREFETCH
) -> float:
    """Seconds of loading by one process for a second of computing, where a step took `step_s`, `wait_s` of it without
    a batch.

    A training that waits has loaders that never rest: `workers` of them spent `step_s` each on a step's batches, or the
    process itself spent `wait_s` where there are none. But a step takes all its `batches` (micro-batches) at once: where
    more than `workers` x `prefetch` can be ready, the rest is made while it waits, and the workers may rest after.
    """
    computing_s = max(step_s - wait_s, 1e-3 * step_s, 1e-9)
    if not workers:
        return wait_s / computing_s
    loading_s, late = step_s * workers, late_batches(workers, batches, prefetch)
    return (min(loading_s, wait_s * workers * batches / late) if late else loading_s) / computing_s


def late_batches(workers: int, batches: int, prefetch: int) -> int:
    """Of the micro-batches of a step, those that cannot be ready when it begins."""
    return max(0, batches - workers * prefetch)


def most_prefetch(workers: int, *, pinned: bool) -> int:
    """Batches that each of `workers` may keep ready."""
    return MOST_PREFETCH if pinned else MOST_SHARED // max(1, workers)


def workers_for(ratio: float) -> int:
    """As many as load what is computed meanwhile, which takes one of them `ratio` times as long."""
    return math.ceil(SPARE * ratio - 1e-9)
