"""Advice: what a look at the figures has to say, worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainwiz.core.run.status import ENDED
from trainwiz.core.telemetry.advice_machine import gpu_advice, host_advice
from trainwiz.core.telemetry.advice_training import (
    loss_advice,
    memory_advice,
    pace_advice,
    silence_advice,
    stall_advice,
)
from trainwiz.core.telemetry.course import Course
from trainwiz.core.telemetry.metrics import MetricSummary, Pace
from trainwiz.core.telemetry.recorded_advice import advice_of
from trainwiz.core.telemetry.snapshot import Advice, AdviceLevel, GpuReading, HostReading, Planned

LEVELS: dict[AdviceLevel, int] = {"error": 0, "warning": 1, "note": 2, "ok": 3}
NO_PACE = Pace(None, None, None, None, None)


def advise(
    *,
    status: str,
    metrics: Mapping[str, MetricSummary] | None = None,
    non_finite_steps: Mapping[str, tuple[float, ...]] | None = None,
    pace: Pace = NO_PACE,
    gpus: Iterable[GpuReading] = (),
    host: HostReading | None = None,
    planned: Planned | None = None,
    peak_memory_bytes: int | None = None,
    course: Course | None = None,
    checkpoint_bytes: int | None = None,
    now_s: float | None = None,
    began_s: float | None = None,
    heartbeat_s: float | None = None,
    recorded: Iterable[Any] = (),
) -> tuple[Advice, ...]:
    """All advice, worst first. What is not given is not spoken of.

    `peak_memory_bytes` is the highest use of the planned device that was seen; `checkpoint_bytes`
    what the next checkpoint takes; `now_s` and `began_s` are the times of the look and of the
    start of the attempt (Unix time), `heartbeat_s` of the keeper's last word. `recorded` is what the run record carries: objects with `text`
    and perhaps `severity`, `code` and `remedy`.
    """
    metrics, planned, course = metrics or {}, planned or Planned(), course or Course()
    advice = [*loss_advice(metrics, non_finite_steps or {}, course), *pace_advice(pace, planned)]
    advice += memory_advice(planned, peak_memory_bytes, stepped=bool(metrics))
    if status not in ENDED:
        advice += stall_advice(status, course, now_s, began_s)
        advice += silence_advice(now_s, heartbeat_s)
        advice += gpu_advice(tuple(gpus), status=status, now_s=now_s)
        advice += host_advice(host or HostReading(), checkpoint_bytes)
    advice += advice_of(recorded)
    return tuple(sorted(advice, key=lambda item: LEVELS[item.level]))
