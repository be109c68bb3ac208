"""When a Trainer logs, saves and evaluates -> when a run does."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainwiz.core.importing.training_arguments_setting import (
    Setting,
    WrongValue,
    decimal_number,
    text_list,
    text_value,
    whole_number,
    yes_or_no,
)
from trainwiz.core.importing.training_arguments_sheet import Place, Sheet, direct
from trainwiz.core.language import mark

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
