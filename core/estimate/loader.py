"""How many loader workers hide the loading: from the time of making a micro-batch and that of computing one."""

from __future__ import annotations

import math

SPARE = 1.1
"""Workers are counted so much too slow: batches differ, and a number that is just enough is none."""
WORTH_SHARE = 0.05
"""Of a step: less waiting than this is not worth a process."""


def loading_ratio(step_s: float, wait_s: float, workers: int) -> float:
    """Seconds of loading by one process for a second of computing, where a step took `step_s`, `wait_s` of it without
    a batch.

    A training that waits has loaders that never rest: `workers` of them spent `step_s` each on a step's batches, or the
    process itself spent `wait_s` where there are none.
    """
    computing_s = max(step_s - wait_s, 1e-3 * step_s, 1e-9)
    return (step_s * workers if workers else wait_s) / computing_s


def workers_for(ratio: float) -> int:
    """As many as load what is computed meanwhile, which takes one of them `ratio` times as long."""
    return math.ceil(SPARE * ratio - 1e-9)
