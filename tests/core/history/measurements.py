"""Measurements made by hand."""

from dataclasses import replace
from typing import Any

from trainwiz.core.estimate.workload import Workload
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import Measurement, device_key, text_digest

HERE = Machine(cpu_model="Some CPU", cpu_cores=8, ram_total_bytes=1 << 35, ram_available_bytes=1 << 35)


def measurement(**changes: Any) -> Measurement:
    """A probe on the CPU of HERE."""
    plain = Measurement(
        measured_at="2026-11-21T10:00:00+00:00", source="probe", machine=device_key(HERE, "cpu") or "",
        model="0123456789abcdef", model_name="esm2-tiny", task="masked-lm", micro_batch=8, accumulation=2, world_size=1,
        length=64, target_length=0, precision="fp32", attention="sdpa", checkpointing=False, optimizer="adamw_torch",
        strategy="single", offload="none", lora_rank=0, lora_targets=(), loss_chunk=None, compiled=False, steps=20,
        step_s=1.0, step_low_s=0.98, step_high_s=1.02, threads=8, usual_length=64,
    )  # fmt: skip
    return replace(plain, **changes)


ALIKE = (
    *("task", "micro_batch", "accumulation", "world_size", "length", "precision", "attention", "checkpointing"),
    *("optimizer", "strategy", "offload", "loss_chunk", "padded", "lora_dropout", "label_smoothing", "clipping"),
)


def measurement_of(work: Workload, **changes: Any) -> Measurement:
    """Of this very work, on the CPU of HERE."""
    same = {name: getattr(work, name) for name in ALIKE}
    return measurement(model=text_digest(work.model_config), **same, **{"usual_length": work.length, **changes})
