"""What the Trainer and programs around it call the settings of a run: their names, the keys they mean, and why the rest
is left out."""

from __future__ import annotations

from collections.abc import Mapping

from trainwiz.core.config.settings import SETTINGS
from trainwiz.core.config.values import Task
from trainwiz.core.importing.report import OFF, RENAMED, for_each, on, places, positive, to
from trainwiz.core.language import mark


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Sentences that several tables share.

NAMES_A_FILE = mark("It names another file, which is read if it exists.")
IN_THAT_FILE = mark("The settings in that file are used.")
LOADED = mark("The trainwiz data loader decides how rows are prepared, and in which order they are read.")
ONLY_ENABLES = mark("It only enables DeepSpeed; its section or file sets the stage (2 where none is set).")
NOT_SUPPORTED = mark("trainwiz does not support this change to the training; the run does not use it.")
BY_STEPS = mark("A run saves at a step interval (checkpoint.every_steps); the plan chooses the interval.")
HANDLED = mark("It tells the launcher how to start processes; trainwiz handles this itself.")
NO_LIMIT = mark("It sets no limit.")
NO_SECRETS = mark("A profile cannot contain a password or key; export it in the shell.")

PRECISION = to(
    "engine.precision",
    {"no": "fp32", "fp16": "fp16", "bf16": "bf16"},
    mark("trainwiz has no such precision, so the plan chooses one."),
)
"""mixed_precision of accelerate's file, and of scripts."""

BF16 = on("engine.precision", "bf16")
"""Off says nothing: a Trainer then takes the launcher's precision, and fp32 where that has none."""

# The arguments of the Trainer (transformers 4.30 to 5.23), and of scripts and programs around it: transformers'
# examples, TRL, LLaMA-Factory, axolotl, alignment-handbook. A test compares them with what is installed.

REASONS: Mapping[str, str] = {
    "output_dir overwrite_output_dir logging_dir": "Each run has its own folder; set another one with --output-dir.",
    "run_name": "It names a single run; use --name.",
    "ignore_data_skip resume_from_checkpoint restore_callback_states_from_checkpoint auto_resume_from_checkpoints": "Resuming "
    "applies to a single run: use `trainwiz runs resume`.",
    "push_to_hub hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision push_to_hub_model_id "
    "push_to_hub_organization": "A run uploads nothing; the trained model is in final_model in the run folder.",
    "do_train do_eval do_predict test_file max_predict_samples dataset_test_split test_size": "It tells a script which "
    "of its parts to run; a trainwiz run trains, and evaluates if rows are held out.",
    "debug log_level log_level_replica disable_tqdm log_on_each_node plot_loss logging_first_step "
    "logging_nan_inf_filter skip_memory_metrics include_num_input_tokens_seen include_tokens_per_second "
    "tpu_metrics_debug": "It controls what a Trainer prints; trainwiz has its own log and progress bar.",
    "batch_eval_metrics eval_do_concat_batches eval_use_gather_object eval_accumulation_steps eval_delay "
    "include_for_metrics include_inputs_for_metrics prediction_loss_only greater_is_better use_legacy_prediction_loop "
    "generation_config jit_mode_eval evals_per_epoch bf16_full_eval fp16_full_eval": "The trainwiz evaluation has its "
    "own metrics and schedule.",
    "project trackio_space_id trackio_bucket_id trackio_static_space_id ray_scope wandb_project wandb_entity "
    "wandb_mode wandb_name wandb_run_name wandb_run_id wandb_watch wandb_log_model": "It belongs to the reporter's own "
    "setup; set it where the reporter reads it.",
    "ddp_bucket_cap_mb ddp_find_unused_parameters ddp_broadcast_buffers ddp_static_graph ddp_backend local_rank _n_gpu "
    "n_gpu": HANDLED,
    "full_determinism optim_args optim_target_modules parallelism_config liger_kernel_config fp16_backend "
    "half_precision_backend fp16_opt_level mp_parameters use_ipex use_mps_device tpu_num_cores lora_bias bias "
    "fan_in_fan_out init_lora_weights layers_pattern layers_to_transform rank_pattern alpha_pattern exclude_modules "
    "inference_mode lora_target_parameters target_parameters loftq_config revision layer_replication": NOT_SUPPORTED,
    "save_only_model save_on_each_node save_safetensors enable_jit_checkpoint": "trainwiz checkpoints are always "
    "complete, so a run can resume from them.",
    "auto_find_batch_size": "trainwiz solves the micro-batch before the run and keeps the effective batch.",
    "activation_checkpointing_kwargs gradient_checkpointing_kwargs": "Gradient checkpointing is non-reentrant "
    "(use_reentrant=False), as torch recommends.",
    "fsdp_config fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap": "trainwiz derives the FSDP wrapping from the model.",
    "use_cache": "Training does not use the KV cache.",
    "logging_strategy": "A run logs at a step interval (logging.every_steps); the plan chooses the interval.",
    "data_seed": "All random numbers of a run come from training.seed.",
    "average_tokens_across_devices": "The loss of a step is averaged over all its tokens on all devices.",
    "saves_per_epoch": BY_STEPS,
    "remove_unused_columns label_names past_index length_column_name preprocessing_num_workers overwrite_cache "
    "pad_to_max_length ignore_pad_token_for_loss validation_split_percentage dataset_num_proc dataset_batch_size "
    "dataset_kwargs keep_linebreaks eval_packing padding_free shuffle_dataset truncation_mode packing_strategy "
    "source_prefix eos_token pad_token max_prompt_length max_completion_length dataset_dir dataset_prepared_path "
    "shuffle_merged_datasets eval_sample_packing pad_to_sequence_len skip_prepare_dataset dataloader_drop_last "
    "dataloader_multiprocessing_context dataloader_in_order accelerator_config dispatch_batches split_batches "
    "sortish_sampler": LOADED,
    "cache_dir model_revision use_fast_tokenizer use_auth_token low_cpu_mem_usage": "The settings of the Hub "
    "cache decide where models and tokenizers are stored.",
    "token hf_token hf_hub_token hub_token push_to_hub_token wandb_token api_key": NO_SECRETS,
    "trust_remote_code": "Python code that ships with a model runs only if you allow it: --set "
    "model.trust_remote_code=true.",
    "bnb_4bit_quant_type bnb_4bit_compute_dtype bnb_4bit_use_double_quant bnb_4bit_quant_storage use_bnb_nested_quant "
    "double_quantization quantization_method": "4-bit is NF4 with double quantization, and matrix products use the "
    "precision of the run.",
    "use_deepspeed": ONLY_ENABLES,
    "task_type lora_task_type mlm": "It names the task.",
}  # fmt: skip
TRAINER = for_each({
    **REASONS,
    # A setting has a place, whatever is said of its name above.
    **places({entry.trainer: key for key, entry in SETTINGS.items() if entry.trainer}),
    **places({
        "per_device_eval_batch_size": "batch.eval_micro_batch_size",
        "num_train_epochs": "training.epochs",
        "gradient_accumulation_steps": "batch.gradient_accumulation_steps",
        "dataloader_num_workers": "data.workers",
        "dataloader_prefetch_factor": "data.prefetch",
        "dataloader_pin_memory": "data.pin_memory",
        "dataloader_persistent_workers": "data.persistent_workers",
        "pad_to_multiple_of": "data.pad_to_multiple_of",
        "concatenate": "data.concatenate",
        "streaming": "data.streaming",
        "generation_max_length": "evaluation.generation_length",
        "generation_num_beams": "evaluation.beams",
        "predict_with_generate": "evaluation.generate",
        "early_stopping_patience early_stopping_steps": "evaluation.patience",
        "max_target_length": "batch.target_length",
        "min_lr": "training.final_learning_rate",
        "mlm_probability": "training.mask_probability",
        "tf32": "engine.tf32",
        "activation_checkpointing": "engine.checkpointing",
        "tokenizer_name": "model.tokenizer",
        "source_lang": "model.source_language",
        "target_lang": "model.target_language",
        "use_rslora peft_use_rslora": "peft.rslora",
        "use_dora peft_use_dora": "peft.dora",
        "adapter_name_or_path": "peft.adapter",
        "modules_to_save": "peft.modules_to_save",
        "lora_r": "peft.rank",
        "lora_alpha": "peft.alpha",
        "lora_dropout": "peft.dropout",
        "merge_lora": "peft.merge",
    }),
    "line_by_line": to("data.concatenate", {"yes": False, "no": True}),
    "group_by_length": on("data.group_by_length", True),  # until 5.0; the next from 5.0 on
    "train_sampling_strategy": to("data.group_by_length", {"random": False, "group_by_length": True}, LOADED),
    "max_seq_length": positive("batch.sequence_length", NO_LIMIT),
    "max_steps": positive("training.max_steps", NO_LIMIT),
    "torch_empty_cache_steps": positive("training.empty_cache_steps", OFF),
    "save_total_limit": positive("checkpoint.keep", OFF),
    "load_best_model_at_end": to("checkpoint.final", {"yes": "best", "no": "last"}),
    "save_strategy": to("checkpoint.keep_best", {"best": True}, BY_STEPS),
    "assistant_only_loss completion_only_loss": to("training.train_on", {"yes": "answers", "no": "everything"}),
    "train_on_inputs train_on_prompt": to("training.train_on", {"yes": "everything", "no": "answers"}),
    "mask_history": on("training.train_on", "last_answer"),
    "torch_compile_backend torch_compile_mode": lambda *_: {"engine.compile": True},  # TrainingArguments.__post_init__
    "adafactor": on("engine.optimizer", "adafactor"),  # until 5.0
    "use_8bit_adam": on("engine.optimizer", "adamw_bnb_8bit"),
    # What does the same today for what was removed, up to 4.57.
    "optim": to("engine.optimizer", {
        "adamw_hf": "adamw_torch", "adamw_apex_fused": "adamw_torch_fused", "adamw_bnb": "adamw_bnb_8bit",
        "adamw_8bit": "adamw_bnb_8bit",
    }),
    "mixed_precision": PRECISION,
    "pure_bf16": on("engine.precision", "bf16-true"),
    "use_cpu": to("engine.device", {"yes": "cpu"}, mark("If it is off, the available device is used.")),
    "attn_implementation use_flash_attn": to(
        "engine.attention",
        {name: name for name in ("sdpa", "eager")} | dict.fromkeys(("yes", "fa2", "flash_attention_2"), "flash_attention_2"),
        mark("The plan chooses the attention kernel."),
    ),
    "finetuning_type": to(
        "peft.method", {"lora": "lora", "qlora": "lora", "full": "none"}, mark("trainwiz trains all weights, or uses LoRA.")
    ),
    "load_in_4bit use_4bit": on("engine.base_precision", "nf4"),
    "load_in_8bit use_8bit": on("engine.base_precision", "int8"),
    "quantization_bit": to("engine.base_precision", {"4": "nf4", "8": "int8"}),
    "fp16": on("engine.precision", "fp16"),
    "fsdp": to("engine.strategy", dict.fromkeys(("yes", "full_shard", "full_shard auto_wrap"), "fsdp")),
    "lr_scheduler_type": to("training.schedule", {"cosine_with_min_lr": "cosine", "constant_with_warmup": "constant"}),
    "stage": to("task", {"pt": "causal-lm", "sft": "causal-lm"}, NOT_SUPPORTED),
    "rl": NOT_SUPPORTED,
    "use_peft": to("peft.method", {"yes": "lora", "no": "none"}),
    "lora_target_linear": on("peft.targets", ["all-linear"]),
})  # fmt: skip
"""Today's name -> its place. What depends on other settings is in trainer.RULES."""

_SAME: Mapping[str, str] = {
    "model_name_or_path": "model_name model_id model_path base_model base_model_name base_model_name_or_path "
    "pretrained_model_name_or_path model",
    "tokenizer_name": "tokenizer_name_or_path tokenizer_path tokenizer tokenizer_config",
    "attn_implementation": "attention_implementation _attn_implementation",
    "dataset_name": "datasets dataset_path dataset_id dataset dataset_name_or_path data_path train_file train_data_file "
    "train_data train_data_path train_dataset data_files",
    "dataset_config_name": "dataset_config",
    "dataset_train_split": "train_split dataset_split split",
    "validation_file": "eval_file eval_data_file eval_data_path validation_data eval_dataset dev_file test_datasets",
    "max_train_samples": "max_samples",
    "text_column": "dataset_text_field text_column_name",
    "target_column": "summary_column response_column label_column label_column_name",
    "max_seq_length": "max_length max_source_length block_size model_max_length cutoff_len seq_len seq_length "
    "max_seq_len sequence_length context_length sequence_len",
    "use_peft": "use_lora lora_enable enable_lora",
    "lora_r": "lora_rank lora_dim",
    "adapter_name_or_path": "lora_model_dir adapter_path lora_path",
    "modules_to_save": "lora_modules_to_save additional_target",
    "lora_target_modules": "lora_target lora_targets lora_target_module target_modules",
    "finetuning_type": "peft_type adapter peft_method train_type sft_type tuner_type",
    "use_flash_attn": "use_flash_attention use_flash_attention_2 flash_attn flash_attention",
    "packing": "group_by_packing sample_packing neat_packing",
    "deepspeed": "deepspeed_config ds_config deepspeed_config_file",
    "num_train_epochs": "epochs num_epochs train_epochs n_epochs max_epochs",
    "max_steps": "max_train_steps train_steps",
    "warmup_steps": "num_warmup_steps lr_warmup_steps",
    "lr_scheduler_type": "lr_scheduler scheduler_type",
    "per_device_train_batch_size": "train_batch_size batch_size micro_batch_size device_batch_size "
    "train_micro_batch_size_per_gpu",
    "per_device_eval_batch_size": "eval_batch_size val_batch_size",
    "gradient_accumulation_steps": "grad_accum grad_accumulation_steps accumulation_steps gradient_accumulation",
    "max_grad_norm": "grad_clip clip_grad gradient_clip gradient_clipping",
    "activation_checkpointing": "gradient_checkpoint use_gradient_checkpointing grad_checkpointing",
    "generation_max_length": "val_max_target_length", "generation_num_beams": "num_beams",
    "streaming": "dataset_streaming", "val_size": "val_set_size", "learning_rate": "lr", "optim": "optimizer",
    "weight_decay": "adam_weight_decay", "dataloader_num_workers": "num_workers", "adam_beta1": "beta1",
    "adam_beta2": "beta2", "adam_epsilon": "adam_eps", "output_dir": "save_dir",
    "save_total_limit": "checkpoints_total_limit", "logging_steps": "log_interval",
    "label_smoothing_factor": "label_smoothing", "use_liger_kernel": "enable_liger_kernel",
    "neftune_noise_alpha": "neftune_alpha noisy_embedding_alpha", "save_steps": "checkpointing_steps save_per_step",
    "source_lang": "src_lang source_language", "target_lang": "tgt_lang target_language",
}  # fmt: skip
CANONICAL = {**RENAMED, **{alias: name for name, aliases in _SAME.items() for alias in aliases.split()}}
"""What older versions, scripts and programs around the Trainer call the same thing -> the name that has a place."""

LOOSE = words("train_batch_size batch_size device_batch_size train_batchsize")
"""Names that some scripts mean for one process and others for all of them together."""

TRAINERS_OWN = words(
    "per_device_train_batch_size per_device_eval_batch_size per_gpu_train_batch_size num_train_epochs "
    "gradient_accumulation_steps lr_scheduler_type lr_scheduler_kwargs adam_beta1 adam_beta2 adam_epsilon "
    "label_smoothing_factor save_strategy save_steps save_total_limit eval_strategy evaluation_strategy logging_steps "
    "logging_strategy load_best_model_at_end metric_for_best_model predict_with_generate dataloader_num_workers "
    "fp16_opt_level remove_unused_columns overwrite_output_dir warmup_ratio warmup_steps optim"
)
"""Names that say that a mapping of settings is the Trainer's."""

# What a program takes for what is left out, where trainwiz takes or solves something else.

Defaults = Mapping[str, tuple[str, int | float | str]]
TRAINER_DEFAULTS: Defaults = {
    "per_device_train_batch_size": ("batch.micro_batch_size", 8),
    "gradient_accumulation_steps": ("batch.gradient_accumulation_steps", 1),
    "num_train_epochs": ("training.epochs", 3.0),
    "learning_rate": ("training.learning_rate", 5e-5),
    "weight_decay": ("training.weight_decay", 0.0),
}
"""TrainingArguments (transformers 2.11 to 5.23 alike)."""
SFT_DEFAULTS: Defaults = {
    **TRAINER_DEFAULTS,
    "learning_rate": ("training.learning_rate", 2e-5),
    "max_seq_length": ("batch.sequence_length", 1024),
}
"""SFTConfig (TRL 0.20 to 1.16)."""
TRL_LORA: Defaults = {
    "lora_r": ("peft.rank", 16), "lora_alpha": ("peft.alpha", 32.0), "lora_dropout": ("peft.dropout", 0.05),
}  # fmt: skip
"""ModelConfig of TRL, which its scripts and its command take."""
LORA_DEFAULTS: Defaults = {
    "lora_r": ("peft.rank", 8), "lora_alpha": ("peft.alpha", 8.0), "lora_dropout": ("peft.dropout", 0.0),
}  # fmt: skip
"""LoraConfig of PEFT."""

# Which task a training is for, from what its classes, scripts and arguments are called.

ENDINGS: Mapping[Task, str] = {
    "seq2seq": "ForSeq2SeqLM ForConditionalGeneration Seq2SeqTrainingArguments Seq2SeqTrainer DataCollatorForSeq2Seq "
    "MarianMTModel run_summarization run_translation seq_2_seq_lm max_source_length max_target_length "
    "predict_with_generate",
    "causal-lm": "ForCausalLM LMHeadModel SFTConfig SFTTrainer run_clm sft causal_lm",
    "masked-lm": "ForMaskedLM mlm mlm_probability",
    "sequence-classification": "ForSequenceClassification run_glue run_classification seq_cls",
    "token-classification": "ForTokenClassification run_ner token_cls",
}  # fmt: skip
"""Ends of the names of classes of transformers and TRL, task types of peft, arguments and scripts of their examples
without ".py" and _no_trainer."""
OTHER_ENDINGS = words(
    "ForQuestionAnswering RewardConfig RewardTrainer ForImageClassification ForVision2Seq ForImageTextToText "
    "ForSpeechSeq2Seq ForCTC ForAudioClassification instance_prompt image_column resolution image_folder instance_data_dir "
    "DPOConfig PPOConfig GRPOConfig KTOConfig ORPOConfig DPOTrainer PPOTrainer GRPOTrainer KTOTrainer ORPOTrainer dpo "
    "orpo grpo ppo kto simpo"
)
"""Ends of the names of classes and scripts, and of arguments of diffusers' examples, of trainings that are none of
ours."""
