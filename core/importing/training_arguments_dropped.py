"""Arguments of the Trainer that have no place in a run of trainwiz, each with the reason in one sentence."""

from __future__ import annotations

from trainwiz.core.language import mark

FOLDER = mark("Each run has a folder of its own; --output-dir names another one.")
RESUME = mark("What a run goes on from belongs to one run: `trainwiz runs resume` does it.")
HUB = mark("trainwiz uploads nothing; the trained model lies in final_model of the run folder.")
SCRIPT = mark(
    "It tells a script which of its parts to run; a run of trainwiz trains, and evaluates where rows are held out."
)
PRINTED = mark("It decides what a Trainer prints; trainwiz writes its own log and its own progress bar.")
RUN_NAME = mark("It names one run: --name does that.")
LAUNCHER = mark("The launcher sets it for each process.")
GATHER = mark("How evaluated rows are gathered is decided by the evaluation of trainwiz.")
EVALUATED = mark("The evaluation of trainwiz has its own metrics and its own schedule.")
COLLATED = mark("The data reader of trainwiz decides which columns reach the model.")
LOADED = mark("The data reader of trainwiz has its own order and its own way to start workers.")
REPORTED = mark("It belongs to a reporter's own account; set it where the reporter reads it.")
DISTRIBUTED = mark("trainwiz sets what torch's process groups need for the model of the run.")
OPTIMIZER = mark("It tunes an optimizer in a way that trainwiz has no setting for.")
CHANGES = mark("trainwiz has no such change of the training; the run goes without it.")
CHECKPOINTS = mark("A checkpoint of trainwiz is always complete, so that a run can go on from it.")
OLD_HALF = mark("Half precision is torch's own since transformers 5; apex is no longer used.")
GONE = mark("transformers 5 has no such argument, and no other in its place.")
TPU = mark("It is for TPUs, which trainwiz does not run on.")
SOLVED = mark("trainwiz solves the micro-batch before the run and keeps the effective batch.")
COMPILER = mark("torch.compile runs with its own defaults; engine.compile switches it on.")
REENTRANT = mark("Recomputing is done without re-entry, as torch recommends.")
SEEDED = mark("All that is drawn in a run comes from training.seed.")
EVALUATED_HALF = mark("An evaluation runs in the precision of the training.")
PARALLEL = mark("Parts of a model on several cards (tensor, context or pipeline parallel) are not what trainwiz does.")
TENSORBOARD = mark("The logs of a run stay in its folder.")
KERNELS = mark("trainwiz does not replace kernels of the model; training.loss_chunk saves the memory of the logits.")
CACHE = mark("A training has no use for the cache of generated tokens.")
FIRST = mark("trainwiz logs the first step of every run, and a loss of NaN as it is.")
MEMORY = mark("logging.memory_every_steps logs the memory of a run.")
TOKENS = mark("trainwiz counts tokens with and without padding in every run.")
LENGTHS = mark("trainwiz knows how long the rows are; no column has to say it.")
AVERAGED = mark("The loss of a step is averaged over all of its tokens, on all devices.")

_BY_REASON: dict[str, str] = {
    FOLDER: "output_dir overwrite_output_dir",
    RESUME: "resume_from_checkpoint ignore_data_skip restore_callback_states_from_checkpoint",
    HUB: "push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision",
    SCRIPT: "do_train do_eval do_predict",
    PRINTED: "log_level log_level_replica disable_tqdm log_on_each_node debug",
    RUN_NAME: "run_name",
    LAUNCHER: "local_rank _n_gpu",
    GATHER: "eval_do_concat_batches eval_use_gather_object eval_accumulation_steps batch_eval_metrics",
    EVALUATED: "eval_delay eval_on_start include_for_metrics prediction_loss_only greater_is_better "
    "use_legacy_prediction_loop generation_config jit_mode_eval",
    COLLATED: "remove_unused_columns label_names past_index",
    LOADED: "dataloader_drop_last dataloader_multiprocessing_context dataloader_in_order accelerator_config "
    "sortish_sampler",
    REPORTED: "project trackio_space_id trackio_bucket_id trackio_static_space_id ray_scope",
    DISTRIBUTED: "ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph ddp_backend",
    OPTIMIZER: "optim_args optim_target_modules",
    CHANGES: "neftune_noise_alpha full_determinism",
    CHECKPOINTS: "save_only_model save_on_each_node save_safetensors enable_jit_checkpoint",
    OLD_HALF: "fp16_backend fp16_opt_level half_precision_backend",
    GONE: "mp_parameters use_ipex use_mps_device",
    TPU: "tpu_num_cores",
    SOLVED: "auto_find_batch_size",
    COMPILER: "torch_compile_backend torch_compile_mode",
    REENTRANT: "activation_checkpointing_kwargs",
    SEEDED: "data_seed",
    EVALUATED_HALF: "bf16_full_eval fp16_full_eval",
    PARALLEL: "parallelism_config",
    TENSORBOARD: "logging_dir",
    KERNELS: "use_liger_kernel liger_kernel_config",
    CACHE: "use_cache",
    FIRST: "logging_first_step logging_nan_inf_filter",
    MEMORY: "skip_memory_metrics",
    TOKENS: "include_num_input_tokens_seen",
    LENGTHS: "length_column_name",
    AVERAGED: "average_tokens_across_devices",
}

WHY: dict[str, str] = {name: why for why, names in _BY_REASON.items() for name in names.split()}
"""Today's name, or that of a removed argument -> why it was left out (marked for translation)."""

DATA_PREPARED = mark("How rows are prepared is decided by the data reader of trainwiz.")
CODE = mark("Python code that comes with a model runs only where you say so: --set model.trust_remote_code=true.")
SECRET = mark("A password or key has no place in a profile; export it in the shell.")
PLACE = mark("Where a model or a tokenizer is kept is decided by the settings of the hub's own cache.")
ADAPTER = mark("The adapters of trainwiz have no such setting.")
SWITCHES_ON = mark("It only switches DeepSpeed on; which stage and what else, a DeepSpeed file says.")
TESTED = mark("trainwiz trains and evaluates; it makes no predictions for a test set.")

_OF_SCRIPTS: dict[str, str] = {
    DATA_PREPARED: "preprocessing_num_workers overwrite_cache pad_to_max_length ignore_pad_token_for_loss "
    "validation_split_percentage dataset_num_proc dataset_batch_size dataset_kwargs keep_linebreaks "
    "num_of_sequences chars_per_token eval_packing padding_free shuffle_dataset truncation_mode "
    "packing_strategy source_prefix completion_only_loss "
    "assistant_only_loss eos_token pad_token overwrite_cached_features max_prompt_length max_completion_length "
    "dataset_dir lazy_preprocess group_texts cache_train_file cache_test_file",
    PLACE: "cache_dir model_revision use_fast_tokenizer use_auth_token low_cpu_mem_usage",
    SECRET: "token hf_token hf_hub_token wandb_token api_key",
    CODE: "trust_remote_code",
    ADAPTER: "use_rslora use_dora lora_bias bias lora_modules_to_save modules_to_save lora_task_type fan_in_fan_out "
    "init_lora_weights layers_to_transform layers_pattern rank_pattern alpha_pattern exclude_modules inference_mode "
    "lora_target_parameters target_parameters peft_version auto_mapping megatron_config megatron_core loftq_config "
    "revision layer_replication runtime_config eva_config corda_config trainable_token_indices use_qalora "
    "qalora_group_size alora_invocation_tokens arrow_config ensure_weight_tying",
    SWITCHES_ON: "use_deepspeed",
    TESTED: "test_file max_predict_samples dataset_test_split test_size",
    REPORTED: "wandb_project wandb_entity wandb_run_group wandb_mode wandb_name wandb_run_name",
}

WHY_OF_SCRIPTS: dict[str, str] = {name: why for why, names in _OF_SCRIPTS.items() for name in names.split()}
"""The same for arguments that scripts around the Trainer have (transformers' examples, TRL, LLaMA-Factory)."""
