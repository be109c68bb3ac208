"""The arguments of the Trainer and of programs around it: from a file, a script or a command into a report."""

from __future__ import annotations

import ast
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from trainwiz.core.config.values import Optimizer, Task
from trainwiz.core.data.formats import SAMPLES
from trainwiz.core.estimate.architecture import ALL_LINEAR
from trainwiz.core.importing.document import Document, read_document
from trainwiz.core.importing.names import (
    CANONICAL,
    DEFAULTS,
    LOADED_AS_NEEDED,
    LOOSE,
    NAMES_A_FILE,
    OF_IMAGES,
    OFF,
    OTHER_STAGES,
    OTHER_TRAININGS,
    RATES,
    REMOVED_OPTIMIZERS,
    RENAMED,
    SCHEDULES,
    SWITCHES,
    TASK_OF_ENDING,
    TASKS,
    TRAINER,
    TRAINERS_OWN,
)
from trainwiz.core.importing.report import Imported, NotImportable, Place, Setting, refusal
from trainwiz.core.importing.values import (
    LeftOut,
    Unresolved,
    WrongValue,
    attempt,
    decimal_number,
    dtype_name,
    is_nothing,
    name_value,
    source_names,
    text_list,
    text_value,
    whole_number,
    word,
    yes_or_no,
)
from trainwiz.core.language import mark, tr
from trainwiz.core.text import parse_json, plain_text

OPTIMIZERS: tuple[str, ...] = get_args(Optimizer)
DEFAULT_LEARNING_RATE = 5e-5
DEFAULT_LOGGING_STEPS = 500
"""TrainingArguments.logging_steps; eval_steps takes it where it is not set."""
POLYNOMIAL_END = 1e-7
"""get_polynomial_decay_schedule_with_warmup(lr_end=1e-7) in transformers/optimization.py."""
EVERY_LAYER = frozenset({"all-linear", "all", "all_linear", "all-layers"})
SEQ2SEQ_ARGUMENTS = frozenset({"max_source_length", "max_target_length", "val_max_target_length"})

OTHER_STRATEGY = mark("The strategy beside it does not count steps.")
SHARE = mark("It is a share of all steps, and how many there are is not said.")
SHARE_OF_ROWS = mark("It is a share of the rows; a run holds out a number of them (data.validation_rows).")
AUTO = mark("auto leaves it to the plan.")
NO_ADAPTERS = mark("No adapters are asked for.")
NO_SCHEDULE = mark(
    "{name}: trainwiz has no schedule {value}, so the rate falls linearly; training.schedule takes {known}."
)
NO_OPTION = mark("{name}: trainwiz has no setting for {ignored}; the schedule goes without.")
BOTH_ON = mark("fp16 and bf16 are both on, which transformers refuses; the precision is left to the plan.")
NO_OPTIMIZER = mark(
    "{name}: trainwiz has no optimizer {value}, so the plan chooses one; engine.optimizer takes {known}."
)
SHARDS_LESS = mark("{name}: {option} shards less than trainwiz's FSDP, which shards weights, gradients and optimizer.")
QUANTIZES_NOT = mark(
    "{name}: trainwiz does not quantise the base weights, so the plan needs more memory than the file meant."
)
PACKED = mark(
    "{name}: rows lie end to end and each sees itself alone (data.packing); a step counts rows here, and packed sequences "
    "in the program that it is from: check the effective batch."
)
NO_TEMPLATE = mark("{name}: no chat template is applied here; the model learns from the columns as they are.")
OTHER_TRAINING = mark(
    "This trains {what}, which trainwiz does not; the settings are kept for a plan of its size and speed."
)
UNKNOWN_DATA = mark(
    "{data}: no file or folder of that name is here, and it names no owner as data sets of the hub do (OWNER/NAME). Give "
    "the file that is meant: --dataset FILE."
)
ASSUMED = mark(
    "{name} is read as the sequences that one process computes at once; if the script means all processes together, set "
    "batch.micro_batch_size."
)
LIBRARY_DEFAULTS = mark("What is left out has the defaults of {program}: {said}.")
TWO_VALUES = mark("{first} and {second} are the same setting with two values; {counts} counts. Keep one.")


def fill(
    imported: Imported, settings: Iterable[Setting], hints: Iterable[Setting] = (), program: str | None = None
) -> None:
    """Put every setting into the report.

    `hints` are the classes and scripts that the text names. `program` is the class whose defaults hold for what is
    left out ("TrainingArguments", "SFTConfig", ...); None where that is not known.
    """
    for setting in settings:
        _take(imported, _todays(imported, setting))
    for setting in imported.settings.values():
        imported.place(setting, SPECIAL.get(setting.name, TRAINER.get(setting.name)), AUTO)
    _place_task(imported, list(hints))
    for setting in imported.settings.values():
        loose = setting.written.replace("-", "_") in LOOSE and not isinstance(setting.value, Unresolved)
        if loose and setting.name == "per_device_train_batch_size":
            imported.say(setting, "assumed_meaning", ASSUMED)
    _say_unknown_data(imported)
    if program is not None:
        _set_defaults(imported, program)


# Names: those of today, and of two spellings of one setting the one that counts.


def _todays(imported: Imported, setting: Setting) -> Setting:
    if setting.name == "deepspeed" and setting.value is True:
        # deepspeed.add_config_arguments has a bare --deepspeed, beside which --deepspeed_config names the file.
        return setting.called("use_deepspeed")
    new = RENAMED.get(setting.name)
    if new is not None:
        imported.rename(setting.as_written(), new, setting.line)
        switch = SWITCHES.get(setting.name)
        on = attempt(yes_or_no, setting.value)
        if switch is None or isinstance(setting.value, Unresolved):
            return setting.called(new)
        return setting.called(new, switch if on else None if on is False else setting.value)
    old = attempt(text_value, setting.value) if setting.name in ("optim", "optimizer") else None
    if old in REMOVED_OPTIMIZERS:
        imported.rename(f"{setting.as_written()}={old}", f"optim={REMOVED_OPTIMIZERS[old]}", setting.line)
        return setting.called("optim", REMOVED_OPTIMIZERS[old])
    return setting


def _take(imported: Imported, setting: Setting) -> None:
    proper = CANONICAL.get(setting.name, setting.name)
    first = imported.settings.get(proper)
    if proper != setting.name and first is None:
        setting = setting.called(proper)
    elif first is not None and (proper == setting.name or CANONICAL.get(first.as_written()) is None):
        if proper != setting.name:
            imported.settings[setting.name] = setting
            return
        if first.as_written() in CANONICAL:
            # An alias beside its proper name stays what it is called.
            imported.settings[first.as_written()] = Setting(first.as_written(), first.value, first.line)
        else:
            setting = _that_counts(imported, first, setting)
    imported.settings[setting.name] = setting


def _that_counts(imported: Imported, first: Setting, second: Setting) -> Setting:
    counts = second
    if is_nothing(first.value) or is_nothing(second.value):
        return first if is_nothing(second.value) else second
    if first.name == "warmup_steps" and first.as_written() != second.as_written():
        # TrainingArguments.get_warmup_steps of 4.x: steps above 0 win over the ratio.
        steps, ratio = (second, first) if second.as_written() == "warmup_steps" else (first, second)
        above = [setting for setting in (steps, ratio) if (attempt(decimal_number, setting.value) or 0) > 0]
        if len(above) < 2:
            return above[0] if above else steps
        counts = steps
    if first.value != second.value:
        told = [plain_text(f"{one.as_written()}={one.as_given()}", 60) for one in (first, second)]
        imported.say(second, "contradiction", TWO_VALUES, first=told[0], second=told[1], counts=counts.as_written())
    return counts


def is_known(name: str) -> bool:
    """Some version of the Trainer, or a script around it, has an argument of this name."""
    return name in TRAINER or name in SPECIAL or name in RENAMED or name in CANONICAL


def looks_like_arguments(names: Iterable[str], least: int = 2) -> bool:
    """At least `least` of the names are the Trainer's own."""
    return len(TRAINERS_OWN & set(names)) >= least


# Settings with which others decide.


def _schedule(imported: Imported, setting: Setting) -> None:
    kind = word(setting.value)
    if kind not in SCHEDULES:
        imported.drop(setting, mark("trainwiz has no such schedule."))
        known = ", ".join(dict.fromkeys(SCHEDULES.values()))
        imported.say(setting, "unsupported_schedule", NO_SCHEDULE, value=plain_text(repr(kind), 60), known=known)
        return
    imported.map(setting, "training.schedule", SCHEDULES[kind])
    if kind == "polynomial" and "lr_scheduler_kwargs" not in imported.settings:
        imported.map(setting, "training.final_learning_rate", POLYNOMIAL_END)


def _schedule_options(imported: Imported, setting: Setting) -> None:
    options = setting.value
    if not isinstance(options, Mapping):
        raise WrongValue(options)
    final = _final_rate(imported, imported.read("lr_scheduler_type", text_value) or "linear", options)
    if final is None:
        why = mark("trainwiz has no setting for these options of the schedule.")
        raise LeftOut(why if options else mark("It is not set."))
    imported.map(setting, "training.final_learning_rate", final)
    used = ("lr_end", "min_lr", "min_lr_rate")
    same = [("power", 1), ("num_cycles", 0.5)]
    ignored = sorted(str(name) for name, value in options.items() if name not in used and (name, value) not in same)
    if ignored:
        imported.say(setting, "unsupported_schedule", NO_OPTION, ignored=plain_text(", ".join(ignored), 80))


def _final_rate(imported: Imported, kind: str, options: Mapping[str, Any]) -> float | None:
    """The learning rate of the last step, where the options say it."""
    if kind == "polynomial":
        return decimal_number(options.get("lr_end", POLYNOMIAL_END))
    if kind == "cosine_with_min_lr" and options.get("min_lr") is not None:
        return decimal_number(options["min_lr"])
    if kind == "cosine_with_min_lr" and options.get("min_lr_rate") is not None:
        peak = imported.read("learning_rate", decimal_number) or DEFAULT_LEARNING_RATE
        return float(f"{peak * decimal_number(options['min_lr_rate']):.6g}")
    return None


def _warmup(imported: Imported, setting: Setting) -> None:
    warmup = decimal_number(setting.value)
    if warmup > 0 and imported.read("lr_scheduler_type", text_value) == "constant":
        raise LeftOut(mark("The schedule `constant` has no warm-up."))
    if setting.as_written() == "warmup_ratio" and warmup >= 1:
        # A ratio of 1 would be read as one step.
        raise WrongValue(setting.value)
    imported.map(setting, "training.warmup", warmup)


def _epochs(imported: Imported, setting: Setting) -> None:
    if (imported.read("max_steps", whole_number) or 0) > 0:
        raise LeftOut(mark("max_steps says how long the training is."))
    imported.map(setting, "training.epochs", decimal_number(setting.value))


def _steps(imported: Imported, value: Any) -> int:
    """A number of steps; a value below 1 is a share of max_steps (Trainer: ceil)."""
    steps = decimal_number(value)
    if steps >= 1:
        return whole_number(value)
    most = imported.read("max_steps", whole_number) or 0
    if steps <= 0:
        raise WrongValue(value)
    if most <= 0:
        raise LeftOut(SHARE)
    return math.ceil(most * steps)


def _every(key: str, beside: str) -> Place:
    """Every so many steps, unless the strategy beside it counts something else."""

    def place(imported: Imported, setting: Setting) -> None:
        if (imported.read(beside, word) or "steps") != "steps":
            raise LeftOut(OTHER_STRATEGY)
        imported.map(setting, key, _steps(imported, setting.value))

    return place


def _logging_strategy(imported: Imported, setting: Setting) -> None:
    if word(setting.value) != "steps" or "logging_steps" in imported.settings:
        raise LeftOut(mark("A run logs every so many steps (logging.every_steps); the plan chooses how many."))
    imported.map(setting, "logging.every_steps", DEFAULT_LOGGING_STEPS)


def _save_strategy(imported: Imported, setting: Setting) -> None:
    if word(setting.value) != "best":
        raise LeftOut(mark("A run saves every so many steps (checkpoint.every_steps); the plan chooses how many."))
    imported.map(setting, "checkpoint.keep_best", True)


def _eval_strategy(imported: Imported, setting: Setting) -> None:
    strategy = word(setting.value)
    if strategy == "epoch":
        imported.map(setting, "evaluation.every_epoch", True)
    elif strategy == "steps":
        steps = imported.read("eval_steps", decimal_number) or imported.read("logging_steps", decimal_number)
        imported.map(setting, "evaluation.every_steps", _steps(imported, steps or DEFAULT_LOGGING_STEPS))
    elif strategy != "no":
        raise WrongValue(setting.value)
    elif imported.read("do_eval", yes_or_no):
        raise LeftOut(mark("With do_eval the model is evaluated at the end, as in every run."))
    else:
        imported.map(setting, "data.validation_rows", 0)


def _half(imported: Imported, setting: Setting) -> None:
    """fp16 or bf16. Off says nothing: a Trainer then takes the launcher's precision, and fp32 where that has none."""
    other_is_on = imported.read("bf16" if setting.name == "fp16" else "fp16", yes_or_no) or False
    if not yes_or_no(setting.value):
        raise LeftOut(mark("The other format is on.") if other_is_on else OFF)
    if other_is_on:
        imported.drop(setting, mark("Only one of fp16 and bf16 can be on."))
        if setting.name == "bf16":
            imported.say(setting, "contradiction", BOTH_ON)
        return
    # Weights that are loaded in bf16 and all trained stay in bf16.
    stays = setting.name == "bf16" and _weights_are_bf16(imported)
    imported.map(setting, "engine.precision", "bf16-true" if stays else setting.name)


def _weights_are_bf16(imported: Imported) -> bool:
    return not wants_adapters(imported) and imported.read("dtype", dtype_name) == "bfloat16"


def _dtype(imported: Imported, setting: Setting) -> None:
    fp16 = imported.read("fp16", yes_or_no)
    if _weights_are_bf16(imported) and not fp16:
        imported.map(setting, "engine.precision", "bf16-true")
    elif dtype_name(setting.value) == "float32" and not fp16 and not imported.read("bf16", yes_or_no):
        imported.map(setting, "engine.precision", "fp32")
    else:
        raise LeftOut(LOADED_AS_NEEDED)


def _optimizer(imported: Imported, setting: Setting) -> None:
    name = word(setting.value)
    if name in OPTIMIZERS:
        imported.map(setting, "engine.optimizer", name)
        return
    imported.drop(setting, mark("trainwiz has no such optimizer."))
    known = ", ".join(OPTIMIZERS)
    imported.say(setting, "unsupported_optimizer", NO_OPTIMIZER, value=plain_text(repr(name), 60), known=known)


def _deepspeed(imported: Imported, setting: Setting) -> None:
    """A file's name, or the settings themselves, which are read as the file would be."""
    from trainwiz.core.importing import deepspeed

    value = setting.value
    if not isinstance(value, Mapping) and not text_value(value).startswith("{"):
        imported.refer("deepspeed", text_value(value), setting.line)
        raise LeftOut(NAMES_A_FILE)
    try:
        given = parse_json(value) if isinstance(value, str) else value
        inner = deepspeed.read(json.dumps(given, default=str), imported.file)
    except (NotImportable, ValueError):
        raise WrongValue(value) from None
    name = setting.as_written()
    for entry in inner.mapped:
        imported.map(Setting(f"{name}.{entry.name}", entry.value, setting.line), entry.key, entry.set_to)
    for renamed in inner.renamed:
        imported.rename(f"{name}.{renamed.old}", renamed.new, setting.line)
    for dropped in inner.dropped:
        imported.drop(Setting(f"{name}.{dropped.name}", dropped.value, setting.line), dropped.why)
    for unknown in inner.unknown:
        imported.leave_unknown(Setting(f"{name}.{unknown.name}", unknown.value, setting.line))
    for finding in inner.findings:
        imported.say(setting, finding.code, "{message}", message=finding.message)


def _fsdp(imported: Imported, setting: Setting) -> None:
    """The options of old ("full_shard auto_wrap offload"), or only on and off."""
    value = setting.value
    options = [] if isinstance(value, bool) else [option.lower() for option in text_list(value)]
    if value is False or (options in ([], ["false"]) and value is not True):
        raise LeftOut(OFF)
    imported.map(setting, "engine.strategy", "ddp" if "no_shard" in options else "fsdp")
    if "offload" in options and "no_shard" not in options:
        imported.map(setting, "engine.offload", "all")
    less = sorted({"shard_grad_op", "hybrid_shard", "hybrid_shard_zero2"} & set(options))
    if less:
        imported.say(setting, "unsupported_sharding", SHARDS_LESS, option=less[0])


def _fsdp_config(imported: Imported, setting: Setting) -> None:
    """What an accelerate file says in the same words; the rest trainwiz derives."""
    options = setting.value if isinstance(setting.value, Mapping) else {}
    found = {str(name).removeprefix("fsdp_"): value for name, value in options.items()}
    if found.get("activation_checkpointing") is not None and yes_or_no(found["activation_checkpointing"]):
        imported.map(setting, "engine.checkpointing", True)
    elif attempt(yes_or_no, found.get("offload_params")) and "fsdp" in imported.settings:
        imported.map(setting, "engine.offload", "all")
    else:
        raise LeftOut(mark("trainwiz derives how FSDP wraps a model from the model."))


def _compiled_by(imported: Imported, setting: Setting) -> None:
    """TrainingArguments.__post_init__: a backend or a mode switches torch.compile on."""
    if "torch_compile" in imported.settings:
        raise LeftOut(mark("torch.compile runs with its own defaults; engine.compile switches it on."))
    imported.map(setting, "engine.compile", True)


# The model and its adapters.


def _model(imported: Imported, setting: Setting) -> None:
    imported.map(setting, "model.name", name_value(setting.value))
    imported.map(setting, "model.init", "pretrained")


def _config(imported: Imported, setting: Setting) -> None:
    """run_clm.py: `config_name` alone makes a model from scratch, beside a model it changes its config."""
    if "model_name_or_path" in imported.settings:
        raise LeftOut(mark("The model brings its own config."))
    imported.map(setting, "model.name", name_value(setting.value))
    imported.map(setting, "model.init", "scratch")


def _tokenizer(imported: Imported, setting: Setting) -> None:
    name = name_value(setting.value)
    if name == imported.read("model_name_or_path", text_value):
        raise LeftOut(mark("The model brings its own tokenizer."))
    imported.map(setting, "model.tokenizer", name)


def _method(imported: Imported, setting: Setting) -> None:
    """finetuning_type: lora, full, freeze; peft_type: LORA, PeftType.LORA; adapter: qlora."""
    name = text_value(setting.value).rpartition(".")[2].lower()
    if name not in ("lora", "qlora", "full", "none"):
        raise LeftOut(mark("trainwiz trains all weights or LoRA adapters."))
    imported.map(setting, "peft.method", "lora" if "lora" in name else "none")
    if name == "qlora":
        imported.say(setting, "not_quantized", QUANTIZES_NOT)


def wants_adapters(imported: Imported) -> bool:
    """Something asks for LoRA: a switch that is on, or its settings where no switch is there."""
    if "use_peft" in imported.settings:
        return bool(imported.read("use_peft", yes_or_no))
    if "finetuning_type" in imported.settings:
        return "lora" in (imported.read("finetuning_type", word) or "")
    return any(name in imported.settings for name in ("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules"))


def _of_adapters(key: str, convert: Callable[[Any], Any]) -> Place:
    def place(imported: Imported, setting: Setting) -> None:
        if not wants_adapters(imported):
            raise LeftOut(NO_ADAPTERS)
        imported.map(setting, key, convert(setting.value))
        imported.values.setdefault("peft.method", "lora")

    return place


def _targets(value: Any) -> list[str]:
    names = text_list(value)
    if len(names) == 1 and names[0].lower() in EVERY_LAYER:
        return list(ALL_LINEAR)
    if any(not re.fullmatch(r"[\w.]+", name) for name in names):
        # A regular expression, which peft takes and a list of names is not.
        raise WrongValue(value)
    return names


def _every_layer(imported: Imported, setting: Setting) -> None:
    """axolotl's lora_target_linear, which names all linear layers beside those of lora_target_modules."""
    if not yes_or_no(setting.value):
        raise LeftOut(OFF)
    _of_adapters("peft.targets", lambda _: list(ALL_LINEAR))(imported, setting)


def _quantized(imported: Imported, setting: Setting) -> None:
    value = str(setting.value).strip()
    if value not in ("4", "8") and (value in ("16", "32") or not yes_or_no(value)):
        raise LeftOut(OFF)
    imported.drop(setting, mark("trainwiz trains on weights in bf16 or fp16; it does not quantise them."))
    imported.say(setting, "not_quantized", QUANTIZES_NOT)


# The data.


def _named_data(imported: Imported) -> list[str] | None:
    names = ("dataset_name", "dataset_mixer", "datasets")
    return next((found for name in names if (found := imported.read(name, source_names))), None)


def _data(imported: Imported, setting: Setting) -> None:
    if setting.name != "dataset_name" and "dataset_name" in imported.settings:
        raise LeftOut(mark("trainwiz mixes data sets by their rows, without weights of its own."))
    names = source_names(setting.value)
    if len(names) == 1:
        imported.map(setting, "data.sources.0.name", names[0])
    else:
        imported.map(setting, "data.sources", [{"name": name} for name in names])
    described = (
        {str(key) for item in setting.value if isinstance(item, Mapping) for key in item} - {"path", "id"}
        if (isinstance(setting.value, list))
        else set()
    )
    for key in sorted(described):
        values = [item.get(key) for item in setting.value if isinstance(item, Mapping)]
        inner = Setting(f"{setting.as_written()}.{key}", values[0] if len(values) == 1 else values, setting.line)
        if key in ("split", "name") and len(names) == 1 and isinstance(values[0], str):
            imported.map(inner, f"data.sources.0.{'split' if key == 'split' else 'subset'}", values[0])
        else:
            imported.leave_unknown(inner)


def _of_source(name: str, convert: Callable[[Any], Any]) -> Place:
    """A detail of the one data set; without its name, or with several, there is nothing that it belongs to."""

    def place(imported: Imported, setting: Setting) -> None:
        named = _named_data(imported)
        if named is None:
            raise LeftOut(mark("The data set that it describes is not named."))
        if len(named) > 1:
            raise LeftOut(mark("Several data sets are named, and it does not say for which one it is."))
        imported.map(setting, f"data.sources.0.{name}", convert(setting.value))

    return place


def _rows(value: Any) -> int:
    rows = whole_number(value)
    if rows < 1:
        raise WrongValue(value)
    return rows


def _column(value: Any) -> str:
    name = text_value(value)
    if len(text_list(name)) != 1:
        raise WrongValue(value)
    return name


def _evaluated_rows(imported: Imported, setting: Setting) -> None:
    """At most so many rows: of the validation file, or held out."""
    if 0 < decimal_number(setting.value) < 1:
        raise LeftOut(SHARE_OF_ROWS)
    rows = whole_number(setting.value)
    names = imported.read("validation_file", source_names)
    if setting.name == "val_size" and rows == 0:
        imported.map(setting, "data.validation_rows", 0)
    elif rows < 1:
        raise LeftOut(mark("It sets no limit."))
    elif names and setting.name != "val_size":
        imported.map(setting, "data.validation_sources", [{"name": name, "max_rows": rows} for name in names])
    else:
        imported.map(setting, "data.validation_rows", rows)


def _packing(imported: Imported, setting: Setting) -> None:
    """TRL, LLaMA-Factory, axolotl: several whole rows in one sequence. Texts joined and cut are something else."""
    packs = yes_or_no(setting.value)
    imported.map(setting, "data.packing", packs)
    if packs:
        imported.say(setting, "packing_counts_rows", PACKED)


def _template(imported: Imported, setting: Setting) -> None:
    imported.drop(setting, mark("trainwiz applies no chat template."))
    imported.say(setting, "no_template", NO_TEMPLATE)


def _say_unknown_data(imported: Imported) -> None:
    """Names of data that only another program's own list explains (LLaMA-Factory's dataset_info.json)."""
    for name in ("dataset_name", "validation_file", "dataset_mixer"):
        for data in imported.read(name, source_names) or ():
            if "/" not in data and data not in SAMPLES and not os.path.lexists(data) and not Path(data).suffix:
                imported.say(imported.settings[name], "unknown_data", UNKNOWN_DATA, data=data)


# The task, from what classes, scripts and arguments are called.


def task_of(name: str) -> Task | None:
    """The task that a class or a script is made for."""
    ending = next((task for end, task in TASK_OF_ENDING.items() if name.endswith(end)), None)
    return TASKS.get(name.removesuffix("_no_trainer")) or ending


def other_training(name: str) -> str:
    """What a class or script trains that trainwiz does not, marked for translation; "" for all others."""
    ending = next((what for end, what in OTHER_TRAININGS.items() if end[0] == "F" and name.endswith(end)), "")
    return OTHER_TRAININGS.get(name, ending)


def _place_task(imported: Imported, hints: list[Setting]) -> None:
    """Set the task where something names it, and say where the training is none that trainwiz does."""
    for hint in sorted(hints, key=lambda hint: hint.name == "script"):
        task = task_of(hint.value)
        if task is not None and "task" not in imported.values:
            imported.map(hint, "task", task)
    for setting in imported.settings.values():
        task = _task_of_argument(imported, setting)
        if task is not None and "task" not in imported.values:
            imported.map(setting, "task", task)
    other = next((hint for hint in hints if other_training(hint.value)), None)
    images = next((setting for setting in imported.settings.values() if setting.name in OF_IMAGES), None)
    if other is not None:
        imported.say(other, "other_training", OTHER_TRAINING, what=tr(other_training(other.value)))
    elif images is not None:
        imported.say(images, "other_training", OTHER_TRAINING, what=tr("a model of images"))


def _task_of_argument(imported: Imported, setting: Setting) -> Task | None:
    name = setting.as_written()
    if name == "mlm_probability" or (name == "mlm" and imported.read("mlm", yes_or_no)):
        return "masked-lm"
    if name in SEQ2SEQ_ARGUMENTS or (name == "predict_with_generate" and imported.read(name, yes_or_no)):
        return "seq2seq"
    if name in ("task_type", "lora_task_type"):
        kind = (attempt(text_value, setting.value) or "").rpartition(".")[2].upper()
        return TASKS.get(kind)
    return None


def _stage(imported: Imported, setting: Setting) -> None:
    """LLaMA-Factory's `stage`, axolotl's `rl`: pt and sft are language modelling, the others are not."""
    stage = word(setting.value)
    if stage in ("pt", "sft"):
        imported.map(setting, "task", "causal-lm")
        return
    imported.leave_unknown(setting)
    if stage in OTHER_STAGES or setting.name == "rl":
        imported.say(setting, "other_training", OTHER_TRAINING, what=stage.upper())


SPECIAL: Mapping[str, Place] = {
    "lr_scheduler_type": _schedule,
    "lr_scheduler_kwargs": _schedule_options,
    "warmup_steps": _warmup,
    "num_train_epochs": _epochs,
    "logging_strategy": _logging_strategy,
    "logging_steps": _every("logging.every_steps", "logging_strategy"),
    "save_strategy": _save_strategy,
    "save_steps": _every("checkpoint.every_steps", "save_strategy"),
    "eval_strategy": _eval_strategy,
    # Without a strategy the Trainer would not evaluate; scripts that take eval_steps alone mean steps.
    "eval_steps": _every("evaluation.every_steps", "eval_strategy"),
    "fp16": _half,
    "bf16": _half,
    "dtype": _dtype,
    "optim": _optimizer,
    "deepspeed": _deepspeed,
    "fsdp": _fsdp,
    "fsdp_config": _fsdp_config,
    "torch_compile_backend": _compiled_by,
    "torch_compile_mode": _compiled_by,
    "model_name_or_path": _model,
    "config_name": _config,
    "tokenizer_name": _tokenizer,
    "finetuning_type": _method,
    "lora_r": _of_adapters("peft.rank", whole_number),
    "lora_alpha": _of_adapters("peft.alpha", decimal_number),
    "lora_dropout": _of_adapters("peft.dropout", decimal_number),
    "lora_target_modules": _of_adapters("peft.targets", _targets),
    "lora_target_linear": _every_layer,
    **dict.fromkeys(("load_in_4bit", "load_in_8bit", "use_4bit", "use_8bit", "quantization_bit", "q_lora"), _quantized),
    **dict.fromkeys(("dataset_name", "dataset_mixer", "datasets"), _data),
    "dataset_config_name": _of_source("subset", text_value),
    "dataset_train_split": _of_source("split", text_value),
    "text_column": _of_source("text_column", _column),
    "target_column": _of_source("target_column", _column),
    "max_train_samples": _of_source("max_rows", _rows),
    "max_eval_samples": _evaluated_rows,
    "val_size": _evaluated_rows,
    "packing": _packing,
    **dict.fromkeys(("template", "chat_template", "chat_template_path"), _template),
    "stage": _stage,
    "rl": _stage,
}


# What is left out.


def _set_defaults(imported: Imported, program: str) -> None:
    """Defaults of the class for what the text says nothing of; what it says and nobody can know has none."""
    defaults = {name: place for name, place in DEFAULTS.items() if name not in imported.settings}
    if "training.max_steps" in imported.values:
        defaults.pop("num_train_epochs", None)
    if "learning_rate" in defaults:
        defaults["learning_rate"] = ("training.learning_rate", RATES.get(program, DEFAULT_LEARNING_RATE))
    said = {name: f"{value:g}" for name, (key, value) in defaults.items() if key not in imported.values}
    imported.defaults.update({key: value for key, value in defaults.values() if key not in imported.values})
    if not _half_is_open(imported, program) and "engine.precision" not in imported.values:
        imported.defaults["engine.precision"] = "fp32"
        said["fp16"] = "off"
    if said:
        words = ", ".join(f"{name} {value}" for name, value in said.items())
        imported.say(None, "library_defaults", LIBRARY_DEFAULTS, program=program, said=words)


def _half_is_open(imported: Imported, program: str) -> bool:
    """fp16 or bf16 is on, nobody can know, or the class chooses by itself (TRL: bf16 from 0.20 on)."""
    named = [imported.settings[name] for name in ("fp16", "bf16") if name in imported.settings]
    if any(isinstance(setting.value, Unresolved) or imported.read(setting.name, yes_or_no) for setting in named):
        return True
    return not named and program in RATES


# Arguments in a file: YAML or JSON, flat or in sections, and what a Trainer printed or dumped.

PRINTED = re.compile(r"(?P<program>\w*(?:TrainingArguments|Config))\(\s*$", re.MULTILINE)
"""`print(training_args)`: the name of the class, a bracket, then one name=value, a line."""
PRINTED_SETTING = re.compile(r"^\s*(?P<name>[A-Za-z_]\w*)=(?P<value>.*?),?\s*$")
PLACEHOLDER = re.compile(r"<[A-Z_]+>|\$\{[^}]*\}|\$\w+|\{\{[^}]*\}\}")
"""A value that is filled in later: <HUB_TOKEN>, ${oc.env:LR}, $LR, {{ lr }}."""
ADAPTER_NAMES = (frozenset({"peft_type", "lora_alpha"}), frozenset({"r", "lora_alpha"}))
"""Either of these together stands in a LoraConfig only."""
ADAPTER_SETTINGS: Mapping[str, str] = {
    "r": "lora_r",
    "base_model_name_or_path": "model_name_or_path",
    "target_modules": "lora_target_modules",
}
"""LoraConfig's own names -> those of scripts around it."""
SECTIONS_THAT_NAME: Mapping[str, str] = {
    "model": "model_name_or_path",
    "base_model": "model_name_or_path",
    "tokenizer": "tokenizer_name",
    "dataset": "dataset_name",
    "data": "dataset_name",
}
"""Sections that people write in place of one setting -> what `name` or `path` means there."""


def read(text: str, file: str) -> Imported:
    """Raises NotImportable for what holds no argument of the Trainer."""
    printed = PRINTED.search(text)
    if printed is not None:
        return _printed(text, file, printed)
    document = read_document(text, file)
    imported = Imported("training_arguments", file)
    document.say_twice(imported)
    settings = list(_settings(document.values, document, ()))
    names = [setting.name for setting in settings]
    if not any(is_known(name) for name in names):
        message = tr(
            "{file} holds no argument of the Trainer; expected are settings like learning_rate or max_steps.", file=file
        )
        raise refusal(file, message)
    axolotl = {"base_model", "datasets"} <= set(document.values)
    known = looks_like_arguments(names) and not axolotl
    fill(imported, settings, program="TrainingArguments" if known else None)
    return imported


def _settings(values: Mapping[Any, Any], document: Document, above: tuple[str, ...]) -> Iterator[Setting]:
    """The settings of a mapping and of its sections; a mapping that is the value of a known setting stays whole."""
    section = above[-1] if above else ""
    adapters = any(names <= set(map(str, values)) for names in ADAPTER_NAMES)
    adapters = adapters or section in ("lora", "peft", "lora_config", "peft_config")
    for key, value in values.items():
        name = str(key)
        line = document.lines.get(".".join((*above, name)))
        if isinstance(value, Mapping) and value and _is_section(name, value):
            yield from _settings(value, document, (*above, name))
            continue
        if isinstance(value, str) and PLACEHOLDER.fullmatch(value.strip()):
            value = Unresolved(value.strip())
        names_it = name in ("name", "path", "id") or (name == "name_or_path" and "data" not in section)
        if section in SECTIONS_THAT_NAME and names_it and not isinstance(value, Mapping):
            yield Setting(SECTIONS_THAT_NAME[section], value, line, f"{section}.{name}")
        elif adapters:
            yield Setting(ADAPTER_SETTINGS.get(name, name), value, line, name)
        else:
            # Names of a command line stand in files too: per-device-train-batch-size.
            yield Setting(name.replace("-", "_").lstrip("_"), value, line, name)


def _is_section(name: str, value: Mapping[Any, Any]) -> bool:
    """A section, and not the value of a setting: `dataset: {path: ...}` is one, shares of data sets are a value."""
    if name in SECTIONS_THAT_NAME:
        return not all(isinstance(item, int | float) for item in value.values())
    return not is_known(name)


def _printed(text: str, file: str, printed: re.Match[str]) -> Imported:
    """What `print(training_args)` gives; a bracket alone ends it, and without that it was cut off."""
    imported = Imported("training_arguments", file)
    start = text.count("\n", 0, printed.end()) + 1
    settings: list[Setting] = []
    for number, line in enumerate(text.splitlines()[start:], start + 1):
        if line.strip() == ")":
            break
        setting = PRINTED_SETTING.match(line)
        if setting is not None:
            settings.append(Setting(setting["name"], _literal(setting["value"]), number))
    else:
        message = tr("{file} ends before the printed arguments do; get the whole print.", file=file)
        raise refusal(file, message)
    fill(imported, settings, [Setting("class", printed["program"], start)], printed["program"])
    return imported


def _literal(text: str) -> Any:
    """The value behind a printed `name=`: texts stand there without quotes."""
    if PLACEHOLDER.fullmatch(text):
        return Unresolved(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
