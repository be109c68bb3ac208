"""What scripts around the Trainer call the same thing: model, data, lengths, adapters.

Sources: the example scripts of transformers (run_clm.py, run_mlm.py, run_summarization.py, run_translation.py and their
`_no_trainer` forms), TRL's ModelConfig, ScriptArguments and SFTConfig (0.12 to 1.16), LLaMA-Factory's arguments,
alignment-handbook's recipes, Alpaca's and FastChat's train.py, ChatGLM's p-tuning script, fairseq's options.
"""

from __future__ import annotations

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
