"""Benchmark: what the steps of a run were, beside what its plan said. Reads files only; no training library."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from trainwiz.core.config.modes import BENCHMARK_WARM_STEPS
from trainwiz.core.history.pace import steps_of
from trainwiz.core.history.run import known_rows
from trainwiz.core.numbers import finite
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.telemetry.so_far import SoFar


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The measured steps; None is what could not be read. `planned_` figures are those of plan.json."""

    steps: int
    step_s: float
    """Median seconds of an optimizer step."""
    step_low_s: float
    step_high_s: float
    """10 and 90 % of the steps."""
    tokens_per_s: float | None
    """Of the inputs of all processes, padding included; of all measured steps together, as the one below."""
    real_tokens_per_s: float | None
    data_wait_share: float | None
    """Of the time of the steps, 0 to 1: the first process had no batch ready."""
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    """On the fullest device."""
    device_used_bytes: int | None
    """Of the run on the fullest card, by the driver's count."""
    host_ram_bytes: int | None
    """Resident memory of all processes of the run together, at its most; pages that they share count for each."""
    planned_step_s: float | None
    planned_step_low_s: float | None
    planned_step_high_s: float | None
    planned_tokens_per_s: float | None
    planned_basis: str | None
    planned_allocated_bytes: int | None
    planned_device_used_bytes: int | None
    planned_host_ram_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def is_benchmark(run: RunFolder) -> bool:
    """Whether the run was started to measure its steps."""
    choices = (read_json(run.plan_json) or {}).get("choices")
    keys = {choice.get("key") for choice in choices if isinstance(choice, dict)} if isinstance(choices, list) else set()
    return "mode.benchmark_steps" in keys


def benchmark_of(run: RunFolder) -> Benchmark | None:
    """None for a run that has no step beyond those that warm up."""
    lines = [row for row in known_rows(run.metrics_jsonl) if "loss" in row]
    measured = [line for line in lines if (finite(line.get("step")) or 0) > BENCHMARK_WARM_STEPS]
    timed = [(seconds, 1) for line in measured if (seconds := finite(line.get("step_s")))]
    steps = steps_of(timed)
    if steps is None:
        return None
    whole_s = sum(seconds for seconds, _ in timed)
    waits = [wait for line in measured if (wait := finite(line.get("data_wait_s"))) is not None]
    so_far = SoFar()
    for row in known_rows(run.system_jsonl):
        so_far.add(row)
    before: dict[str, Any] = next((line for line in reversed(lines) if line not in measured), {})
    return Benchmark(
        steps=steps.count,
        step_s=steps.median_s,
        step_low_s=steps.low_s,
        step_high_s=steps.high_s,
        tokens_per_s=_rate("tokens", before, measured[-1], whole_s),
        real_tokens_per_s=_rate("real_tokens", before, measured[-1], whole_s),
        data_wait_share=min(1.0, sum(waits) / whole_s) if waits else None,
        peak_allocated_bytes=_whole(measured[-1].get("peak_allocated_bytes")),
        peak_reserved_bytes=_whole(measured[-1].get("peak_reserved_bytes")),
        device_used_bytes=max(so_far.peak_job_gpu_bytes.values(), default=None),
        host_ram_bytes=so_far.peak_job_rss_bytes or None,
        **_planned(read_json(run.plan_json) or {}),
    )


def _rate(name: str, before: dict[str, Any], last: dict[str, Any], seconds: float) -> float | None:
    """Counts of metrics.jsonl are those since the start of the run."""
    end = finite(last.get(name))
    return None if end is None or seconds <= 0 else (end - (finite(before.get(name)) or 0.0)) / seconds


def _part(plan: dict[str, Any], name: str) -> dict[str, Any]:
    part = plan.get(name)
    return part if isinstance(part, dict) else {}


def _planned(plan: dict[str, Any]) -> dict[str, Any]:
    time, memory = _part(plan, "time"), _part(plan, "memory")
    figures: dict[str, Any] = {
        f"planned_{name}": finite(time.get(name)) for name in ("step_s", "step_low_s", "step_high_s", "tokens_per_s")
    }
    sizes = ("allocated_bytes", "device_used_bytes", "host_ram_bytes")
    basis = time.get("basis")
    return {
        **figures,
        "planned_basis": basis if isinstance(basis, str) else None,
        **{f"planned_{name}": _whole(memory.get(name)) for name in sizes},
    }


def _whole(value: Any) -> int | None:
    number = finite(value)
    return None if number is None else int(number)
