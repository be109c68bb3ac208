"""What is to be said about an accelerate file: what accelerate would refuse, do otherwise, or trainwiz cannot do."""

from __future__ import annotations

from typing import Any

from trainwiz.core.importing.accelerate_keys import OTHER_DEVICES, WHOLE_SECTIONS
from trainwiz.core.importing.document import Document
from trainwiz.core.importing.report import Collector
from trainwiz.core.importing.setup import gpu_list
from trainwiz.core.importing.values import shown
from trainwiz.core.language import mark, tr


def type_word(value: Any) -> str:
    """A distributed_type as accelerate writes it. NO without quotes is `false` for YAML."""
    word = "NO" if value in (False, None) else str(value).rpartition(".")[2].strip().upper()
    return {"TPU": "XLA"}.get(word, word)


def precision_word(value: Any) -> str:
    """A mixed_precision as accelerate writes it."""
    return "no" if value in (False, None) else str(value).strip().lower()


def say_one_process(collector: Collector, document: Document, setup: dict[str, Any]) -> None:
    """distributed_type NO takes the simple launcher, which starts one process whatever num_processes says."""
    message = tr(
        "{file}: distributed_type NO starts one process, so num_processes {count} has no effect; for {count} processes "
        "it must be MULTI_GPU. One process is taken.",
        file=collector.file,
        count=setup["num_processes"],
    )
    collector.find("contradiction", "warning", message, document.line("num_processes"))
    setup["num_processes"] = 1


def say_data_parallel(collector: Collector, document: Document, setup: dict[str, Any]) -> None:
    """One process on several GPUs, for which the Trainer takes DataParallel (Trainer._wrap_model)."""
    count = len(gpu_list(setup["gpu_ids"]))
    message = tr(
        "{file}: distributed_type NO starts one process on {count} GPUs, where the Trainer wraps the model in "
        "DataParallel: slower than DDP, and a step sees {count} times the sequences of one GPU. trainwiz starts one "
        "process for each GPU instead.",
        file=collector.file,
        count=count,
    )
    collector.find("data_parallel", "warning", message, document.line("gpu_ids"))
    setup["num_processes"] = count


def say_unknown_key(collector: Collector, name: str, value: Any, line: int | None) -> None:
    """A key that accelerate refuses."""
    collector.unknown(name, value, line)
    message = tr(
        "{file}: accelerate does not know `{name}`, and refuses files with keys that it does not know.",
        file=collector.file,
        name=shown(name),
    )
    collector.find("unknown_key", "warning", message, line)


def say_of_value(collector: Collector, name: str, value: Any, line: int | None) -> None:
    """What a value that was taken does not bring along."""
    if name == "distributed_type" and type_word(value) in OTHER_DEVICES:
        _other_device(collector, type_word(value), line)
    if name == "mixed_precision" and precision_word(value) == "fp8":
        message = tr(
            "{file}: trainwiz does not compute in FP8; bf16 is taken, in which accelerate computes what is not FP8.",
            file=collector.file,
        )
        collector.find("not_offered", "warning", message, line)


def drop_type(collector: Collector, value: Any, line: int | None) -> None:
    """A distributed_type for which a run has no strategy."""
    kind = type_word(value)
    if kind == "DEEPSPEED" and "deepspeed_config_file" in collector.setup:
        collector.drop("distributed_type", value, mark("Which stage of ZeRO it is, deepspeed_config_file says."), line)
        return
    if kind in OTHER_DEVICES:
        collector.drop("distributed_type", value, mark("trainwiz does not train on this kind of device."), line)
        _other_device(collector, kind, line)
        return
    if kind == "MEGATRON_LM":
        why = WHOLE_SECTIONS["megatron_lm_config"]
        message = tr(
            "{file}: trainwiz has no Megatron-LM engine; how the processes share the work is left to the plan, which "
            "splits neither layers nor sequences.",
            file=collector.file,
        )
        collector.drop("distributed_type", value, why, line)
        collector.find("not_offered", "warning", message, line)
        return
    collector.unknown("distributed_type", value, line)


def _other_device(collector: Collector, kind: str, line: int | None) -> None:
    message = tr(
        "{file}: distributed_type {kind} is for {device} devices; trainwiz trains on NVIDIA GPUs, Apple GPUs and CPUs.",
        file=collector.file,
        kind=kind,
        device=OTHER_DEVICES[kind],
    )
    collector.find("not_offered", "warning", message, line)


def file_instead_of_section(collector: Collector, path: str, line: int | None) -> None:
    """`deepspeed_config: ds.json`, which accelerate cannot read."""
    kind = collector.setup["distributed_type"]
    if kind != "DEEPSPEED":
        message = tr(
            "{file}: distributed_type is {kind}, so accelerate does not use the DeepSpeed file {path}; import that file "
            "too if it is meant.",
            file=collector.file,
            kind=kind,
            path=shown(path),
        )
        collector.drop("deepspeed_config", path, mark("DeepSpeed is not what distributed_type says."), line)
        collector.find("contradiction", "warning", message, line)
        return
    message = tr(
        "{file}: deepspeed_config is the name of a file, where accelerate wants a section with deepspeed_config_file "
        "in it; the file is read as if it stood there.",
        file=collector.file,
    )
    collector.find("misplaced", "warning", message, line)
    collector.refer("deepspeed", path, line)
    collector.drop("deepspeed_config", path, mark("The settings in that file count."), line)


def say_contradictions(collector: Collector, document: Document) -> None:
    """Figures of the file that cannot be true together."""
    setup = collector.setup
    processes, nodes = setup.get("num_processes"), setup.get("num_machines", 1)
    if processes is not None and processes % nodes:
        message = tr(
            "{file}: {processes} processes cannot be shared equally among {nodes} machines; make num_processes a "
            "multiple of num_machines.",
            file=collector.file,
            processes=processes,
            nodes=nodes,
        )
        collector.find("contradiction", "warning", message, document.line("num_processes"))
    if setup.get("deepspeed_config_file") and document.values.get("mixed_precision") is not None:
        message = tr(
            "{file}: accelerate refuses mixed_precision beside deepspeed_config_file; the precision belongs into the "
            "DeepSpeed file. It is taken where that file leaves it open.",
            file=collector.file,
        )
        collector.find("contradiction", "warning", message, document.line("mixed_precision"))
    gpus = gpu_list(setup.get("gpu_ids"))
    if gpus and processes is not None and nodes == 1 and processes != len(gpus) and not setup.get("use_cpu"):
        message = tr(
            "{file}: gpu_ids names {gpus} GPUs and num_processes is {processes}; a run has one process for each GPU.",
            file=collector.file,
            gpus=len(gpus),
            processes=processes,
        )
        collector.find("contradiction", "warning", message, document.line("gpu_ids"))
    if setup["distributed_type"] == "MULTI_CPU":
        message = tr(
            "{file}: with MULTI_CPU accelerate starts one process only and says nothing; trainwiz starts as many as "
            "num_processes says.",
            file=collector.file,
        )
        collector.find("other_program", "note", message, document.line("distributed_type"))
