"""What a run was set up with and planned to take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainwiz.core.run.attempts import ACCUMULATION, MICRO
from trainwiz.core.telemetry.snapshot import Planned
from trainwiz.core.text import numbers_finite, object_in, objects_in, text_in, whole_in

# RunSetup: what engine.json says of how a run reads its data and saves, as far as advice asks.


@dataclass(frozen=True, slots=True)
class RunSetup:
    """As read inside the training process; None where an older run does not say it."""

    workers: int | None = None
    """Loader workers of each training process; 0 where the process loads itself."""
    prefetch: int | None = None
    """Batches that each of them keeps ready."""
    pinned: bool = False
    """They wait in pinned memory."""
    accumulation: int = 1
    """Micro-batches of a step in each training process, which are taken at once."""
    processes: int = 1
    """Training processes, on all machines."""
    cpu_cores: int | None = None
    """That the training may use on its machine."""
    save_every_steps: int | None = None
    checkpoints_kept: int | None = None
    """Most complete checkpoints that lie there between two saves."""
    model_bytes: int = 0
    """Of the weights that the end of the run writes once more."""
    max_steps: int | None = None


def setup_of(engine: Mapping[str, Any]) -> RunSetup:
    """`engine` as state.json holds it."""
    parameters = whole_in(engine.get("parameters")) or 0
    return RunSetup(
        workers=whole_in(engine.get("workers")),
        prefetch=whole_in(engine.get("prefetch")),
        pinned=engine.get("pin_memory") is True,
        accumulation=whole_in(engine.get("gradient_accumulation_steps")) or 1,
        processes=whole_in(engine.get("world_size")) or 1,
        cpu_cores=whole_in(engine.get("cpu_cores")),
        save_every_steps=whole_in(engine.get("save_every_steps")) or None,
        checkpoints_kept=whole_in(engine.get("checkpoints_kept")),
        model_bytes=parameters * (4 if engine.get("weights_dtype") == "float32" else 2),
        max_steps=whole_in(engine.get("max_steps")),
    )


# What plan.json predicted, as far as a viewer compares it with what is measured.


def read_planned(plan: Mapping[str, Any]) -> Planned:
    """From the document of plan.json; whatever is missing or of another type is None."""
    memory, time, batch, model = (object_in(plan.get(key)) for key in ("memory", "time", "batch", "model"))
    return Planned(
        memory_bytes=whole_in(memory.get("device_used_bytes")),
        memory_low_bytes=whole_in(memory.get("low_bytes")),
        memory_high_bytes=whole_in(memory.get("high_bytes")),
        host_ram_bytes=whole_in(memory.get("host_ram_bytes")),
        step_s=numbers_finite(time.get("step_s")),
        step_low_s=numbers_finite(time.get("step_low_s")),
        step_high_s=numbers_finite(time.get("step_high_s")),
        total_s=numbers_finite(time.get("total_s")),
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
