"""How the learning rate goes over the run, as the Trainer names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.importing.training_arguments_setting import (
    Setting,
    WrongValue,
    decimal_number,
    text_value,
)
from trainwiz.core.importing.training_arguments_sheet import UNSET, Place, Sheet
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text

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
