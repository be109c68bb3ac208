"""What other programs call the settings of a run: their names, the keys they mean, and why the rest is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from trainwiz.core.config.settings import SETTINGS
from trainwiz.core.config.values import Optimizer, Precision, Strategy, Task
from trainwiz.core.importing.values import (
    OFF,
    Convert,
    attention,
    choice,
    decimal_number,
    either,
    flash_attention,
    if_on,
    language,
    positive,
    reporters,
    source_names,
    template_file,
    text_value,
    timeout,
    whole_number,
    yes_or_no,
)
from trainwiz.core.language import mark

Rule = str | tuple[str, Convert]
"""Why a setting is left out (one sentence, marked), or (key of a run, conversion)."""


def for_each(reasons: Mapping[str, str]) -> dict[str, str]:
    """Names -> reason, as name -> reason."""
    return {name: why for names, why in reasons.items() for name in names.split()}


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Sentences that several tables share.

UNSET = mark("It is not set.")
NAMES_A_FILE = mark("It names another file, which is read if it exists.")
LOADED = mark("The trainwiz data loader has its own order and its own way to start workers.")
RENDEZVOUS = mark("How the nodes find each other is set in the command of each node, not in the settings.")
TPU = mark("It is for TPUs, which trainwiz does not support.")
ALL_GPUS = mark("A run uses all GPUs by default.")
ONE_NODE = mark("A run uses one machine by default.")
MEGATRON = mark("trainwiz has no Megatron-LM engine.")
TUNING = mark("trainwiz sets its own value. To use this file unchanged: --deepspeed FILE.")
NOT_OFFERED = mark("trainwiz has no equivalent. To use this file unchanged: --deepspeed FILE.")
LEFT_TO_TRAINER = mark("auto leaves it to the Trainer arguments.")
AUTO = mark('"auto" leaves it to the Trainer arguments.')
IN_THAT_FILE = mark("The settings in that file are used.")

PRECISIONS: Mapping[str, Precision] = {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}
"""accelerate's mixed_precision -> engine.precision. Beside its fp8 matrix products accelerate computes in bf16
(Accelerator.__init__: `elif self.mixed_precision == "fp8"` enables autocast, whose type is then bf16)."""

# The arguments of the Trainer (transformers 4.30 to 5.23), and of scripts and programs around it: transformers'
# examples, TRL, LLaMA-Factory, axolotl, alignment-handbook. A test compares them with what is installed.

NOT_SUPPORTED = mark("trainwiz does not support this change to the training; the run does not use it.")
BY_STEPS = mark("A run saves at a step interval (checkpoint.every_steps); the plan chooses the interval.")
HANDLED = mark("It tells the launcher how to start processes; trainwiz handles this itself.")
REASONS: Mapping[str, str] = {
    "output_dir overwrite_output_dir logging_dir": "Each run has its own folder; set another one with --output-dir.",
    "run_name": "It names a single run; use --name.",
    "ignore_data_skip resume_from_checkpoint restore_callback_states_from_checkpoint auto_resume_from_checkpoints": "Resuming "
    "applies to a single run: use `trainwiz runs resume`.",
    "push_to_hub hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision push_to_hub_model_id "
    "push_to_hub_organization push_dataset_to_hub": "A run uploads nothing; the trained model is in final_model in the "
    "run folder.",
    "do_train do_eval do_predict test_file max_predict_samples dataset_test_split test_size": "It tells a script which "
    "of its parts to run; a trainwiz run trains, and evaluates if rows are held out.",
    "debug log_level log_level_replica disable_tqdm log_on_each_node plot_loss logging_first_step "
    "logging_nan_inf_filter skip_memory_metrics include_num_input_tokens_seen include_tokens_per_second "
    "tpu_metrics_debug": "It controls what a Trainer prints; trainwiz has its own log and progress bar.",
    "batch_eval_metrics eval_do_concat_batches eval_use_gather_object eval_accumulation_steps eval_delay "
    "include_for_metrics include_inputs_for_metrics prediction_loss_only greater_is_better use_legacy_prediction_loop "
    "generation_config jit_mode_eval evals_per_epoch bf16_full_eval fp16_full_eval": "The trainwiz evaluation has its "
    "own metrics and schedule.",
    "dataloader_drop_last dataloader_multiprocessing_context dataloader_in_order accelerator_config dispatch_batches "
    "split_batches sortish_sampler": LOADED,
    "project trackio_space_id trackio_bucket_id trackio_static_space_id ray_scope wandb_project wandb_entity "
    "wandb_run_group wandb_mode wandb_name wandb_run_name wandb_run_id wandb_watch wandb_log_model": "It belongs to "
    "the reporter's own setup; set it where the reporter reads it.",
    "ddp_bucket_cap_mb ddp_find_unused_parameters ddp_broadcast_buffers ddp_static_graph ddp_backend local_rank _n_gpu "
    "n_gpu": HANDLED,
    "full_determinism optim_args optim_target_modules parallelism_config liger_kernel_config liger_rope liger_rms_norm "
    "liger_glu_activation liger_layer_norm liger_fused_linear_cross_entropy lora_mlp_kernel lora_qkv_kernel "
    "lora_o_kernel fp16_backend half_precision_backend fp16_opt_level mp_parameters use_ipex use_mps_device "
    "tpu_num_cores lora_bias bias fan_in_fan_out init_lora_weights layers_pattern layers_to_transform rank_pattern "
    "alpha_pattern exclude_modules inference_mode lora_target_parameters target_parameters loftq_config revision "
    "layer_replication": NOT_SUPPORTED,
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
    "source_prefix eos_token pad_token max_prompt_length max_completion_length dataset_dir group_texts "
    "dataset_prepared_path shuffle_merged_datasets eval_sample_packing pad_to_sequence_len skip_prepare_dataset "
    "preprocessing_batch_size": "The trainwiz data loader decides how rows are prepared.",
    "cache_dir model_revision use_fast_tokenizer use_auth_token low_cpu_mem_usage": "The settings of the Hub "
    "cache decide where models and tokenizers are stored.",
    "token hf_token hf_hub_token hub_token push_to_hub_token wandb_token api_key": "A profile cannot contain a password "
    "or key; export it in the shell.",
    "trust_remote_code": "Python code that ships with a model runs only if you allow it: --set "
    "model.trust_remote_code=true.",
    "bnb_4bit_quant_type bnb_4bit_compute_dtype bnb_4bit_use_double_quant bnb_4bit_quant_storage use_bnb_nested_quant "
    "double_quantization quantization_method": "4-bit is NF4 with double quantization, and matrix products use the "
    "precision of the run.",
    "use_deepspeed": "It only enables DeepSpeed; a DeepSpeed file sets the stage and everything else.",
    "task_type lora_task_type mlm": "It names the task.",
}  # fmt: skip
TRAINER: Mapping[str, Rule] = {
    **for_each(REASONS),
    # A setting has a place, whatever is said of its name above.
    **{
        entry.trainer: (key, convert)
        for key, entry in SETTINGS.items()
        for kind, convert in ((int, whole_number), (float, decimal_number), (bool, yes_or_no))
        if entry.trainer and kind in entry.kinds
    },
    "per_device_train_batch_size": ("batch.micro_batch_size", whole_number),
    "per_device_eval_batch_size": ("batch.eval_micro_batch_size", whole_number),
    "gradient_accumulation_steps": ("batch.gradient_accumulation_steps", whole_number),
    "dataloader_num_workers": ("data.workers", whole_number),
    "dataloader_prefetch_factor": ("data.prefetch", whole_number),
    "generation_max_length": ("evaluation.generation_length", whole_number),
    "generation_num_beams": ("evaluation.beams", whole_number),
    "early_stopping_patience": ("evaluation.patience", whole_number),
    "early_stopping_steps": ("evaluation.patience", whole_number),
    "max_target_length": ("batch.target_length", whole_number),
    "pad_to_multiple_of": ("data.pad_to_multiple_of", whole_number),
    "min_lr": ("training.final_learning_rate", decimal_number),
    "mlm_probability": ("training.mask_probability", decimal_number),
    "max_steps": ("training.max_steps", positive(mark("It sets no limit."))),
    "max_seq_length": ("batch.sequence_length", positive(mark("It sets no limit."))),
    "torch_empty_cache_steps": ("training.empty_cache_steps", positive(OFF)),
    "save_total_limit": ("checkpoint.keep", positive(OFF)),
    "ddp_timeout": ("engine.process_timeout_s", timeout),
    "dataloader_pin_memory": ("data.pin_memory", yes_or_no),
    "dataloader_persistent_workers": ("data.persistent_workers", yes_or_no),
    "predict_with_generate": ("evaluation.generate", yes_or_no),
    "tf32": ("engine.tf32", yes_or_no),
    "activation_checkpointing": ("engine.checkpointing", yes_or_no),
    "merge_lora": ("peft.merge", yes_or_no),
    "concatenate": ("data.concatenate", yes_or_no),
    "streaming": ("data.streaming", yes_or_no),
    "torch_compile_backend": ("engine.compile", lambda _: True),  # TrainingArguments.__post_init__, as for the next
    "torch_compile_mode": ("engine.compile", lambda _: True),
    "adafactor": ("engine.optimizer", if_on("adafactor")),  # yes or no, as the next, until 5.0
    "group_by_length": ("data.group_by_length", if_on(True)),
    "train_sampling_strategy": ("data.group_by_length", choice({"random": False, "group_by_length": True}, LOADED)),
    "metric_for_best_model": ("evaluation.metric", lambda value: f"eval_{text_value(value).removeprefix('eval_')}"),
    "load_best_model_at_end": ("checkpoint.final", either("best", "last")),
    "save_strategy": ("checkpoint.keep_best", choice({"best": True}, BY_STEPS)),
    "assistant_only_loss": ("training.train_on", either("answers", "everything")),
    "completion_only_loss": ("training.train_on", either("answers", "everything")),
    "train_on_inputs": ("training.train_on", either("everything", "answers")),
    "train_on_prompt": ("training.train_on", either("everything", "answers")),
    "mask_history": ("training.train_on", if_on("last_answer")),
    "report_to": ("logging.report_to", reporters),
    "mixed_precision": ("engine.precision", choice(PRECISIONS)),
    "pure_bf16": ("engine.precision", if_on("bf16-true")),
    "use_8bit_adam": ("engine.optimizer", if_on("adamw_bnb_8bit")),
    "use_cpu": ("engine.device", if_on("cpu", mark("If it is off, the available device is used."))),
    "attn_implementation": ("engine.attention", attention),
    "use_flash_attn": ("engine.attention", flash_attention),
    "source_lang": ("model.source_language", language),
    "target_lang": ("model.target_language", language),
    "use_peft": ("peft.method", either("lora", "none")),
    "chat_template": ("model.chat_template", choice({"chatml": "chatml", "tokenizer_default": "own"})),
    "chat_template_path": ("model.chat_template", template_file),
    "validation_file": ("data.validation_sources", lambda value: [{"name": name} for name in source_names(value)]),
    "line_by_line": ("data.concatenate", either(False, True)),
}
"""Today's name -> its place. What depends on other settings is placed by places.SPECIAL."""

RENAMED: Mapping[str, str] = {
    "evaluation_strategy": "eval_strategy",  # last in 4.46
    "per_gpu_train_batch_size": "per_device_train_batch_size",  # last in 4.57
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "no_cuda": "use_cpu",
    "torchdynamo": "torch_compile_backend",
    "warmup_ratio": "warmup_steps",  # last in 5.0
    "gradient_checkpointing": "activation_checkpointing",  # an alias in 5.23
}

REMOVED_OPTIMIZERS: Mapping[str, str] = {
    "adamw_hf": "adamw_torch",  # last in 4.46
    "adamw_apex_fused": "adamw_torch_fused",  # last in 4.57
    "adamw_bnb": "adamw_bnb_8bit",
    "adamw_8bit": "adamw_bnb_8bit",  # an alias, still there
    "paged_adamw": "paged_adamw_32bit",
}
"""Old value of `optim` -> the one that does the same today."""

_SAME: Mapping[str, str] = {
    "model_name_or_path": "model_name model_id model_path base_model base_model_name base_model_name_or_path "
    "pretrained_model_name_or_path model",
    "tokenizer_name": "tokenizer_name_or_path tokenizer_path tokenizer tokenizer_config",
    "dtype": "torch_dtype",
    "attn_implementation": "attention_implementation _attn_implementation",
    "dataset_name": "dataset_path dataset_id dataset dataset_name_or_path data_path train_file train_data_file "
    "train_data train_data_path train_dataset data_files",
    "dataset_config_name": "dataset_config",
    "dataset_train_split": "train_split dataset_split split",
    "validation_file": "eval_file eval_data_file eval_data_path validation_data eval_dataset dev_file test_datasets",
    "max_train_samples": "max_samples",
    "text_column": "dataset_text_field text_column_name",
    "target_column": "summary_column response_column label_column label_column_name",
    "max_seq_length": "max_length max_source_length block_size model_max_length cutoff_len seq_len seq_length "
    "max_seq_len sequence_length context_length sequence_len",
    "generation_max_length": "val_max_target_length",
    "generation_num_beams": "num_beams",
    "source_lang": "src_lang source_language",
    "target_lang": "tgt_lang target_language",
    "use_peft": "use_lora lora_enable enable_lora",
    "lora_r": "lora_rank lora_dim",
    "adapter_name_or_path": "lora_model_dir adapter_path lora_path",
    "modules_to_save": "lora_modules_to_save additional_target",
    "lora_target_modules": "lora_target lora_targets lora_target_module target_modules",
    "finetuning_type": "peft_type adapter peft_method train_type sft_type tuner_type",
    "use_flash_attn": "use_flash_attention use_flash_attention_2 flash_attn flash_attention",
    "packing": "group_by_packing sample_packing neat_packing",
    "val_size": "val_set_size",
    "streaming": "dataset_streaming",
    "deepspeed": "deepspeed_config ds_config deepspeed_config_file",
    "learning_rate": "lr",
    "optim": "optimizer",
    "num_train_epochs": "epochs num_epochs train_epochs n_epochs max_epochs",
    "max_steps": "max_train_steps train_steps",
    "warmup_steps": "num_warmup_steps lr_warmup_steps",
    "lr_scheduler_type": "lr_scheduler scheduler_type",
    "per_device_train_batch_size": "train_batch_size batch_size micro_batch_size device_batch_size "
    "train_micro_batch_size_per_gpu",
    "per_device_eval_batch_size": "eval_batch_size val_batch_size",
    "gradient_accumulation_steps": "grad_accum grad_accumulation_steps accumulation_steps gradient_accumulation",
    "weight_decay": "adam_weight_decay",
    "max_grad_norm": "grad_clip clip_grad gradient_clip gradient_clipping",
    "activation_checkpointing": "gradient_checkpoint use_gradient_checkpointing grad_checkpointing",
    "dataloader_num_workers": "num_workers",
    "adam_beta1": "beta1",
    "adam_beta2": "beta2",
    "adam_epsilon": "adam_eps",
    "save_steps": "checkpointing_steps save_per_step",
    "save_total_limit": "checkpoints_total_limit",
    "logging_steps": "log_interval",
    "label_smoothing_factor": "label_smoothing",
    "neftune_noise_alpha": "neftune_alpha noisy_embedding_alpha",
    "use_liger_kernel": "enable_liger_kernel",
    "output_dir": "save_dir",
}
CANONICAL: Mapping[str, str] = {alias: name for name, aliases in _SAME.items() for alias in aliases.split()}
"""What scripts and programs around the Trainer call the same thing -> the name that has a place."""

LOOSE = words("train_batch_size batch_size device_batch_size eval_batch_size train_batchsize")
"""Names that some scripts mean for one process and others for all of them together."""

TRAINERS_OWN = words(
    "per_device_train_batch_size per_device_eval_batch_size per_gpu_train_batch_size num_train_epochs "
    "gradient_accumulation_steps lr_scheduler_type lr_scheduler_kwargs adam_beta1 adam_beta2 adam_epsilon "
    "label_smoothing_factor save_strategy save_steps save_total_limit eval_strategy evaluation_strategy logging_steps "
    "logging_strategy load_best_model_at_end metric_for_best_model predict_with_generate dataloader_num_workers "
    "fp16_opt_level remove_unused_columns overwrite_output_dir warmup_ratio warmup_steps optim"
)
"""Names that say that a mapping of settings is the Trainer's."""
DEFAULTS: Mapping[str, tuple[str, int | float]] = {
    "per_device_train_batch_size": ("batch.micro_batch_size", 8),
    "gradient_accumulation_steps": ("batch.gradient_accumulation_steps", 1),
    "num_train_epochs": ("training.epochs", 3.0),
    "learning_rate": ("training.learning_rate", 5e-5),
    "weight_decay": ("training.weight_decay", 0.0),
}
"""What TrainingArguments takes for what is left out (transformers 2.11 to 5.23 alike), where trainwiz takes or solves
something else."""
RATES: Mapping[str, float] = {"SFTConfig": 2e-5, "DPOConfig": 1e-6}
"""Learning rates that TRL's own classes take instead (0.12 to 1.16)."""
SFT_DEFAULTS: Mapping[str, tuple[str, int | float]] = {
    **DEFAULTS, "max_length": ("batch.sequence_length", 1024),
}  # fmt: skip
"""SFTConfig's (0.20 to 1.16)."""
TRL_LORA = {"lora_r": ("peft.rank", 16), "lora_alpha": ("peft.alpha", 32.0), "lora_dropout": ("peft.dropout", 0.05)}
"""ModelConfig of TRL, which its scripts and its command take."""
LORA_DEFAULTS = {"lora_r": ("peft.rank", 8), "lora_alpha": ("peft.alpha", 8.0), "lora_dropout": ("peft.dropout", 0.0)}
SCHEDULES: Mapping[str, str] = {
    "linear": "linear", "cosine": "cosine", "cosine_with_min_lr": "cosine", "constant": "constant",
    "constant_with_warmup": "constant", "polynomial": "polynomial",
}  # fmt: skip
KNOWN_SCHEDULES, KNOWN_OPTIMIZERS = ", ".join(dict.fromkeys(SCHEDULES.values())), ", ".join(get_args(Optimizer))

# Which task a training is for, from what its classes, scripts and arguments are called.

TASKS: Mapping[str, Task] = {
    "Seq2SeqTrainingArguments": "seq2seq", "Seq2SeqTrainer": "seq2seq", "DataCollatorForSeq2Seq": "seq2seq",
    "AutoModelWithLMHead": "causal-lm", "MarianMTModel": "seq2seq", "SFTConfig": "causal-lm",
    "SFTTrainer": "causal-lm", "CAUSAL_LM": "causal-lm", "SEQ_2_SEQ_LM": "seq2seq", "SEQ_CLS": "sequence-classification",
    "run_clm": "causal-lm", "run_mlm": "masked-lm", "run_mlm_wwm": "masked-lm", "run_summarization": "seq2seq",
    "run_translation": "seq2seq", "run_seq2seq": "seq2seq", "run_glue": "sequence-classification",
    "run_classification": "sequence-classification", "run_ner": "token-classification", "TOKEN_CLS": "token-classification",
    "DataCollatorForTokenClassification": "token-classification", "run_sft": "causal-lm", "sft": "causal-lm",
}  # fmt: skip
"""Classes of transformers and TRL, task types of peft, and scripts of their examples without ".py" and _no_trainer."""
TASK_OF_ENDING: Mapping[str, Task] = {
    "ForSeq2SeqLM": "seq2seq", "ForConditionalGeneration": "seq2seq", "ForMaskedLM": "masked-lm",
    "ForCausalLM": "causal-lm", "LMHeadModel": "causal-lm", "ForSequenceClassification": "sequence-classification",
    "ForTokenClassification": "token-classification",
}  # fmt: skip
"""Ends of the names of models: T5ForConditionalGeneration, AutoModelForCausalLM."""
TASK_OF_ARGUMENT: Mapping[str, Task] = {
    **dict.fromkeys(("mlm", "mlm_probability"), "masked-lm"),
    **dict.fromkeys(
        ("max_source_length", "max_target_length", "val_max_target_length", "predict_with_generate"), "seq2seq"
    ),
}
IMAGES = mark("an image model")
REWARD = mark("a reward model")
OTHER_TRAININGS: Mapping[str, str] = {
    "ForQuestionAnswering": mark("an extractive question-answering model"), "RewardConfig": REWARD, "RewardTrainer": REWARD,
    **dict.fromkeys(("ForImageClassification", "ForVision2Seq", "ForImageTextToText"), IMAGES),
    **dict.fromkeys(("resolution", "instance_prompt", "image_column", "instance_data_dir", "image_folder"), IMAGES),
    **dict.fromkeys(("ForSpeechSeq2Seq", "ForCTC", "ForAudioClassification"), mark("a speech model")),
    **{f"{method}{end}": method for method in ("DPO", "PPO", "GRPO", "KTO", "ORPO") for end in ("Config", "Trainer")},
    "run_dpo": "DPO", "dpo": "DPO", "train_dpo": "DPO", "run_orpo": "ORPO", "grpo": "GRPO", "ppo": "PPO", "train_ppo": "PPO",
}  # fmt: skip
"""Ends of the names of classes, scripts, and arguments of diffusers' examples -> what they train."""
OTHER_STAGES = words("dpo kto orpo ppo rm simpo")

# accelerate: its file (ClusterConfig of 0.5 to 1.15), with the keys of its sections behind a dot.

ZERO: Mapping[int, Strategy] = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}
"""DeepSpeed's stage 0 shards nothing."""
KNOWN_TYPES = words("NO MPS XLA DEEPSPEED FSDP MEGATRON_LM")
"""Values of distributed_type, besides MULTI_GPU, MULTI_CPU and the like: one whole model for each process."""
SECTION_OF_TYPE: Mapping[str, str] = {"deepspeed_config": "DEEPSPEED", "fsdp_config": "FSDP"}
"""Sections that are read with one distributed_type only."""

NVME = mark("trainwiz does not offload to NVMe.")
SHARDS_NOTHING = ("NO_SHARD", "3")
"""fsdp_sharding_strategy, by name and by number."""
ACCELERATE_REASONS: Mapping[str, str] = {
    "compute_environment": "trainwiz runs on the machine where it is started.",
    "machine_rank main_process_ip main_process_port rdzv_backend same_network deepspeed_hostfile standalone "
    "rdzv_endpoint rdzv_id rdzv_conf node_rank master_addr master_port local_addr hostfile ssh_port no_ssh "
    "no_ssh_check deepspeed_config.deepspeed_hostfile deepspeed_config.deepspeed_multinode_launcher "
    "deepspeed_config.deepspeed_inclusion_filter deepspeed_config.deepspeed_exclusion_filter": RENDEZVOUS,
    "main_training_function": "It names a function of the script, but trainwiz does not run the script.",
    "downcast_bf16 tpu_name tpu_zone tpu_use_cluster tpu_use_sudo tpu_cluster tpu_vm tpu_env command_file commands "
    "tpu_config tpu no_tpu_cluster vm env": TPU,
    "quiet debug log_dir logdir redirects tee local_ranks_filter logs_specs event_log_handler role "
    "enable_each_rank_log log_level save_pid": "trainwiz writes its own log.",
    "ipex_config use_xpu ipex fp8_config mpirun_config mpirun_hostfile mpirun_ccl parallelism_config "
    "use_parallelism_config": NOT_SUPPORTED,
    "megatron_lm_config use_megatron_lm": MEGATRON,
    "deepspeed_config.zero3_init_flag deepspeed_config.zero3_save_16bit_model deepspeed_config.deepspeed_moe_layer_cls_names": "trainwiz "
    "sets it automatically for ZeRO-3.",
    "deepspeed_config.offload_optimizer_nvme_path deepspeed_config.offload_param_nvme_path": NVME,
    "fsdp_config": "trainwiz decides how FSDP wraps and loads the model.",
    "dynamo_config": "trainwiz compiles with the defaults of torch.compile.",
    "max_restarts": "trainwiz restarts a failed run automatically (recovery.max_restarts).",
    "exclude": "The remaining GPUs depend on the machine; choose the GPUs of a run with --gpus.",
    "module no_python enable_cpu_affinity monitor_interval start_method launcher launcher_args no_local_rank use_env run_path": HANDLED,
}  # fmt: skip
"""Keys, and sections for all their other keys -> why they are left out."""
ACCELERATE: Mapping[str, Rule] = {
    "num_cpu_threads_per_process": ("engine.cpu_threads", positive(mark("0 leaves it to the plan."))),
    "deepspeed_config.gradient_accumulation_steps": ("batch.gradient_accumulation_steps", whole_number),
    "deepspeed_config.gradient_clipping": ("training.max_grad_norm", decimal_number),
    "fsdp_config.fsdp_activation_checkpointing": ("engine.checkpointing", yes_or_no),
    "fsdp_config.fsdp_offload_params": (
        "engine.offload",
        if_on("all", mark("The parameters stay on the GPU, which is the default.")),
    ),
    **for_each(ACCELERATE_REASONS),
}
ACCELERATE_RENAMED: Mapping[str, str] = {
    "fp16": "mixed_precision",
    "dynamo_backend": "dynamo_config.dynamo_backend",
    "fsdp_config.sharding_strategy": "fsdp_config.fsdp_reshard_after_forward",
    "fsdp_config.offload_params": "fsdp_config.fsdp_offload_params",
    "fsdp_config.fsdp_sharding_strategy": "fsdp_config.fsdp_reshard_after_forward",
}
"""Old names -> those of accelerate 1.15. fsdp_sharding_strategy is of FSDP 1; commands/to_fsdp2.py maps it so."""
NOT_BESIDE_FILE = words(
    "gradient_accumulation_steps gradient_clipping zero_stage offload_optimizer_device offload_param_device "
    "offload_optimizer_nvme_path offload_param_nvme_path zero3_save_16bit_model"
)
"""What accelerate refuses beside deepspeed_config_file (DeepSpeedPlugin._deepspeed_config_checks)."""
# The JSON of DeepSpeed (0.2 to 0.19), with the keys of its sections behind dots.

DEEPSPEED_REASONS: Mapping[str, str] = {
    "steps_per_print wall_clock_breakdown memory_breakdown dump_state tensorboard wandb csv_monitor comet "
    "monitor_config comms_logger flops_profiler timers": "trainwiz has its own measurements and logs.",
    "activation_checkpointing": "DeepSpeed checkpoints activations only where the model calls it; for a run, use "
    "engine.checkpointing.",
    "checkpoint load_universal_checkpoint": "trainwiz decides how checkpoints are written.",
    "zero_optimization optimizer zero_allow_untested_optimizer zero_force_ds_cpu_optimizer communication_data_type "
    "fp32_allreduce prescale_gradients gradient_predivide_factor gradient_allreduce_op sparse_gradients "
    "disable_allgather disable_python_gc graph_harvesting aio dataloader_drop_last": TUNING,
    "autotuning compile amp seq_parallel_communication_data_type sequence_parallel_size tensor_parallel elasticity "
    "data_efficiency curriculum_learning compression_training progressive_layer_drop pld eigenvalue quantize_training "
    "weight_quantization sparse_attention hybrid_engine pipeline nebula datastates_ckpt torch_autocast "
    "use_data_before_expert_parallelism keep_module_on_host train_dtype scheduler": NOT_OFFERED,
    "fp16": "trainwiz scales the fp16 loss dynamically.",
    "bf16 data_types": "trainwiz keeps fp32 copies of the weights and accumulates gradients in fp32.",
    "optimizer.params.adam_w_mode": "A run uses AdamW.",
    "scheduler.params.warmup_min_lr scheduler.params.warmup_min_ratio": "Warmup starts from 0.",
    "scheduler.params.warmup_type": "Warmup is linear.",
}  # fmt: skip
DEEPSPEED: Mapping[str, Rule] = {
    "train_micro_batch_size_per_gpu": ("batch.micro_batch_size", whole_number),
    "gradient_accumulation_steps": ("batch.gradient_accumulation_steps", whole_number),
    "gradient_clipping": ("training.max_grad_norm", decimal_number),
    "scheduler.params.warmup_max_lr": ("training.learning_rate", decimal_number),
    "optimizer.params.eps": ("training.adam_epsilon", decimal_number),
    "optimizer.params.weight_decay": ("training.weight_decay", decimal_number),
    "scheduler.params.warmup_num_steps": ("training.warmup", decimal_number),
    "scheduler.params.total_num_steps": ("training.max_steps", whole_number),
    **for_each(DEEPSPEED_REASONS),
}
DEEPSPEED_OPTIMIZERS: Mapping[str, str] = {
    "adam": "adamw_torch", "adamw": "adamw_torch", "fusedadam": "adamw_torch_fused", "cpuadam": "adamw_torch",
    "deepspeedcpuadam": "adamw_torch", "sgd": "sgd", "adafactor": "adafactor",
}  # fmt: skip
"""optimizer.type in small letters -> engine.optimizer. DeepSpeed's Adam is AdamW unless adam_w_mode is false."""
DEEPSPEED_SCHEDULES: Mapping[str, str] = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
# The launchers: options without a value (accelerate 1.15, torch 2.13, DeepSpeed 0.19 and older releases; a test compares
# them with what is installed; all others have one), what options mean, and why the rest is left out.

FLAGS = words(
    "help quiet cpu multi_gpu tpu enable_cpu_affinity dynamo_use_fullgraph dynamo_use_dynamic "
    "dynamo_use_regional_compilation use_deepspeed use_fsdp use_parallelism_config use_megatron_lm same_network module "
    "no_python tpu_cluster no_tpu_cluster tpu_use_sudo downcast_bf16 fp8_use_autocast_during_eval debug fp16 bf16 use_xpu "
    "ipex use_mps_device standalone run_path virtual_local_rank use_env no_local_rank no_ssh no_ssh_check force_multi "
    "save_pid bind_cores_to_rank elastic_training disable_python enable_elastic_training"
)
SHORT: Mapping[str, str] = {"h": "help", "m": "module", "H": "hostfile", "i": "include", "e": "exclude"}
ENGINES: Mapping[str, str] = {"multi_gpu": "MULTI_GPU", "use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP"}
"""Flags of accelerate -> distributed_type."""
PER_NODE = words("nproc_per_node num_gpus num_accelerators NPROC_PER_NODE")
NODES = words("nnodes num_nodes NNODES")
"""Options of torchrun and DeepSpeed, and variables of LLaMA-Factory."""

FRAMEWORKS = words("llamafactory-cli lmf axolotl")
"""Programs that start their processes by themselves, with the command `train`."""
NOT_TRAINING = words(
    "pip venv pytest unittest tensorboard jupyter huggingface_hub spacy setup.py http.server json.tool"
)
"""Scripts and modules that prepare things."""
STARTS_NOTHING = words("pip pip3 install apt apt-get yum dnf brew npm git wget curl") | {"echo", "which"}
"""Words behind which a launcher's name is that of a package, or only a text."""
