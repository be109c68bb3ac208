"""What plan.json predicted, as far as a viewer compares it with what is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.telemetry.metrics import finite
from trainwiz.core.telemetry.snapshot import Planned


def read_planned(plan: Mapping[str, Any]) -> Planned:
    """From the document of plan.json; whatever is missing or of another type is None."""
    memory, time, batch, model = (_object(plan.get(key)) for key in ("memory", "time", "batch", "model"))
    return Planned(
        memory_bytes=_whole(memory.get("device_used_bytes")),
        memory_low_bytes=_whole(memory.get("low_bytes")),
        memory_high_bytes=_whole(memory.get("high_bytes")),
        host_ram_bytes=_whole(memory.get("host_ram_bytes")),
        step_s=finite(time.get("step_s")),
        step_low_s=finite(time.get("step_low_s")),
        step_high_s=finite(time.get("step_high_s")),
        total_s=finite(time.get("total_s")),
        steps=_whole(time.get("steps")),
        effective_samples=_whole(batch.get("effective_samples")),
        effective_tokens=_whole(batch.get("effective_tokens")),
        model=_text(model.get("name")),
        device=_text(memory.get("device")),
    )


def gpu_names(plan: Mapping[str, Any]) -> dict[str, str]:
    """UUID -> name of the GPUs of the machine that the plan was made for."""
    gpus = _object(plan.get("machine")).get("gpus")
    return {
        str(gpu["uuid"]): str(gpu["name"])
        for gpu in (gpus if isinstance(gpus, list) else ())
        if isinstance(gpu, dict) and gpu.get("uuid") and gpu.get("name")
    }


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: Any) -> int | None:
    converted = finite(value)
    return None if converted is None else int(converted)
