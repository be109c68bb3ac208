"""What has no place in a run, with the reason; what the task is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainwiz.core.config.values import Task
from trainwiz.core.importing.report import Collector
from trainwiz.core.importing.settings import Setting, Sheet, text_value, yes_or_no
from trainwiz.core.language import mark, tr

# Arguments of the Trainer that have no place in a run of trainwiz, each with the reason in one sentence.

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


# Which task a training is for, from what its classes, scripts and arguments are called.

OF_CLASS: Mapping[str, Task] = {
    "Seq2SeqTrainingArguments": "seq2seq",
    "Seq2SeqTrainer": "seq2seq",
    "DataCollatorForSeq2Seq": "seq2seq",
    "AutoModelWithLMHead": "causal-lm",
    "MarianMTModel": "seq2seq",
    "SFTConfig": "causal-lm",
    "SFTTrainer": "causal-lm",
}
"""Names of transformers and TRL that are made for one task."""

OF_ENDING: Mapping[str, Task] = {
    "ForSeq2SeqLM": "seq2seq",
    "ForConditionalGeneration": "seq2seq",
    "ForMaskedLM": "masked-lm",
    "ForCausalLM": "causal-lm",
    "LMHeadModel": "causal-lm",
    "ForSequenceClassification": "sequence-classification",
}
"""Ends of the names of models: T5ForConditionalGeneration, AutoModelForCausalLM."""

OTHER_ENDINGS: Mapping[str, str] = {
    "ForTokenClassification": mark("a classifier of tokens"),
    "ForQuestionAnswering": mark("a model that marks answers"),
    "ForMultipleChoice": mark("a model that chooses answers"),
    "ForImageClassification": mark("a model of images"),
    "ForObjectDetection": mark("a model of images"),
    "ForSpeechSeq2Seq": mark("a model of speech"),
    "ForCTC": mark("a model of speech"),
    "ForAudioClassification": mark("a model of speech"),
    "ForVision2Seq": mark("a model of images"),
    "ForImageTextToText": mark("a model of images"),
}
"""Ends of the names of models that trainwiz does not train."""

OF_ADAPTER: Mapping[str, Task] = {
    "CAUSAL_LM": "causal-lm",
    "SEQ_2_SEQ_LM": "seq2seq",
    "SEQ_CLS": "sequence-classification",
}
"""peft's TaskType."""

OF_SCRIPT: Mapping[str, Task] = {
    "run_clm": "causal-lm",
    "run_clm_no_trainer": "causal-lm",
    "run_mlm": "masked-lm",
    "run_mlm_no_trainer": "masked-lm",
    "run_mlm_wwm": "masked-lm",
    "run_summarization": "seq2seq",
    "run_summarization_no_trainer": "seq2seq",
    "run_translation": "seq2seq",
    "run_translation_no_trainer": "seq2seq",
    "run_seq2seq": "seq2seq",
    "run_glue": "sequence-classification",
    "run_glue_no_trainer": "sequence-classification",
    "run_classification": "sequence-classification",
    "run_sft": "causal-lm",
    "sft": "causal-lm",
}
"""Scripts of transformers' examples and of TRL, without their ".py"."""

SEQ2SEQ_ARGUMENTS = ("max_source_length", "max_target_length", "val_max_target_length", "predict_with_generate")
OTHER_TRAININGS: Mapping[str, str] = {
    "DPOConfig": "DPO",
    "DPOTrainer": "DPO",
    "KTOConfig": "KTO",
    "ORPOConfig": "ORPO",
    "CPOConfig": "CPO",
    "PPOConfig": "PPO",
    "PPOTrainer": "PPO",
    "GRPOConfig": "GRPO",
    "GRPOTrainer": "GRPO",
    "RLOOConfig": "RLOO",
    "RewardConfig": mark("a reward model"),
    "RewardTrainer": mark("a reward model"),
    "run_dpo": "DPO",
    "dpo": "DPO",
    "train_dpo": "DPO",
    "run_orpo": "ORPO",
    "grpo": "GRPO",
    "ppo": "PPO",
    "train_ppo": "PPO",
}
"""Classes of TRL and scripts that train something else than the next, hidden or translated token."""

OF_IMAGES = frozenset({"resolution", "instance_prompt", "image_column", "instance_data_dir", "image_folder"})
"""Arguments of diffusers' examples."""
OTHER_STAGES = frozenset({"dpo", "kto", "orpo", "ppo", "rm", "simpo"})
"""LLaMA-Factory's `stage`."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A class, function or script that a text names."""

    name: str
    line: int | None = None


def place_task(sheet: Sheet, hints: Iterable[Hint]) -> None:
    """Set the task where something names it, and say where the training is none that trainwiz does."""
    collector = sheet.collector
    hints = list(hints)
    for what, task_of in (("class", task_of_class), ("script", OF_SCRIPT.get)):
        for hint in hints:
            task = task_of(hint.name)
            if task is not None and "task" not in collector.values:
                collector.map(what, hint.name, "task", task, hint.line)
    _of_arguments(sheet)
    other = next((hint for hint in hints if other_training(hint.name)), None)
    images = next((setting for setting in sheet.settings.values() if setting.name in OF_IMAGES), None)
    if other is not None:
        say_other_training(collector, tr(other_training(other.name)), other.line)
    elif images is not None:
        say_other_training(collector, tr("a model of images"), images.line)


def task_of_class(name: str) -> Task | None:
    """The task that a class is made for."""
    return OF_CLASS.get(name) or next((task for ending, task in OF_ENDING.items() if name.endswith(ending)), None)


def other_training(name: str) -> str:
    """What a class or script trains that trainwiz does not, marked for translation; "" for all others."""
    return OTHER_TRAININGS.get(name) or next(
        (what for ending, what in OTHER_ENDINGS.items() if name.endswith(ending)), ""
    )


def _of_arguments(sheet: Sheet) -> None:
    collector = sheet.collector
    for setting in sheet.settings.values():
        if "task" in collector.values:
            return
        task = _of_argument(sheet, setting)
        if task is not None:
            collector.map(setting.as_written(), setting.value, "task", task, setting.line)


def _of_argument(sheet: Sheet, setting: Setting) -> Task | None:
    name = setting.as_written()
    if name == "mlm_probability" or (name == "mlm" and sheet.read("mlm", yes_or_no)):
        return "masked-lm"
    if name == "predict_with_generate":
        return "seq2seq" if sheet.read(name, yes_or_no) else None
    if name in SEQ2SEQ_ARGUMENTS:
        return "seq2seq"
    if name in ("task_type", "lora_task_type"):
        return OF_ADAPTER.get((sheet.read(setting.name, text_value) or "").rpartition(".")[2].upper())
    return None


def place_stage(sheet: Sheet, setting: Setting) -> None:
    """LLaMA-Factory's `stage`: pt and sft are language modelling, the others are not."""
    stage = text_value(setting.value).lower()
    if stage in ("pt", "sft"):
        sheet.map(setting, "task", "causal-lm")
        return
    sheet.unknown(setting)
    if stage in OTHER_STAGES:
        say_other_training(sheet.collector, stage.upper(), setting.line)


def say_other_training(collector: Collector, what: str, line: int | None) -> None:
    message = tr(
        "This trains {what}, which trainwiz does not; the settings are kept for a plan of its size and speed.",
        what=what,
    )
    collector.find("other_training", "warning", message, line)
