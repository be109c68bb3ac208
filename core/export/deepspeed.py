"""RunConfig -> the JSON of DeepSpeed."""

from __future__ import annotations

from typing import Any

from trainwiz.core.config.run import RunConfig
from trainwiz.core.export.solved import runs_on_cpu, solved, zero_stage

BUCKET_ELEMENTS = 50_000_000
"""Elements of the gradient and of the gather bucket. DeepSpeed's own 5e8 takes a gigabyte in half precision for each."""

ADAMW = frozenset({"adamw_torch", "adamw_torch_fused"})


def deepspeed_config(config: RunConfig) -> dict[str, Any] | None:
    """The document, or None where DeepSpeed is not used.

    Every key that TrainingArguments also sets is "auto": transformers fills it in, so the two cannot disagree.
    """
    stage = zero_stage(config)
    if stage is None:
        return None
    document: dict[str, Any] = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        # loss_scale 0 is dynamic scaling.
        "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
        "bf16": {"enabled": "auto"},
        "zero_optimization": _zero(config, stage),
        **_optimizer(config),
        "wall_clock_breakdown": False,
    }
    if solved(config.engine.precision, "engine.precision") not in ("fp32", "tf32"):
        # Gradients of one window would otherwise add up in the parameters' own 16 bits.
        document["data_types"] = {"grad_accum_dtype": "fp32"}
    return document


def _zero(config: RunConfig, stage: int) -> dict[str, Any]:
    pinned = {"device": "cpu", "pin_memory": not runs_on_cpu(config)}
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": BUCKET_ELEMENTS,
    }
    if stage == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    else:
        zero["allgather_bucket_size"] = BUCKET_ELEMENTS
    if config.engine.offload != "none":
        zero["offload_optimizer"] = pinned
    if config.engine.offload == "all" and stage == 3:
        zero["offload_param"] = pinned
    return zero


def _optimizer(config: RunConfig) -> dict[str, Any]:
    """DeepSpeed's own AdamW (on the CPU where it is offloaded), or the Trainer's optimizer as it is."""
    offloaded = config.engine.offload != "none"
    if solved(config.engine.optimizer, "engine.optimizer") in ADAMW:
        params: dict[str, Any] = {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}
        if not offloaded:
            # torch's AdamW needs no compiler; DeepSpeed's fused one is built on first use.
            params["torch_adam"] = True
        return {"optimizer": {"type": "AdamW", "params": params}}
    untested: dict[str, Any] = {"zero_allow_untested_optimizer": True}
    return {**untested, "zero_force_ds_cpu_optimizer": False} if offloaded else untested
