"""The model and its adapters, as scripts around the Trainer name them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainwiz.core.estimate.architecture import ALL_LINEAR
from trainwiz.core.importing.training_arguments_engine import dtype_name
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
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text

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
