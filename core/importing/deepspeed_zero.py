"""The section `zero_optimization` of a DeepSpeed JSON: stage, offload, and the sizes that trainwiz sets itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.export.deepspeed import MISPLACED, SECTION_KEYS
from trainwiz.core.importing.accelerate_sections import keep_in_ram, no_nvme
from trainwiz.core.importing.document import Document
from trainwiz.core.importing.report import ZERO, Collector
from trainwiz.core.importing.settings import as_bool, as_count, is_auto, shown
from trainwiz.core.importing.words import (
    NOT_OFFERED,
    OFFLOAD_DROPPED,
    OFFLOAD_SECTIONS,
    OLD_ZERO,
    TUNING,
    ZERO_QUANTIZED,
    ZERO_SHARDS,
)
from trainwiz.core.language import mark, tr

ZERO_NAME = "zero_optimization"


def read_zero(collector: Collector, document: Document, section: Any) -> None:
    """Fills the collector with one section. `true` was the whole section until DeepSpeed 0.2."""
    line = document.line(ZERO_NAME)
    if isinstance(section, bool):
        collector.rename(ZERO_NAME, f"{ZERO_NAME}.stage", line)
        collector.map(ZERO_NAME, section, "engine.strategy", ZERO[1 if section else 0], line)
        return
    if not isinstance(section, Mapping):
        collector.unknown(ZERO_NAME, section, line)
        return
    stage = as_count(section.get("stage", 0))
    for name, value in section.items():
        _key(collector, document, str(name), value, stage)
    if collector.values.get("engine.offload") == "all" and not _keeps_optimizer(section):
        message = tr(
            "{file}: only the parameters are kept in host RAM; trainwiz then keeps the optimizer there too "
            "(engine.offload all).",
            file=collector.file,
        )
        collector.find("not_offered", "note", message, document.line(ZERO_NAME, "offload_param"))
    if "stage" not in section:
        message = tr(
            "{file}: zero_optimization has no stage, and 0, which DeepSpeed then takes, shards nothing.",
            file=collector.file,
        )
        collector.find("missing_setting", "warning", message, line)


def _keeps_optimizer(section: Mapping[str, Any]) -> bool:
    part = section.get("offload_optimizer")
    return as_bool(section.get("cpu_offload")) is True or (isinstance(part, Mapping) and part.get("device") == "cpu")


def _key(collector: Collector, document: Document, name: str, value: Any, stage: int | None) -> None:
    full, line = f"{ZERO_NAME}.{name}", document.line(ZERO_NAME, name)
    if name in OLD_ZERO:
        collector.rename(full, f"{ZERO_NAME}.{OLD_ZERO[name]}", line)
    if name == "stage":
        _stage(collector, full, value, line)
    elif name in OFFLOAD_SECTIONS and isinstance(value, Mapping | None):
        _offload_section(collector, document, name, value or {}, stage)
    elif OLD_ZERO.get(name, "").endswith(".device"):
        target = OLD_ZERO[name].partition(".")[0]
        _offload(collector, full, "cpu" if as_bool(value) else "none", value, target, stage, line)
    elif name in MISPLACED:
        _misplaced(collector, document, name, value, line)
    elif name in ZERO_SHARDS or name in ZERO_QUANTIZED:
        collector.drop(full, value, NOT_OFFERED, line)
    elif name in SECTION_KEYS[ZERO_NAME] or name in OLD_ZERO:
        collector.drop(full, value, TUNING, line)
    else:
        collector.unknown(full, value, line)


def _stage(collector: Collector, full: str, value: Any, line: int | None) -> None:
    stage = as_count(value)
    if is_auto(value):
        collector.drop(full, value, mark("auto leaves the stage to accelerate's file."), line)
    elif stage is None or stage not in ZERO:
        collector.unknown(full, value, line)
        message = tr("{file}: ZeRO has no stage {value}; write 1, 2 or 3.", file=collector.file, value=shown(value))
        collector.find("bad_value", "warning", message, line)
    else:
        collector.map(full, value, "engine.strategy", ZERO[stage], line)
        if stage == 0:
            message = tr("{file}: stage 0 of ZeRO shards nothing, which is DDP.", file=collector.file)
            collector.find("other_program", "note", message, line)


def _offload_section(
    collector: Collector, document: Document, name: str, section: Mapping[str, Any], stage: int | None
) -> None:
    for inner, value in section.items():
        full, line = f"{ZERO_NAME}.{name}.{inner}", document.line(ZERO_NAME, name, str(inner))
        if inner == "device":
            _offload(collector, full, str(value).strip().lower(), value, name, stage, line)
        elif inner in SECTION_KEYS[f"{ZERO_NAME}.{name}"] or inner in OFFLOAD_DROPPED:
            collector.drop(full, value, TUNING, line)
        else:
            collector.unknown(full, value, line)


def _offload(
    collector: Collector, full: str, device: str, value: Any, target: str, stage: int | None, line: int | None
) -> None:
    """`target` is offload_optimizer or offload_param."""
    if device == "auto":
        collector.drop(full, value, mark("auto leaves it to accelerate's file."), line)
    elif device in ("none", ""):
        collector.drop(full, value, mark("none keeps it on the GPU, which a run does anyway."), line)
    elif device != "cpu":
        no_nvme(collector, full, value, line)
    elif target == "offload_param" and stage != 3:
        collector.drop(full, value, mark("Only ZeRO-3 can keep parameters in host RAM."), line)
        message = tr(
            "{file}: {name} needs stage 3, and the stage is {stage}; parameters stay on the GPU.",
            file=collector.file,
            name=full,
            stage=stage,
        )
        collector.find("contradiction", "warning", message, line)
    elif stage == 0:
        collector.drop(full, value, mark("Stage 0 keeps everything on the GPU."), line)
        message = tr("{file}: {name} needs a stage of 1 or more.", file=collector.file, name=full)
        collector.find("contradiction", "warning", message, line)
    else:
        keep_in_ram(collector, full, value, "all" if target == "offload_param" else "optimizer", line)


def _misplaced(collector: Collector, document: Document, name: str, value: Any, line: int | None) -> None:
    """DeepSpeed refuses these here: they are kept in the report, and not taken for what they would be elsewhere."""
    full = f"{ZERO_NAME}.{name}"
    where = f"{name}.enabled" if isinstance(value, Mapping) and "enabled" in value else name
    for inner, setting in value.items() if isinstance(value, Mapping) else ((None, value),):
        named = full if inner is None else f"{full}.{inner}"
        inner_line = line if inner is None else document.line(ZERO_NAME, name, str(inner))
        collector.drop(named, setting, mark("DeepSpeed refuses it inside zero_optimization."), inner_line)
    message = tr(
        "{file}: `{name}` stands inside zero_optimization, where DeepSpeed refuses it; move it out by one level. Here "
        "it is not taken ({where}).",
        file=collector.file,
        name=name,
        where=where,
    )
    collector.find("misplaced", "warning", message, line)
