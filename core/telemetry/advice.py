"""Advice: what a look at the figures has to say, worst first."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from trainwiz.core.run.status import ENDED
from trainwiz.core.telemetry.metrics import MetricSummary, Pace
from trainwiz.core.telemetry.snapshot import Advice, AdviceLevel, GpuReading, HostReading, Planned
from trainwiz.core.telemetry.so_far import limited_by_heat, real_throttling

LEVELS: dict[AdviceLevel, int] = {"error": 0, "warning": 1, "note": 2, "ok": 3}

DATA_WAIT_SHARE = 0.15
NEARLY_FULL = 0.95
DISK_SHORT_S = 24 * 3600.0
DISK_SHORT_BYTES = 2 * 1024**3
GIB = 1024**3


def advise(
    *,
    status: str,
    metrics: Mapping[str, MetricSummary],
    non_finite_steps: Mapping[str, tuple[float, ...]],
    pace: Pace,
    gpus: Iterable[GpuReading],
    host: HostReading,
    planned: Planned,
    peak_memory_bytes: int | None,
    recorded: Iterable[Any] = (),
) -> tuple[Advice, ...]:
    """All advice, worst first.

    `peak_memory_bytes` is the highest use of the planned device that was seen. `recorded` is what
    the run record carries: objects with `text` and perhaps `severity` and `code`.
    """
    advice = [*_non_finite(metrics, non_finite_steps), *_pace(pace, planned)]
    advice += _memory(planned, peak_memory_bytes, stepped=bool(metrics))
    if status not in ENDED:
        for gpu in gpus:
            advice += _gpu(gpu)
        advice += _host(host)
    advice += _recorded(recorded)
    return tuple(sorted(advice, key=lambda item: LEVELS[item.level]))


def _non_finite(metrics: Mapping[str, MetricSummary], steps: Mapping[str, tuple[float, ...]]) -> Iterable[Advice]:
    summary = metrics.get("loss")
    if summary is None or not summary.non_finite:
        return
    first = f", first at step {steps['loss'][0]:,.0f}" if steps.get("loss") else ""
    if summary.count == summary.non_finite:
        yield Advice("nan_loss", "error", "The loss was never a number.")
    elif summary.last is not None and summary.last != summary.last:
        yield Advice("nan_loss", "error", f"The loss is not a number now{first}.")
    else:
        if summary.non_finite == 1:
            times, first = "once", first.replace("first at", "at")
        else:
            times = f"{summary.non_finite:,} times"
        yield Advice("nan_loss", "warning", f"The loss was not a number {times}{first}.")


def _memory(planned: Planned, peak: int | None, *, stepped: bool) -> Iterable[Advice]:
    """The plan speaks of a training step: before the first one only too much of it says anything."""
    expected, low, high = planned.memory_bytes, planned.memory_low_bytes, planned.memory_high_bytes
    if peak is None or expected is None or expected <= 0:
        return
    figures = f"{peak / GIB:.1f} GiB at its peak, planned {expected / GIB:.1f}"
    if peak > (high or expected) * 1.02:
        yield Advice("memory_above_plan", "warning", f"Memory is above the plan: {figures}.")
    elif not stepped:
        return
    elif low is not None and peak < low * 0.9:
        yield Advice("memory_below_plan", "ok", f"Memory is below the plan: {figures}.")
    else:
        yield Advice("memory_as_planned", "ok", f"Memory is as planned: {figures}.")


def _pace(pace: Pace, planned: Planned) -> Iterable[Advice]:
    if pace.data_wait is not None and pace.data_wait > DATA_WAIT_SHARE:
        yield Advice(
            "data_wait",
            "warning",
            f"Steps wait {pace.data_wait * 100:.0f} % of their time for data: more loader workers may help (data.workers).",
        )
    if pace.step_s is None or planned.step_high_s is None or planned.step_low_s is None:
        return
    if pace.step_s > planned.step_high_s * 1.1:
        yield Advice(
            "slower_than_plan",
            "warning",
            f"Steps take {pace.step_s / planned.step_high_s:.1f} times as long as planned.",
        )
    elif pace.step_s < planned.step_low_s * 0.9:
        yield Advice(
            "faster_than_plan", "ok", f"Steps are {planned.step_low_s / pace.step_s:.1f} times as fast as planned."
        )


def _gpu(gpu: GpuReading) -> Iterable[Advice]:
    name = f"GPU {gpu.index}"
    if gpu.problem:
        yield Advice("gpu_unreadable", "warning", f"{name} cannot be read: {gpu.problem}")
    slowing = real_throttling(gpu.throttle_reasons)
    since = ""
    if gpu.throttled_since_s is not None and gpu.throttled_since_s > 1e9:
        since = f" since {time.strftime('%H:%M', time.localtime(gpu.throttled_since_s))}"
    if limited_by_heat(slowing):
        yield Advice("heat", "warning", f"Heat limits the clock of {name}{since}.")
    elif any("power" in reason.lower() for reason in slowing):
        yield Advice("power_limit", "note", f"The power limit holds the clock of {name}{since}.")
    if (
        gpu.memory_used_bytes
        and gpu.memory_total_bytes
        and gpu.memory_used_bytes > NEARLY_FULL * gpu.memory_total_bytes
    ):
        yield Advice("gpu_memory_full", "warning", f"{name} is nearly full: a longer batch could run out of memory.")


def _host(host: HostReading) -> Iterable[Advice]:
    if host.ram_used_bytes and host.ram_total_bytes and host.ram_used_bytes > NEARLY_FULL * host.ram_total_bytes:
        yield Advice("ram_full", "warning", "Host RAM is nearly full: fewer loader workers would free some.")
    if host.disk_lasts_s is not None and host.disk_lasts_s < DISK_SHORT_S:
        yield Advice("disk_short", "warning", f"The disk is full in {host.disk_lasts_s / 3600:.0f} h at this pace.")
    elif host.disk_free_bytes is not None and host.disk_free_bytes < DISK_SHORT_BYTES:
        yield Advice("disk_short", "warning", f"Only {host.disk_free_bytes / GIB:.1f} GiB of disk are free.")


def _recorded(recorded: Iterable[Any]) -> Iterable[Advice]:
    for item in recorded:
        text = item.get("text") or item.get("message") if isinstance(item, dict) else None
        if not isinstance(text, str):
            continue
        severity = item.get("severity")
        level: AdviceLevel = severity if severity in LEVELS else "note"
        yield Advice(str(item.get("code") or "recorded"), level, text)
