"""The file of `accelerate config`, of every version; and what a setup decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.config.values import Strategy
from trainwiz.core.importing import engine_names as table
from trainwiz.core.importing.names import UNSET, Rule
from trainwiz.core.importing.report import Became, Imported, Place, Setting, read_document, refusal
from trainwiz.core.importing.values import (
    Unresolved,
    WrongValue,
    attempt,
    count_of,
    gpu_list,
    is_auto,
    shown,
    text_value,
    whole_number,
    yes_or_no,
)
from trainwiz.core.language import mark, tr

DEFAULT_ZERO_STAGE = 2
"""DeepSpeedPlugin.zero_stage (accelerate/utils/dataclasses.py)."""
WHOLE_SECTIONS = frozenset({"parallelism_config", "fp8_config", "megatron_lm_config", "mpirun_config", "ipex_config"})
SECTIONS = WHOLE_SECTIONS | {name.partition(".")[0] for name in table.ACCELERATE if "." in name}

# What a setup decides. An accelerate file and the command that names it are laid over each other before: a command that
# says `--num_machines 2` halves the processes of each node.


def engine_values(setup: Mapping[str, Any]) -> dict[str, Any]:
    """RunConfig values of a setup; what it leaves open, or says in a way that no run can have, is not in it."""
    nodes, processes = count_of(setup.get("num_machines")) or 1, count_of(setup.get("num_processes"))
    values = {
        "engine.precision": table.PRECISIONS.get(str(setup.get("mixed_precision")).lower()),
        "engine.nodes": nodes if nodes > 1 else None,
        "engine.processes": processes // nodes if processes and processes % nodes == 0 else None,
        "engine.device": "cpu" if setup.get("use_cpu") is True else None,
        "engine.gpus": gpu_list(setup.get("gpu_ids")) or None,
        "engine.strategy": _strategy(setup, processes),
    }
    return {key: value for key, value in values.items() if value is not None}


def _strategy(setup: Mapping[str, Any], processes: int | None) -> Strategy | None:
    kind = str(setup.get("distributed_type")).upper()
    if kind == "DEEPSPEED" and setup.get("deepspeed_config_file"):
        return None  # which stage it is, that file says
    if kind == "DEEPSPEED":
        stage = setup.get("zero_stage", DEFAULT_ZERO_STAGE)
        return table.ZERO.get(stage) if isinstance(stage, int) and not isinstance(stage, bool) else None
    if kind == "FSDP":
        return "ddp" if str(setup.get("fsdp_sharding_strategy")).upper() in ("NO_SHARD", "3") else "fsdp"
    if kind in table.SEVERAL_CARDS:
        return "single" if processes == 1 else "ddp"
    # Several processes under NO are the GPUs of one DataParallel process: each gets one of its own.
    return ("single" if (processes or 1) == 1 else "ddp") if kind in ("NO", "MPS") else None


# The file.


def type_word(value: Any) -> str:
    """A distributed_type as accelerate writes it. NO without quotes is `false` for YAML; TPU is what XLA was called."""
    word = "NO" if value in (False, None) else str(value).rpartition(".")[2].strip().upper()
    return {"TPU": "XLA"}.get(word, word)


def _precision_word(value: Any) -> str:
    return "no" if value in (False, None) else str(value).strip().lower()


def read(text: str, file: str) -> Imported:
    """Raises NotImportable for what is not of accelerate, is incomplete, or is of SageMaker."""
    document = read_document(text, file)
    values, kind = document.values, document.values.get("distributed_type", ...)
    if str(values.get("compute_environment")).upper() == "AMAZON_SAGEMAKER" or "ec2_instance_type" in values:
        raise refusal("not_importable.sagemaker", file)
    if kind is ...:
        raise refusal("not_importable.only_a_part", file)
    if type_word(kind) not in table.KNOWN_TYPES:
        raise refusal("not_importable.no_such_type", file, document.lines.get("distributed_type"), value=shown(kind))
    imported = document.opened("accelerate", file)
    imported.take(document.flat(SECTIONS.__contains__))
    imported.setup |= setup_of(imported)
    for setting in imported.settings.values():
        place_setting(imported, setting)
    _say_contradictions(imported)
    return imported


def setup_of(imported: Imported) -> dict[str, Any]:
    """What the file, or the options that fill it, say of a setup, with today's names and spelling."""
    given = {name: one.value for name, one in imported.settings.items() if not isinstance(one.value, Unresolved)}
    setup: dict[str, Any] = {"launcher": "accelerate"}
    kind = type_word(given["distributed_type"]) if "distributed_type" in given else None
    if "fp16" in given:
        setup["mixed_precision"] = "fp16" if attempt(yes_or_no, given["fp16"]) else "no"
    if "mixed_precision" in given:
        setup["mixed_precision"] = _precision_word(given["mixed_precision"])
    sharding = given.get("fsdp_config.fsdp_sharding_strategy", given.get("fsdp_config.sharding_strategy"))
    named = given.get("deepspeed_config.deepspeed_config_file", given.get("deepspeed_config"))
    gpus = gpu_list(given.get("gpu_ids"))
    found = {
        "distributed_type": kind,
        "num_processes": count_of(given.get("num_processes")),
        "num_machines": count_of(given.get("num_machines")),
        "use_cpu": attempt(yes_or_no, given.get("use_cpu")) or kind == "MULTI_CPU" or None,
        "gpu_ids": ",".join(gpus) or None,
        "zero_stage": imported.read("deepspeed_config.zero_stage", _stage),
        "fsdp_sharding_strategy": sharding,
        "deepspeed_config_file": named or None if kind == "DEEPSPEED" and isinstance(named, str) else None,
    }
    setup |= {name: value for name, value in found.items() if value is not None}
    if kind == "NO" and len(gpus) > 1 and "use_cpu" not in setup:
        # One process on several GPUs, for which the Trainer takes DataParallel (Trainer._wrap_model).
        imported.say(imported.settings["gpu_ids"], "data_parallel", count=len(gpus))
        setup["num_processes"] = len(gpus)
    elif kind in ("NO", "MPS") and setup.get("num_processes", 1) != 1:
        # NO takes the simple launcher, which starts one process whatever num_processes says.
        imported.say(imported.settings["num_processes"], "contradiction.one_process", count=setup["num_processes"])
        setup["num_processes"] = 1
    return setup


def _stage(value: Any) -> Any:
    """The stage of ZeRO; what is none stays as it is, for no stage is then meant."""
    stage = attempt(whole_number, value)
    return value if stage is None else stage


def place_setting(imported: Imported, setting: Setting) -> None:
    """One key of the file, or the option of `accelerate launch` that fills it."""
    section, _, key = setting.name.partition(".")
    kind = imported.setup.get("distributed_type")
    if key and imported.kind == "accelerate" and table.SECTION_OF_TYPE.get(section, kind) != kind:
        imported.drop(setting, tr("distributed_type is {kind}, so accelerate does not read this section.", kind=kind))
        return
    setting = _todays(imported, setting)
    beside = "deepspeed_config.deepspeed_config_file" in imported.settings and section == "deepspeed_config"
    rule: Rule | Place | None = table.ACCELERATE.get(
        setting.name, SPECIAL.get(setting.name, table.ACCELERATE.get(section))
    )
    if setting.name in table.SETUP_KEYS:
        try:
            imported.become(setting, _place_setup(imported, setting))
        except WrongValue:
            imported.wrong(setting)
        return
    if beside and key in table.NOT_BESIDE_FILE:
        rule = mark("deepspeed_config_file is set too, and its values are used.")
    elif rule is None and not key:
        imported.say(setting, "unknown_key")
    imported.place(setting, rule, table.LEFT_TO_TRAINER)


def _todays(imported: Imported, setting: Setting) -> Setting:
    """Under the name of today, which for FSDP 2 all are."""
    new = table.ACCELERATE_RENAMED.get(setting.name)
    if new is None or (new.startswith("fsdp_") and imported.read("fsdp_config.fsdp_version", whole_number) == 2):
        return setting
    imported.rename(setting.as_written(), new, setting.line)
    return setting.called(new)


def _place_setup(imported: Imported, setting: Setting) -> Became:
    """A key of the setup: what all of them together decide."""
    name, value, decided = setting.name, setting.value, engine_values(imported.setup)
    key, kind = table.SETUP_KEYS[name], type_word(value) if name == "distributed_type" else ""
    if kind in table.OTHER_DEVICES:
        imported.say(setting, "not_offered.other_device", kind=kind, device=table.OTHER_DEVICES[kind])
    if name == "use_cpu" and not attempt(yes_or_no, value):
        return mark("A run uses the GPU by default if one is available.")
    if key in decided:
        if name == "mixed_precision" and _precision_word(value) == "fp8":
            imported.say(setting, "not_offered.no_fp8")
        return {key: decided[key]}
    if kind in table.OTHER_DEVICES:
        return mark("trainwiz does not train on this type of device.")
    if kind == "MEGATRON_LM":
        imported.say(setting, "not_offered.no_megatron")
        return table.MEGATRON
    if kind:
        named = "deepspeed_config_file" in imported.setup
        return mark("deepspeed_config_file sets the ZeRO stage.") if named else None
    if name == "gpu_ids":
        return table.ALL_GPUS
    if name == "num_machines" and count_of(value) == 1:
        return table.ONE_NODE
    if value is None:
        return UNSET
    raise WrongValue


def _named_file(imported: Imported, setting: Setting) -> Became:
    imported.refer("deepspeed", str(setting.value), setting.line)
    beside = [key for name in imported.settings if (key := name.partition(".")[2]) in table.NOT_BESIDE_FILE]
    if beside:
        imported.say(setting, "contradiction.beside_file", names=", ".join(beside))
    return table.IN_THAT_FILE


def _file_for_section(imported: Imported, setting: Setting) -> Became:
    """`deepspeed_config: ds.json`, which accelerate cannot read."""
    path, kind = text_value(setting.value), imported.setup["distributed_type"]
    if kind == "DEEPSPEED":
        imported.refer("deepspeed", path, setting.line)
        imported.say(setting, "misplaced.file_for_section")
        return table.IN_THAT_FILE
    imported.say(setting, "contradiction.file_unused", kind=kind, path=shown(path))
    return mark("distributed_type does not select DeepSpeed.")


def _offload(imported: Imported, setting: Setting) -> Became:
    stage = imported.read("deepspeed_config.zero_stage", whole_number)
    stage = DEFAULT_ZERO_STAGE if stage is None else stage
    return keep_in_ram(imported, setting, setting.name.endswith("param_device"), stage)


def keep_in_ram(imported: Imported, setting: Setting, is_param: bool, stage: int | None) -> Became:
    """Offload of the optimizer or of the parameters, of which that of the parameters stands for both."""
    device = str(setting.value).strip().lower()
    if device == "auto":
        return mark("auto leaves it to the accelerate file.")
    if device == "none":
        return mark("none keeps it on the GPU, which is the default.")
    if device == "nvme":
        imported.say(setting, "not_offered.no_nvme")
        return table.NVME
    if device != "cpu":
        raise WrongValue
    if is_param and stage != 3:
        imported.say(setting, "contradiction.needs_stage_3", stage=stage)
        return mark("Only ZeRO-3 can offload parameters to RAM.")
    if stage == 0:
        imported.say(setting, "contradiction.needs_stage")
        return mark("Stage 0 keeps everything on the GPU.")
    both = "all" if is_param or imported.values.get("engine.offload") == "all" else "optimizer"
    imported.set_all("engine.offload", both)
    return {"engine.offload": both}


def place_stage(imported: Imported, setting: Setting) -> Became:
    """The stage of ZeRO, in this file or in that of DeepSpeed."""
    if is_auto(setting.value):
        return mark("auto leaves the stage to the accelerate file.")
    stage = attempt(whole_number, setting.value)
    if stage is None or stage not in table.ZERO:
        imported.say(setting, "bad_value.no_such_stage")
        return None
    if stage == 0:
        imported.say(setting, "other_program.stage_0")
    return {"engine.strategy": table.ZERO[stage]}


def _sharding(imported: Imported, setting: Setting) -> Became:
    word = str(setting.value).strip().upper()
    if word in ("NO_SHARD", "3"):
        imported.say(setting, "other_program.no_shard")
    elif word not in ("FULL_SHARD", "1", "TRUE"):
        imported.say(setting, "not_offered.shards_less", name=setting.as_written().partition(".")[2])
        return mark("trainwiz shards parameters, gradients and optimizer states across all GPUs.")
    return {"engine.strategy": engine_values(imported.setup).get("engine.strategy")}


def _compile(imported: Imported, setting: Setting) -> Became:
    """A backend of torch.compile; inductor is torch's own default."""
    backend = str(setting.value).rpartition(".")[2].strip().lower()
    on = setting.value is not False and backend != "no"
    if on and backend != "inductor":
        imported.say(setting, "not_offered.other_backend")
    return {"engine.compile": on}


def _say_contradictions(imported: Imported) -> None:
    """Figures of the file that cannot be true together."""
    setup, settings = imported.setup, imported.settings
    processes, nodes = setup.get("num_processes"), setup.get("num_machines", 1)
    gpus = len(gpu_list(setup.get("gpu_ids")))
    if processes is not None and processes % nodes:
        imported.say(settings["num_processes"], "contradiction.unequal", processes=processes, nodes=nodes)
    if gpus and processes is not None and nodes == 1 and processes != gpus and not setup.get("use_cpu"):
        imported.say(settings["gpu_ids"], "contradiction.gpus_and_processes", gpus=gpus, processes=processes)


SPECIAL: Mapping[str, Place] = {
    "deepspeed_config": _file_for_section,
    "deepspeed_config.deepspeed_config_file": _named_file,
    "deepspeed_config.zero_stage": place_stage,
    "deepspeed_config.offload_optimizer_device": _offload,
    "deepspeed_config.offload_param_device": _offload,
    "fsdp_config.fsdp_reshard_after_forward": _sharding,
    "dynamo_config.dynamo_backend": _compile,
}
