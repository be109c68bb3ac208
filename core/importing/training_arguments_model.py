"""The model and the data, as scripts around the Trainer name them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.data.formats import SAMPLES
from trainwiz.core.estimate.architecture import ALL_LINEAR
from trainwiz.core.importing.settings import (
    Place,
    Setting,
    Sheet,
    Unresolved,
    WrongValue,
    decimal_number,
    direct,
    text_list,
    text_value,
    whole_number,
    yes_or_no,
)
from trainwiz.core.importing.training_arguments_engine import dtype_name
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text

# The model and its adapters, as scripts around the Trainer name them.

OFF = mark("It is off, as in a run of trainwiz.")
MODELS_OWN = mark("The model brings its own tokenizer.")
NO_LANGUAGE_TOKEN = mark("Only multilingual tokenizers take a language, named like zho_Hans or en_XX.")
NO_ADAPTERS = mark("No adapters are asked for.")
NOT_QUANTIZED = mark("trainwiz trains on weights in bf16 or fp16; it does not quantise them.")

ATTENTION = {"sdpa": "sdpa", "eager": "eager", "flash_attention_2": "flash_attention_2", "fa2": "flash_attention_2"}
LANGUAGE_TOKEN = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]{1,3}")
LORA_SWITCHES = ("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules")
EVERY_LAYER = frozenset({"all-linear", "all", "all_linear", "all-layers"})


def _model(sheet: Sheet, setting: Setting) -> None:
    sheet.map(setting, "model.name", _name(setting.value))
    sheet.map(setting, "model.init", "pretrained")


def _name(value: Any) -> str:
    name = text_value(value)
    if not name or any(letter.isspace() for letter in name):
        raise WrongValue(value)
    return name


def _config(sheet: Sheet, setting: Setting) -> None:
    """run_clm.py: `config_name` alone makes a model from scratch, beside a model it changes its config."""
    if "model_name_or_path" in sheet:
        sheet.drop(setting, mark("The model brings its own config."))
        return
    sheet.map(setting, "model.name", _name(setting.value))
    sheet.map(setting, "model.init", "scratch")


def _overrides(sheet: Sheet, setting: Setting) -> None:
    """run_clm.py's `config_overrides`: "n_embd=10,resid_pdrop=0.2"."""
    pairs = dict(part.split("=", 1) for part in text_value(setting.value).split(",") if "=" in part)
    if not pairs:
        raise WrongValue(setting.value)
    sheet.map(setting, "model.architecture_overrides", {name.strip(): _number(value) for name, value in pairs.items()})


def _number(text: str) -> Any:
    for convert in (whole_number, decimal_number, yes_or_no):
        try:
            return convert(text.strip())
        except WrongValue:
            continue
    return text.strip()


def _tokenizer(sheet: Sheet, setting: Setting) -> None:
    name = _name(setting.value)
    if name == sheet.read("model_name_or_path", text_value):
        sheet.drop(setting, MODELS_OWN)
    else:
        sheet.map(setting, "model.tokenizer", name)


def _attention(sheet: Sheet, setting: Setting) -> None:
    name = text_value(setting.value).lower()
    if name in ("auto", "disabled"):
        sheet.drop(setting, mark("The plan chooses the attention kernel."))
    elif name in ATTENTION:
        sheet.map(setting, "engine.attention", ATTENTION[name])
    else:
        sheet.drop(setting, mark("trainwiz has no such attention kernel; the plan chooses one."))


def _flash(sheet: Sheet, setting: Setting) -> None:
    text = text_value(str(setting.value)).lower()
    if text in (*ATTENTION, "auto", "disabled"):
        _attention(sheet, setting)
    elif yes_or_no(setting.value):
        sheet.map(setting, "engine.attention", "flash_attention_2")
    else:
        sheet.drop(setting, OFF)


def _language(key: str) -> Place:
    def place(sheet: Sheet, setting: Setting) -> None:
        name = text_value(setting.value)
        if LANGUAGE_TOKEN.fullmatch(name):
            sheet.map(setting, key, name)
        else:
            sheet.drop(setting, NO_LANGUAGE_TOKEN)

    return place


def _use_adapters(sheet: Sheet, setting: Setting) -> None:
    sheet.map(setting, "peft.method", "lora" if yes_or_no(setting.value) else "none")


def _method(sheet: Sheet, setting: Setting) -> None:
    """finetuning_type: lora, full, freeze; peft_type: LORA, PeftType.LORA."""
    name = text_value(setting.value).rpartition(".")[2].lower()
    if name in ("lora", "qlora", "full", "none"):
        sheet.map(setting, "peft.method", "lora" if "lora" in name else "none")
        if name == "qlora":
            _warn_quantized(sheet, setting)
    else:
        sheet.drop(setting, mark("trainwiz trains all weights or LoRA adapters."))


def wants_adapters(sheet: Sheet) -> bool:
    """Something asks for LoRA: a switch that is on, or its settings where no switch is there."""
    for name, convert in (("use_peft", yes_or_no), ("finetuning_type", _says_lora)):
        if name in sheet:
            return bool(sheet.read(name, convert))
    return any(name in sheet for name in LORA_SWITCHES)


def _says_lora(value: Any) -> bool:
    return "lora" in text_value(value).lower()


def _of_adapters(key: str, convert: Any) -> Place:
    def place(sheet: Sheet, setting: Setting) -> None:
        if not wants_adapters(sheet):
            sheet.drop(setting, NO_ADAPTERS)
            return
        sheet.map(setting, key, convert(setting.value))
        sheet.collector.values.setdefault("peft.method", "lora")

    return place


def _targets(sheet: Sheet, setting: Setting) -> None:
    if not wants_adapters(sheet):
        sheet.drop(setting, NO_ADAPTERS)
        return
    names = text_list(setting.value)
    if len(names) == 1 and names[0].lower() in EVERY_LAYER:
        names = list(ALL_LINEAR)
    elif any(not re.fullmatch(r"[\w.]+", name) for name in names):
        # A regular expression, which peft takes and a list of names is not.
        raise WrongValue(setting.value)
    sheet.map(setting, "peft.targets", names)
    sheet.collector.values.setdefault("peft.method", "lora")


def _quantized(sheet: Sheet, setting: Setting) -> None:
    value = setting.value
    asked = str(value).strip() in ("4", "8") or (str(value).strip() not in ("16", "32") and yes_or_no(value))
    if not asked:
        sheet.drop(setting, OFF)
        return
    sheet.drop(setting, NOT_QUANTIZED)
    _warn_quantized(sheet, setting)


def _warn_quantized(sheet: Sheet, setting: Setting) -> None:
    message = tr(
        "{name}: trainwiz does not quantise the base weights, so the plan needs more memory than the file meant.",
        name=plain_text(setting.as_written(), 60),
    )
    sheet.warn(setting, "not_quantized", message)


def _init_options(sheet: Sheet, setting: Setting) -> None:
    """TRL's `model_init_kwargs`: what from_pretrained gets."""
    if not isinstance(setting.value, Mapping):
        raise WrongValue(setting.value)
    options = {str(name): value for name, value in setting.value.items()}
    attention = options.get("attn_implementation")
    dtype = options.get("torch_dtype", options.get("dtype"))
    if attention in ATTENTION:
        sheet.map(setting, "engine.attention", ATTENTION[str(attention)])
    elif isinstance(dtype, str) and dtype_name(dtype) == "bfloat16" and not wants_adapters(sheet):
        sheet.map(setting, "engine.precision", "bf16-true")
    else:
        sheet.drop(setting, mark("Weights are loaded in the format that the precision needs."))


MODEL_PLACES: Mapping[str, Place] = {
    "model_name_or_path": _model,
    "config_name": _config,
    "config_overrides": _overrides,
    "tokenizer_name": _tokenizer,
    "attn_implementation": _attention,
    "use_flash_attn": _flash,
    "source_lang": _language("model.source_language"),
    "target_lang": _language("model.target_language"),
    "model_init_kwargs": _init_options,
    "use_peft": _use_adapters,
    "finetuning_type": _method,
    "lora_r": _of_adapters("peft.rank", whole_number),
    "lora_alpha": _of_adapters("peft.alpha", decimal_number),
    "lora_dropout": _of_adapters("peft.dropout", decimal_number),
    "lora_target_modules": _targets,
    **dict.fromkeys(("load_in_4bit", "load_in_8bit", "use_4bit", "use_8bit", "quantization_bit", "q_lora"), _quantized),
    "merge_lora": direct("peft.merge", yes_or_no),
}


# The data and its lengths, as scripts around the Trainer name them.

NO_TEMPLATE = mark("trainwiz applies no chat template.")
NO_DATA_SET = mark("The data set that it describes is not named.")
SEVERAL = mark("Several data sets are named, and it does not say for which one it is.")
NO_LIMIT = mark("It sets no limit.")
SHARES = mark("trainwiz mixes data sets by their rows, without weights of its own.")
LIST_MARK = re.compile(r"\s*,\s*")


def source_names(value: Any) -> list[str]:
    """The data sets of one setting: a name, a list, "a,b", or a mapping of names to shares (dataset_mixer)."""
    if isinstance(value, Mapping):
        return [text_value(name) for name in value if not isinstance(name, Unresolved)]
    if isinstance(value, list | tuple):
        if any(isinstance(item, Mapping) for item in value):
            return [text_value(item.get("path", item.get("id"))) for item in value if isinstance(item, Mapping)]
        return [text_value(item) for item in value]
    names = [name for name in LIST_MARK.split(text_value(value)) if name]
    if not names:
        raise WrongValue(value)
    return names


def _sources(sheet: Sheet, setting: Setting) -> None:
    names = source_names(setting.value)
    if len(names) == 1:
        sheet.map(setting, "data.sources.0.name", names[0])
    else:
        sheet.map(setting, "data.sources", [{"name": name} for name in names])


def _mixed(sheet: Sheet, setting: Setting) -> None:
    if "dataset_name" in sheet:
        sheet.drop(setting, SHARES)
    else:
        _sources(sheet, setting)


def _of_source(name: str, convert: Any) -> Place:
    """A detail of the one data set; without its name, or with several, there is nothing that it belongs to."""

    def place(sheet: Sheet, setting: Setting) -> None:
        named = sheet.read("dataset_name", source_names) or sheet.read("dataset_mixer", source_names)
        if named is None:
            sheet.drop(setting, NO_DATA_SET)
        elif len(named) > 1:
            sheet.drop(setting, SEVERAL)
        else:
            sheet.map(setting, f"data.sources.0.{name}", convert(setting.value))

    return place


def _most_rows(value: Any) -> int:
    rows = whole_number(value)
    if rows < 1:
        raise WrongValue(value)
    return rows


def _validation(sheet: Sheet, setting: Setting) -> None:
    sheet.map(setting, "data.validation_sources", [{"name": name} for name in source_names(setting.value)])


def _evaluated_rows(sheet: Sheet, setting: Setting) -> None:
    """At most so many rows: of the validation file, or held out."""
    rows = whole_number(setting.value)
    names = sheet.read("validation_file", source_names)
    if rows < 1:
        sheet.drop(setting, NO_LIMIT)
    elif names:
        sheet.map(setting, "data.validation_sources", [{"name": name, "max_rows": rows} for name in names])
    else:
        sheet.map(setting, "data.validation_rows", rows)


def _length(sheet: Sheet, setting: Setting) -> None:
    length = whole_number(setting.value)
    if length < 1:
        sheet.drop(setting, NO_LIMIT)
    else:
        sheet.map(setting, "batch.sequence_length", length)


def _line_by_line(sheet: Sheet, setting: Setting) -> None:
    sheet.map(setting, "data.concatenate", not yes_or_no(setting.value))


def text_column(value: Any) -> str:
    name = text_value(value)
    if len(text_list(name)) != 1:
        raise WrongValue(value)
    return name


def _packing(sheet: Sheet, setting: Setting) -> None:
    """TRL, LLaMA-Factory: several whole rows in one sequence. Texts joined and cut are something else."""
    packs = yes_or_no(setting.value)
    sheet.map(setting, "data.packing", packs)
    if packs:
        message = tr(
            "{name}: rows lie end to end and each sees itself alone (data.packing); a step counts rows here, and packed "
            "sequences in the program that it is from: check the effective batch.",
            name=setting.as_written(),
        )
        sheet.warn(setting, "packing_counts_rows", message)


def _template(sheet: Sheet, setting: Setting) -> None:
    sheet.drop(setting, NO_TEMPLATE)
    message = tr(
        "{name}: no chat template is applied here; the model learns from the columns as they are.",
        name=setting.as_written(),
    )
    sheet.warn(setting, "no_template", message)


def say_unknown_data(sheet: Sheet) -> None:
    """Names of data that only another program's own list explains (LLaMA-Factory's dataset_info.json)."""
    for name in ("dataset_name", "validation_file", "dataset_mixer"):
        for data in sheet.read(name, source_names) or ():
            if "/" in data or data in SAMPLES or os.path.lexists(data) or Path(data).suffix:
                continue
            message = tr(
                "{data}: no file or folder of that name is here, and it names no owner as data sets of the hub do "
                "(OWNER/NAME). Give the file that is meant: --dataset FILE.",
                data=data,
            )
            sheet.warn(sheet.settings[name], "unknown_data", message)


DATA_PLACES: Mapping[str, Place] = {
    "dataset_name": _sources,
    "dataset_mixer": _mixed,
    "datasets": _mixed,
    "dataset_config_name": _of_source("subset", text_value),
    "dataset_train_split": _of_source("split", text_value),
    "text_column": _of_source("text_column", text_column),
    "target_column": _of_source("target_column", text_column),
    "max_train_samples": _of_source("max_rows", _most_rows),
    "validation_file": _validation,
    "max_eval_samples": _evaluated_rows,
    "max_seq_length": _length,
    "max_target_length": direct("batch.target_length", whole_number),
    "packing": _packing,
    "concatenate": direct("data.concatenate", yes_or_no),
    **dict.fromkeys(("template", "chat_template", "chat_template_path"), _template),
    "pad_to_multiple_of": direct("data.pad_to_multiple_of", whole_number),
    "line_by_line": _line_by_line,
    "streaming": direct("data.streaming", yes_or_no),
    "mlm_probability": direct("training.mask_probability", decimal_number),
}
