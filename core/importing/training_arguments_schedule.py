"""Steps, moments and learning rates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainwiz.core.importing.settings import (
    UNSET,
    Place,
    Setting,
    Sheet,
    WrongValue,
    decimal_number,
    direct,
    is_nothing,
    text_list,
    text_value,
    whole_number,
    yes_or_no,
)
from trainwiz.core.importing.training_arguments_engine import ENGINE_PLACES
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text

# How the learning rate goes over the run, as the Trainer names it.

SCHEDULES: Mapping[str, str] = {
    "linear": "linear",
    "cosine": "cosine",
    "cosine_with_min_lr": "cosine",
    "constant": "constant",
    "constant_with_warmup": "constant",
    "polynomial": "polynomial",
}
"""lr_scheduler_type -> training.schedule."""

DEFAULT_LEARNING_RATE = 5e-5
POLYNOMIAL_END = 1e-7
"""get_polynomial_decay_schedule_with_warmup(lr_end=1e-7) in transformers/optimization.py."""

NO_WARMUP = mark("The schedule `constant` has no warm-up.")
NO_PLACE = mark("trainwiz has no setting for these options of the schedule.")


def _schedule(sheet: Sheet, setting: Setting) -> None:
    kind = text_value(setting.value).lower()
    schedule = SCHEDULES.get(kind)
    if schedule is None:
        sheet.drop(setting, mark("trainwiz has no such schedule."))
        message = tr(
            "{name}: trainwiz has no schedule {kind}, so the rate falls linearly; training.schedule takes {known}.",
            name=setting.as_written(),
            kind=plain_text(repr(kind), 60),
            known=", ".join(dict.fromkeys(SCHEDULES.values())),
        )
        sheet.warn(setting, "unsupported_schedule", message)
        return
    sheet.map(setting, "training.schedule", schedule)
    if kind == "polynomial" and "lr_scheduler_kwargs" not in sheet:
        sheet.map(setting, "training.final_learning_rate", POLYNOMIAL_END)


def _options(sheet: Sheet, setting: Setting) -> None:
    options = setting.value
    if not isinstance(options, Mapping):
        raise WrongValue(options)
    kind = sheet.read("lr_scheduler_type", text_value) or "linear"
    final = _final_rate(sheet, kind, options)
    if final is not None:
        sheet.map(setting, "training.final_learning_rate", final)
    else:
        sheet.drop(setting, NO_PLACE if options else UNSET)
    used = {"lr_end", "min_lr", "min_lr_rate"}
    ignored = sorted(str(name) for name, value in options.items() if name not in used and not _is_default(name, value))
    if ignored and final is not None:
        message = tr(
            "{name}: trainwiz has no setting for {ignored}; the schedule goes without.",
            name=setting.as_written(),
            ignored=plain_text(", ".join(ignored), 80),
        )
        sheet.warn(setting, "unsupported_schedule", message)


def _is_default(name: Any, value: Any) -> bool:
    return (name, value) in [("power", 1), ("num_cycles", 0.5)]


def _final_rate(sheet: Sheet, kind: str, options: Mapping[str, Any]) -> float | None:
    """The learning rate of the last step, where the options say it."""
    if kind == "polynomial":
        return decimal_number(options.get("lr_end", POLYNOMIAL_END))
    if kind == "cosine_with_min_lr" and options.get("min_lr") is not None:
        return decimal_number(options["min_lr"])
    if kind == "cosine_with_min_lr" and options.get("min_lr_rate") is not None:
        peak = sheet.read("learning_rate", decimal_number) or DEFAULT_LEARNING_RATE
        return float(f"{peak * decimal_number(options['min_lr_rate']):.6g}")
    return None


def _warmup(sheet: Sheet, setting: Setting) -> None:
    warmup = decimal_number(setting.value)
    if warmup > 0 and sheet.read("lr_scheduler_type", text_value) == "constant":
        sheet.drop(setting, NO_WARMUP)
        return
    if setting.as_written() == "warmup_ratio" and warmup >= 1:
        # A ratio of 1 would be read as one step.
        raise WrongValue(setting.value)
    sheet.map(setting, "training.warmup", warmup)


def _lowest_rate(sheet: Sheet, setting: Setting) -> None:
    """`min_lr` of scripts without a Trainer."""
    sheet.map(setting, "training.final_learning_rate", decimal_number(setting.value))


SCHEDULE_PLACES: Mapping[str, Place] = {
    "lr_scheduler_type": _schedule,
    "lr_scheduler_kwargs": _options,
    "warmup_steps": _warmup,
    "min_lr": _lowest_rate,
}


# When a Trainer logs, saves and evaluates -> when a run does.

DEFAULT_LOGGING_STEPS = 500
"""TrainingArguments.logging_steps; eval_steps takes it where it is not set."""

OTHER_STRATEGY = mark("The strategy beside it does not count steps.")
SHARE = mark("It is a share of all steps, and how many there are is not said.")
SAVED_BY_STEPS = mark("A run saves every so many steps (checkpoint.every_steps); the plan chooses how many.")
LOGGED_BY_STEPS = mark("A run logs every so many steps (logging.every_steps); the plan chooses how many.")
NAME_REPORTERS = mark("`all` stands for what is installed; name the reporters with --report-to.")
AT_THE_END = mark("With do_eval the model is evaluated at the end, as in every run.")
OFF = mark("It is off, as in a run of trainwiz.")


def _steps(sheet: Sheet, setting: Setting) -> int | None:
    """A number of steps; a value below 1 is a share of max_steps (Trainer: ceil). None where that is not known."""
    steps = decimal_number(setting.value)
    if steps >= 1:
        return whole_number(setting.value)
    most = sheet.read("max_steps", whole_number) or 0
    if steps <= 0:
        raise WrongValue(setting.value)
    return math.ceil(most * steps) if most > 0 else None


def _strategy(sheet: Sheet, name: str) -> str | None:
    strategy = sheet.read(name, text_value)
    return strategy.lower() if strategy else None


def _logging_steps(sheet: Sheet, setting: Setting) -> None:
    if _strategy(sheet, "logging_strategy") in ("no", "epoch"):
        sheet.drop(setting, OTHER_STRATEGY)
        return
    _place_steps(sheet, setting, "logging.every_steps")


def _logging_strategy(sheet: Sheet, setting: Setting) -> None:
    if text_value(setting.value).lower() == "steps" and "logging_steps" not in sheet:
        sheet.map(setting, "logging.every_steps", DEFAULT_LOGGING_STEPS)
    else:
        sheet.drop(setting, LOGGED_BY_STEPS)


def _save_steps(sheet: Sheet, setting: Setting) -> None:
    if (_strategy(sheet, "save_strategy") or "steps") != "steps":
        sheet.drop(setting, OTHER_STRATEGY)
        return
    _place_steps(sheet, setting, "checkpoint.every_steps")


def _save_strategy(sheet: Sheet, setting: Setting) -> None:
    if text_value(setting.value).lower() == "best":
        sheet.map(setting, "checkpoint.keep_best", True)
    else:
        sheet.drop(setting, SAVED_BY_STEPS)


def _eval_steps(sheet: Sheet, setting: Setting) -> None:
    # Without a strategy the Trainer would not evaluate; scripts that take eval_steps alone mean steps.
    if (_strategy(sheet, "eval_strategy") or "steps") != "steps":
        sheet.drop(setting, OTHER_STRATEGY)
        return
    _place_steps(sheet, setting, "evaluation.every_steps")


def _place_steps(sheet: Sheet, setting: Setting, key: str) -> None:
    steps = _steps(sheet, setting)
    if steps is None:
        sheet.drop(setting, SHARE)
    else:
        sheet.map(setting, key, steps)


def _eval_strategy(sheet: Sheet, setting: Setting) -> None:
    strategy = text_value(setting.value).lower()
    if strategy == "epoch":
        sheet.map(setting, "evaluation.every_epoch", True)
    elif strategy == "steps":
        steps = sheet.read("eval_steps", decimal_number) or sheet.read("logging_steps", decimal_number)
        every = _steps(sheet, setting.called(setting.name, steps or DEFAULT_LOGGING_STEPS))
        if every is None:
            sheet.drop(setting, SHARE)
        else:
            sheet.map(setting, "evaluation.every_steps", every)
    elif strategy != "no":
        raise WrongValue(setting.value)
    elif sheet.read("do_eval", yes_or_no):
        sheet.drop(setting, AT_THE_END)
    else:
        sheet.map(setting, "data.validation_rows", 0)


def _report_to(sheet: Sheet, setting: Setting) -> None:
    names = ["all"] if setting.value is None else text_list(setting.value)
    if names == ["all"]:
        sheet.drop(setting, NAME_REPORTERS)
        return
    sheet.map(setting, "logging.report_to", names or ["none"])


def _metric(sheet: Sheet, setting: Setting) -> None:
    name = text_value(setting.value)
    sheet.map(setting, "evaluation.metric", name if name.startswith("eval_") else f"eval_{name}")


def _keep(sheet: Sheet, setting: Setting) -> None:
    kept = whole_number(setting.value)
    if kept < 1:
        sheet.drop(setting, OFF)
    else:
        sheet.map(setting, "checkpoint.keep", kept)


MOMENT_PLACES: Mapping[str, Place] = {
    "logging_strategy": _logging_strategy,
    "logging_steps": _logging_steps,
    "save_strategy": _save_strategy,
    "save_steps": _save_steps,
    "save_total_limit": _keep,
    "eval_strategy": _eval_strategy,
    "eval_steps": _eval_steps,
    "load_best_model_at_end": direct("checkpoint.keep_best", yes_or_no),
    "metric_for_best_model": _metric,
    "report_to": _report_to,
}


# Arguments of the Trainer -> their places in a run; what remains goes back to the caller.

MAX_STEPS_COUNT = mark("max_steps says how long the training is.")
NO_LIMIT = mark("It sets no limit: the epochs count.")
WAITS_FOR_EVER = mark("It means to wait for ever; a run gives up on processes that do not answer.")
LONGEST_TIMEOUT_S = 1_000_000
"""The most that engine.process_timeout_s takes."""


def _epochs(sheet: Sheet, setting: Setting) -> None:
    if (sheet.read("max_steps", whole_number) or 0) > 0:
        sheet.drop(setting, MAX_STEPS_COUNT)
    else:
        sheet.map(setting, "training.epochs", decimal_number(setting.value))


def _max_steps(sheet: Sheet, setting: Setting) -> None:
    steps = whole_number(setting.value)
    if steps > 0:
        sheet.map(setting, "training.max_steps", steps)
    else:
        sheet.drop(setting, NO_LIMIT)


def _empty_cache(sheet: Sheet, setting: Setting) -> None:
    steps = whole_number(setting.value)
    if steps > 0:
        sheet.map(setting, "training.empty_cache_steps", steps)
    else:
        sheet.drop(setting, OFF)


def _process_timeout(sheet: Sheet, setting: Setting) -> None:
    """Seconds; LLaMA-Factory's examples have 180000000, which is 5.7 years."""
    seconds = whole_number(setting.value)
    if seconds > LONGEST_TIMEOUT_S:
        sheet.drop(setting, WAITS_FOR_EVER)
    else:
        sheet.map(setting, "engine.process_timeout_s", seconds)


def _shuffling(sheet: Sheet, setting: Setting) -> None:
    """Which order the rows come in; trainwiz shuffles them, and may put those of like length together."""
    from trainwiz.core.importing.training_arguments_dropped import LOADED

    if is_nothing(setting.value) or text_value(setting.value) in ("random", "group_by_length"):
        sheet.map(setting, "data.group_by_length", text_value(setting.value) == "group_by_length")
    else:
        sheet.drop(setting, LOADED)


TRAINER_PLACES: Mapping[str, Place] = {
    "per_device_train_batch_size": direct("batch.micro_batch_size", whole_number),
    "per_device_eval_batch_size": direct("batch.eval_micro_batch_size", whole_number),
    "gradient_accumulation_steps": direct("batch.gradient_accumulation_steps", whole_number),
    "num_train_epochs": _epochs,
    "max_steps": _max_steps,
    "learning_rate": direct("training.learning_rate", decimal_number),
    "weight_decay": direct("training.weight_decay", decimal_number),
    "adam_beta1": direct("training.adam_beta1", decimal_number),
    "adam_beta2": direct("training.adam_beta2", decimal_number),
    "adam_epsilon": direct("training.adam_epsilon", decimal_number),
    "max_grad_norm": direct("training.max_grad_norm", decimal_number),
    "label_smoothing_factor": direct("training.label_smoothing", decimal_number),
    "seed": direct("training.seed", whole_number),
    "torch_empty_cache_steps": _empty_cache,
    "ddp_timeout": _process_timeout,
    "dataloader_num_workers": direct("data.workers", whole_number),
    "dataloader_prefetch_factor": direct("data.prefetch", whole_number),
    "dataloader_pin_memory": direct("data.pin_memory", yes_or_no),
    "dataloader_persistent_workers": direct("data.persistent_workers", yes_or_no),
    "train_sampling_strategy": _shuffling,
    "predict_with_generate": direct("evaluation.generate", yes_or_no),
    "generation_max_length": direct("evaluation.generation_length", whole_number),
    "generation_num_beams": direct("evaluation.beams", whole_number),
    **SCHEDULE_PLACES,
    **MOMENT_PLACES,
    **ENGINE_PLACES,
}
"""Today's name -> what puts it into its place."""
