"""The names of the Trainer's arguments, today's and older ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from trainwiz.core.importing.report import Collector
from trainwiz.core.importing.settings import (
    Setting,
    Unresolved,
    WrongValue,
    decimal_number,
    is_nothing,
    text_list,
    text_value,
    yes_or_no,
)
from trainwiz.core.language import tr

# The names of the Trainer's arguments: those of today, and what became of the older ones.
#
# Source: the fields of `TrainingArguments` and `Seq2SeqTrainingArguments` in transformers 5.23, compared with those of the
# releases 2.11, 3.5.1, 4.12.5, 4.30.2, 4.46.3, 4.57.6 and 5.0.0; the replacements are those that the deprecation warnings
# of these releases name. A test compares TODAY with the installed transformers.

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


# What scripts around the Trainer call the same thing: model, data, lengths, adapters.
#
# Sources: the example scripts of transformers (run_clm.py, run_mlm.py, run_summarization.py, run_translation.py and their
# `_no_trainer` forms), TRL's ModelConfig, ScriptArguments and SFTConfig (0.12 to 1.16), LLaMA-Factory's arguments,
# alignment-handbook's recipes, Alpaca's and FastChat's train.py, ChatGLM's p-tuning script, fairseq's options.

_SAME: dict[str, str] = {
    "model_name_or_path": "model_name model_id model_path model_id_or_path base_model base_model_name "
    "base_model_name_or_path pretrained_model_name_or_path pretrained_model_path model",
    "tokenizer_name": "tokenizer_name_or_path tokenizer_path tokenizer",
    "dtype": "torch_dtype",
    "attn_implementation": "attention_implementation _attn_implementation",
    "dataset_name": "dataset_path dataset_id dataset dataset_name_or_path data_path train_file train_data_file "
    "train_data train_data_path train_dataset data_files train_path train_file_path",
    "dataset_config_name": "dataset_config",
    "dataset_train_split": "train_split dataset_split split",
    "validation_file": "eval_file eval_data_file eval_data_path validation_data valid_file eval_dataset dev_file eval_file_path",
    "max_train_samples": "max_samples",
    "text_column": "dataset_text_field text_column_name prompt_column source_column",
    "target_column": "summary_column response_column label_column",
    "max_seq_length": "max_length max_source_length block_size model_max_length cutoff_len seq_len seq_length "
    "max_seq_len sequence_length context_length sequence_len max_sequence_length "
    "tokens_per_sample",
    "max_target_length": "target_length max_target_len",
    "generation_max_length": "val_max_target_length",
    "generation_num_beams": "num_beams eval_beams",
    "source_lang": "src_lang source_language",
    "target_lang": "tgt_lang target_language",
    "use_peft": "use_lora lora_enable enable_lora use_lora_adapter",
    "lora_r": "lora_rank lora_dim peft_lora_r",
    "lora_alpha": "peft_lora_alpha",
    "lora_dropout": "peft_lora_dropout lora_dropout_p",
    "lora_target_modules": "lora_target lora_targets target_modules lora_target_module",
    "finetuning_type": "peft_type adapter peft_method train_type sft_type tuner_type",
    "use_flash_attn": "use_flash_attention use_flash_attention_2 use_flash_attn_2 flash_attn enable_flash_attn",
    "packing": "group_by_packing",
    "streaming": "dataset_streaming",
    "deepspeed": "deepspeed_config ds_config deepspeed_config_file deepspeed_config_path ds_config_path ds_file",
    "learning_rate": "lr",
    "num_train_epochs": "epochs num_epochs train_epochs n_epochs max_epoch max_epochs",
    "max_steps": "max_train_steps train_steps max_update",
    "warmup_steps": "num_warmup_steps lr_warmup_steps warmup_updates",
    "lr_scheduler_type": "lr_scheduler scheduler_type",
    "per_device_train_batch_size": "train_batch_size batch_size micro_batch_size device_batch_size "
    "train_batch_size_per_gpu batch_size_per_gpu batch_size_per_device train_micro_batch_size_per_gpu train_batchsize "
    "max_sentences",
    "per_device_eval_batch_size": "eval_batch_size val_batch_size eval_batch_size_per_gpu",
    "gradient_accumulation_steps": "grad_accum grad_accumulation_steps accumulation_steps "
    "gradient_accumulation accumulate_grad_batches update_freq",
    "weight_decay": "adam_weight_decay",
    "max_grad_norm": "grad_clip clip_grad gradient_clip gradient_clipping clip_norm",
    "activation_checkpointing": "gradient_checkpoint use_gradient_checkpointing grad_checkpointing",
    "dataloader_num_workers": "num_workers",
    "adam_beta1": "beta1",
    "adam_beta2": "beta2",
    "save_steps": "checkpointing_steps save_per_step save_interval_updates",
    "save_total_limit": "checkpoints_total_limit keep_interval_updates",
    "logging_steps": "log_interval",
    "adam_epsilon": "adam_eps",
    "label_smoothing_factor": "label_smoothing",
    "output_dir": "save_dir",
}

CANONICAL: dict[str, str] = {alias: name for name, aliases in _SAME.items() for alias in aliases.split()}
"""Alias -> the name that the places know."""

LOOSE: frozenset[str] = frozenset(
    {"train_batch_size", "batch_size", "device_batch_size", "eval_batch_size", "train_batchsize"}
)
"""Names that some scripts mean for one process and others for all of them together."""


# Arguments of older transformers -> today's names, with the values that these take.


def _evaluating(value: Any) -> Any:
    return "steps" if yes_or_no(value) else "no"


def _adafactor(value: Any) -> Any:
    return "adafactor" if yes_or_no(value) else None


def _grouped(value: Any) -> Any:
    return "group_by_length" if yes_or_no(value) else None


def _sharded(value: Any) -> Any:
    """fairscale's ways: `simple` and `zero_dp_2` shard gradients and optimizer, `zero_dp_3` the weights too."""
    if isinstance(value, bool) or is_nothing(value) or str(value).lower() in ("true", "false"):
        return "shard_grad_op" if not is_nothing(value) and yes_or_no(value) else None
    names = {"simple": "shard_grad_op", "zero_dp_2": "shard_grad_op", "zero_dp_3": "full_shard"}
    return " ".join(names.get(option, option) for option in text_list(value))


CHANGED: dict[str, Callable[[Any], Any]] = {
    "evaluate_during_training": _evaluating,
    "adafactor": _adafactor,
    "group_by_length": _grouped,
    "sharded_ddp": _sharded,
}
"""Old names whose values change with the name; None is what the argument is where it is not set."""


def with_todays_names(collector: Collector, settings: Iterable[Setting]) -> list[Setting]:
    """The settings under today's names, each renaming noted; of two spellings of one setting the later stays.

    Two spellings with different values are a finding.
    """
    found: dict[str, Setting] = {}
    for setting in settings:
        today = _renamed(collector, setting)
        first = found.get(today.name)
        if first is not None:
            today = _one_of(collector, first, today)
        found[today.name] = today
    return list(found.values())


def _renamed(collector: Collector, setting: Setting) -> Setting:
    name = setting.name
    if name == "optim" and isinstance(setting.value, str):
        return _todays_optimizer(collector, setting)
    if name not in RENAMED:
        return setting
    new = RENAMED[name]
    collector.rename(setting.as_written(), new, setting.line)
    if isinstance(setting.value, Unresolved) or name not in CHANGED:
        return setting.called(new)
    try:
        return setting.called(new, CHANGED[name](setting.value))
    except WrongValue:
        # The place of the new name says what is wrong with the value.
        return setting.called(new)


def _todays_optimizer(collector: Collector, setting: Setting) -> Setting:
    name = text_value(setting.value)
    new = REMOVED_OPTIMIZERS.get(name)
    if new is None:
        return setting
    collector.rename(f"{setting.as_written()}={name}", f"optim={new}", setting.line)
    return setting.called("optim", new)


def _one_of(collector: Collector, first: Setting, second: Setting) -> Setting:
    """Which of two settings with one name today counts."""
    if first.name == "warmup_steps" and first.as_written() != second.as_written():
        return _warmup(collector, first, second)
    unset = [one for one in (first, second) if is_nothing(one.value)]
    if unset:
        return first if unset == [second] else second
    if first.value != second.value:
        _contradict(collector, first, second, second)
    return second


def _warmup(collector: Collector, first: Setting, second: Setting) -> Setting:
    """TrainingArguments.get_warmup_steps of 4.x: steps above 0 win over the ratio."""
    steps, ratio = (second, first) if second.as_written() == "warmup_steps" else (first, second)
    counts = [one for one in (steps, ratio) if _above_zero(one.value)]
    if len(counts) == 2:
        _contradict(collector, first, second, steps)
    return counts[0] if counts else steps


def _above_zero(value: Any) -> bool:
    try:
        return decimal_number(value) > 0
    except WrongValue:
        return isinstance(value, Unresolved)


def _contradict(collector: Collector, first: Setting, second: Setting, counts: Setting) -> None:
    message = tr(
        "{first} and {second} are the same setting with two values; {counts} counts. Keep one.",
        first=_shown(first),
        second=_shown(second),
        counts=counts.as_written(),
    )
    collector.find("contradiction", "warning", message, second.line)


def _shown(setting: Setting) -> str:
    from trainwiz.core.text import plain_text

    value = setting.value.text if isinstance(setting.value, Unresolved) else setting.value
    return plain_text(f"{setting.as_written()}={value}", 60)
