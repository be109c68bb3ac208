"""RunConfig -> keyword arguments of transformers.TrainingArguments (5.x), as plain data."""

from __future__ import annotations

import math
from typing import Any

from trainwiz.core.config.run import RunConfig
from trainwiz.core.export.solved import mixed_precision, processes, runs_on_cpu, solved, uses_deepspeed, uses_fsdp
from trainwiz.core.run.folder import DEEPSPEED_JSON


def training_arguments(config: RunConfig) -> dict[str, Any]:
    """Keyword arguments for the run folder as working directory (`output_dir` is ".").

    Raises ValueError for a config that a plan has not completed.
    """
    return {
        "output_dir": ".",
        "run_name": config.name,
        **_batch(config),
        **_length(config),
        **_optimizer(config),
        **scheduler_arguments(config),
        **_engine(config),
        **_loader(config),
        **_evaluation(config),
        **_checkpoints(config),
        **_reports(config),
        "seed": config.training.seed,
        "data_seed": config.training.seed,
    }


def _batch(config: RunConfig) -> dict[str, Any]:
    micro = solved(config.batch.micro_batch_size, "batch.micro_batch_size")
    return {
        "per_device_train_batch_size": micro,
        "per_device_eval_batch_size": config.batch.eval_micro_batch_size or micro,
        "gradient_accumulation_steps": solved(
            config.batch.gradient_accumulation_steps, "batch.gradient_accumulation_steps"
        ),
    }


def _length(config: RunConfig) -> dict[str, Any]:
    if config.training.max_steps is not None:
        return {"max_steps": config.training.max_steps}
    return {"num_train_epochs": solved(config.training.epochs, "training.epochs")}


def _optimizer(config: RunConfig) -> dict[str, Any]:
    training = config.training
    return {
        "optim": solved(config.engine.optimizer, "engine.optimizer"),
        "learning_rate": training.learning_rate,
        "weight_decay": training.weight_decay,
        "adam_beta1": training.adam_beta1,
        "adam_beta2": training.adam_beta2,
        "adam_epsilon": training.adam_epsilon,
        "max_grad_norm": training.max_grad_norm,
        "label_smoothing_factor": training.label_smoothing,
    }


def scheduler_arguments(config: RunConfig) -> dict[str, Any]:
    """The scheduler. Linear decay to a rate above 0 is the polynomial one of power 1 with its `lr_end`.

    Where the warm-up is the whole run there is no decay: the polynomial one would divide by its no steps at the end.
    """
    training = config.training
    final, peak = training.final_learning_rate, training.learning_rate
    # A float below 1 is a share of the steps for transformers 5; from 1 on it is a number of steps.
    warmup = training.warmup if training.warmup < 1 else int(training.warmup)
    kind, options = str(training.schedule), {}
    if kind == "constant" or final == peak or _warms_up_to_the_end(config):
        kind = "constant_with_warmup" if warmup else "constant"
    elif kind == "polynomial" or (kind == "linear" and final > 0):
        kind, options = "polynomial", {"lr_end": final}
    elif kind == "cosine" and final > 0:
        kind, options = "cosine_with_min_lr", {"min_lr": final}
    schedule: dict[str, Any] = {"lr_scheduler_type": kind, "warmup_steps": warmup}
    return {**schedule, "lr_scheduler_kwargs": options} if options else schedule


def _warms_up_to_the_end(config: RunConfig) -> bool:
    steps, warmup = config.training.max_steps, config.training.warmup
    if steps is None:
        return False
    # TrainingArguments.get_warmup_steps
    return (int(warmup) if warmup >= 1 else math.ceil(steps * warmup)) >= steps


def _engine(config: RunConfig) -> dict[str, Any]:
    engine = config.engine
    deepspeed = uses_deepspeed(config)
    mixed = mixed_precision(config)
    arguments: dict[str, Any] = {
        "fp16": mixed == "fp16",
        "bf16": mixed == "bf16",
        "activation_checkpointing": bool(engine.checkpointing),
        "torch_compile": engine.compile,
        # With use_cpu the Trainer leaves DeepSpeed aside without a word; DS_ACCELERATOR chooses its device.
        "use_cpu": runs_on_cpu(config) and not deepspeed,
    }
    if engine.process_timeout_s is not None:
        arguments["ddp_timeout"] = engine.process_timeout_s
    if config.task == "masked-lm" and processes(config) > 1 and not deepspeed and not uses_fsdp(config):
        # ESM's contact head gets no gradient; with checkpointing the Trainer would tell DDP to wait for all of them.
        arguments["ddp_find_unused_parameters"] = True
    if engine.checkpointing:
        arguments["activation_checkpointing_kwargs"] = {"use_reentrant": False}
    if engine.device == "cuda":
        tf32 = True if engine.precision == "tf32" else engine.tf32
        if tf32 is not None:
            arguments["tf32"] = tf32
    if config.training.empty_cache_steps is not None:
        arguments["torch_empty_cache_steps"] = config.training.empty_cache_steps
    if deepspeed:
        arguments["deepspeed"] = DEEPSPEED_JSON
    accelerator = _accelerator(config)
    if accelerator:
        arguments["accelerator_config"] = accelerator
    return arguments


def _accelerator(config: RunConfig) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if uses_fsdp(config):
        # Else every process adds up the whole gradients of a window in the type it computes in, and shares out the sum.
        settings["gradient_accumulation_kwargs"] = {"sync_each_batch": True}
    if config.engine.device == "cuda" and config.data.pin_memory:
        # A copy that blocks waits until all that was launched before is computed, at every micro-batch.
        settings["non_blocking"] = True
    return settings


def _loader(config: RunConfig) -> dict[str, Any]:
    data = config.data
    workers = solved(data.workers, "data.workers")
    loader: dict[str, Any] = {
        "dataloader_num_workers": workers,
        "dataloader_pin_memory": bool(data.pin_memory),
        # The collator needs columns (the row's index) that the model does not take.
        "remove_unused_columns": False,
    }
    if workers > 0:
        # Refused by transformers without workers.
        loader["dataloader_persistent_workers"] = bool(data.persistent_workers)
        if data.prefetch is not None:
            loader["dataloader_prefetch_factor"] = data.prefetch
    return loader


def _evaluation(config: RunConfig) -> dict[str, Any]:
    """The Trainer knows steps or epochs; a run that asks for both evaluates by its own schedule at both."""
    if config.data.validation_rows == 0 and not config.data.validation_sources:
        return {"eval_strategy": "no"}
    arguments: dict[str, Any] = {"prediction_loss_only": not config.evaluation.generate}
    steps = config.evaluation.every_steps
    if steps is None and config.evaluation.every_epoch:
        return {**arguments, "eval_strategy": "epoch"}
    steps = solved(steps or config.checkpoint.every_steps, "evaluation.every_steps")
    return {**arguments, "eval_strategy": "steps", "eval_steps": steps}


def _checkpoints(config: RunConfig) -> dict[str, Any]:
    return {
        "save_strategy": "steps",
        "save_steps": solved(config.checkpoint.every_steps, "checkpoint.every_steps"),
        # The Trainer would delete the oldest; which ones are the best, the run itself decides.
        "save_total_limit": None if config.checkpoint.keep_best else config.checkpoint.keep,
    }


def _reports(config: RunConfig) -> dict[str, Any]:
    targets = [name for name in config.logging.report_to if name != "none"]
    return {
        "logging_steps": solved(config.logging.every_steps, "logging.every_steps"),
        "logging_first_step": True,
        # The filter would hide a loss of NaN behind the last finite one.
        "logging_nan_inf_filter": False,
        "report_to": targets or "none",
        "disable_tqdm": True,
    }
