"""Advice: what a look at the figures has to say, worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainwiz.core.run.advice import Advice, AdviceLevel
from trainwiz.core.run.phase import PhaseNow
from trainwiz.core.run.status import ENDED
from trainwiz.core.telemetry.advice_machine import gpu_advice, host_advice
from trainwiz.core.telemetry.advice_training import (
    loss_advice,
    memory_advice,
    pace_advice,
    silence_advice,
    stall_advice,
)
from trainwiz.core.telemetry.checkpoint_room import Saves
from trainwiz.core.telemetry.course import Course
from trainwiz.core.telemetry.data_wait import data_wait_advice
from trainwiz.core.telemetry.metrics import MetricSummary, Pace
from trainwiz.core.telemetry.recorded_advice import advice_of
from trainwiz.core.telemetry.run_setup import RunSetup
from trainwiz.core.telemetry.snapshot import GpuReading, HostReading, Planned

LEVELS: dict[AdviceLevel, int] = {"error": 0, "warning": 1, "note": 2, "ok": 3}
MOMENTARY = frozenset({
    "stalled", "ram_full", "ram_short", "disk_short", "checkpoint_does_not_fit", "gpu_lost", "gpu_unreadable", "heat",
    "power_brake", "sensors_silent", "waiting_for_disk",
})  # fmt: skip
"""Codes that are about a moment of a run that goes on; a keeper that was killed could not take them back."""
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
    phase: PhaseNow | None = None,
    setup: RunSetup | None = None,
    saves: Saves | None = None,
    left_s: float | None = None,
    recorded: Iterable[Any] = (),
) -> tuple[Advice, ...]:
    """All advice, worst first. What is not given is not spoken of.

    `peak_memory_bytes` is the highest use of the planned device that was seen; `checkpoint_bytes`
    what the next checkpoint takes; `now_s` and `began_s` are the times of the look and of the
    start of the attempt (Unix time), `heartbeat_s` of the keeper's last word. `phase` is what the
    training says that it does, `setup` how it reads and saves, `saves` what it still saves, `left_s`
    the time until its end. `recorded` is what the run record carries: objects with `text` and perhaps
    `severity`, `code` and `remedy`. What it says already is not said twice.
    """
    metrics, planned, course, host = metrics or {}, planned or Planned(), course or Course(), host or HostReading()
    advice = [*loss_advice(metrics, non_finite_steps or {}, course), *pace_advice(pace, planned)]
    advice += data_wait_advice(pace.step_s, pace.data_wait, setup or RunSetup(), host)
    advice += memory_advice(planned, peak_memory_bytes, stepped=bool(metrics))
    if status not in ENDED:
        advice += stall_advice(status, course, now_s, began_s, phase)
        advice += silence_advice(now_s, heartbeat_s)
        advice += gpu_advice(tuple(gpus), status=status, now_s=now_s)
        advice += host_advice(host, checkpoint_bytes, saves=saves, step_s=pace.wall_step_s, left_s=left_s)
    said = [item for item in advice_of(recorded) if status not in ENDED or item.code not in MOMENTARY]
    codes = {item.code for item in said}
    advice = [item for item in advice if item.code not in codes] + said
    return tuple(sorted(advice, key=lambda item: LEVELS[item.level]))
