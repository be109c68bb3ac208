"""engine.json: which engine really runs, read from the live objects inside the process."""

from __future__ import annotations

from typing import Any

import torch
from accelerate.utils import DistributedType
from peft import PeftModel
from trainwiz.core.hardware.host import count_cores
from transformers import Trainer
from transformers.trainer_utils import SaveStrategy


def read_engine(trainer: Trainer) -> dict[str, Any]:
    """What trains, after the Trainer has wrapped it.

    `actual` names it in one word as plans do: single, ddp, fsdp, zero<stage>[+offload].
    """
    wrapped, compiled = _without_compiler(trainer.model_wrapped)
    inner = trainer.accelerator.unwrap_model(wrapped, keep_torch_compile=False)
    base = inner.get_base_model() if isinstance(inner, PeftModel) else inner
    stage, offload = _zero(wrapped)
    return {
        "actual": _name(trainer, wrapped, stage, offload),
        "precision": _precision(trainer, wrapped, inner),
        "device": str(trainer.args.device),
        "device_name": torch.cuda.get_device_name() if trainer.args.device.type == "cuda" else None,
        "world_size": trainer.args.world_size,
        "optimizer": _optimizer(trainer, wrapped),
        "attention": getattr(inner.config, "_attn_implementation", None),
        "wrapper": type(wrapped).__name__,
        "model": type(base).__name__,
        "adapter": _adapter(inner),
        "compile": compiled,
        "distributed_type": str(trainer.accelerator.distributed_type.value),
        "zero_stage": stage,
        "offload": offload,
        "weights_dtype": str(next(inner.parameters()).dtype).removeprefix("torch."),
        "activation_checkpointing": bool(getattr(inner, "is_activation_checkpointing", False)),
        "micro_batch_size": trainer.args.per_device_train_batch_size,
        "gradient_accumulation_steps": trainer.args.gradient_accumulation_steps,
        "max_steps": trainer.state.max_steps,
        "parameters": sum(parameter.numel() for parameter in inner.parameters()),
        "trainable_parameters": sum(parameter.numel() for parameter in inner.parameters() if parameter.requires_grad),
        "workers": trainer.args.dataloader_num_workers,
        "cpu_cores": count_cores(),
        "save_every_steps": _save_every(trainer),
        "torch": torch.__version__,
    }


def _save_every(trainer: Trainer) -> int | None:
    """Optimizer steps between two checkpoints, as the trainer solved a share of the run."""
    return trainer.state.save_steps if trainer.args.save_strategy == SaveStrategy.STEPS else None


def _without_compiler(wrapped: Any) -> tuple[Any, bool]:
    """What torch.compile wraps, and whether it does."""
    inner = getattr(wrapped, "_orig_mod", None)
    return (wrapped, bool(getattr(wrapped, "_compiled_call_impl", None))) if inner is None else (inner, True)


def _adapter(inner: Any) -> str | None:
    """The kind of adapters that train ("lora"); None where all weights do."""
    if not isinstance(inner, PeftModel):
        return None
    return str(inner.active_peft_config.peft_type.value).lower()


def _zero(wrapped: Any) -> tuple[int | None, str | None]:
    """ZeRO stage and what it keeps in host RAM, as the DeepSpeed engine answers."""
    if not hasattr(wrapped, "zero_optimization_stage"):
        return None, None
    stage = int(wrapped.zero_optimization_stage())
    optimizer, parameters = wrapped.zero_offload_optimizer(), wrapped.zero_offload_param()
    kept = [name for name, place in (("optimizer", optimizer), ("parameters", parameters)) if _is_offloaded(place)]
    return stage, "+".join(kept) or "none"


def _is_offloaded(place: Any) -> bool:
    device = getattr(place, "device", None)
    return device is not None and str(getattr(device, "value", device)) in ("cpu", "nvme")


def _name(trainer: Trainer, wrapped: Any, stage: int | None, offload: str | None) -> str:
    if stage is not None:
        return f"zero{stage}" + ("" if offload in (None, "none") else "+offload")
    if isinstance(wrapped, torch.nn.parallel.DistributedDataParallel):
        return "ddp"
    if trainer.accelerator.distributed_type == DistributedType.FSDP:
        return "fsdp"
    if isinstance(wrapped, torch.nn.DataParallel):
        return "dp"
    return "single"


def _precision(trainer: Trainer, wrapped: Any, inner: torch.nn.Module) -> str:
    if hasattr(wrapped, "fp16_enabled") and hasattr(wrapped, "bfloat16_enabled"):
        mixed = "fp16" if wrapped.fp16_enabled() else "bf16" if wrapped.bfloat16_enabled() else "no"
    else:
        mixed = trainer.accelerator.mixed_precision
    if mixed != "no":
        return str(mixed)
    if next(inner.parameters()).dtype == torch.bfloat16:
        return "bf16-true"
    tf32 = trainer.args.device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32
    return "tf32" if tf32 else "fp32"


def _optimizer(trainer: Trainer, wrapped: Any) -> str:
    """Class of the innermost optimizer: accelerate and ZeRO wrap it."""
    optimizer: Any = getattr(wrapped, "basic_optimizer", None) or trainer.optimizer
    while not isinstance(optimizer, torch.optim.Optimizer) or type(optimizer).__module__.startswith("accelerate"):
        inner = getattr(optimizer, "optimizer", None)
        if inner is None:
            break
        optimizer = inner
    return type(optimizer).__name__
