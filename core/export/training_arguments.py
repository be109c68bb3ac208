"""RunConfig -> keyword arguments of transformers.TrainingArguments, and its learning rates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from trainwiz.core.config.keys import ranks_checkpoints
from trainwiz.core.config.run import RunConfig
from trainwiz.core.config.settings import SETTINGS
from trainwiz.core.config.values import Strategy
from trainwiz.core.run.folder import DEEPSPEED_JSON

# What every export asks of a RunConfig: that the plan has filled it in, and which engine it means.

T = TypeVar("T")

ZERO_STAGES: dict[Strategy, int] = {"zero1": 1, "zero2": 2, "zero3": 3}


def solved(value: T | None, key: str) -> T:
    """`value`, which the plan must have filled in. Raises ValueError naming the key when it has not."""
    if value is None:
        raise ValueError(f"{key} is not solved yet: only the config of a plan can be exported")
    return value


def zero_stage(config: RunConfig) -> int | None:
    """The ZeRO stage, or None where DeepSpeed is not used."""
    return ZERO_STAGES.get(cast(Strategy, solved(config.engine.strategy, "engine.strategy")))


def uses_deepspeed(config: RunConfig) -> bool:
    return config.engine.deepspeed_file is not None or zero_stage(config) is not None


def uses_fsdp(config: RunConfig) -> bool:
    return config.engine.strategy == "fsdp" and not uses_deepspeed(config)


def processes(config: RunConfig) -> int:
    """Training processes over all nodes."""
    return (config.engine.processes or 1) * config.engine.nodes


def runs_on_cpu(config: RunConfig) -> bool:
    """The run computes on the CPU although nothing forbids it to look for a GPU."""
    return solved(config.engine.device, "engine.device") == "cpu"


def mixed_precision(config: RunConfig) -> str:
    """ "fp16", "bf16" or "no", alike for TrainingArguments and accelerate.

    bf16-true has bf16 weights, so there is nothing to mix; DeepSpeed alone calls it bf16 too.
    """
    precision = solved(config.engine.precision, "engine.precision")
    if precision in ("fp16", "bf16"):
        return precision
    return "bf16" if precision == "bf16-true" and uses_deepspeed(config) else "no"


def given(values: dict[str, Any]) -> dict[str, Any]:
    """Without what is None: the libraries have their own word for that."""
    return {name: value for name, value in values.items() if value is not None}


# RunConfig -> keyword arguments of transformers.TrainingArguments (5.x), as plain data.


def training_arguments(config: RunConfig) -> dict[str, Any]:
    """Keyword arguments for the run folder as working directory (`output_dir` is ".").

    Raises ValueError for a config that a plan has not completed.
    """
    batch, training, data, every = config.batch, config.training, config.data, config.logging.every_steps
    micro = solved(batch.micro_batch_size, "batch.micro_batch_size")
    workers = solved(data.workers, "data.workers")
    arguments = {
        "output_dir": ".",
        "run_name": config.name,
        "per_device_train_batch_size": micro,
        "per_device_eval_batch_size": batch.eval_micro_batch_size or micro,
        "gradient_accumulation_steps": solved(batch.gradient_accumulation_steps, "batch.gradient_accumulation_steps"),
        "max_steps": training.max_steps,
        "num_train_epochs": solved(training.epochs, "training.epochs") if training.max_steps is None else None,
        # Settings that are an argument of the Trainer under another name, where they are set.
        **{entry.trainer: config.value(key) for key, entry in SETTINGS.items() if entry.trainer},
        "optim": solved(config.engine.optimizer, "engine.optimizer"),
        **scheduler_arguments(config),
        **_engine(config),
        "dataloader_num_workers": workers,
        "dataloader_pin_memory": bool(data.pin_memory),
        # Refused by transformers without workers.
        "dataloader_persistent_workers": bool(data.persistent_workers) if workers else None,
        "dataloader_prefetch_factor": data.prefetch if workers else None,
        # The collator needs columns (the row's index) that the model does not take.
        "remove_unused_columns": False,
        **_evaluation(config),
        "save_strategy": "steps",
        "save_steps": solved(config.checkpoint.every_steps, "checkpoint.every_steps"),
        # The Trainer would delete the oldest; which ones are the best, the run itself decides.
        "save_total_limit": None if ranks_checkpoints(config) else config.checkpoint.keep,
        "logging_steps": solved(every, "logging.every_steps"),
        "logging_first_step": True,
        # The filter would hide a loss of NaN behind the last finite one.
        "logging_nan_inf_filter": False,
        "report_to": [name for name in config.logging.report_to if name != "none"] or "none",
        "disable_tqdm": True,
        "data_seed": training.seed,
    }
    return given(arguments)


OPTIONS = {"polynomial": "lr_end", "cosine_with_min_lr": "min_lr"}
"""Scheduler of transformers -> what it calls the rate at its end."""


def scheduler_arguments(config: RunConfig) -> dict[str, Any]:
    kind, warmup, last = _scheduler(config)
    options = {OPTIONS[kind]: last} if kind in OPTIONS else None
    return given({"lr_scheduler_type": kind, "warmup_steps": warmup, "lr_scheduler_kwargs": options})


def _scheduler(config: RunConfig) -> tuple[str, float, float]:
    """Its name, its warm-up, and the rate after the last step. Linear decay to a rate above 0 is the polynomial one of
    power 1.

    Where the warm-up is the whole run there is no decay: the polynomial one would divide by its no steps at the end.
    """
    training, steps = config.training, config.training.max_steps
    final, peak = training.final_learning_rate, training.learning_rate
    # A float below 1 is a share of the steps for transformers 5; from 1 on it is a number of steps.
    warmup = training.warmup if training.warmup < 1 else int(training.warmup)
    kind = str(training.schedule)
    if kind == "constant" or final == peak or (steps is not None and warmup_steps(warmup, steps) >= steps):
        return "constant_with_warmup" if warmup else "constant", warmup, peak
    if kind == "polynomial" or (kind == "linear" and final > 0):
        return "polynomial", warmup, final
    return "cosine_with_min_lr" if kind == "cosine" and final > 0 else kind, warmup, final


def warmup_steps(warmup: float, steps: int) -> int:
    """TrainingArguments.get_warmup_steps"""
    return int(warmup) if warmup >= 1 else math.ceil(steps * warmup)


def _engine(config: RunConfig) -> dict[str, Any]:
    engine, mixed = config.engine, mixed_precision(config)
    deepspeed, on_gpu = uses_deepspeed(config), engine.device == "cuda"
    accelerator = {
        # Else every process adds up the whole gradients of a window in the type it computes in, and shares out the sum.
        "gradient_accumulation_kwargs": {"sync_each_batch": True} if uses_fsdp(config) else None,
        # A copy that blocks waits until all that was launched before is computed, at every micro-batch.
        "non_blocking": True if on_gpu and config.data.pin_memory else None,
    }
    return {
        "fp16": mixed == "fp16",
        "bf16": mixed == "bf16",
        "tf32": (engine.precision == "tf32" or engine.tf32) if on_gpu else None,
        "activation_checkpointing": bool(engine.checkpointing),
        "activation_checkpointing_kwargs": {"use_reentrant": False} if engine.checkpointing else None,
        # With use_cpu the Trainer leaves DeepSpeed aside without a word; DS_ACCELERATOR chooses its device.
        "use_cpu": runs_on_cpu(config) and not deepspeed,
        "deepspeed": DEEPSPEED_JSON if deepspeed else None,
        "accelerator_config": given(accelerator) or None,
    }


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


# The learning rate at each step, as the scheduler that a run is exported with gives it.


@dataclass(frozen=True, slots=True)
class RateSchedule:
    """One learning rate for each step of a run of `steps` steps."""

    kind: str
    """Name of the scheduler in transformers."""
    steps: int
    warmup_steps: int
    peak: float
    last: float
    """The rate after the last step."""

    def at(self, step: int) -> float:
        """The rate of the step that follows `step` finished ones: what `metrics.jsonl` logs as step `step + 1`.

        transformers/optimization.py, with the options that `scheduler_arguments` gives: polynomials of power 1, half a wave.
        """
        if step < self.warmup_steps and self.kind != "constant":
            return self.peak * step / max(1, self.warmup_steps)
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        share = 1.0 - min(1.0, max(0.0, done))
        if self.kind.startswith("cosine"):
            share = 0.5 * (1.0 - math.cos(math.pi * share))
        return self.last + (self.peak - self.last) * share

    @property
    def highest(self) -> float:
        """Of all steps; below `peak` where the run ends within its warm-up."""
        return self.at(min(self.warmup_steps, self.steps - 1))


def rate_schedule(config: RunConfig, steps: int) -> RateSchedule:
    """The schedule of a run of `steps` steps, which are those of `config` or, where they are not known, a guess.

    A scheduler in a DeepSpeed file of the user's would take its place; it is refused (core/export/deepspeed.py).
    """
    kind, warmup, last = _scheduler(config)
    return RateSchedule(kind, steps, warmup_steps(warmup, steps), config.training.learning_rate, last)
