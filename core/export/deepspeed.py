"""RunConfig -> the JSON of DeepSpeed."""

from __future__ import annotations

from typing import Any

from trainwiz.core.config.run import RunConfig
from trainwiz.core.export.training_arguments import runs_on_cpu, solved, zero_stage

# Names that DeepSpeed knows, and where transformers and accelerate fill in an "auto".

MISPLACED = frozenset({"fp16", "bf16", "optimizer", "scheduler", "gradient_clipping", "activation_checkpointing"})
"""Sections of their own that are found inside `zero_optimization`, where DeepSpeed refuses them."""

FILLED_IN = frozenset(
    {
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
        "fp16.enabled", "bf16.enabled", "optimizer.params.lr", "optimizer.params.betas", "optimizer.params.eps",
        "optimizer.params.weight_decay", "scheduler.params.warmup_min_lr", "scheduler.params.warmup_max_lr",
        "scheduler.params.warmup_num_steps", "scheduler.params.total_num_steps", "zero_optimization.reduce_bucket_size",
        "zero_optimization.stage3_prefetch_bucket_size", "zero_optimization.stage3_param_persistence_threshold",
        "zero_optimization.stage3_gather_16bit_weights_on_model_save", "zero_optimization.stage",
        "zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device",
        "zero_optimization.offload_optimizer.nvme_path", "zero_optimization.offload_param.nvme_path",
    }
)  # fmt: skip
"""Where transformers (integrations/deepspeed.py) or accelerate (DeepSpeedPlugin) put a number in place of "auto"."""

KNOWN_VERSION = "0.19"
KNOWN_VERSION_NUMBERS = (0, 19)

SECTION_KEYS: dict[str, frozenset[str]] = {
    "zero_optimization": frozenset(
        {
            "allgather_bucket_size", "allgather_partitions", "allgather_sequential", "compute_grad_norm",
            "contiguous_gradients", "cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory",
            "elastic_checkpoint", "enable_sanity_checks", "gather_16bit_weights_on_model_save",
            "ignore_unused_parameters", "leaf_module", "legacy_stage1", "load_from_fp32_weights",
            "log_trace_cache_warnings", "max_live_parameters", "max_reuse_distance", "memory_efficient_linear",
            "model_persistence_threshold", "module_granularity_threshold", "offload_optimizer", "offload_param",
            "overlap_comm", "override_module_apply", "param_persistence_threshold", "parameter_alignment",
            "pipeline_loading_checkpoint", "prefetch_bucket_size", "reduce_bucket_size", "reduce_scatter",
            "round_robin_gradients", "save_muon_momentum_buffer_in_memory", "stage", "stage3_allgather_sequential",
            "stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save",
            "stage3_max_live_parameters", "stage3_max_reuse_distance", "stage3_model_persistence_threshold",
            "stage3_module_granularity_threshold", "stage3_param_persistence_threshold",
            "stage3_prefetch_bucket_size", "stage3_use_all_reduce_for_fetch_params", "sub_group_size",
            "use_all_reduce_for_fetch_params", "use_multi_rank_bucket_allreduce", "zenflow",
            "zero_hpz_partition_size", "zero_quantized_gradients", "zero_quantized_nontrainable_weights",
            "zero_quantized_weights",
        }
    ),
    "zero_optimization.offload_optimizer": frozenset(
        {
            "buffer_count", "cpuadam_cores_perc", "device", "fast_init", "nvme_path", "pin_memory",
            "pipeline_read", "pipeline_write", "ratio", "super_offload",
        }
    ),
    "zero_optimization.offload_param": frozenset(
        {
            "buffer_count", "buffer_size", "device", "max_in_cpu", "nvme_path", "pin_memory",
        }
    ),
    "compile": frozenset(
        {
            "autoep_non_moe", "debug_log", "deepcompile", "double_buffer", "free_activation",
            "free_activation_threshold", "keep_all_input_tensors", "keep_int_input_tensors",
            "offload_activation", "offload_activation_pin_memory", "offload_opt_states",
            "offload_parameters", "passes", "symmetric_memory", "sync_after_allgather", "sync_after_reduce",
            "sync_before_allgather", "sync_before_reduce",
        }
    ),
    "fp16": frozenset(
        {
            "auto_cast", "consecutive_hysteresis", "enabled", "fp16_master_weights_and_grads", "hysteresis",
            "initial_scale_power", "loss_scale", "loss_scale_window", "min_loss_scale",
        }
    ),
    "bf16": frozenset(
        {
            "bf16_master_weights_and_grads", "bf16_optimizer_states", "check_grad_overflow", "enabled",
            "immediate_grad_update",
        }
    ),
}  # fmt: skip
"""Sections of DeepSpeed's JSON that refuse a key that they do not know, with the keys and old names that they take."""


# RunConfig -> the JSON of DeepSpeed.

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
