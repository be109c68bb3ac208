"""The YAML (or JSON, before 0.6) that `accelerate config` writes, of every version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.importing.accelerate_keys import DROPPED, OTHER_DEVICES, RENAMED, WHOLE_SECTIONS
from trainwiz.core.importing.accelerate_says import (
    drop_type,
    file_instead_of_section,
    precision_word,
    say_contradictions,
    say_data_parallel,
    say_of_value,
    say_one_process,
    say_unknown_key,
    type_word,
)
from trainwiz.core.importing.accelerate_sections import SECTION_OF, SECTIONS, read_compile
from trainwiz.core.importing.document import Document, read_document, say_twice
from trainwiz.core.importing.report import Collector, Imported, refusal
from trainwiz.core.importing.setup import engine_values, gpu_list, whole
from trainwiz.core.importing.values import as_bool, as_count, shown
from trainwiz.core.language import mark, tr

KEYS: Mapping[str, str] = {
    "distributed_type": "engine.strategy",
    "num_processes": "engine.processes",
    "num_machines": "engine.nodes",
    "mixed_precision": "engine.precision",
    "use_cpu": "engine.device",
    "gpu_ids": "engine.gpus",
}
"""Keys of a setup -> what they decide."""

STAGES: Mapping[str, tuple[str, ...]] = {
    "deepspeed_config": ("zero_stage",),
    "fsdp_config": ("fsdp_sharding_strategy", "sharding_strategy"),
}
"""Section -> what in it belongs to the setup: today's name, then those of the first versions."""

KNOWN_TYPES = frozenset({"NO", "MPS", "MULTI_GPU", "MULTI_CPU", "DEEPSPEED", "FSDP", "MEGATRON_LM", *OTHER_DEVICES})
ALL_GPUS = mark("All GPUs is what a run takes anyway.")
ONE_NODE = mark("One machine is what a run takes anyway.")
A_GPU = mark("A run takes the GPU where there is one anyway.")


def read(text: str, file_name: str) -> Imported:
    """Raises NotImportable for what is not of accelerate, is incomplete, or is of SageMaker."""
    return read_settings(read_document(text, file_name), file_name)


def read_settings(document: Document, file_name: str) -> Imported:
    """The same for a document that was parsed already."""
    _check(document, file_name)
    collector = Collector("accelerate", file_name)
    say_twice(collector, document)
    collector.setup.update(_setup(document, collector))
    decided = engine_values(collector.setup)
    for name, value in document.values.items():
        line = document.line(name)
        if name in KEYS or name == "fp16":
            _setup_key(collector, name, value, decided, line)
        elif name == "dynamo_backend":
            collector.rename(name, RENAMED[name], line)
            read_compile(collector, name, value, line)
        elif name == "deepspeed_config" and isinstance(value, str):
            file_instead_of_section(collector, value, line)
        elif name in SECTIONS and isinstance(value, Mapping | None):
            _section(collector, document, name, value or {})
        elif name in WHOLE_SECTIONS and isinstance(value, Mapping):
            for inner, setting in value.items():
                collector.drop(f"{name}.{inner}", setting, WHOLE_SECTIONS[name], document.line(name, str(inner)))
        elif name == "num_cpu_threads_per_process" and whole(value):
            collector.map(name, value, "engine.cpu_threads", whole(value), line)
        elif name.startswith("megatron_lm_") and name not in WHOLE_SECTIONS:
            collector.drop(name, value, WHOLE_SECTIONS["megatron_lm_config"], line)
        elif name in DROPPED or (name in WHOLE_SECTIONS and not value):
            if name in RENAMED:
                collector.rename(name, RENAMED[name], line)
            collector.drop(name, value, DROPPED.get(name) or WHOLE_SECTIONS[name], line)
        else:
            say_unknown_key(collector, name, value, line)
    say_contradictions(collector, document)
    return collector.done()


def _check(document: Document, file: str) -> None:
    values = document.values
    if str(values.get("compute_environment")).upper() == "AMAZON_SAGEMAKER" or "ec2_instance_type" in values:
        message = tr(
            "{file} starts its training on Amazon SageMaker, which trainwiz cannot do; make a file for the machine "
            "that trains with: accelerate config",
            file=file,
        )
        raise refusal(file, message)
    if "distributed_type" not in values:
        message = tr(
            "{file} has no `distributed_type`, without which accelerate refuses it: it is only a part; get the whole "
            "file, or make one with: accelerate config",
            file=file,
        )
        raise refusal(file, message)
    kind = type_word(values["distributed_type"])
    if kind not in KNOWN_TYPES:
        line = document.line("distributed_type")
        message = tr(
            "{file}, line {line}: accelerate has no distributed_type {value}; it takes NO, MULTI_GPU, FSDP, DEEPSPEED "
            "and others.",
            file=file,
            line=line,
            value=shown(values["distributed_type"]),
        )
        raise refusal(f"{file}:{line}", message)


def _setup(document: Document, collector: Collector) -> dict[str, Any]:
    """The document's keys of a setup with today's names and spelling."""
    values = document.values
    setup: dict[str, Any] = {"launcher": "accelerate", "distributed_type": type_word(values["distributed_type"])}
    if "mixed_precision" in values:
        setup["mixed_precision"] = precision_word(values["mixed_precision"])
    elif "fp16" in values:
        setup["mixed_precision"] = "fp16" if as_bool(values["fp16"]) else "no"
    for name in ("num_processes", "num_machines"):
        if whole(values.get(name)) is not None:
            setup[name] = whole(values[name])
    if as_bool(values.get("use_cpu")) or setup["distributed_type"] == "MULTI_CPU":
        setup["use_cpu"] = True
    if gpu_list(values.get("gpu_ids")):
        setup["gpu_ids"] = ",".join(gpu_list(values["gpu_ids"]))
    if setup["distributed_type"] == "NO" and len(gpu_list(setup.get("gpu_ids"))) > 1 and "use_cpu" not in setup:
        say_data_parallel(collector, document, setup)
    elif setup["distributed_type"] in ("NO", "MPS") and setup.get("num_processes", 1) != 1:
        say_one_process(collector, document, setup)
    for section, names in STAGES.items():
        inner = values.get(section)
        if not isinstance(inner, Mapping):
            continue
        for name in names:
            if name in inner:
                setup[names[0]] = as_count(inner[name]) if as_count(inner[name]) is not None else inner[name]
    if setup["distributed_type"] == "DEEPSPEED":
        inner = values.get("deepspeed_config")
        named = inner.get("deepspeed_config_file") if isinstance(inner, Mapping) else inner
        if isinstance(named, str) and named:
            setup["deepspeed_config_file"] = named
    return setup


def _setup_key(collector: Collector, name: str, value: Any, decided: Mapping[str, Any], line: int | None) -> None:
    if name == "fp16":
        collector.rename(name, RENAMED[name], line)
        name_of_key = "mixed_precision"
    else:
        name_of_key = name
    key = KEYS[name_of_key]
    if name == "use_cpu" and not as_bool(value):
        collector.drop(name, value, A_GPU, line)
    elif name == "gpu_ids" and key not in decided:
        collector.drop(name, value, ALL_GPUS, line)
    elif name == "num_machines" and key not in decided and whole(value) == 1:
        collector.drop(name, value, ONE_NODE, line)
    elif key in decided:
        collector.map(name, value, key, decided[key], line)
        say_of_value(collector, name, value, line)
    elif name == "distributed_type":
        drop_type(collector, value, line)
    elif name == "num_processes" and value == -1:
        collector.drop(name, value, mark("-1 leaves the number to the command that starts the training."), line)
    elif value is None:
        collector.drop(name, value, mark("Empty leaves it to the plan."), line)
    else:
        collector.unknown(name, value, line)
        message = tr(
            "{file}: {name} cannot be {value}; it is left out.", file=collector.file, name=name, value=shown(value)
        )
        collector.find("bad_value", "warning", message, line)


def _section(collector: Collector, document: Document, name: str, section: Mapping[str, Any]) -> None:
    """A section that belongs to another distributed_type is one that accelerate does not read."""
    wanted, kind = SECTION_OF.get(name), collector.setup["distributed_type"]
    if wanted is not None and kind != wanted:
        why = tr("distributed_type is {kind}, so accelerate does not read this section.", kind=kind)
        for inner, value in section.items():
            collector.drop(f"{name}.{inner}", value, why, document.line(name, str(inner)))
        return
    for inner, value in section.items():
        SECTIONS[name](collector, str(inner), value, section, document.line(name, str(inner)))
