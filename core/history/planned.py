"""What a plan says of a measurement before it is made: the settings that it will belong to."""

from __future__ import annotations

from typing import Any

from trainwiz.core.data.packing import packs_rows
from trainwiz.core.history.device import device_key
from trainwiz.core.history.match import data_digest, model_digest
from trainwiz.core.plan.devices import choose_devices
from trainwiz.core.plan.result import Plan


def planned_fields(plan: Plan) -> dict[str, Any] | None:
    """Fields of a Measurement as JSON values; None where a measurement would not say what it was made on or of."""
    work, engine = plan.work, plan.config.engine
    if work is None or not work.model_config or plan.machine.hypothetical or engine.nodes > 1:
        return None
    devices, _ = choose_devices(plan.machine, plan.config)
    machine = device_key(plan.machine, devices.device, devices.gpus)
    if machine is None:
        return None
    usual = plan.usual or work
    pairs = work.architecture.kind == "encoder-decoder"
    versions = plan.machine.libraries.versions
    return {
        "machine": machine,
        "model": model_digest(work.model_config),
        "model_name": plan.config.model.name,
        "task": work.task,
        "micro_batch": work.micro_batch,
        "accumulation": work.accumulation,
        "world_size": work.world_size,
        "length": work.length,
        "target_length": work.target_length if pairs else 0,
        "precision": work.precision,
        "attention": work.attention,
        "checkpointing": work.checkpointing,
        "optimizer": work.optimizer,
        "strategy": work.strategy,
        "offload": work.offload,
        "lora_rank": work.lora_rank,
        "lora_targets": list(work.lora_targets),
        "loss_chunk": work.loss_chunk,
        "padded": work.padded,
        "lora_dropout": work.lora_dropout,
        "label_smoothing": work.label_smoothing,
        "clipping": work.clipping,
        "compiled": engine.compile,
        "packed": packs_rows(plan.config),
        "tf32": bool(engine.tf32) if devices.device == "cuda" else None,
        "threads": engine.cpu_threads if devices.device == "cpu" else None,
        "usual_length": usual.length,
        "usual_target_length": usual.target_length if pairs else None,
        "data": data_digest(plan.config),
        "workers": plan.config.data.workers,
        "prefetch": plan.config.data.prefetch,
        "versions": {name: str(versions[name]) for name in ("torch", "transformers") if versions.get(name)},
    }
