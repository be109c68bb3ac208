"""Every case by formulas, by layers and in full, as a table: python -m tools.benchmarks.tier_sweep [--quick] [MODEL ...]

Goes on where it stopped: traces are kept in the user's cache folder.
"""

from __future__ import annotations

import csv
import os
import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainwiz.core.estimate.memory import estimate_evaluation, estimate_memory
from trainwiz.core.estimate.traced import Evidence
from trainwiz.core.tracing.request import TraceProblem, TraceRequest, TraceResult
from trainwiz.core.tracing.worker import TraceWorker

from tools.benchmarks.tier_settings import Case, cases

MIB = 2**20
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
    analytic_peak: str = ""
    layers_peak: str = ""
    full_peak: str = ""
    seconds: float = 0.0
    """Of the full trace."""
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
    seconds = traces["full"].seconds if "full" in traces else 0.0
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
        peaks = {tier: one.peak_moment if one is not None else "" for tier, one in better.items()}
        rows.append(
            Row(
                case, moment, analytic.allocated_bytes, sizes.get("layers"), sizes.get("full"),
                analytic.peak_moment, peaks.get("layers", ""), peaks.get("full", ""), seconds, problems,
            )
        )  # fmt: skip
    return rows


def main(arguments: list[str]) -> None:
    names = [name for name in arguments if not name.startswith("-")]
    chosen = [case for case in cases(quick="--quick" in arguments) if not names or case.model in names]
    table = csv.writer(sys.stdout)
    table.writerow(
        [
            "model",
            "setting",
            "moment",
            "vocabulary",
            "analytic_mib",
            "layers_mib",
            "full_mib",
            "analytic_error",
            "layers_error",
            "analytic_peak",
            "layers_peak",
            "full_peak",
            "full_s",
            "problem",
        ]
    )
    for row in sweep(chosen):
        sizes = [None if size is None else round(size / MIB, 1) for size in (row.analytic, row.layers, row.full)]
        errors = [None if error is None else round(error, 4) for error in (row.error("analytic"), row.error("layers"))]
        vocabulary = row.case.work.architecture.vocabulary
        peaks = [row.analytic_peak, row.layers_peak, row.full_peak]
        table.writerow(
            [
                row.case.model,
                row.case.setting,
                row.moment,
                vocabulary,
                *sizes,
                *errors,
                *peaks,
                round(row.seconds, 2),
                row.problem,
            ]
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
