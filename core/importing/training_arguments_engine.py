"""The engine, as the Trainer names it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from trainwiz.core.config.values import Optimizer
from trainwiz.core.importing.report import PRECISIONS, NotImportable
from trainwiz.core.importing.settings import (
    Place,
    Setting,
    Sheet,
    WrongValue,
    direct,
    is_nothing,
    text_list,
    text_value,
    yes_or_no,
)
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text

OFF = mark("It is off, as in a run of trainwiz.")
OTHER_FORMAT = mark("The other format is on.")
BOTH_FORMATS = mark("Only one of fp16 and bf16 can be on.")
NAMES_A_FILE = mark("It names another file, which is read where it is there.")
LOADED_AS_NEEDED = mark("Weights are loaded in the format that the precision needs.")
FSDP_DERIVED = mark("trainwiz derives how FSDP wraps a model from the model.")
CPU_OFF = mark("Without it the device is the one that is there.")

OPTIMIZERS: tuple[str, ...] = get_args(Optimizer)


def _half(sheet: Sheet, setting: Setting) -> None:
    """fp16 or bf16. Off says nothing: a Trainer then takes the launcher's precision, and fp32 where that has none."""
    other = "bf16" if setting.name == "fp16" else "fp16"
    other_is_on = sheet.read(other, yes_or_no) or False
    if not yes_or_no(setting.value):
        sheet.drop(setting, OTHER_FORMAT if other_is_on else OFF)
    elif other_is_on:
        sheet.drop(setting, BOTH_FORMATS)
        if setting.name == "bf16":
            message = tr("fp16 and bf16 are both on, which transformers refuses; the precision is left to the plan.")
            sheet.warn(setting, "contradiction", message)
    else:
        sheet.map(setting, "engine.precision", _precision(sheet, setting.name))


def _precision(sheet: Sheet, half: str) -> str:
    """Weights that are loaded in bf16 and all trained stay in bf16: that is `bf16-true`."""
    return "bf16-true" if half == "bf16" and _weights_are_bf16(sheet) else half


def _weights_are_bf16(sheet: Sheet) -> bool:
    adapters = sheet.collector.values.get("peft.method", "none") != "none" or any(
        sheet.read(name, yes_or_no) for name in ("use_peft", "use_lora", "lora_enable")
    )
    return not adapters and (sheet.read("dtype", dtype_name) == "bfloat16")


def dtype_name(value: Any) -> str:
    """ "bfloat16" for "torch.bfloat16", "bf16" and "bfloat16"."""
    name = text_value(value).rpartition(".")[2].lower()
    return {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}.get(
        name, name
    )


def _dtype(sheet: Sheet, setting: Setting) -> None:
    half_is_on = sheet.read("bf16", yes_or_no) or sheet.read("fp16", yes_or_no)
    if _weights_are_bf16(sheet) and not sheet.read("fp16", yes_or_no):
        sheet.map(setting, "engine.precision", "bf16-true")
    elif dtype_name(setting.value) == "float32" and not half_is_on:
        sheet.map(setting, "engine.precision", "fp32")
    else:
        sheet.drop(setting, LOADED_AS_NEEDED)


def _optimizer(sheet: Sheet, setting: Setting) -> None:
    name = text_value(setting.value).lower()
    if name in OPTIMIZERS:
        sheet.map(setting, "engine.optimizer", name)
        return
    sheet.drop(setting, mark("trainwiz has no such optimizer."))
    message = tr(
        "{name}: trainwiz has no optimizer {optimizer}, so the plan chooses one; engine.optimizer takes {known}.",
        name=setting.as_written(),
        optimizer=plain_text(repr(name), 60),
        known=", ".join(OPTIMIZERS),
    )
    sheet.warn(setting, "unsupported_optimizer", message)


def _deepspeed(sheet: Sheet, setting: Setting) -> None:
    """A file's name, or the settings themselves."""
    value = setting.value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _parsed(value)
    if isinstance(value, Mapping):
        _deepspeed_settings(sheet, setting, value)
        return
    path = text_value(value)
    sheet.collector.refer("deepspeed", path, setting.line)
    sheet.drop(setting, NAMES_A_FILE)


def _parsed(text: str) -> Any:
    from trainwiz.core.text import parse_json

    try:
        return parse_json(text)
    except ValueError:
        raise WrongValue(text) from None


def _deepspeed_settings(sheet: Sheet, setting: Setting, settings: Mapping[str, Any]) -> None:
    """What stands in place of the file is read as the file would be; its entries carry the setting's name."""
    from trainwiz.core.importing import deepspeed

    collector = sheet.collector
    try:
        inner = deepspeed.read(json.dumps(settings, default=str), collector.file)
    except NotImportable:
        raise WrongValue(settings) from None
    for mapped in inner.report.mapped:
        name = f"{setting.as_written()}.{mapped.name}"
        collector.map(name, mapped.value, mapped.key, mapped.set_to, setting.line)
    for renamed in inner.report.renamed:
        collector.rename(f"{setting.as_written()}.{renamed.old}", renamed.new, setting.line)
    for dropped in inner.report.dropped:
        collector.drop(f"{setting.as_written()}.{dropped.name}", dropped.value, dropped.why, setting.line)
    for unknown in inner.report.unknown:
        collector.unknown(f"{setting.as_written()}.{unknown.name}", unknown.value, setting.line)
    for finding in inner.report.findings:
        collector.find(finding.code, finding.severity, finding.message, setting.line)
    for key, value in inner.values.items():
        collector.values.setdefault(key, value)
    collector.setup.update(inner.setup)


def _fsdp(sheet: Sheet, setting: Setting) -> None:
    """The options of old ("full_shard auto_wrap offload"), or only on and off."""
    value = setting.value
    options = [] if isinstance(value, bool) else [option.lower() for option in text_list(value)]
    if value is False or (options in ([], ["false"]) and value is not True):
        sheet.drop(setting, OFF)
        return
    if "no_shard" in options:
        sheet.map(setting, "engine.strategy", "ddp")
        return
    sheet.map(setting, "engine.strategy", "fsdp")
    if "offload" in options:
        sheet.map(setting, "engine.offload", "all")
    half_sharded = sorted({"shard_grad_op", "hybrid_shard", "hybrid_shard_zero2"} & set(options))
    if half_sharded:
        message = tr(
            "{name}: {option} shards less than trainwiz's FSDP, which shards weights, gradients and optimizer.",
            name=setting.as_written(),
            option=half_sharded[0],
        )
        sheet.warn(setting, "unsupported_sharding", message)


def _fsdp_config(sheet: Sheet, setting: Setting) -> None:
    options = setting.value
    if isinstance(options, Mapping):
        recompute = options.get("activation_checkpointing", options.get("fsdp_activation_checkpointing"))
        if not is_nothing(recompute) and yes_or_no(recompute):
            sheet.map(setting, "engine.checkpointing", True)
            return
    sheet.drop(setting, FSDP_DERIVED)


def _on_cpu(sheet: Sheet, setting: Setting) -> None:
    if yes_or_no(setting.value):
        sheet.map(setting, "engine.device", "cpu")
    else:
        sheet.drop(setting, CPU_OFF)


def _compiled_by(sheet: Sheet, setting: Setting) -> None:
    """TrainingArguments.__post_init__: a backend or a mode switches torch.compile on."""
    from trainwiz.core.importing.training_arguments_dropped import WHY

    if "torch_compile" in sheet:
        sheet.drop(setting, WHY[setting.name])
    else:
        sheet.map(setting, "engine.compile", True)


def _mixed_precision(sheet: Sheet, setting: Setting) -> None:
    """accelerate's word, which scripts without a Trainer take as an argument."""
    precision = PRECISIONS.get(text_value(setting.value).lower())
    if precision is None:
        raise WrongValue(setting.value)
    sheet.map(setting, "engine.precision", precision)


def _adam_of_8_bits(sheet: Sheet, setting: Setting) -> None:
    if yes_or_no(setting.value):
        sheet.map(setting, "engine.optimizer", "adamw_bnb_8bit")
    else:
        sheet.drop(setting, OFF)


ENGINE_PLACES: Mapping[str, Place] = {
    "mixed_precision": _mixed_precision,
    "use_8bit_adam": _adam_of_8_bits,
    "fp16": _half,
    "bf16": _half,
    "dtype": _dtype,
    "optim": _optimizer,
    "deepspeed": _deepspeed,
    "fsdp": _fsdp,
    "fsdp_config": _fsdp_config,
    "use_cpu": _on_cpu,
    "tf32": direct("engine.tf32", yes_or_no),
    "activation_checkpointing": direct("engine.checkpointing", yes_or_no),
    "torch_compile": direct("engine.compile", yes_or_no),
    "torch_compile_backend": _compiled_by,
    "torch_compile_mode": _compiled_by,
}
