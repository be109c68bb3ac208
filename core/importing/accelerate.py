"""accelerate: its file and its command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.importing.accelerate_sections import SECTION_OF, SECTIONS, read_compile
from trainwiz.core.importing.command_line_options import ACCELERATE_DEEPSPEED, Option, Taken
from trainwiz.core.importing.document import Document, read_document, say_twice
from trainwiz.core.importing.report import Collector, Imported, engine_values, gpu_list, refusal, whole
from trainwiz.core.importing.settings import as_bool, as_count, shown
from trainwiz.core.importing.words import (
    DROPPED,
    FP8,
    MEGATRON,
    OTHER_DEVICES,
    RENAMED,
    RENDEZVOUS,
    TPU,
    WHOLE_SECTIONS,
)
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text

# What is to be said about an accelerate file: what accelerate would refuse, do otherwise, or trainwiz cannot do.


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


# The options of `accelerate launch` -> the setup, under the names of accelerate's own file.

ENGINES = {"multi_gpu": "MULTI_GPU", "use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP"}
KEYS = {
    "num_processes": "engine.processes",
    "num_machines": "engine.nodes",
    "mixed_precision": "engine.precision",
    "gpu_ids": "engine.gpus",
    "cpu": "engine.device",
    "multi_gpu": "engine.strategy",
    "use_deepspeed": "engine.strategy",
    "use_fsdp": "engine.strategy",
}
"""Options that decide the setup -> what they decide."""
SECTION_OF_PREFIX = {"fsdp_": "fsdp_config", "dynamo_": "dynamo_config", "parallelism_config_": "parallelism_config"}
WHY = {
    **DROPPED,
    **dict.fromkeys(("tpu", "tpu_cluster", "no_tpu_cluster", "vm", "env"), TPU),
    **dict.fromkeys(("rdzv_conf", "role", "monitor_interval"), RENDEZVOUS),
    **dict.fromkeys(("tee", "log_dir", "quiet", "debug"), mark("trainwiz writes its own log.")),
    "max_restarts": mark("trainwiz starts a failed run again by itself (recovery.max_restarts)."),
    "module": mark("It says that the script is a module."),
    "no_python": mark("It says that the script is a program of its own."),
    "config_file": mark("It names another file, which is read where it is there."),
    "num_machines": mark("One machine is what a run takes anyway."),
    "gpu_ids": mark("All GPUs is what a run takes anyway."),
    "use_megatron_lm": MEGATRON,
    "use_parallelism_config": mark("Its sizes say what it does."),
}


def read_accelerate(taken: Taken, collector: Collector) -> None:
    """Fill setup and report from the options in front of the script."""
    collector.setup.update(_setup(taken))
    decided = engine_values(collector.setup)
    values = {option.name: _text(option) for option in taken.options}
    for option in taken.options:
        _option(option, values, decided, collector)


def _setup(taken: Taken) -> dict[str, Any]:
    setup: dict[str, Any] = {}
    for option in taken.options:
        value = option.value
        if value is not None and not value.known:
            continue
        if option.name in ("num_processes", "num_machines") and whole(_text(option)):
            setup[option.name] = whole(_text(option))
        elif option.name == "mixed_precision":
            setup["mixed_precision"] = str(_text(option)).lower()
        elif option.name in ("fp16", "bf16"):
            setup["mixed_precision"] = option.name
        elif option.name == "gpu_ids" and gpu_list(_text(option)):
            setup["gpu_ids"] = _text(option)
        elif option.name == "cpu":
            setup["use_cpu"] = True
        elif option.name in ENGINES:
            setup["distributed_type"] = ENGINES[option.name]
        elif option.name == "zero_stage" and as_count(_text(option)) is not None:
            setup["zero_stage"] = as_count(_text(option))
        elif option.name in ("fsdp_sharding_strategy", "deepspeed_config_file"):
            setup[option.name] = _text(option)
    if setup.get("distributed_type") == "DEEPSPEED" and "deepspeed_config_file" in setup:
        # The stage stands in that file.
        setup["zero_stage"] = None
    if "distributed_type" not in setup and taken.option("config_file") is None and "num_processes" in setup:
        # _validate_launch_command: without a file, several processes are several GPUs.
        setup["distributed_type"] = "MULTI_GPU" if setup["num_processes"] > 1 else "NO"
    return setup


def _text(option: Option) -> str | bool:
    return True if option.value is None else option.value.text


def _option(option: Option, values: dict[str, Any], decided: dict[str, Any], collector: Collector) -> None:
    name, value, line = option.name, _text(option), option.line
    section = next((key for prefix, key in SECTION_OF_PREFIX.items() if name.startswith(prefix)), None)
    if option.value is not None and not option.value.known and WHY.get(name) != RENDEZVOUS:
        collector.unknown(name, value, line)
    elif not option.is_known:
        collector.unknown(name, value, line)
        message = tr("accelerate launch has no option --{name}.", name=plain_text(name, 60))
        collector.find("unknown_option", "warning", message, line)
    elif name == "config_file":
        collector.refer("accelerate", str(value), line)
        collector.drop(name, value, WHY[name], line)
    elif name in ("fp16", "bf16"):
        collector.rename(f"--{name}", f"--mixed_precision {name}", line)
        collector.map(name, value, "engine.precision", name, line)
    elif KEYS.get(name) in decided:
        collector.map(name, value, KEYS[name], decided[KEYS[name]], line)
    elif name in ACCELERATE_DEEPSPEED:
        SECTIONS["deepspeed_config"](collector, name, value, values, line)
    elif section is not None:
        SECTIONS[section](collector, name, value, values, line)
    elif name.startswith(("megatron_lm_", "fp8_")):
        collector.drop(name, value, MEGATRON if name.startswith("megatron") else FP8, line)
    elif name == "num_cpu_threads_per_process" and whole(value):
        collector.map(name, value, "engine.cpu_threads", whole(value), line)
    elif name in WHY:
        collector.drop(name, value, WHY[name], line)
    else:
        collector.unknown(name, value, line)


# The YAML (or JSON, before 0.6) that `accelerate config` writes, of every version.

ACCELERATE_KEYS: Mapping[str, str] = {
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
    collector.setup.update(_accelerate_setup(document, collector))
    decided = engine_values(collector.setup)
    for name, value in document.values.items():
        line = document.line(name)
        if name in ACCELERATE_KEYS or name == "fp16":
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


def _accelerate_setup(document: Document, collector: Collector) -> dict[str, Any]:
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
    key = ACCELERATE_KEYS[name_of_key]
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
