"""The JSON of DeepSpeed, with or without comments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.export.deepspeed import MISPLACED as IN_ZERO
from trainwiz.core.importing import engine_names as table
from trainwiz.core.importing.accelerate import keep_in_ram, place_stage
from trainwiz.core.importing.names import Rule
from trainwiz.core.importing.report import Imported, Place, Setting, read_document, refusal
from trainwiz.core.importing.values import WrongValue, attempt, decimal_number, shown, whole_number, yes_or_no
from trainwiz.core.language import mark, tr

HALVES = ("fp16.enabled", "bf16.enabled")
MISPLACED = tuple(f"zero_optimization.{name}" for name in sorted(IN_ZERO))
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")

NOTHING_OF_DEEPSPEED = mark(
    "{file} contains no DeepSpeed setting, such as zero_optimization or train_micro_batch_size_per_gpu."
)
WITHOUT_ZERO = mark("{file}: without zero_optimization DeepSpeed shards nothing, which is the same as DDP.")
NO_STAGE = mark("{file}: zero_optimization has no stage; DeepSpeed then uses 0, which shards nothing.")
OPTIMIZER_TOO = mark(
    "{file}: only the parameters are offloaded to RAM; trainwiz then offloads the optimizer too (engine.offload all)."
)
MISPLACED_HERE = mark(
    "{file}: `{name}` is inside zero_optimization, where DeepSpeed rejects it; move it up one level. It is not "
    "imported ({where})."
)
FIXED_SCALE = mark("{file}: the fixed loss scale {value} is not imported; trainwiz scales the loss dynamically.")
NO_OPTIMIZER = mark(
    "{file}: trainwiz has no optimizer {name}; the plan uses AdamW, which may need a different learning rate."
)
NO_OPTIMIZER_OF_ITS_OWN = mark(
    "{file}: DeepSpeed has no optimizer {name} of its own; the plan uses AdamW unless --optimizer sets another one."
)
NO_SCHEDULER = mark(
    "{file}: trainwiz has no scheduler {name}; use linear, cosine, constant or polynomial: --set "
    "training.schedule=cosine"
)
SCHEDULER_WINS = mark(
    "{file}: optimizer.params.lr is {other} and scheduler.params.warmup_max_lr is {peak}; the scheduler sets the "
    "learning rate at every step, so {peak} is used."
)
LOGARITHM = mark("{file}: DeepSpeed warms up logarithmically unless warmup_type is linear; trainwiz warms up linearly.")
NO_MULTIPLE = mark(
    "{file}: train_batch_size {total} is not a multiple of train_micro_batch_size_per_gpu {micro} x "
    "gradient_accumulation_steps {accumulation}, so it is wrong for any number of GPUs; micro-batch and "
    "gradient accumulation are used."
)
BOTH_HALVES = mark(
    "{file}: {first} and {second} are both enabled, which DeepSpeed rejects; choose one: --precision bf16 or "
    "--precision fp16. Neither is used."
)


def read(text: str, file: str) -> Imported:
    """Raises NotImportable for what is not of DeepSpeed or is broken."""
    document = read_document(text, file)
    if not table.DEEPSPEED_TELLTALES & set(document.values):
        raise refusal(file, tr(NOTHING_OF_DEEPSPEED, file=file))
    imported = Imported("deepspeed", file)
    document.say_twice(imported)
    for setting in document.flat(SECTIONS.__contains__):
        imported.take([_todays(imported, setting)])
    for setting in imported.settings.values():
        if setting.name.startswith(MISPLACED):
            _misplaced(imported, setting)
        else:
            imported.place(setting, _rule(imported, setting), table.AUTO)
    _say_more(imported, document.values)
    return imported


def _todays(imported: Imported, setting: Setting) -> Setting:
    """Under the name of today; what was yes or no is a device."""
    new = table.DEEPSPEED_RENAMED.get(setting.name)
    if setting.name == "zero_optimization" and isinstance(setting.value, bool):
        # The whole section until DeepSpeed 0.2.
        imported.rename(setting.name, "zero_optimization.stage", setting.line)
        return setting.called("zero_optimization.stage", int(setting.value))
    if new is None:
        return setting
    imported.rename(setting.name, new, setting.line)
    if new.endswith(".device"):
        return setting.called(new, "cpu" if attempt(yes_or_no, setting.value) else "none")
    return setting.called(new)


def _rule(imported: Imported, setting: Setting) -> Rule | Place | None:
    name, section = setting.name, setting.name.partition(".")[0]
    if name.startswith("scheduler.params.") and _schedule(imported) is None:
        return mark("It belongs to a scheduler that trainwiz does not have.")
    return SPECIAL.get(name, table.DEEPSPEED.get(name, table.DEEPSPEED.get(section)))


def _schedule(imported: Imported) -> str | None:
    kind = imported.settings.get("scheduler.type")
    return None if kind is None else table.DEEPSPEED_SCHEDULES.get(str(kind.value))


def _misplaced(imported: Imported, setting: Setting) -> None:
    """DeepSpeed refuses these here: they are kept in the report, and not taken for what they would be elsewhere."""
    imported.drop(setting, mark("DeepSpeed rejects it inside zero_optimization."))
    _, name, *rest = setting.name.split(".")
    if not rest or rest == ["enabled"]:
        imported.say(setting, "misplaced", MISPLACED_HERE, name=name, where=".".join([name, *rest]))


def _half(imported: Imported, setting: Setting) -> None:
    """fp16 or bf16. Where neither is on, and nothing may switch one on, DeepSpeed computes in fp32."""
    half = setting.name.partition(".")[0]
    others = [imported.settings[name].value for name in (*HALVES, "amp.enabled") if name in imported.settings]
    if yes_or_no(setting.value):
        imported.map(setting, "engine.precision", half)
    elif all(attempt(yes_or_no, value) is False for value in others):
        imported.map(setting, "engine.precision", "fp32")
    else:
        imported.drop(setting, mark("Off leaves the choice to the other half-precision formats."))


def _loss_scale(imported: Imported, setting: Setting) -> None:
    imported.drop(setting, table.SCALING)
    if (attempt(decimal_number, setting.value) or 0) > 0:
        imported.say(setting, "not_offered", FIXED_SCALE)


def _optimizer(imported: Imported, setting: Setting) -> None:
    word = str(setting.value).strip().lower()
    taken = table.DEEPSPEED_OPTIMIZERS.get(word)
    if taken is not None and not (word == "adam" and imported.read("optimizer.params.adam_w_mode", yes_or_no) is False):
        imported.map(setting, "engine.optimizer", taken)
    elif taken is not None or word in table.OTHER_OPTIMIZERS:
        imported.drop(setting, table.NOT_OFFERED)
        imported.say(setting, "not_offered", NO_OPTIMIZER, name=shown(setting.value))
    else:
        imported.leave_unknown(setting)
        imported.say(setting, "not_offered", NO_OPTIMIZER_OF_ITS_OWN, name=shown(setting.value))


def _betas(imported: Imported, setting: Setting) -> None:
    if not isinstance(setting.value, list) or len(setting.value) != 2:
        raise WrongValue(setting.value)
    first, second = (decimal_number(beta) for beta in setting.value)
    imported.map(setting, "training.adam_beta1", first)
    imported.map(setting, "training.adam_beta2", second)


def _scheduler(imported: Imported, setting: Setting) -> None:
    schedule = _schedule(imported)
    if schedule is not None:
        imported.map(setting, "training.schedule", schedule)
        linear = str(imported.read("scheduler.params.warmup_type", str) or "log").lower() == "linear"
        if not linear and imported.read("scheduler.params.warmup_num_steps", whole_number) not in (0, 1):
            imported.say(setting, "not_offered", LOGARITHM, note=True)
        return
    if setting.value in ("LRRangeTest", "OneCycle"):
        imported.drop(setting, table.NOT_OFFERED)
    else:
        imported.leave_unknown(setting)
    imported.say(setting, "not_offered", NO_SCHEDULER, name=shown(setting.value))


def _peak(imported: Imported, setting: Setting) -> None:
    """The scheduler sets the rate at every step, so what the optimizer says beside it has no effect."""
    peak, other = decimal_number(setting.value), imported.values.get("training.learning_rate")
    if other is not None and peak != other:
        imported.say(setting, "contradiction", SCHEDULER_WINS, other=f"{other:g}", peak=f"{peak:g}")
        why = mark("The scheduler sets the learning rate at every step.")
        imported.take_back("training.learning_rate", why, "optimizer.params.lr")
    imported.map(setting, "training.learning_rate", peak)


def _final_ratio(imported: Imported, setting: Setting) -> None:
    peak = imported.values.get("training.learning_rate")
    if peak is None:
        imported.drop(setting, table.AUTO)
    else:
        imported.map(setting, "training.final_learning_rate", float(f"{peak * decimal_number(setting.value):.6g}"))


def _offload(imported: Imported, setting: Setting) -> None:
    stage = imported.read("zero_optimization.stage", whole_number)
    has_stage = "zero_optimization.stage" in imported.settings
    keep_in_ram(imported, setting, "offload_param" in setting.name, stage if has_stage else 0)


def _say_more(imported: Imported, given: Mapping[str, Any]) -> None:
    """Figures that cannot be true together, and what DeepSpeed takes for what is left out."""
    settings = imported.settings
    zero = [setting for name, setting in settings.items() if name.startswith("zero_optimization.")]
    if "zero_optimization" not in given:
        imported.say(None, "other_program", WITHOUT_ZERO)
    elif "zero_optimization.stage" not in settings:
        imported.say(zero[0].line if zero else None, "missing_setting", NO_STAGE)
    optimizer = settings.get("zero_optimization.offload_optimizer.device")
    if imported.values.get("engine.offload") == "all" and (optimizer is None or optimizer.value != "cpu"):
        imported.say(settings["zero_optimization.offload_param.device"], "not_offered", OPTIMIZER_TOO, note=True)
    total, micro, accumulation = (imported.read(name, whole_number) for name in BATCH)
    accumulation = max(1, accumulation or 1)
    if total is not None and micro is not None and micro > 0 and total % (micro * accumulation):
        imported.say(
            settings[BATCH[0]], "contradiction", NO_MULTIPLE, total=total, micro=micro, accumulation=accumulation
        )
        why = mark("It contradicts micro-batch and gradient accumulation.")
        imported.take_back("batch.target_samples", why)
    on = [settings[name] for name in HALVES if imported.read(name, yes_or_no)]
    if len(on) > 1:
        first, second = (setting.as_written().partition(".")[0] for setting in on)
        imported.say(on[1], "contradiction", BOTH_HALVES, first=first, second=second)
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
