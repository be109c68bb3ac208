"""The arguments of the Trainer that find their places together with others."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

from trainwiz.core.config.values import Optimizer
from trainwiz.core.estimate.architecture import ALL_LINEAR
from trainwiz.core.importing import chats
from trainwiz.core.importing import names as table
from trainwiz.core.importing.report import Imported, NotImportable, Place, Setting
from trainwiz.core.importing.values import (
    LeftOut,
    WrongValue,
    attempt,
    decimal_number,
    dtype_name,
    name_value,
    source_names,
    text_list,
    text_value,
    whole_number,
    word,
    yes_or_no,
)
from trainwiz.core.language import mark
from trainwiz.core.text import parse_json, plain_text

OPTIMIZERS: tuple[str, ...] = get_args(Optimizer)
DEFAULT_LEARNING_RATE = 5e-5
DEFAULT_LOGGING_STEPS = 500
"""TrainingArguments.logging_steps; eval_steps takes it where it is not set."""
POLYNOMIAL_END = 1e-7
"""get_polynomial_decay_schedule_with_warmup(lr_end=1e-7) in transformers/optimization.py."""
EVERY_LAYER = frozenset({"all-linear", "all", "all_linear", "all-layers"})
OTHER_STRATEGY = mark("The corresponding strategy does not count steps.")
SHARE = mark("It is a share of all steps, and the number of steps is not specified.")
SHARE_OF_ROWS = mark("It is a share of the rows; a run holds out a fixed number of rows (data.validation_rows).")
BASE = "engine.base_precision"
NO_ADAPTERS = mark("LoRA is not enabled.")
NO_SCHEDULE = mark(
    "{name}: trainwiz has no schedule {kind}, so the learning rate decreases linearly; training.schedule can be "
    "{known}."
)
NO_OPTION = mark("{name}: trainwiz has no setting for {ignored}; the schedule does not use it.")
BOTH_ON = mark("fp16 and bf16 are both enabled, which transformers rejects; the plan chooses the precision.")
NO_OPTIMIZER = mark(
    "{name}: trainwiz has no optimizer {optimizer}, so the plan chooses one; engine.optimizer can be {known}."
)
SHARDS_LESS = mark(
    "{name}: {option} shards less than trainwiz's FSDP, which shards weights, gradients and optimizer states."
)
PACKED = mark(
    "{name}: rows are packed end to end, and each attends only to itself (data.packing); a step counts rows in "
    "trainwiz, but packed sequences in the original program: check the effective batch."
)
OTHER_TRAINING = mark(
    "This trains {what}, which trainwiz does not support; the settings are kept to plan its size and speed."
)

# Settings with which others decide.


def _schedule(imported: Imported, setting: Setting) -> None:
    kind = word(setting.value)
    if kind not in table.SCHEDULES:
        imported.drop(setting, mark("trainwiz has no such schedule."))
        known = ", ".join(dict.fromkeys(table.SCHEDULES.values()))
        imported.say(setting, "unsupported_schedule", NO_SCHEDULE, kind=plain_text(repr(kind), 60), known=known)
        return
    imported.map(setting, "training.schedule", table.SCHEDULES[kind])
    if kind == "polynomial" and "lr_scheduler_kwargs" not in imported.settings:
        imported.map(setting, "training.final_learning_rate", POLYNOMIAL_END)


def _schedule_options(imported: Imported, setting: Setting) -> None:
    """The learning rate of the last step, where the options say it."""
    options = setting.value
    with suppress(ValueError):
        # A command has it as JSON.
        options = parse_json(options) if isinstance(options, str) else options
    if not isinstance(options, Mapping):
        raise WrongValue(setting.value)
    kind = imported.read("lr_scheduler_type", text_value)
    final = {"polynomial": "lr_end", "cosine_with_min_lr": "min_lr"}.get(kind or "", "")
    if options.get(final) is not None:
        rate = decimal_number(options[final])
    elif final == "min_lr" and options.get("min_lr_rate") is not None:
        usual = table.RATES.get(imported.program, DEFAULT_LEARNING_RATE)
        peak = imported.read("learning_rate", decimal_number) or usual
        rate = float(f"{peak * decimal_number(options['min_lr_rate']):.6g}")
    elif final == "lr_end":
        rate = POLYNOMIAL_END
    else:
        raise LeftOut(mark("trainwiz has no setting for these schedule options.") if options else table.UNSET)
    imported.map(setting, "training.final_learning_rate", rate)
    ignored = sorted(str(name) for name in options if name not in ("lr_end", "min_lr", "min_lr_rate"))
    if ignored:
        imported.say(setting, "unsupported_schedule", NO_OPTION, ignored=plain_text(", ".join(ignored), 80))


def _warmup(imported: Imported, setting: Setting) -> None:
    warmup = decimal_number(setting.value)
    if warmup > 0 and imported.read("lr_scheduler_type", text_value) == "constant":
        raise LeftOut(mark("The `constant` schedule has no warmup."))
    if setting.as_written() == "warmup_ratio" and warmup >= 1:
        # A ratio of 1 would be read as one step.
        raise WrongValue(setting.value)
    imported.map(setting, "training.warmup", warmup)


def _epochs(imported: Imported, setting: Setting) -> None:
    if (imported.read("max_steps", whole_number) or 0) > 0:
        raise LeftOut(mark("max_steps sets the length of the training."))
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
        raise LeftOut(mark("A run logs at a step interval (logging.every_steps); the plan chooses the interval."))
    imported.map(setting, "logging.every_steps", DEFAULT_LOGGING_STEPS)


def _save_strategy(imported: Imported, setting: Setting) -> None:
    if word(setting.value) != "best":
        raise LeftOut(mark("A run saves at a step interval (checkpoint.every_steps); the plan chooses the interval."))
    imported.map(setting, "checkpoint.keep_best", True)


def _load_best(imported: Imported, setting: Setting) -> None:
    imported.map(setting, "checkpoint.final", "best" if yes_or_no(setting.value) else "last")


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
        raise LeftOut(mark("With do_eval, the model is evaluated at the end, as in every run."))
    else:
        imported.map(setting, "data.validation_rows", 0)


def _half(imported: Imported, setting: Setting) -> None:
    """fp16 or bf16. Off says nothing: a Trainer then takes the launcher's precision, and fp32 where that has none."""
    other_is_on = imported.read("bf16" if setting.name == "fp16" else "fp16", yes_or_no) or False
    if not yes_or_no(setting.value):
        raise LeftOut(mark("The other format is enabled.") if other_is_on else table.OFF)
    if other_is_on:
        imported.drop(setting, mark("Only one of fp16 and bf16 can be enabled."))
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
        raise LeftOut(table.LOADED_AS_NEEDED)


def _optimizer(imported: Imported, setting: Setting) -> None:
    name = word(setting.value)
    if name in OPTIMIZERS:
        imported.map(setting, "engine.optimizer", name)
        return
    imported.drop(setting, mark("trainwiz has no such optimizer."))
    known = ", ".join(OPTIMIZERS)
    imported.say(setting, "unsupported_optimizer", NO_OPTIMIZER, optimizer=plain_text(repr(name), 60), known=known)


def _deepspeed(imported: Imported, setting: Setting) -> None:
    """A file's name, or the settings themselves, which are read as the file would be."""
    from trainwiz.core.importing import deepspeed

    value, name = setting.value, setting.as_written()
    if not isinstance(value, Mapping) and not text_value(value).startswith("{"):
        imported.refer("deepspeed", text_value(value), setting.line)
        raise LeftOut(table.NAMES_A_FILE)
    try:
        given = parse_json(value) if isinstance(value, str) else value
        inner = deepspeed.read(json.dumps(given, default=str), imported.file)
    except (NotImportable, ValueError):
        raise WrongValue(value) from None
    line = setting.line
    imported.mapped += [replace(entry, name=f"{name}.{entry.name}", line=line) for entry in inner.mapped]
    imported.renamed += [replace(entry, old=f"{name}.{entry.old}", line=line) for entry in inner.renamed]
    imported.dropped += [replace(entry, name=f"{name}.{entry.name}", line=line) for entry in inner.dropped]
    imported.unknown += [replace(entry, name=f"{name}.{entry.name}", line=line) for entry in inner.unknown]
    imported.values |= inner.values
    for finding in inner.findings:
        imported.say(setting, finding.code, "{message}", message=finding.message)


def _fsdp(imported: Imported, setting: Setting) -> None:
    """The options of old ("full_shard auto_wrap offload"), or only on and off."""
    value = setting.value
    options = [] if isinstance(value, bool) else [option.lower() for option in text_list(value)]
    if value is False or (options in ([], ["false"]) and value is not True):
        raise LeftOut(table.OFF)
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
        raise LeftOut(mark("trainwiz derives the FSDP wrapping from the model."))


def _compiled_by(imported: Imported, setting: Setting) -> None:
    """TrainingArguments.__post_init__: a backend or a mode switches torch.compile on."""
    if "torch_compile" in imported.settings:
        raise LeftOut(mark("torch.compile uses its own defaults; engine.compile enables it."))
    imported.map(setting, "engine.compile", True)


# The model and its adapters.


def _model(imported: Imported, setting: Setting) -> None:
    imported.map(setting, "model.name", name_value(setting.value))
    imported.map(setting, "model.init", "pretrained")


def _config(imported: Imported, setting: Setting) -> None:
    """run_clm.py: `config_name` alone makes a model from scratch, beside a model it changes its config."""
    if "model_name_or_path" in imported.settings:
        raise LeftOut(mark("The model includes its own config."))
    imported.map(setting, "model.name", name_value(setting.value))
    imported.map(setting, "model.init", "scratch")


def _tokenizer(imported: Imported, setting: Setting) -> None:
    name = name_value(setting.value)
    if name == imported.read("model_name_or_path", text_value):
        raise LeftOut(mark("The model includes its own tokenizer."))
    imported.map(setting, "model.tokenizer", name)


def _method(imported: Imported, setting: Setting) -> None:
    """finetuning_type: lora, full, freeze; peft_type: LORA, PeftType.LORA; adapter: qlora."""
    name = text_value(setting.value).rpartition(".")[2].lower()
    if name not in ("lora", "qlora", "full", "none"):
        raise LeftOut(mark("trainwiz trains all weights, or uses LoRA."))
    imported.map(setting, "peft.method", "lora" if "lora" in name else "none")
    if name == "qlora":
        imported.map(setting, BASE, "nf4")


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


def _every_layer(value: Any) -> list[str]:
    """axolotl's lora_target_linear, which names all linear layers beside those of lora_target_modules."""
    if not yes_or_no(value):
        raise LeftOut(table.OFF)
    return list(ALL_LINEAR)


def _quantized(imported: Imported, setting: Setting) -> None:
    """load_in_4bit, use_8bit, quantization_bit: 4, q_lora."""
    value = str(setting.value).strip()
    if value not in ("4", "8") and (value in ("16", "32") or not yes_or_no(value)):
        raise LeftOut(table.OFF)
    if setting.name != "q_lora" and not wants_adapters(imported):
        raise LeftOut(NO_ADAPTERS)
    imported.map(setting, BASE, "int8" if value == "8" or "8" in setting.name else "nf4")
    imported.values.setdefault("peft.method", "lora")


def _saved_modules(value: Any) -> list[str]:
    names = text_list(value)
    if not names:
        raise LeftOut(table.OFF)
    return names


# The data.


def _named_data(imported: Imported) -> list[str] | None:
    names = ("dataset_name", "dataset_mixer", "datasets")
    return next((found for name in names if (found := imported.read(name, source_names))), None)


def _data(imported: Imported, setting: Setting) -> None:
    if setting.name != "dataset_name" and "dataset_name" in imported.settings:
        raise LeftOut(mark("trainwiz mixes datasets by their number of rows; it has no mixing weights."))
    names = source_names(setting.value)
    items = (
        setting.value if isinstance(setting.value, list) and len(setting.value) == len(names) else [None] * len(names)
    )
    if len(names) == 1:
        imported.map(setting, "data.sources.0.name", names[0])
        chats.source_of(imported, names[0], items[0], setting, "data.sources.0")
        return
    numbered = enumerate(zip(names, items, strict=True), 1)
    sources = [chats.source_of(imported, name, item, setting, f"data.sources.{at}") for at, (name, item) in numbered]
    imported.map(setting, "data.sources", sources)


def _of_source(name: str, convert: Callable[[Any], Any]) -> Place:
    """A detail of the one data set; without its name, or with several, there is nothing that it belongs to."""

    def place(imported: Imported, setting: Setting) -> None:
        named = _named_data(imported)
        if named is None:
            raise LeftOut(mark("The dataset that it describes is not specified."))
        if len(named) > 1:
            raise LeftOut(mark("Several datasets are specified, and it does not say which one it is for."))
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


def _stage(imported: Imported, setting: Setting) -> None:
    """LLaMA-Factory's `stage`, axolotl's `rl`: pt and sft are language modelling, the others are not."""
    stage = word(setting.value)
    if stage in ("pt", "sft"):
        imported.map(setting, "task", "causal-lm")
        return
    imported.leave_unknown(setting)
    if stage in table.OTHER_STAGES or setting.name == "rl":
        imported.say(setting, "other_training", OTHER_TRAINING, what=stage.upper())


SPECIAL: Mapping[str, Place] = {
    "lr_scheduler_type": _schedule,
    "lr_scheduler_kwargs": _schedule_options,
    "warmup_steps": _warmup,
    "num_train_epochs": _epochs,
    "logging_strategy": _logging_strategy,
    "logging_steps": _every("logging.every_steps", "logging_strategy"),
    "save_strategy": _save_strategy,
    "load_best_model_at_end": _load_best,
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
    **dict.fromkeys(("use_rslora", "peft_use_rslora"), _of_adapters("peft.rslora", yes_or_no)),
    **dict.fromkeys(("use_dora", "peft_use_dora"), _of_adapters("peft.dora", yes_or_no)),
    "adapter_name_or_path": _of_adapters("peft.adapter", name_value),
    "modules_to_save": _of_adapters("peft.modules_to_save", _saved_modules),
    "lora_target_linear": _of_adapters("peft.targets", _every_layer),
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
    **dict.fromkeys(("template", "chat_template", "chat_template_path"), chats.template),
    **dict.fromkeys(chats.LEARNS, chats.learns),
    "mask_history": chats.last_answer,
    "stage": _stage,
    "rl": _stage,
}
