"""The JSON of DeepSpeed, with or without comments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.export.deepspeed import MISPLACED as IN_ZERO
from trainwiz.core.importing import engine_names as table
from trainwiz.core.importing.accelerate import keep_in_ram, place_stage
from trainwiz.core.importing.names import Rule
from trainwiz.core.importing.report import Became, Imported, Place, Setting, read_document, refusal
from trainwiz.core.importing.values import WrongValue, attempt, decimal_number, shown, whole_number, yes_or_no
from trainwiz.core.language import mark

HALVES = ("fp16.enabled", "bf16.enabled")
MISPLACED = tuple(f"zero_optimization.{name}" for name in sorted(IN_ZERO))
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def read(text: str, file: str) -> Imported:
    """Raises NotImportable for what is not of DeepSpeed or is broken."""
    document = read_document(text, file)
    if not table.DEEPSPEED_TELLTALES & set(document.values):
        raise refusal("not_importable.nothing_of_deepspeed", file)
    imported = document.opened("deepspeed", file)
    imported.take(_todays(imported, setting) for setting in document.flat(SECTIONS.__contains__))
    for setting in imported.settings.values():
        imported.place(setting, _rule(imported, setting), table.AUTO)
    _say_more(imported, document.values)
    return imported


def _todays(imported: Imported, setting: Setting) -> Setting:
    """Under the name of today; what was yes or no is a device."""
    new = table.DEEPSPEED_RENAMED.get(setting.name)
    if setting.name == "zero_optimization" and isinstance(setting.value, bool):
        # The whole section until DeepSpeed 0.2.
        new, setting = "zero_optimization.stage", replace(setting, value=int(setting.value), given=setting.value)
    if new is None:
        return setting
    imported.rename(setting.name, new, setting.line)
    if not new.endswith(".device"):
        return setting.called(new)
    return setting.called(new, "cpu" if attempt(yes_or_no, setting.value) else "none")


def _rule(imported: Imported, setting: Setting) -> Rule | Place | None:
    name, section = setting.name, setting.name.partition(".")[0]
    if name.startswith(MISPLACED):
        # DeepSpeed refuses these here: they are not taken for what they would be elsewhere.
        _, key, *rest = name.split(".")
        if not rest or rest == ["enabled"]:
            imported.say(setting, "misplaced.misplaced_here", name=key, where=".".join([key, *rest]))
        return mark("DeepSpeed rejects it inside zero_optimization.")
    if name.startswith("scheduler.params.") and _schedule(imported) is None:
        return mark("It belongs to a scheduler that trainwiz does not have.")
    return SPECIAL.get(name, table.DEEPSPEED.get(name, table.DEEPSPEED.get(section)))


def _schedule(imported: Imported) -> str | None:
    kind = imported.settings.get("scheduler.type")
    return None if kind is None else table.DEEPSPEED_SCHEDULES.get(str(kind.value))


def _half(imported: Imported, setting: Setting) -> Became:
    """fp16 or bf16. Where neither is on, and nothing may switch one on, DeepSpeed computes in fp32."""
    others = [imported.settings[name].value for name in (*HALVES, "amp.enabled") if name in imported.settings]
    if yes_or_no(setting.value):
        return {"engine.precision": setting.name.partition(".")[0]}
    if all(attempt(yes_or_no, value) is False for value in others):
        return {"engine.precision": "fp32"}
    return mark("Off leaves the choice to the other half-precision formats.")


def _loss_scale(imported: Imported, setting: Setting) -> Became:
    if (attempt(decimal_number, setting.value) or 0) > 0:
        imported.say(setting, "not_offered.fixed_scale")
    return table.SCALING


def _optimizer(imported: Imported, setting: Setting) -> Became:
    word = str(setting.value).strip().lower()
    taken = table.DEEPSPEED_OPTIMIZERS.get(word)
    if taken is not None and not (word == "adam" and imported.read("optimizer.params.adam_w_mode", yes_or_no) is False):
        return {"engine.optimizer": taken}
    known = taken is not None or word in table.OTHER_OPTIMIZERS
    what = "not_offered.no_optimizer" if known else "not_offered.no_optimizer_of_its_own"
    imported.say(setting, what, name=shown(setting.value))
    return table.NOT_OFFERED if known else None


def _betas(_: Imported, setting: Setting) -> Became:
    if not isinstance(setting.value, list) or len(setting.value) != 2:
        raise WrongValue
    first, second = map(decimal_number, setting.value)
    return {"training.adam_beta1": first, "training.adam_beta2": second}


def _scheduler(imported: Imported, setting: Setting) -> Became:
    schedule = _schedule(imported)
    if schedule is None:
        imported.say(setting, "not_offered.no_scheduler", name=shown(setting.value))
        return table.NOT_OFFERED if setting.value in ("LRRangeTest", "OneCycle") else None
    linear = str(imported.read("scheduler.params.warmup_type", str) or "log").lower() == "linear"
    if not linear and imported.read("scheduler.params.warmup_num_steps", whole_number) not in (0, 1):
        imported.say(setting, "not_offered.logarithm", "note")
    return {"training.schedule": schedule}


def _peak(imported: Imported, setting: Setting) -> Became:
    """The scheduler sets the rate at every step, so what the optimizer says beside it has no effect."""
    peak, other = decimal_number(setting.value), imported.values.get("training.learning_rate")
    if other is not None and peak != other:
        imported.say(setting, "contradiction.scheduler_wins", other=f"{other:g}", peak=f"{peak:g}")
        why = mark("The scheduler sets the learning rate at every step.")
        imported.take_back("training.learning_rate", why)
    return {"training.learning_rate": peak}


def _final_ratio(imported: Imported, setting: Setting) -> Became:
    peak = imported.values.get("training.learning_rate")
    if peak is None:
        return table.AUTO
    return {"training.final_learning_rate": float(f"{peak * decimal_number(setting.value):.6g}")}


def _offload(imported: Imported, setting: Setting) -> Became:
    stage = imported.read("zero_optimization.stage", whole_number)
    has_stage = "zero_optimization.stage" in imported.settings
    return keep_in_ram(imported, setting, "offload_param" in setting.name, stage if has_stage else 0)


def _say_more(imported: Imported, given: Mapping[str, Any]) -> None:
    """Figures that cannot be true together, and what DeepSpeed takes for what is left out."""
    settings = imported.settings
    zero = [setting for name, setting in settings.items() if name.startswith("zero_optimization.")]
    if "zero_optimization" not in given:
        imported.say(None, "other_program.without_zero")
    elif "zero_optimization.stage" not in settings:
        imported.say(zero[0].line if zero else None, "missing_setting")
    optimizer = settings.get("zero_optimization.offload_optimizer.device")
    if imported.values.get("engine.offload") == "all" and (optimizer is None or optimizer.value != "cpu"):
        imported.say(settings["zero_optimization.offload_param.device"], "not_offered.optimizer_too", "note")
    total, micro, accumulation = (imported.read(name, whole_number) for name in BATCH)
    accumulation = max(1, accumulation or 1)
    if total is not None and micro is not None and micro > 0 and total % (micro * accumulation):
        figures = {"total": total, "micro": micro, "accumulation": accumulation}
        imported.say(settings[BATCH[0]], "contradiction.no_multiple", **figures)
        imported.take_back("batch.target_samples", mark("It contradicts micro-batch and gradient accumulation."))
    if all(imported.read(name, yes_or_no) for name in HALVES):
        first, second = (settings[name].as_written().partition(".")[0] for name in HALVES)
        imported.say(settings[HALVES[1]], "contradiction.both_halves", first=first, second=second)
        imported.take_back("engine.precision", mark("Both half-precision formats are enabled, which is not possible."))


SPECIAL: Mapping[str, Place] = {
    "zero_optimization.stage": place_stage,
    "zero_optimization.offload_optimizer.device": _offload,
    "zero_optimization.offload_param.device": _offload,
    "fp16.enabled": _half,
    "bf16.enabled": _half,
    "fp16.loss_scale": _loss_scale,
    "optimizer.type": _optimizer,
    "optimizer.params.betas": _betas,
    "scheduler.type": _scheduler,
    "scheduler.params.warmup_max_lr": _peak,
    "scheduler.params.cos_min_ratio": _final_ratio,
}
_NAMES = (*table.DEEPSPEED, *SPECIAL, *table.DEEPSPEED_RENAMED)
SECTIONS = frozenset(
    {name.rpartition(".")[0] for name in _NAMES if "." in name}
    | {"optimizer", "scheduler", "zero_optimization"}
    | {name for name, rule in table.DEEPSPEED.items() if isinstance(rule, str) and "." not in name}
    | {f"zero_optimization.{name}" for name in IN_ZERO}
)
"""Keys whose keys are settings."""
