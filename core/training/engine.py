"""engine.json: which engine really runs, read from the live objects inside the process."""

from __future__ import annotations

from typing import Any

import torch
from peft import PeftModel
from trainwiz.core.errors import CannotRunError
from trainwiz.core.findings import Finding
from trainwiz.core.hardware.host import count_cores
from trainwiz.core.language import mark, tr
from trainwiz.core.training.packed_attention import attention_of
from trainwiz.core.training.shards import is_fully_sharded, numbers_in
from trainwiz.core.training.tf32 import multiplies_in_tf32
from transformers import Trainer
from transformers.trainer_utils import SaveStrategy

WORDS = {"fsdp": "FSDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}
UNSHARED = {"ddp": "DistributedDataParallel", "dp": "DataParallel", "single": mark("one process")}
"""Engines in which each process holds everything."""


def read_engine(trainer: Trainer) -> dict[str, Any]:
    """What trains, after the Trainer has wrapped it.

    `actual` names it in one word as plans do: single, ddp, fsdp[+offload], zero<stage>[+offload].
    """
    wrapped, compiled = _without_compiler(trainer.model_wrapped)
    inner = trainer.accelerator.unwrap_model(wrapped, keep_torch_compile=False)
    base = inner.get_base_model() if isinstance(inner, PeftModel) else inner
    stage, offload = _zero(wrapped)
    if is_fully_sharded(wrapped):
        offload = _of_fsdp(wrapped)
    return {
        "actual": _name(wrapped, stage, offload),
        "precision": _precision(trainer, wrapped, inner),
        "device": str(trainer.args.device),
        "device_name": torch.cuda.get_device_name() if trainer.args.device.type == "cuda" else None,
        "world_size": trainer.args.world_size,
        "optimizer": _optimizer(trainer, wrapped),
        "attention": attention_of(inner.config),
        "wrapper": type(wrapped).__name__,
        # fully_shard makes a class of its own of the model's.
        "model": type(base).__name__.removeprefix("FSDP"),
        "adapter": _adapter(inner),
        "compile": compiled,
        "distributed_type": str(trainer.accelerator.distributed_type.value),
        "zero_stage": stage,
        "offload": offload,
        "weights_dtype": str(next(inner.parameters()).dtype).removeprefix("torch."),
        "activation_checkpointing": bool(getattr(inner, "is_activation_checkpointing", False)),
        "backend": torch.distributed.get_backend() if torch.distributed.is_initialized() else None,
        "micro_batch_size": trainer.args.per_device_train_batch_size,
        "gradient_accumulation_steps": trainer.args.gradient_accumulation_steps,
        "max_steps": trainer.state.max_steps,
        "parameters": sum(numbers_in(parameter) for parameter in inner.parameters()),
        "trainable_parameters": sum(
            numbers_in(parameter) for parameter in inner.parameters() if parameter.requires_grad
        ),
        "workers": trainer.args.dataloader_num_workers,
        "prefetch": trainer.args.dataloader_prefetch_factor,
        "pin_memory": trainer.args.dataloader_pin_memory and trainer.args.device.type == "cuda",
        "cpu_cores": count_cores(),
        "save_every_steps": _save_every(trainer),
        "torch": torch.__version__,
    }


def refuse_unshared(strategy: str | None, engine: dict[str, Any]) -> None:
    """Raises CannotRunError where the run was to share its weights or states out and each process holds all of them.

    accelerate 1.15 trains with DistributedDataParallel when FSDP is asked for without a GPU, and says nothing: neither
    the memory of the plan nor the name of the engine would be true.
    """
    actual = str(engine["actual"])
    if strategy not in WORDS or actual not in UNSHARED:
        return
    message = tr(
        "{strategy} was planned (engine.strategy), and what would train here is {actual} on the device {device}: the run "
        "ends before its first step. Choose --strategy {word}.",
        strategy=WORDS[strategy],
        actual=tr(UNSHARED[actual]),
        device=engine["device"],
        word="ddp" if actual == "ddp" else "single",
    )
    raise CannotRunError(Finding("engine_not_as_planned", "error", "engine.strategy", message))


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


def _of_fsdp(wrapped: Any) -> str:
    """What FSDP keeps in host RAM: with the parameters go their gradients and the optimizer's states."""
    states = (module._get_fsdp_state() for module in wrapped.modules() if hasattr(module, "_get_fsdp_state"))
    groups = (group for state in states for group in getattr(state, "_fsdp_param_groups", ()))
    kept = any(parameter.offload_to_cpu for group in groups for parameter in group.fsdp_params)
    return "parameters" if kept else "none"


def _name(wrapped: Any, stage: int | None, offload: str | None) -> str:
    kept = "" if offload in (None, "none") else "+offload"
    if stage is not None:
        return f"zero{stage}{kept}"
    if isinstance(wrapped, torch.nn.parallel.DistributedDataParallel):
        return "ddp"
    if is_fully_sharded(wrapped):
        return f"fsdp{kept}"
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
    return "tf32" if multiplies_in_tf32(trainer.args.device) else "fp32"


def _optimizer(trainer: Trainer, wrapped: Any) -> str:
    """Class of the innermost optimizer: accelerate and ZeRO wrap it."""
    optimizer: Any = getattr(wrapped, "basic_optimizer", None) or trainer.optimizer
    while not isinstance(optimizer, torch.optim.Optimizer) or type(optimizer).__module__.startswith("accelerate"):
        inner = getattr(optimizer, "optimizer", None)
        if inner is None:
            break
        optimizer = inner
    return type(optimizer).__name__
