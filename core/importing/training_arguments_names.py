"""The names of the Trainer's arguments: those of today, and what became of the older ones.

Source: the fields of `TrainingArguments` and `Seq2SeqTrainingArguments` in transformers 5.23, compared with those of the
releases 2.11, 3.5.1, 4.12.5, 4.30.2, 4.46.3, 4.57.6 and 5.0.0; the replacements are those that the deprecation warnings
of these releases name. A test compares TODAY with the installed transformers.
"""

from __future__ import annotations

TODAY: frozenset[str] = frozenset(
    [
        "output_dir",
        "per_device_train_batch_size",
        "num_train_epochs",
        "max_steps",
        "learning_rate",
        "lr_scheduler_type",
        "lr_scheduler_kwargs",
        "warmup_steps",
        "optim",
        "optim_args",
        "weight_decay",
        "adam_beta1",
        "adam_beta2",
        "adam_epsilon",
        "optim_target_modules",
        "gradient_accumulation_steps",
        "average_tokens_across_devices",
        "max_grad_norm",
        "label_smoothing_factor",
        "bf16",
        "fp16",
        "bf16_full_eval",
        "fp16_full_eval",
        "tf32",
        "activation_checkpointing",
        "activation_checkpointing_kwargs",
        "torch_compile",
        "torch_compile_backend",
        "torch_compile_mode",
        "use_liger_kernel",
        "liger_kernel_config",
        "use_cache",
        "neftune_noise_alpha",
        "torch_empty_cache_steps",
        "auto_find_batch_size",
        "logging_strategy",
        "logging_steps",
        "logging_first_step",
        "log_on_each_node",
        "logging_nan_inf_filter",
        "include_num_input_tokens_seen",
        "log_level",
        "log_level_replica",
        "disable_tqdm",
        "report_to",
        "run_name",
        "project",
        "trackio_space_id",
        "trackio_bucket_id",
        "trackio_static_space_id",
        "eval_strategy",
        "eval_steps",
        "eval_delay",
        "per_device_eval_batch_size",
        "prediction_loss_only",
        "eval_on_start",
        "eval_do_concat_batches",
        "eval_use_gather_object",
        "eval_accumulation_steps",
        "include_for_metrics",
        "batch_eval_metrics",
        "save_only_model",
        "save_strategy",
        "save_steps",
        "save_on_each_node",
        "save_total_limit",
        "enable_jit_checkpoint",
        "push_to_hub",
        "hub_token",
        "hub_private_repo",
        "hub_model_id",
        "hub_strategy",
        "hub_always_push",
        "hub_revision",
        "load_best_model_at_end",
        "metric_for_best_model",
        "greater_is_better",
        "ignore_data_skip",
        "restore_callback_states_from_checkpoint",
        "full_determinism",
        "seed",
        "data_seed",
        "use_cpu",
        "accelerator_config",
        "parallelism_config",
        "dataloader_drop_last",
        "dataloader_num_workers",
        "dataloader_pin_memory",
        "dataloader_persistent_workers",
        "dataloader_prefetch_factor",
        "dataloader_multiprocessing_context",
        "dataloader_in_order",
        "remove_unused_columns",
        "label_names",
        "train_sampling_strategy",
        "length_column_name",
        "ddp_find_unused_parameters",
        "ddp_bucket_cap_mb",
        "ddp_broadcast_buffers",
        "ddp_static_graph",
        "ddp_backend",
        "ddp_timeout",
        "fsdp",
        "fsdp_config",
        "deepspeed",
        "debug",
        "skip_memory_metrics",
        "do_train",
        "do_eval",
        "do_predict",
        "resume_from_checkpoint",
        "local_rank",
        "sortish_sampler",
        "predict_with_generate",
        "generation_max_length",
        "generation_num_beams",
        "generation_config",
    ]
)
"""Without the two aliases (gradient_checkpointing, gradient_checkpointing_kwargs) that version 5 still takes."""

RENAMED: dict[str, str] = {
    "evaluate_during_training": "eval_strategy",  # last in 3.5
    "evaluation_strategy": "eval_strategy",  # last in 4.46
    "per_gpu_train_batch_size": "per_device_train_batch_size",  # last in 4.57
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "no_cuda": "use_cpu",
    "adafactor": "optim",
    "xpu_backend": "ddp_backend",  # last in 4.30
    "sharded_ddp": "fsdp",  # fairscale's; last in 4.30
    "torchdynamo": "torch_compile_backend",
    "include_inputs_for_metrics": "include_for_metrics",
    "include_tokens_per_second": "include_num_input_tokens_seen",
    "push_to_hub_token": "hub_token",
    "push_to_hub_model_id": "hub_model_id",
    "push_to_hub_organization": "hub_model_id",
    "tpu_metrics_debug": "debug",
    "fsdp_min_num_params": "fsdp_config",
    "fsdp_transformer_layer_cls_to_wrap": "fsdp_config",
    "dispatch_batches": "accelerator_config",  # last in 4.46
    "split_batches": "accelerator_config",
    "warmup_ratio": "warmup_steps",  # last in 5.0
    "group_by_length": "train_sampling_strategy",  # last in 5.0
    "gradient_checkpointing": "activation_checkpointing",  # an alias in 5.23
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
}
"""Old spelling -> today's name. Where the value changes too, `training_arguments_old` says how."""

REMOVED: frozenset[str] = frozenset(
    [
        "_n_gpu",
        "fp16_backend",
        "fp16_opt_level",
        "half_precision_backend",
        "jit_mode_eval",
        "logging_dir",
        "mp_parameters",
        "overwrite_output_dir",
        "past_index",
        "ray_scope",
        "save_safetensors",
        "tpu_num_cores",
        "use_ipex",
        "use_legacy_prediction_loop",
        "use_mps_device",
    ]
)
"""Gone without a successor (`_n_gpu` is only in what a Trainer dumped); `training_arguments_dropped` says why."""

REMOVED_OPTIMIZERS: dict[str, str] = {
    "adamw_hf": "adamw_torch",  # last in 4.46
    "adamw_apex_fused": "adamw_torch_fused",  # last in 4.57
    "adamw_bnb": "adamw_bnb_8bit",
    "adamw_8bit": "adamw_bnb_8bit",  # an alias, still there
    "paged_adamw": "paged_adamw_32bit",
}
"""Old value of `optim` -> the one that does the same today."""

ONLY_THE_TRAINERS: frozenset[str] = frozenset(
    [
        "per_device_train_batch_size",
        "per_device_eval_batch_size",
        "per_gpu_train_batch_size",
        "num_train_epochs",
        "gradient_accumulation_steps",
        "lr_scheduler_type",
        "lr_scheduler_kwargs",
        "adam_beta1",
        "adam_beta2",
        "adam_epsilon",
        "label_smoothing_factor",
        "save_strategy",
        "save_steps",
        "save_total_limit",
        "eval_strategy",
        "evaluation_strategy",
        "logging_steps",
        "logging_strategy",
        "load_best_model_at_end",
        "metric_for_best_model",
        "predict_with_generate",
        "dataloader_num_workers",
        "fp16_opt_level",
        "remove_unused_columns",
        "overwrite_output_dir",
        "warmup_ratio",
        "warmup_steps",
        "optim",
    ]
)
"""Names that say that a mapping of settings is the Trainer's; `learning_rate`, `seed` or `fp16` are everybody's."""


def todays_name(name: str) -> str | None:
    """The name that an argument has today, itself where it is one of today; None for what no version knows."""
    if name in TODAY:
        return name
    return RENAMED.get(name)


def is_argument(name: str) -> bool:
    """Some version of the Trainer has, or had, an argument of this name."""
    return name in TODAY or name in RENAMED or name in REMOVED
