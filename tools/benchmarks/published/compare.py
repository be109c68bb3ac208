"""Each published row beside what the product says of it: with its defaults, with the settings of the run as a user can
state them, and with the code that was measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainwiz.core.estimate.evidence import NO_EVIDENCE, Evidence
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.memory import (
    APPROXIMATE_SPREAD,
    FORMULA_SPREAD,
    FULL_TRACE_SPREAD,
    MemoryEstimate,
    estimate_memory,
)
from trainwiz.core.estimate.peak import overheads
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.tracing.request import TraceProblem, TraceRequest
from trainwiz.core.tracing.worker import TraceWorker

from tools.benchmarks.published.measured_code import OF_ROWS, PAGE_CONTEXT_MIB, trace_as_measured
from tools.benchmarks.published.rivals import ModelSizes, Rivals, rivals_of, sizes_of
from tools.benchmarks.published.rows import PublishedRow

TIMEOUT_S = 300.0
"""Of a full trace: more than a plan waits, for this machine may be busy."""
MIB = 2**20
PAGE_CONTEXT = PAGE_CONTEXT_MIB * MIB
PAGE_ROWS = ("T1", "T2", "T3", "T4", "T5", "T7")
"""Their page states the context of its card: `--context 1343M`."""
OWN_ACTIVATION = {"T14a": "gelu_pytorch_tanh", "T14b": "gelu_pytorch_tanh"}
"""Rows whose model is litgpt's own: its activation as the config's key, `model.architecture_overrides.hidden_act`. The
page does not state it, the code of its model does (measured_code.py)."""


@dataclass(frozen=True)
class Figure:
    """One figure of an estimate with its interval, in bytes."""

    point: int
    low: int
    high: int

    def error(self, row: PublishedRow) -> float:
        """Relative to what was measured; where the page does not say which G it means, to the nearer one."""
        errors = [self.point / size - 1 for size in _readings(row)]
        return min(errors, key=abs)

    def holds(self, row: PublishedRow) -> bool:
        return any(self.low <= size <= self.high for size in _readings(row))


@dataclass(frozen=True)
class Comparison:
    """One row. `today` is what the product says; `as_measured` the same trace with the code that ran, where it differed."""

    row: PublishedRow
    today: Figure
    tier: str
    basis: str
    analytic: Figure
    rivals: Rivals
    stated: Figure | None = None
    """The same with what a user can state of the run beyond the row: its context, its activation. None where there is nothing."""
    as_measured: Figure | None = None
    changes: tuple[str, ...] = ()
    problem: str = ""
    smi: Figure | None = None
    """What nvidia-smi would show, for rows that have that beside another figure."""
    shown_as_measured: Figure | None = None
    """What nvidia-smi would show with the code that was measured, or torch reserve where only that was."""

    @property
    def as_stated(self) -> Figure:
        return self.stated or self.today

    @property
    def explained(self) -> Figure:
        return self.as_measured or self.today


def compare(rows: Sequence[PublishedRow], worker: TraceWorker) -> Iterator[Comparison]:
    """Rows that say a workload; one trace after the other, each killed after a minute."""
    told = [row for row in rows if row.work is not None]
    sizes = sizes_of(row.work.model_config for row in told if row.work is not None)
    for row in told:
        assert row.work is not None
        yield comparison(row, row.work, worker, sizes[row.work.model_config])


def comparison(row: PublishedRow, work: Workload, worker: TraceWorker, sizes: ModelSizes) -> Comparison:
    request = TraceRequest.of(work)
    assert request is not None
    evidence, problem = _evidence(work, worker)
    estimate = estimate_memory(work, evidence)
    with_settings = stated(row.id, work)
    changes = OF_ROWS.get(row.id, ())
    as_measured = _as_measured(row, work, request, changes)
    return Comparison(
        row=row,
        today=figure(estimate, work, row.figure),
        tier=estimate.tier,
        basis=estimate.basis,
        analytic=figure(estimate_memory(work), work, row.figure),
        rivals=rivals_of(work, sizes),
        stated=None
        if with_settings == work
        else figure(estimate_memory(with_settings, _evidence(with_settings, worker)[0]), with_settings, row.figure),
        as_measured=as_measured and figure(*as_measured, row.figure),
        shown_as_measured=as_measured and figure(*as_measured, "device used" if row.smi else row.figure),
        changes=changes,
        problem=problem,
        smi=figure(estimate, work, "device used") if row.smi else None,
    )


def _evidence(work: Workload, worker: TraceWorker) -> tuple[Evidence, str]:
    """A trace, and what went wrong."""
    request = TraceRequest.of(work)
    assert request is not None
    answer = worker.ask(request, TIMEOUT_S)
    if isinstance(answer, TraceProblem):
        return NO_EVIDENCE, answer.message
    return Evidence(traces={request: answer}), ""


def stated(name: str, work: Workload) -> Workload:
    """`work` with what a user can state of the run of row `name`."""
    if name in PAGE_ROWS:
        work = replace(work, context_bytes=PAGE_CONTEXT, context_source="as stated")
    if name in OWN_ACTIVATION:
        values = {**json.loads(work.model_config), "hidden_act": OWN_ACTIVATION[name]}
        architecture, reason = read_architecture(values)
        assert architecture is not None, reason
        work = replace(work, architecture=architecture, model_config=json.dumps(values, sort_keys=True))
    return work


def figure(estimate: MemoryEstimate, work: Workload, name: str) -> Figure:
    """The figure of an estimate that answers to what was measured.

    The product states its interval for what nvidia-smi shows. What of it belongs to the context is left out for memory
    that torch reserved; what was allocated has the error of its tier.
    """
    beside, error = overheads(work), _error_of(estimate)
    allocated = estimate.allocated_bytes
    match name:
        case "allocated":
            return Figure(allocated, int(allocated * (1 - error)), int(allocated * (1 + error)))
        case "reserved":
            low, high = estimate.low_bytes + beside.spread, estimate.high_bytes - beside.spread
            return Figure(estimate.reserved_bytes, low - beside.context, high - beside.context)
        case "device used":
            return Figure(estimate.device_used_bytes, estimate.low_bytes, estimate.high_bytes)
        case _:
            # Nobody knows which of them it is.
            return Figure(estimate.reserved_bytes, int(allocated * (1 - error)), estimate.high_bytes)


def _error_of(estimate: MemoryEstimate) -> float:
    if estimate.tier == "traced":
        return FULL_TRACE_SPREAD
    return APPROXIMATE_SPREAD if "unknown family" in estimate.basis else FORMULA_SPREAD


def _as_measured(
    row: PublishedRow, work: Workload, request: TraceRequest, changes: tuple[str, ...]
) -> tuple[MemoryEstimate, Workload] | None:
    if not changes:
        return None
    trace = trace_as_measured(request, changes)
    if isinstance(trace, str):
        return None
    there = stated(row.id, work) if row.id in PAGE_ROWS else work
    return estimate_memory(there, Evidence(traces={request: trace})), there


def _readings(row: PublishedRow) -> tuple[int, ...]:
    return (row.measured, round(row.measured / 10**9 * 2**30)) if row.either_unit else (row.measured,)
