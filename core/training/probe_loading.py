"""The time in which one process makes one micro-batch: reads, cuts, masks and pads its rows."""

from __future__ import annotations

import time
from itertools import islice

from trainwiz.core.launch.probe_order import ProbeOrder
from trainwiz.core.training.parts import TaskParts
from trainwiz.core.training.probe_rows import GeneratedRows
from trainwiz.core.training.probe_trainer import Answers

MOST_S = 2.0
"""Of the probe's time."""


def say_loading(
    parts: TaskParts, micro_batch: int, rounds: int, processes: int, order: ProbeOrder, answers: Answers
) -> None:
    """`micro_batch`: what fitted, which may be less than ordered. `rounds`: micro-batches of each process in a step of the
    probe, whose rows are those of the first steps.

    Nothing is said of generated rows, which cost what no data does. A loader worker does the same work on one core;
    it is measured after the steps, when nothing else of the probe wants the cores.
    """
    if isinstance(parts.train, GeneratedRows):
        return
    collate = parts.train_collate or parts.collate
    ends_s = min(time.monotonic() + MOST_S, order.ends_s)
    keys, spent, made = iter(parts.sampler), 0.0, 0
    for number in range(1 + 2 * rounds):
        of_round = list(islice(keys, micro_batch * processes))[:micro_batch]
        if len(of_round) < micro_batch or time.monotonic() > ends_s:
            break
        start = time.perf_counter()
        collate([parts.train[key] for key in of_round])
        if number:
            # The first one makes what is made once, such as a tokenizer's caches.
            spent, made = spent + time.perf_counter() - start, made + 1
    if made:
        answers.say("loading", seconds=spent / made)
