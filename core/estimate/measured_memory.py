"""The peak that was measured on this machine with the very same settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwiz.core.estimate.workload import Workload
from trainwiz.core.history.match import same_work
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.language import tr

LEAST_CONTEXT_BYTES, MOST_CONTEXT_BYTES = 128 << 20, 4 << 30
"""What no CUDA version needs less or more of: other differences are of cached blocks given back, or of other programs."""


@dataclass(frozen=True, slots=True)
class MeasuredPeak:
    """Bytes of one process; None is what could not be read."""

    allocated: int | None
    reserved: int | None
    used: int | None
    """On a GPU by nvidia-smi's count; on a CPU resident memory."""
    basis: str


def measured_text(day: str, source: str) -> str:
    """Where a figure was measured, in words; `source` is "probe" or "run"."""
    if source == "probe":
        return tr("measured here on {day} (probe)", day=day)
    return tr("measured here on {day} (run)", day=day)


def measured_peak(work: Workload, measurements: Sequence[Measurement], expected: int = 0) -> MeasuredPeak | None:
    """The fullest of the measurements of the very same settings; None where none says how full it was.

    A run whose batches are usually shorter than the longest may never have met that one: its peak counts only where
    it is beyond what was `expected` (bytes allocated; on a CPU resident).
    """
    same = [
        one
        for one in measurements
        if _size(one, work) > (0 if _met_the_longest(one) else expected) and same_work(one, work)
    ]
    if not same:
        return None
    fullest = max(same, key=lambda one: (one.peak_allocated_bytes or 0, one.host_rss_bytes or 0))
    kind = "probe" if fullest.source == "probe" else "run"
    basis = measured_text(fullest.measured_at[:10], kind)
    if work.device == "cpu":
        return MeasuredPeak(None, None, fullest.host_rss_bytes, basis)
    return MeasuredPeak(fullest.peak_allocated_bytes, fullest.peak_reserved_bytes, fullest.device_used_bytes, basis)


def with_measured_context(work: Workload, measurements: Sequence[Measurement]) -> Workload:
    """`work` with the CUDA context that was measured on this card, by any run; as it is where one was stated or none was.

    Only by runs of one process: what several hold besides includes NCCL's buffers.
    """
    if work.device != "cuda" or work.context_bytes is not None:
        return work
    for one in measurements:
        if one.world_size > 1 or one.device_used_bytes is None or one.peak_reserved_bytes is None:
            continue
        size = one.device_used_bytes - one.peak_reserved_bytes
        if LEAST_CONTEXT_BYTES <= size <= MOST_CONTEXT_BYTES:
            return replace(work, context_bytes=size, context_source=tr("measured here on {day}", day=one.day))
    return work


def _size(measurement: Measurement, work: Workload) -> int:
    """0 where it is not known."""
    return (measurement.host_rss_bytes if work.device == "cpu" else measurement.peak_allocated_bytes) or 0


def _met_the_longest(measurement: Measurement) -> bool:
    """A probe begins with batches of full length; in a run they are all so where the usual ones are."""
    usual = (
        measurement.usual_length or measurement.length,
        measurement.usual_target_length or measurement.target_length,
    )
    return measurement.source == "probe" or usual == (measurement.length, measurement.target_length)
