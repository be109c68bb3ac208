"""Every case by formulas and traced.

Goes on where it stopped: traces are kept in the user's cache folder.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainwiz.core.estimate.evidence import NO_EVIDENCE, Evidence
from trainwiz.core.estimate.memory import estimate_evaluation, estimate_memory
from trainwiz.core.tracing.request import TraceProblem, TraceRequest
from trainwiz.core.tracing.worker import TraceWorker

from tools.benchmarks.tier_settings import Case

WORKERS = max(1, min(4, (os.cpu_count() or 2) // 2))


@dataclass(frozen=True)
class Row:
    """Bytes by each tier; None without a trace, with the reason in `problem`."""

    case: Case
    moment: str
    """ "training" or "evaluation"."""
    analytic: int
    full: int | None
    problem: str = ""

    @property
    def error(self) -> float | None:
        """Of the formulas, relative to the trace."""
        return self.analytic / self.full - 1 if self.full else None


def sweep(chosen: Iterable[Case]) -> Iterator[Row]:
    """In any order: several workers trace at once."""
    waiting: queue.SimpleQueue[Case | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[list[Row] | None] = queue.SimpleQueue()
    for case in chosen:
        waiting.put(case)
    for _ in range(WORKERS):
        waiting.put(None)

    def work() -> None:
        with TraceWorker() as worker:
            while (case := waiting.get()) is not None:
                done.put(rows_of(case, worker))
        done.put(None)

    for _ in range(WORKERS):
        threading.Thread(target=work, daemon=True).start()
    ended = 0
    while ended < WORKERS:
        rows = done.get()
        if rows is None:
            ended += 1
        else:
            yield from rows


def rows_of(case: Case, worker: TraceWorker) -> list[Row]:
    request = TraceRequest.of(case.work)
    assert request is not None
    answer = worker.ask(request, 300)
    problem = f"{answer.code}: {answer.message}" if isinstance(answer, TraceProblem) else ""
    known = NO_EVIDENCE if isinstance(answer, TraceProblem) else Evidence(traces={request: answer})
    rows = []
    for moment, estimate in (("training", estimate_memory), ("evaluation", estimate_evaluation)):
        analytic, better = estimate(case.work), estimate(case.work, known)
        if analytic is not None:
            full = better.allocated_bytes if better is not None and better.tier == "traced" else None
            rows.append(Row(case, moment, analytic.allocated_bytes, full, problem))
    return rows
