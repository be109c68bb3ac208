"""The sections of an accelerate file: DeepSpeed, FSDP, torch.compile, several kinds of parallelism."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainwiz.core.export.deepspeed import SECTION_KEYS
from trainwiz.core.importing.report import ZERO, Collector, engine_values
from trainwiz.core.importing.settings import as_bool, as_count, as_number, is_auto, map_number, shown
from trainwiz.core.importing.words import (
    DEEPSPEED_DROPPED,
    DYNAMO_DROPPED,
    FSDP_DROPPED,
    RENAMED,
    SPLITS,
    SPLITTING,
    TELLTALES,
)
from trainwiz.core.language import mark, tr

LEFT_TO_TRAINER = mark("auto leaves it to the arguments of the Trainer.")
NOTHING = mark("It says what a run does anyway.")
WHOLE_SHARDS = ("FULL_SHARD", "1")
NOT_BESIDE_FILE = frozenset(
    {"gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device",
     "offload_param_device", "offload_optimizer_nvme_path", "offload_param_nvme_path", "zero3_save_16bit_model"}
)  # fmt: skip
"""What accelerate refuses beside deepspeed_config_file (DeepSpeedPlugin._deepspeed_config_checks)."""

SectionReader = Callable[[Collector, str, Any, Mapping[str, Any], int | None], None]
"""(collector, key, value, whole section, line)."""


def read_deepspeed(collector: Collector, name: str, value: Any, section: Mapping[str, Any], line: int | None) -> None:
    """One key of `deepspeed_config`."""
    full = f"deepspeed_config.{name}"
    if name == "deepspeed_config_file":
        collector.refer("deepspeed", str(value), line)
        collector.drop(full, value, mark("The settings in that file count."), line)
        _beside_file(collector, section, line)
    elif "deepspeed_config_file" in section and name in NOT_BESIDE_FILE:
        collector.drop(
            full, value, mark("deepspeed_config_file stands beside it, and what that file says counts."), line
        )
    elif name == "zero_stage":
        _stage(collector, full, value, line)
    elif is_auto(value):
        collector.drop(full, value, LEFT_TO_TRAINER, line)
    elif name == "gradient_accumulation_steps":
        map_number(collector, full, value, "batch.gradient_accumulation_steps", as_count(value), line)
    elif name == "gradient_clipping":
        map_number(collector, full, value, "training.max_grad_norm", as_number(value), line)
    elif name in ("offload_optimizer_device", "offload_param_device"):
        _offload(collector, name, value, section, line)
    elif name in DEEPSPEED_DROPPED:
        collector.drop(full, value, DEEPSPEED_DROPPED[name], line)
    elif name in TELLTALES or name in SECTION_KEYS["zero_optimization"] or isinstance(value, Mapping):
        collector.drop(full, value, mark("It is a key of DeepSpeed's JSON, which accelerate does not read here."), line)
        message = tr(
            "{file}: {name} is a key of DeepSpeed's JSON; inside deepspeed_config accelerate does not read it.",
            file=collector.file,
            name=shown(name),
        )
        collector.find("misplaced", "warning", message, line)
    else:
        collector.unknown(full, value, line)


def _beside_file(collector: Collector, section: Mapping[str, Any], line: int | None) -> None:
    beside = [name for name in section if name in NOT_BESIDE_FILE]
    if beside:
        message = tr(
            "{file}: accelerate refuses {names} beside deepspeed_config_file; what the DeepSpeed file says is taken.",
            file=collector.file,
            names=", ".join(beside),
        )
        collector.find("contradiction", "warning", message, line)


def _stage(collector: Collector, full: str, value: Any, line: int | None) -> None:
    stage = as_count(value)
    if stage is None or stage not in ZERO:
        collector.unknown(full, value, line)
        message = tr("{file}: ZeRO has no stage {value}; write 1, 2 or 3.", file=collector.file, value=shown(value))
        collector.find("bad_value", "warning", message, line)
        return
    collector.map(full, value, "engine.strategy", ZERO[stage], line)
    if stage == 0:
        message = tr("{file}: stage 0 of ZeRO shards nothing, which is DDP.", file=collector.file)
        collector.find("other_program", "note", message, line)


def _offload(collector: Collector, name: str, value: Any, section: Mapping[str, Any], line: int | None) -> None:
    full, device = f"deepspeed_config.{name}", str(value).strip().lower()
    stage = as_count(section.get("zero_stage", 2))
    if device in ("none", ""):
        collector.drop(full, value, mark("none keeps it on the GPU, which a run does anyway."), line)
        return
    if device != "cpu":
        no_nvme(collector, full, value, line)
        return
    if name == "offload_param_device" and stage != 3:
        collector.drop(full, value, mark("Only ZeRO-3 can keep parameters in host RAM."), line)
        message = tr(
            "{file}: offload_param_device {value} needs zero_stage 3; parameters stay on the GPU.",
            file=collector.file,
            value=shown(value),
        )
        collector.find("contradiction", "warning", message, line)
        return
    keep_in_ram(collector, full, value, "all" if name == "offload_param_device" else "optimizer", line)


def keep_in_ram(collector: Collector, full: str, value: Any, offload: str, line: int | None) -> None:
    """Maps one of two settings, of which that of the parameters stands for both: "all"."""
    both = "all" if "all" in (offload, collector.values.get("engine.offload")) else offload
    collector.map(full, value, "engine.offload", both, line)
    collector.set_all("engine.offload", both)


def no_nvme(collector: Collector, full: str, value: Any, line: int | None) -> None:
    """Offload to a disk, which nothing here plans; DeepSpeed has no other device (OffloadDeviceEnum)."""
    if str(value).strip().lower() != "nvme":
        collector.unknown(full, value, line)
        message = tr(
            "{file}: {name} cannot be {value}; it is left out.", file=collector.file, name=full, value=shown(value)
        )
        collector.find("bad_value", "warning", message, line)
        return
    collector.drop(full, value, mark("trainwiz keeps nothing on NVMe."), line)
    message = tr(
        "{file}: trainwiz cannot keep anything on {value}; the plan says whether the GPU holds it, else choose "
        "--offload.",
        file=collector.file,
        value=shown(value),
    )
    collector.find("not_offered", "warning", message, line)


def read_fsdp(collector: Collector, name: str, value: Any, section: Mapping[str, Any], line: int | None) -> None:
    """One key of `fsdp_config`; the first versions of accelerate had no prefix."""
    today = name if name.startswith("fsdp_") else f"fsdp_{name}"
    full = f"fsdp_config.{name}"
    renamed = RENAMED.get(f"fsdp_config.{today}") if as_count(section.get("fsdp_version", 1)) != 2 else None
    if renamed is not None or today != name:
        collector.rename(full, renamed or f"fsdp_config.{today}", line)
    if renamed is not None:
        today = "fsdp_backward_prefetch" if today == "fsdp_backward_prefetch_policy" else today
    if today in ("fsdp_sharding_strategy", "fsdp_reshard_after_forward"):
        _sharding(collector, full, value, line)
    elif today == "fsdp_activation_checkpointing" and as_bool(value) is not None:
        collector.map(full, value, "engine.checkpointing", as_bool(value), line)
    elif today == "fsdp_offload_params" and as_bool(value) is not None:
        if as_bool(value):
            collector.map(full, value, "engine.offload", "all", line)
        else:
            collector.drop(full, value, mark("The parameters stay on the GPU, as in a run anyway."), line)
    elif today in FSDP_DROPPED:
        collector.drop(full, value, FSDP_DROPPED[today], line)
    else:
        collector.unknown(full, value, line)


def _sharding(collector: Collector, full: str, value: Any, line: int | None) -> None:
    word = str(value).strip().upper()
    strategy = engine_values(collector.setup).get("engine.strategy")
    if word in (*WHOLE_SHARDS, "TRUE"):
        collector.map(full, value, "engine.strategy", strategy, line)
        return
    if word in ("NO_SHARD", "3"):
        collector.map(full, value, "engine.strategy", strategy, line)
        message = tr("{file}: NO_SHARD shards nothing, which is DDP.", file=collector.file)
        collector.find("other_program", "note", message, line)
        return
    collector.drop(full, value, mark("trainwiz shards parameters, gradients and optimizer over all GPUs."), line)
    message = tr(
        "{file}: {name} {value} keeps more on each GPU than trainwiz does, which shards everything over all GPUs; "
        "nearer to it is: --strategy zero2",
        file=collector.file,
        name=full.partition(".")[2],
        value=shown(value),
    )
    collector.find("not_offered", "warning", message, line)


def read_dynamo(collector: Collector, name: str, value: Any, section: Mapping[str, Any], line: int | None) -> None:
    """One key of `dynamo_config`."""
    today = name if name.startswith("dynamo_") else f"dynamo_{name}"
    full = f"dynamo_config.{name}"
    if today == "dynamo_backend":
        read_compile(collector, full, value, line)
    elif today in DYNAMO_DROPPED:
        collector.drop(full, value, DYNAMO_DROPPED[today], line)
    else:
        collector.unknown(full, value, line)


def read_compile(collector: Collector, full: str, value: Any, line: int | None) -> None:
    """A backend of torch.compile; inductor is torch's own default."""
    backend = str(value).rpartition(".")[2].strip().lower()
    on = value is not False and backend not in ("no", "none", "")
    collector.map(full, value, "engine.compile", on, line)
    if on and backend != "inductor":
        message = tr(
            "{file}: trainwiz compiles with the backend inductor, not with {value}.",
            file=collector.file,
            value=shown(value),
        )
        collector.find("not_offered", "warning", message, line)


def read_parallelism(collector: Collector, name: str, value: Any, section: Mapping[str, Any], line: int | None) -> None:
    """One key of `parallelism_config`."""
    full, short = f"parallelism_config.{name}", name.removeprefix("parallelism_config_")
    size = as_count(value)
    if short in SPLITTING and size is not None and size > 1:
        collector.drop(full, value, SPLITS, line)
        message = tr(
            "{file}: {name} {size} lets {size} GPUs share the same samples, which trainwiz cannot; every process "
            "gets its own, so the effective batch is {size} times as large unless the batch is made smaller.",
            file=collector.file,
            name=short,
            size=size,
        )
        collector.find("not_offered", "warning", message, line)
    elif short in SPLITTING:
        collector.drop(full, value, NOTHING, line)
    elif short.startswith(("dp_", "tp_", "cp_", "sp_")):
        collector.drop(full, value, SPLITS, line)
    else:
        collector.unknown(full, value, line)


SECTIONS: Mapping[str, SectionReader] = {
    "deepspeed_config": read_deepspeed,
    "fsdp_config": read_fsdp,
    "dynamo_config": read_dynamo,
    "parallelism_config": read_parallelism,
}
SECTION_OF: Mapping[str, str] = {"deepspeed_config": "DEEPSPEED", "fsdp_config": "FSDP"}
"""Sections that are read with one distributed_type only."""
