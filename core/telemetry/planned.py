"""What plan.json predicted, as far as a viewer compares it with what is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.numbers import finite, object_in, objects_in, text_in, whole_in
from trainwiz.core.run.attempt_words import ACCUMULATION, MICRO
from trainwiz.core.telemetry.snapshot import Planned


def read_planned(plan: Mapping[str, Any]) -> Planned:
    """From the document of plan.json; whatever is missing or of another type is None."""
    memory, time, batch, model = (object_in(plan.get(key)) for key in ("memory", "time", "batch", "model"))
    return Planned(
        memory_bytes=whole_in(memory.get("device_used_bytes")),
        memory_low_bytes=whole_in(memory.get("low_bytes")),
        memory_high_bytes=whole_in(memory.get("high_bytes")),
        host_ram_bytes=whole_in(memory.get("host_ram_bytes")),
        step_s=finite(time.get("step_s")),
        step_low_s=finite(time.get("step_low_s")),
        step_high_s=finite(time.get("step_high_s")),
        total_s=finite(time.get("total_s")),
        steps=whole_in(time.get("steps")),
        micro_batch=whole_in(batch.get("micro_batch")),
        accumulation=whole_in(batch.get("accumulation")),
        world_size=whole_in(batch.get("world_size")),
        effective_samples=whole_in(batch.get("effective_samples")),
        effective_tokens=whole_in(batch.get("effective_tokens")),
        model=text_in(model.get("name")),
        device=text_in(memory.get("device")),
    )


def with_changes(planned: Planned, changes: Mapping[str, Any]) -> Planned:
    """The batch as it is now; `changes` are those of recovery. The time stays as planned; of memory nothing was."""
    if not changes:
        return planned
    micro, accumulation = whole_in(changes.get(MICRO)), whole_in(changes.get(ACCUMULATION))
    now = replace(planned, micro_batch=micro or planned.micro_batch, accumulation=accumulation or planned.accumulation)
    if now.micro_batch == planned.micro_batch:
        return now
    return replace(now, memory_bytes=None, memory_low_bytes=None, memory_high_bytes=None, host_ram_bytes=None)


def gpu_names(plan: Mapping[str, Any]) -> dict[str, str]:
    """UUID -> name of the GPUs of the machine that the plan was made for."""
    gpus = objects_in(object_in(plan.get("machine")).get("gpus"))
    return {str(gpu["uuid"]): str(gpu["name"]) for gpu in gpus if gpu.get("uuid") and gpu.get("name")}
