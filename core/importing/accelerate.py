"""The file of `accelerate config`, of every version; and what a setup decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.config.values import Strategy
from trainwiz.core.importing import engine_names as table
from trainwiz.core.importing.names import Rule
from trainwiz.core.importing.report import Imported, Place, Setting, read_document, refusal
from trainwiz.core.importing.values import (
    Unresolved,
    WrongValue,
    attempt,
    count_of,
    gpu_list,
    is_auto,
    shown,
    whole_number,
    yes_or_no,
)
from trainwiz.core.language import mark, tr

DEFAULT_ZERO_STAGE = 2
"""DeepSpeedPlugin.zero_stage (accelerate/utils/dataclasses.py)."""
WHOLE_SECTIONS = frozenset({"parallelism_config", "fp8_config", "megatron_lm_config", "mpirun_config", "ipex_config"})
SECTIONS = WHOLE_SECTIONS | {name.partition(".")[0] for name in table.ACCELERATE if "." in name}

SAGEMAKER = mark(
    "{file} trains on Amazon SageMaker, which trainwiz does not support; create a file for the training machine "
    "with: accelerate config"
)
ONLY_A_PART = mark(
    "{file} has no `distributed_type`, which accelerate requires: the file is incomplete. Use the whole file, or "
    "create one with: accelerate config"
)
NO_SUCH_TYPE = mark(
    "{file}, line {line}: accelerate has no distributed_type {value}; use NO, MULTI_GPU, FSDP, DEEPSPEED or another "
    "valid type."
)
ONE_PROCESS = mark(
    "{file}: distributed_type NO starts one process, so num_processes {count} has no effect; {count} processes need "
    "MULTI_GPU. One process is used."
)
DATA_PARALLEL = mark(
    "{file}: distributed_type NO starts one process on {count} GPUs, where the Trainer wraps the model in "
    "DataParallel: slower than DDP, and a step uses {count} times the sequences of one GPU. trainwiz "
    "starts one process per GPU instead."
)
UNKNOWN_KEY = mark("{file}: accelerate does not know `{name}` and rejects files with unknown keys.")
NO_FP8 = mark(
    "{file}: trainwiz does not support FP8; it uses bf16, in which accelerate computes everything that is not FP8."
)
NO_MEGATRON = mark(
    "{file}: trainwiz has no Megatron-LM engine; the plan decides how the processes share the work, and splits "
    "neither layers nor sequences."
)
OTHER_DEVICE = mark(
    "{file}: distributed_type {kind} is for {device} devices; trainwiz trains on NVIDIA GPUs, Apple GPUs and CPUs."
)
FILE_UNUSED = mark(
    "{file}: distributed_type is {kind}, so accelerate does not use the DeepSpeed file {path}; to use it, import "
    "that file too."
)
FILE_FOR_SECTION = mark(
    "{file}: deepspeed_config is a file name, but accelerate expects a section that contains deepspeed_config_file; "
    "the file is read as if it were set there."
)
BESIDE_FILE = mark(
    "{file}: accelerate rejects {names} together with deepspeed_config_file; the values in the DeepSpeed file are used."
)
OF_DEEPSPEED = mark(
    "{file}: {name} is a key of the DeepSpeed JSON; accelerate does not read it inside deepspeed_config."
)
NO_SHARD = mark("{file}: NO_SHARD shards nothing, which is the same as DDP.")
SHARDS_LESS = mark(
    "{file}: {name} {value} keeps more on each GPU than trainwiz, which shards everything across all GPUs; the "
    "closest match is: --strategy zero2"
)
OTHER_BACKEND = mark("{file}: trainwiz compiles with the inductor backend, not with {value}.")
SPLITS = mark(
    "{file}: {name} {size} lets {size} GPUs share the same samples, which trainwiz does not support; every process "
    "gets its own samples, so the effective batch is {size} times as large unless you reduce the batch."
)
UNEQUAL = mark(
    "{file}: {processes} processes cannot be split evenly across {nodes} machines; make num_processes a multiple of "
    "num_machines."
)
PRECISION_BESIDE = mark(
    "{file}: accelerate rejects mixed_precision together with deepspeed_config_file; the precision belongs in the "
    "DeepSpeed file. It is used where that file does not set one."
)
GPUS_AND_PROCESSES = mark(
    "{file}: gpu_ids lists {gpus} GPUs, but num_processes is {processes}; a run has one process per GPU."
)
NO_SUCH_STAGE = mark("{file}: ZeRO has no stage {value}; use 1, 2 or 3.")
STAGE_0 = mark("{file}: ZeRO stage 0 shards nothing, which is the same as DDP.")
NO_NVME = mark(
    "{file}: trainwiz cannot offload to {value}; the plan shows whether everything fits on the GPU. If not, use "
    "--offload."
)
NEEDS_STAGE_3 = mark("{file}: {name} requires stage 3, but the stage is {stage}; the parameters stay on the GPU.")
NEEDS_STAGE = mark("{file}: {name} requires stage 1 or higher.")

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
        raise refusal(file, tr(SAGEMAKER, file=file))
    if kind is ...:
        raise refusal(file, tr(ONLY_A_PART, file=file))
    if type_word(kind) not in table.KNOWN_TYPES:
        line = document.lines.get("distributed_type")
        raise refusal(f"{file}:{line}", tr(NO_SUCH_TYPE, file=file, line=line, value=shown(kind)))
    imported = Imported("accelerate", file)
    document.say_twice(imported)
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
    if kind is not None:
        setup["distributed_type"] = kind
    if "mixed_precision" in given:
        setup["mixed_precision"] = _precision_word(given["mixed_precision"])
    elif "fp16" in given:
        setup["mixed_precision"] = "fp16" if attempt(yes_or_no, given["fp16"]) else "no"
    counts = {name: count_of(given.get(name)) for name in ("num_processes", "num_machines")}
    setup |= {name: count for name, count in counts.items() if count}
    if attempt(yes_or_no, given.get("use_cpu")) or kind == "MULTI_CPU":
        setup["use_cpu"] = True
    gpus = gpu_list(given.get("gpu_ids"))
    if gpus:
        setup["gpu_ids"] = ",".join(gpus)
    if kind == "NO" and len(gpus) > 1 and "use_cpu" not in setup:
        # One process on several GPUs, for which the Trainer takes DataParallel (Trainer._wrap_model).
        imported.say(imported.settings["gpu_ids"], "data_parallel", DATA_PARALLEL, count=len(gpus))
        setup["num_processes"] = len(gpus)
    elif kind in ("NO", "MPS") and setup.get("num_processes", 1) != 1:
        # NO takes the simple launcher, which starts one process whatever num_processes says.
        imported.say(imported.settings["num_processes"], "contradiction", ONE_PROCESS, count=setup["num_processes"])
        setup["num_processes"] = 1
    if "deepspeed_config.zero_stage" in given:
        stage = attempt(whole_number, given["deepspeed_config.zero_stage"])
        setup["zero_stage"] = given["deepspeed_config.zero_stage"] if stage is None else stage
    for name in ("fsdp_config.sharding_strategy", "fsdp_config.fsdp_sharding_strategy"):
        if name in given:
            setup["fsdp_sharding_strategy"] = given[name]
    named = given.get("deepspeed_config.deepspeed_config_file", given.get("deepspeed_config"))
    if kind == "DEEPSPEED" and isinstance(named, str) and named:
        setup["deepspeed_config_file"] = named
    return setup


def place_setting(imported: Imported, setting: Setting) -> None:
    """One key of the file, or the option of `accelerate launch` that fills it."""
    section, _, key = setting.name.partition(".")
    kind = imported.setup.get("distributed_type")
    if key and imported.kind == "accelerate" and table.SECTION_OF_TYPE.get(section, kind) != kind:
        imported.drop(setting, tr("distributed_type is {kind}, so accelerate does not read this section.", kind=kind))
        return
    if section in ("fsdp_config", "dynamo_config") and key:
        setting = _todays(imported, setting, section, key)
    elif setting.name in table.ACCELERATE_RENAMED:
        imported.rename(setting.name, table.ACCELERATE_RENAMED[setting.name], setting.line)
        setting = setting.called(table.ACCELERATE_RENAMED[setting.name])
    beside = "deepspeed_config.deepspeed_config_file" in imported.settings and section == "deepspeed_config"
    rule: Rule | Place | None = table.ACCELERATE.get(
        setting.name, SPECIAL.get(setting.name, table.ACCELERATE.get(section))
    )
    if setting.name in table.SETUP_KEYS:
        _place_setup(imported, setting)
    elif section == "parallelism_config" and key:
        _parallel(imported, setting, key.removeprefix("parallelism_config_"))
    elif beside and key in table.NOT_BESIDE_FILE:
        why = mark("deepspeed_config_file is set too, and its values are used.")
        imported.drop(setting, why)
    elif rule is None and setting.name.startswith("megatron_lm_"):
        imported.drop(setting, table.MEGATRON)
    elif rule is None and (key in table.DEEPSPEED_TELLTALES or f"zero_optimization.{key}" in table.DEEPSPEED):
        imported.drop(setting, mark("It is a key of the DeepSpeed JSON, which accelerate does not read in this place."))
        imported.say(setting, "misplaced", OF_DEEPSPEED, name=shown(key))
    else:
        imported.place(setting, rule, table.LEFT_TO_TRAINER)
        if rule is None and not key:
            imported.say(setting, "unknown_key", UNKNOWN_KEY)


def _todays(imported: Imported, setting: Setting, section: str, key: str) -> Setting:
    """A key of fsdp_config or dynamo_config; the first versions of accelerate had no prefix."""
    prefix = section.removesuffix("config")
    today = f"{section}.{key if key.startswith(prefix) else prefix + key}"
    second = imported.read("fsdp_config.fsdp_version", whole_number) == 2
    today = today if second else table.ACCELERATE_RENAMED.get(today, today)
    if section == "fsdp_config" and today != setting.name:
        imported.rename(setting.as_written(), today, setting.line)
    return setting.called(today)


def _place_setup(imported: Imported, setting: Setting) -> None:
    """A key of the setup: what all of them together decide."""
    name, value, decided = setting.name, setting.value, engine_values(imported.setup)
    key = table.SETUP_KEYS[name]
    device = type_word(value) if name == "distributed_type" and type_word(value) in table.OTHER_DEVICES else None
    if device is not None:
        imported.say(setting, "not_offered", OTHER_DEVICE, kind=device, device=table.OTHER_DEVICES[device])
    if name == "use_cpu" and not attempt(yes_or_no, value):
        imported.drop(setting, mark("A run uses the GPU by default if one is available."))
    elif key in decided:
        imported.map(setting, key, decided[key])
        if name == "mixed_precision" and _precision_word(value) == "fp8":
            imported.say(setting, "not_offered", NO_FP8)
    elif device is not None:
        imported.drop(setting, mark("trainwiz does not train on this type of device."))
    elif name == "distributed_type" and type_word(value) == "MEGATRON_LM":
        imported.drop(setting, table.MEGATRON)
        imported.say(setting, "not_offered", NO_MEGATRON)
    elif name == "distributed_type" and "deepspeed_config_file" in imported.setup:
        imported.drop(setting, mark("deepspeed_config_file sets the ZeRO stage."))
    elif name == "distributed_type":
        imported.leave_unknown(setting)
    elif name == "gpu_ids":
        imported.drop(setting, table.ALL_GPUS)
    elif name == "num_machines" and count_of(value) == 1:
        imported.drop(setting, table.ONE_NODE)
    elif name == "num_processes" and value == -1:
        imported.drop(setting, mark("-1 leaves the number to the launch command."))
    elif value is None:
        imported.drop(setting, mark("An empty value leaves it to the plan."))
    else:
        imported.wrong(setting)


def _named_file(imported: Imported, setting: Setting) -> None:
    imported.refer("deepspeed", str(setting.value), setting.line)
    imported.drop(setting, table.IN_THAT_FILE)
    beside = [key for name in imported.settings if (key := name.partition(".")[2]) in table.NOT_BESIDE_FILE]
    if beside:
        imported.say(setting, "contradiction", BESIDE_FILE, names=", ".join(beside))


def _file_for_section(imported: Imported, setting: Setting) -> None:
    """`deepspeed_config: ds.json`, which accelerate cannot read."""
    if not isinstance(setting.value, str):
        raise WrongValue(setting.value)
    kind = imported.setup["distributed_type"]
    if kind == "DEEPSPEED":
        imported.refer("deepspeed", setting.value, setting.line)
        imported.drop(setting, table.IN_THAT_FILE)
        imported.say(setting, "misplaced", FILE_FOR_SECTION)
    else:
        imported.drop(setting, mark("distributed_type does not select DeepSpeed."))
        imported.say(setting, "contradiction", FILE_UNUSED, kind=kind, path=shown(setting.value))


def _offload(imported: Imported, setting: Setting) -> None:
    stage = imported.read("deepspeed_config.zero_stage", whole_number)
    stage = DEFAULT_ZERO_STAGE if stage is None else stage
    keep_in_ram(imported, setting, setting.name.endswith("param_device"), stage)


def keep_in_ram(imported: Imported, setting: Setting, is_param: bool, stage: int | None) -> None:
    """Offload of the optimizer or of the parameters, of which that of the parameters stands for both."""
    device = str(setting.value).strip().lower()
    if device == "auto":
        imported.drop(setting, mark("auto leaves it to the accelerate file."))
    elif device == "none":
        imported.drop(setting, mark("none keeps it on the GPU, which is the default."))
    elif device == "nvme":
        imported.drop(setting, mark("trainwiz does not offload to NVMe."))
        imported.say(setting, "not_offered", NO_NVME)
    elif device != "cpu":
        raise WrongValue(setting.value)
    elif is_param and stage != 3:
        imported.drop(setting, mark("Only ZeRO-3 can offload parameters to RAM."))
        imported.say(setting, "contradiction", NEEDS_STAGE_3, stage=stage)
    elif stage == 0:
        imported.drop(setting, mark("Stage 0 keeps everything on the GPU."))
        imported.say(setting, "contradiction", NEEDS_STAGE)
    else:
        both = "all" if is_param or imported.values.get("engine.offload") == "all" else "optimizer"
        imported.map(setting, "engine.offload", both)
        imported.set_all("engine.offload", both)


def place_stage(imported: Imported, setting: Setting) -> None:
    """The stage of ZeRO, in this file or in that of DeepSpeed."""
    stage = attempt(whole_number, setting.value)
    if is_auto(setting.value):
        imported.drop(setting, mark("auto leaves the stage to the accelerate file."))
    elif stage is None or stage not in table.ZERO:
        imported.leave_unknown(setting)
        imported.say(setting, "bad_value", NO_SUCH_STAGE)
    else:
        imported.map(setting, "engine.strategy", table.ZERO[stage])
        if stage == 0:
            imported.say(setting, "other_program", STAGE_0)


def _sharding(imported: Imported, setting: Setting) -> None:
    word = str(setting.value).strip().upper()
    if word in ("FULL_SHARD", "1", "TRUE", "NO_SHARD", "3"):
        imported.map(setting, "engine.strategy", engine_values(imported.setup).get("engine.strategy"))
        if word in ("NO_SHARD", "3"):
            imported.say(setting, "other_program", NO_SHARD)
    else:
        imported.drop(setting, mark("trainwiz shards parameters, gradients and optimizer states across all GPUs."))
        imported.say(setting, "not_offered", SHARDS_LESS, name=setting.as_written().partition(".")[2])


def _compile(imported: Imported, setting: Setting) -> None:
    """A backend of torch.compile; inductor is torch's own default."""
    backend = str(setting.value).rpartition(".")[2].strip().lower()
    on = setting.value is not False and backend != "no"
    imported.map(setting, "engine.compile", on)
    if on and backend != "inductor":
        imported.say(setting, "not_offered", OTHER_BACKEND)


def _parallel(imported: Imported, setting: Setting, short: str) -> None:
    """One size of `parallelism_config`; those of tensors, contexts and sequences take GPUs away from the data."""
    size = attempt(whole_number, setting.value) or 1
    if short in ("tp_size", "cp_size", "sp_size") and size <= 1:
        imported.drop(setting, mark("A run already does this."))
    elif short.startswith(("dp_", "tp_", "cp_", "sp_")):
        imported.drop(setting, mark("trainwiz splits neither layers nor sequences across GPUs."))
        if short in ("tp_size", "cp_size", "sp_size"):
            imported.say(setting, "not_offered", SPLITS, name=short, size=size)
    else:
        imported.leave_unknown(setting)


def _say_contradictions(imported: Imported) -> None:
    """Figures of the file that cannot be true together."""
    setup, settings = imported.setup, imported.settings
    processes, nodes = setup.get("num_processes"), setup.get("num_machines", 1)
    gpus = len(gpu_list(setup.get("gpu_ids")))
    if processes is not None and processes % nodes:
        imported.say(settings["num_processes"], "contradiction", UNEQUAL, processes=processes, nodes=nodes)
    precision = settings.get("mixed_precision")
    if setup.get("deepspeed_config_file") and precision is not None and precision.value is not None:
        imported.say(precision, "contradiction", PRECISION_BESIDE)
    if gpus and processes is not None and nodes == 1 and processes != gpus and not setup.get("use_cpu"):
        imported.say(settings["gpu_ids"], "contradiction", GPUS_AND_PROCESSES, gpus=gpus, processes=processes)


SPECIAL: Mapping[str, Place] = {
    "deepspeed_config": _file_for_section,
    "deepspeed_config.deepspeed_config_file": _named_file,
    "deepspeed_config.zero_stage": place_stage,
    "deepspeed_config.offload_optimizer_device": _offload,
    "deepspeed_config.offload_param_device": _offload,
    "fsdp_config.fsdp_reshard_after_forward": _sharding,
    "dynamo_config.dynamo_backend": _compile,
}
