"""The peak that was measured on this machine with the very same settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwiz.core.estimate.workload import Workload
from trainwiz.core.history.match import same_work
from trainwiz.core.history.measurement import Measurement


@dataclass(frozen=True, slots=True)
class MeasuredPeak:
    """Bytes of one process; None is what could not be read."""

    allocated: int | None
    reserved: int | None
    used: int | None
    """On a GPU by nvidia-smi's count; on a CPU resident memory."""
    basis: str


def measured_peak(work: Workload, measurements: Sequence[Measurement]) -> MeasuredPeak | None:
    """The fullest of the measurements of the very same settings; None where none says how full it was."""
    same = [one for one in measurements if _says(one, work) and same_work(one, work)]
    if not same:
        return None
    fullest = max(same, key=lambda one: (one.peak_allocated_bytes or 0, one.host_rss_bytes or 0))
    kind = "probe" if fullest.source == "probe" else "run"
    basis = f"measured here on {fullest.measured_at[:10]} ({kind})"
    if work.device == "cpu":
        return MeasuredPeak(None, None, fullest.host_rss_bytes, basis)
    return MeasuredPeak(fullest.peak_allocated_bytes, fullest.peak_reserved_bytes, fullest.device_used_bytes, basis)


def _says(measurement: Measurement, work: Workload) -> bool:
    known = measurement.host_rss_bytes if work.device == "cpu" else measurement.peak_allocated_bytes
    return known is not None and known > 0
