"""Every case by formulas, by layers and in full.

Goes on where it stopped: traces are kept in the user's cache folder.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainwiz.core.estimate.memory import estimate_evaluation, estimate_memory
from trainwiz.core.estimate.traced import Evidence
from trainwiz.core.tracing.request import TraceProblem, TraceRequest, TraceResult
from trainwiz.core.tracing.worker import TraceWorker

from tools.benchmarks.tier_settings import Case

WORKERS = max(1, min(4, (os.cpu_count() or 2) // 2))


@dataclass(frozen=True)
class Row:
    """Bytes by each tier; None where the tier has no answer, with the reason in `problem`."""

    case: Case
    moment: str
    """ "training" or "evaluation"."""
    analytic: int
    layers: int | None
    full: int | None
    problem: str = ""

    def error(self, tier: str) -> float | None:
        """Relative to the full trace."""
        value = getattr(self, tier)
        return None if value is None or not self.full else value / self.full - 1


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
    answers = {tier: worker.ask(request, tier, 300) for tier in ("layers", "full")}  # type: ignore[arg-type]
    problems = "; ".join(
        f"{tier}: {answer.code}: {answer.message}"
        for tier, answer in answers.items()
        if isinstance(answer, TraceProblem)
    )
    traces = {tier: answer for tier, answer in answers.items() if isinstance(answer, TraceResult)}
    evidence = {tier: Evidence(traces={request: trace}) for tier, trace in traces.items()}
    rows = []
    for moment, estimate in (("training", estimate_memory), ("evaluation", estimate_evaluation)):
        analytic = estimate(case.work)
        better = {tier: estimate(case.work, known) for tier, known in evidence.items()}
        if analytic is None:
            continue
        sizes = {
            tier: one.allocated_bytes if one is not None and one.tier == "traced" else None
            for tier, one in better.items()
        }
        rows.append(Row(case, moment, analytic.allocated_bytes, sizes.get("layers"), sizes.get("full"), problems))
    return rows
