"""The arguments of the Trainer that find their places together with others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, get_args

from trainwiz.core.config.values import Optimizer
from trainwiz.core.estimate.architecture import ALL_LINEAR
from trainwiz.core.importing import names as table
from trainwiz.core.importing.engines import read_deepspeed
from trainwiz.core.importing.report import Became, Document, Imported, Place, Setting
from trainwiz.core.importing.values import (
    OFF,
    LeftOut,
    WrongValue,
    decimal_number,
    dtype_name,
    if_on,
    name_value,
    positive,
    source_names,
    text_list,
    text_value,
    whole_number,
    word,
    yes_or_no,
)
from trainwiz.core.language import mark
from trainwiz.core.text import parse_json, plain_text

DEFAULT_LEARNING_RATE = 5e-5
DEFAULT_LOGGING_STEPS = 500
"""TrainingArguments.logging_steps; eval_steps takes it where it is not set."""
POLYNOMIAL_END = 1e-7
"""get_polynomial_decay_schedule_with_warmup(lr_end=1e-7) in transformers/optimization.py."""
EVERY_LAYER = frozenset({"all-linear", "all", "all_linear", "all-layers"})
BASE, METHOD, OFFLOAD = "engine.base_precision", "peft.method", "engine.offload"
FINAL_RATE = "training.final_learning_rate"
NO_LIMIT = mark("It sets no limit.")
NO_ADAPTERS = mark("LoRA is not enabled.")

# Settings with which others decide.


def _schedule(imported: Imported, setting: Setting) -> Became:
    kind = word(setting.value)
    if kind not in table.SCHEDULES:
        imported.say(setting, "unsupported_schedule", kind=plain_text(repr(kind), 60), known=table.KNOWN_SCHEDULES)
        return mark("trainwiz has no such schedule.")
    ends = kind == "polynomial" and "lr_scheduler_kwargs" not in imported.settings
    return {"training.schedule": table.SCHEDULES[kind]} | ({FINAL_RATE: POLYNOMIAL_END} if ends else {})


def _schedule_options(imported: Imported, setting: Setting) -> Became:
    """The learning rate of the last step, where the options say it."""
    options = setting.value
    with suppress(ValueError):
        # A command has it as JSON.
        options = parse_json(options) if isinstance(options, str) else options
    if not isinstance(options, Mapping):
        raise WrongValue
    kind, end = imported.read("lr_scheduler_type", text_value), None
    if kind == "polynomial":
        end = options.get("lr_end", POLYNOMIAL_END)
    elif kind == "cosine_with_min_lr":
        end, share = options.get("min_lr"), options.get("min_lr_rate")
        if end is None and share is not None:
            usual = table.RATES.get(imported.program, DEFAULT_LEARNING_RATE)
            peak = imported.read("learning_rate", decimal_number) or usual
            end = float(f"{peak * decimal_number(share):.6g}")
    if end is not None:
        return {FINAL_RATE: decimal_number(end)}
    return mark("trainwiz has no setting for these schedule options.") if options else table.UNSET


def _warmup(imported: Imported, setting: Setting) -> Became:
    warmup = decimal_number(setting.value)
    if warmup > 0 and imported.read("lr_scheduler_type", text_value) == "constant":
        return mark("The `constant` schedule has no warmup.")
    if setting.as_written() == "warmup_ratio" and warmup >= 1:
        # A ratio of 1 would be read as one step.
        raise WrongValue
    return {"training.warmup": warmup}


def _epochs(imported: Imported, setting: Setting) -> Became:
    if (imported.read("max_steps", whole_number) or 0) > 0:
        return mark("max_steps sets the length of the training.")
    return {"training.epochs": decimal_number(setting.value)}


def _steps(value: Any) -> int:
    """A number of steps; a value below 1 is a share of all of them."""
    if 0 < decimal_number(value) < 1:
        raise LeftOut(mark("It is a share of all steps, and the number of steps is not specified."))
    steps = whole_number(value)
    if steps < 1:
        raise WrongValue
    return steps


def _every(key: str, beside: str) -> Place:
    """Every so many steps, unless the strategy beside it counts something else."""

    def place(imported: Imported, setting: Setting) -> Became:
        if (imported.read(beside, word) or "steps") != "steps":
            return mark("The corresponding strategy does not count steps.")
        return {key: _steps(setting.value)}

    return place


def _eval_strategy(imported: Imported, setting: Setting) -> Became:
    strategy = word(setting.value)
    if strategy == "epoch":
        return {"evaluation.every_epoch": True}
    if strategy == "steps":
        steps = imported.read("eval_steps", decimal_number) or imported.read("logging_steps", decimal_number)
        return {"evaluation.every_steps": _steps(steps or DEFAULT_LOGGING_STEPS)}
    if strategy != "no":
        raise WrongValue
    if imported.read("do_eval", yes_or_no):
        return mark("With do_eval, the model is evaluated at the end, as in every run.")
    return {"data.validation_rows": 0}


def _half(imported: Imported, setting: Setting) -> Became:
    """fp16 or bf16. Off says nothing: a Trainer then takes the launcher's precision, and fp32 where that has none."""
    other_is_on = imported.read("bf16" if setting.name == "fp16" else "fp16", yes_or_no) or False
    if not yes_or_no(setting.value):
        return mark("The other format is enabled.") if other_is_on else OFF
    if other_is_on:
        return mark("Only one of fp16 and bf16 can be enabled.")
    # Weights that are loaded in bf16 and all trained stay in bf16.
    stays = setting.name == "bf16" and _weights_are_bf16(imported)
    return {"engine.precision": "bf16-true" if stays else setting.name}


def _weights_are_bf16(imported: Imported) -> bool:
    return not wants_adapters(imported) and imported.read("dtype", dtype_name) == "bfloat16"


def _dtype(imported: Imported, setting: Setting) -> Became:
    fp16 = imported.read("fp16", yes_or_no)
    if _weights_are_bf16(imported) and not fp16:
        return {"engine.precision": "bf16-true"}
    if dtype_name(setting.value) == "float32" and not fp16 and not imported.read("bf16", yes_or_no):
        return {"engine.precision": "fp32"}
    return mark("Weights are loaded in the format that the precision needs.")


def _optimizer(imported: Imported, setting: Setting) -> Became:
    name = word(setting.value)
    today = table.REMOVED_OPTIMIZERS.get(name, name)
    if today != name:
        imported.rename(f"{setting.as_written()}={name}", f"optim={today}", setting.line)
    if today in get_args(Optimizer):
        return {"engine.optimizer": today}
    imported.say(setting, "unsupported_optimizer", optimizer=plain_text(repr(name), 60), known=table.KNOWN_OPTIMIZERS)
    return mark("trainwiz has no such optimizer.")


def _deepspeed(imported: Imported, setting: Setting) -> Became:
    """A file's name, or the settings themselves, which are read as the file would be."""
    given = setting.value
    if not isinstance(given, Mapping):
        imported.references.append(Setting("deepspeed", text_value(given), setting.line))
        return table.NAMES_A_FILE
    imported.inner.append(read_deepspeed(Document({str(key): item for key, item in given.items()}), imported.file))
    return table.IN_THAT_FILE


def _fsdp(imported: Imported, setting: Setting) -> Became:
    """The options of old ("full_shard auto_wrap offload"), or only on and off."""
    value = setting.value
    options = [] if isinstance(value, bool) else [option.lower() for option in text_list(value)]
    if value is False or (options in ([], ["false"]) and value is not True):
        return OFF
    less = sorted({"shard_grad_op", "hybrid_shard", "hybrid_shard_zero2"} & set(options))
    if less:
        imported.say(setting, "not_offered.shards_less", value=less[0])
    if "no_shard" in options:
        return {"engine.strategy": "ddp"}
    return {"engine.strategy": "fsdp"} | ({OFFLOAD: "all"} if "offload" in options else {})


# The model and its adapters.


def _model(_: Imported, setting: Setting) -> Became:
    return {"model.name": name_value(setting.value), "model.init": "pretrained"}


def _config(imported: Imported, setting: Setting) -> Became:
    """run_clm.py: `config_name` alone makes a model from scratch, beside a model it changes its config."""
    if "model_name_or_path" in imported.settings:
        return mark("The model includes its own config.")
    return {"model.name": name_value(setting.value), "model.init": "scratch"}


def _tokenizer(imported: Imported, setting: Setting) -> Became:
    name = name_value(setting.value)
    if name == imported.read("model_name_or_path", text_value):
        return mark("The model includes its own tokenizer.")
    return {"model.tokenizer": name}


def _method(_: Imported, setting: Setting) -> Became:
    """finetuning_type: lora, full, freeze; peft_type: LORA, PeftType.LORA; adapter: qlora."""
    name = text_value(setting.value).rpartition(".")[2].lower()
    if name not in ("lora", "qlora", "full", "none"):
        return mark("trainwiz trains all weights, or uses LoRA.")
    return {METHOD: "lora" if "lora" in name else "none"} | ({BASE: "nf4"} if name == "qlora" else {})


def wants_adapters(imported: Imported) -> bool:
    """Something asks for LoRA: a switch that is on, or its settings where no switch is there."""
    if "use_peft" in imported.settings:
        return bool(imported.read("use_peft", yes_or_no))
    if "finetuning_type" in imported.settings:
        return "lora" in (imported.read("finetuning_type", word) or "")
    return any(name in imported.settings for name in ("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules"))


def _of_adapters(key: str, convert: Callable[[Any], Any]) -> Place:
    def place(imported: Imported, setting: Setting) -> Became:
        if not wants_adapters(imported):
            return NO_ADAPTERS
        value = convert(setting.value)
        imported.values.setdefault(METHOD, "lora")
        return {key: value}

    return place


def _targets(value: Any) -> list[str]:
    names = text_list(value)
    if len(names) == 1 and names[0].lower() in EVERY_LAYER:
        return list(ALL_LINEAR)
    if any(not re.fullmatch(r"[\w.]+", name) for name in names):
        # A regular expression, which peft takes and a list of names is not.
        raise WrongValue
    return names


def _quantized(imported: Imported, setting: Setting) -> Became:
    """load_in_4bit, use_8bit, quantization_bit: 4, q_lora."""
    value = str(setting.value).strip()
    if value not in ("4", "8") and (value in ("16", "32") or not yes_or_no(value)):
        return OFF
    if setting.name != "q_lora" and not wants_adapters(imported):
        return NO_ADAPTERS
    imported.values.setdefault(METHOD, "lora")
    return {BASE: "int8" if value == "8" or "8" in setting.name else "nf4"}


# The data.


def _data(imported: Imported, setting: Setting) -> Became:
    """A name or several; an entry of axolotl's `datasets` may name its split and subset, the rest is left unknown."""
    if setting.name != "dataset_name" and "dataset_name" in imported.settings:
        return mark("trainwiz mixes datasets by their number of rows; it has no mixing weights.")
    sources: list[dict[str, Any]] = [{"name": name} for name in source_names(setting.value)]
    for source, item in zip(sources, setting.value if isinstance(setting.value, list) else (), strict=False):
        for name, value in item.items() if isinstance(item, Mapping) else ():
            if name in ("split", "name") and value:
                source["split" if name == "split" else "subset"] = text_value(value)
            elif name not in ("path", "id", "split", "name"):
                imported.leave_unknown(Setting(f"{setting.as_written()}.{name}", value, setting.line))
    if len(sources) == 1:
        return {f"data.sources.0.{key}": value for key, value in sources[0].items()}
    return {"data.sources": sources}


def _of_source(name: str, convert: Callable[[Any], Any]) -> Place:
    """A detail of the one data set; without its name, or with several, there is nothing that it belongs to."""

    def place(imported: Imported, setting: Setting) -> Became:
        given = [imported.read(key, source_names) for key in ("dataset_name", "dataset_mixer", "datasets")]
        named = next(filter(None, given), None)
        if named is None:
            return mark("The dataset that it describes is not specified.")
        if len(named) > 1:
            return mark("Several datasets are specified, and it does not say which one it is for.")
        return {f"data.sources.0.{name}": convert(setting.value)}

    return place


def _evaluated_rows(imported: Imported, setting: Setting) -> Became:
    """At most so many rows: of the validation file, or held out."""
    if 0 < decimal_number(setting.value) < 1:
        return mark("It is a share of the rows; a run holds out a fixed number of rows (data.validation_rows).")
    rows, names = whole_number(setting.value), imported.read("validation_file", source_names)
    if names and setting.name != "val_size" and rows >= 1:
        return {"data.validation_sources": [{"name": name, "max_rows": rows} for name in names]}
    return {"data.validation_rows": rows} if rows >= 1 or setting.name == "val_size" else NO_LIMIT


def _packing(imported: Imported, setting: Setting) -> Became:
    """TRL, LLaMA-Factory, axolotl: several whole rows in one sequence. Texts joined and cut are something else."""
    packs = yes_or_no(setting.value)
    if packs:
        imported.say(setting, "packing_counts_rows")
    return {"data.packing": packs}


def _stage(imported: Imported, setting: Setting) -> Became:
    """LLaMA-Factory's `stage`, axolotl's `rl`: pt and sft are language modelling, the others are not."""
    stage = word(setting.value)
    if stage in ("pt", "sft"):
        return {"task": "causal-lm"}
    if stage in table.OTHER_STAGES or setting.name == "rl":
        imported.say(setting, "other_training", what=stage.upper())
    return None


SPECIAL: Mapping[str, Place] = {
    "lr_scheduler_type": _schedule,
    "lr_scheduler_kwargs": _schedule_options,
    "warmup_steps": _warmup,
    "num_train_epochs": _epochs,
    "logging_steps": _every("logging.every_steps", "logging_strategy"),
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
    "modules_to_save": _of_adapters("peft.modules_to_save", text_list),
    "lora_target_linear": _of_adapters("peft.targets", if_on([*ALL_LINEAR])),
    **dict.fromkeys(("load_in_4bit", "load_in_8bit", "use_4bit", "use_8bit", "quantization_bit", "q_lora"), _quantized),
    **dict.fromkeys(("dataset_name", "dataset_mixer", "datasets"), _data),
    "dataset_config_name": _of_source("subset", text_value),
    "dataset_train_split": _of_source("split", text_value),
    "text_column": _of_source("text_column", name_value),
    "target_column": _of_source("target_column", name_value),
    "max_train_samples": _of_source("max_rows", positive(NO_LIMIT)),
    "max_eval_samples": _evaluated_rows,
    "val_size": _evaluated_rows,
    "packing": _packing,
    "stage": _stage,
    "rl": _stage,
}
