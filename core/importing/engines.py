"""The file of `accelerate config`, the options of the launchers that mean the same, and the JSON of DeepSpeed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainwiz.core.export.deepspeed import MISPLACED as IN_ZERO
from trainwiz.core.importing import names as table
from trainwiz.core.importing.names import Rule
from trainwiz.core.importing.report import Became, Document, Imported, Place, Setting, refusal
from trainwiz.core.importing.values import (
    WrongValue,
    attempt,
    count_of,
    decimal_number,
    gpu_list,
    if_on,
    is_auto,
    only,
    shown,
    text_value,
    whole_number,
    word,
    yes_or_no,
)
from trainwiz.core.language import mark, tr

STRATEGY, OFFLOAD, GPUS = "engine.strategy", "engine.offload", "engine.gpus"
PROCESSES, NODES = "engine.processes", "engine.nodes"
WEAK_STRATEGIES = ("ddp", "single")
"""What a launcher alone comes to; that the script then uses DeepSpeed or FSDP contradicts nothing."""
DEFAULT_ZERO_STAGE = 2
"""DeepSpeedPlugin.zero_stage (accelerate/utils/dataclasses.py)."""


def settle(values: dict[str, Any]) -> None:
    """The processes of all nodes, as launchers count them, become those of one; one process shards nothing."""
    total, nodes = values.get(PROCESSES), values.get(NODES, 1)
    if total and values.get(STRATEGY) in WEAK_STRATEGIES:
        values[STRATEGY] = "single" if total == 1 else "ddp"
    if total and total % nodes == 0:
        values[PROCESSES] = total // nodes
    else:
        values.pop(PROCESSES, None)


# The file of accelerate.


def type_word(value: Any) -> str:
    """A distributed_type as accelerate writes it. NO without quotes is `false` for YAML; TPU is what XLA was called."""
    name = "NO" if value in (False, None) else str(value).rpartition(".")[2].strip().upper()
    return "XLA" if name == "TPU" else name


def read_accelerate(document: Document, file: str) -> Imported:
    """Raises NotImportable for what is not of accelerate, is incomplete, or is of SageMaker."""
    values, kind = document.values, document.values.get("distributed_type", ...)
    if str(values.get("compute_environment")).upper() == "AMAZON_SAGEMAKER" or "ec2_instance_type" in values:
        raise refusal("not_importable.kinds", file)
    if kind is ...:
        raise refusal("not_importable.only_a_part", file)
    if type_word(kind) not in table.KNOWN_TYPES and not type_word(kind).startswith("MULTI_"):
        raise refusal("not_importable.only_a_part", file)
    imported = Imported("accelerate", file)
    imported.take(_of_today(imported, setting) for setting in document.flat(ACCELERATE_SECTIONS.__contains__))
    for setting in imported.settings.values():
        _place_setting(imported, setting)
    return imported


def _of_today(imported: Imported, setting: Setting) -> Setting:
    today = imported.of_today(setting, table.ACCELERATE_RENAMED)
    if setting.name == "fp16":
        return today.called(today.name, "fp16" if attempt(yes_or_no, setting.value) else "no")
    return today


def _place_setting(imported: Imported, setting: Setting) -> None:
    """One key of the file, or the option of a launcher that means the same."""
    section, _, key = setting.name.partition(".")
    kind = imported.read("distributed_type", type_word)
    rule: Rule | Place | None = ACCELERATE.get(setting.name, table.ACCELERATE.get(section))
    if key and imported.kind == "accelerate" and table.SECTION_OF_TYPE.get(section, kind) != kind:
        rule = tr("distributed_type is {kind}, so accelerate does not read this section.", kind=kind)
    elif ZERO_FILE in imported.settings and key in table.NOT_BESIDE_FILE:
        rule = mark("deepspeed_config_file is set too, and its values are used.")
    imported.place(setting, rule, table.LEFT_TO_TRAINER)


def _type(imported: Imported, setting: Setting) -> Became:
    kind = type_word(setting.value)
    if kind == "DEEPSPEED":
        if {ZERO_FILE, "deepspeed_config"} & set(imported.settings):
            return mark("deepspeed_config_file sets the ZeRO stage.")
        if ZERO_STAGE in imported.settings:
            return _stage(imported, imported.settings[ZERO_STAGE])
        # That ZeRO is of stage 2 where none is named says nothing beside a file of DeepSpeed.
        imported.map(setting, STRATEGY, table.ZERO[DEFAULT_ZERO_STAGE])
        imported.defaults[STRATEGY] = imported.values.pop(STRATEGY)
        return {}
    if kind == "FSDP":
        return {STRATEGY: "ddp" if imported.read(SHARDING, _sharded) is False else "fsdp"}
    if kind.startswith("MULTI_"):
        return {STRATEGY: "ddp"} | ({"engine.device": "cpu"} if kind == "MULTI_CPU" else {})
    if kind not in ("NO", "MPS"):
        return {"MEGATRON_LM": table.MEGATRON, "XLA": table.TPU}.get(kind)
    # Several GPUs of one process are of DataParallel (Trainer._wrap_model): each gets a process of its own.
    gpus = imported.read("gpu_ids", gpu_list) or []
    if kind == "NO" and len(gpus) > 1 and not imported.read("use_cpu", yes_or_no):
        return {STRATEGY: "ddp", PROCESSES: len(gpus)}
    return {STRATEGY: "single"}


def _processes(imported: Imported, setting: Setting) -> Became:
    """Of all nodes together."""
    count, nodes = count_of(setting.value), imported.read("num_machines", count_of) or 1
    if setting.value in ("gpu", "auto", "-1"):
        return table.ALL_GPUS
    if count is None or count % nodes:
        raise WrongValue
    if imported.read("distributed_type", type_word) in ("NO", "MPS"):
        # NO takes the simple launcher, which starts one process whatever num_processes says.
        if PROCESSES in imported.values:
            return table.ALL_GPUS
        if count > 1:
            imported.say(setting, "contradiction.one_process", count=count)
            count = 1
    return {PROCESSES: count}


def _precision(imported: Imported, setting: Setting) -> Became:
    name = type_word(setting.value).lower()
    if name == "fp8":
        imported.say(setting, "not_offered.no_fp8")
    if name not in table.PRECISIONS:
        raise WrongValue
    return {"engine.precision": table.PRECISIONS[name]}


def _named_file(imported: Imported, setting: Setting) -> Became:
    if setting.name == "deepspeed_config" and imported.read("distributed_type", type_word) != "DEEPSPEED":
        return mark("distributed_type does not select DeepSpeed.")
    role = "accelerate" if setting.name == "config_file" else "deepspeed"
    imported.references.append(Setting(role, text_value(setting.value), setting.line))
    return table.NAMES_A_FILE if role == "accelerate" else table.IN_THAT_FILE


def _stage(_: Imported, setting: Setting) -> Became:
    """The stage of ZeRO, in either file."""
    if is_auto(setting.value):
        return mark("auto leaves the stage to the accelerate file.")
    stage = attempt(whole_number, setting.value)
    if stage is None or stage not in table.ZERO:
        raise WrongValue
    return {STRATEGY: table.ZERO[stage]}


def _offload(imported: Imported, setting: Setting) -> Became:
    """Offload of the optimizer or of the parameters, of which that of the parameters stands for both, in either file."""
    device = word(setting.value)
    in_accelerate = setting.name.startswith("deepspeed_config.")
    stage = imported.read(ZERO_STAGE if in_accelerate else "zero_optimization.stage", whole_number)
    stage = (DEFAULT_ZERO_STAGE if in_accelerate else 0) if stage is None else stage
    if device == "auto":
        return mark("auto leaves it to the accelerate file.")
    if device == "none":
        return mark("none keeps it on the GPU, which is the default.")
    if device == "nvme":
        return table.NVME
    if device != "cpu":
        raise WrongValue
    if "offload_param" in setting.name and stage != 3:
        return mark("Only ZeRO-3 can offload parameters to RAM.")
    if stage == 0:
        return mark("Stage 0 keeps everything on the GPU.")
    parameters = imported.read(setting.name.replace("offload_optimizer", "offload_param"), word)
    return {OFFLOAD: "all" if stage == 3 and parameters == "cpu" else "optimizer"}


def _sharded(value: Any) -> bool:
    """Everything, or nothing; raises WrongValue for what lies between."""
    name = str(value).strip().upper()
    if name not in (*table.SHARDS_NOTHING, "FULL_SHARD", "1", "TRUE"):
        raise WrongValue
    return name not in table.SHARDS_NOTHING


def _sharding(imported: Imported, setting: Setting) -> Became:
    shards = attempt(_sharded, setting.value)
    if shards is None:
        imported.say(setting, "not_offered.shards_less", name=setting.as_written().partition(".")[2])
        return mark("trainwiz shards parameters, gradients and optimizer states across all GPUs.")
    return {STRATEGY: "fsdp" if shards else "ddp"}


ZERO_FILE, ZERO_STAGE = "deepspeed_config.deepspeed_config_file", "deepspeed_config.zero_stage"
SHARDING = "fsdp_config.fsdp_reshard_after_forward"
ACCELERATE: Mapping[str, Rule | Place] = {
    **table.ACCELERATE,
    "distributed_type": _type,
    "num_processes": _processes,
    "num_machines": (NODES, only(whole_number, lambda count: count > 1, table.ONE_NODE)),
    "mixed_precision": _precision,
    "use_cpu": ("engine.device", if_on("cpu", mark("A run uses the GPU by default if one is available."))),
    "gpu_ids": (GPUS, only(gpu_list, bool, table.ALL_GPUS)),
    "config_file": _named_file,
    "deepspeed_config": _named_file,
    ZERO_FILE: _named_file,
    ZERO_STAGE: _stage,
    "deepspeed_config.offload_optimizer_device": _offload,
    "deepspeed_config.offload_param_device": _offload,
    SHARDING: _sharding,
    "dynamo_config.dynamo_backend": ("engine.compile", lambda backend: type_word(backend) != "NO"),
}
ACCELERATE_SECTIONS = frozenset(
    name.partition(".")[0] for name in ACCELERATE if "." in name or name.endswith("_config")
)


# The options of the launchers.


def place_launcher(imported: Imported, program: str, options: Sequence[Setting]) -> None:
    """The options as keys of an accelerate file, whatever the launcher; those of DeepSpeed's and torchrun's count per
    node. What they come to is weaker than what the script's own arguments say."""
    nodes = next((count_of(option.value) for option in options if option.name in table.NODES), 1) or 1
    settings = [_of_today(imported, _as_in_file(imported, option, nodes)) for option in options]
    imported.take(setting for setting in settings if setting.name)
    for setting in settings:
        _place_setting(imported, setting)
    values = imported.values
    if program == "torchrun" and not {"num_processes", ""} & {setting.name for setting in settings}:
        # torch.distributed.run: --nproc-per-node is 1 by default.
        values[PROCESSES] = nodes
    if program in ("deepspeed", "python", "framework") and GPUS in values:
        # Plain python feeds every GPU that it sees with DataParallel; as many processes of DDP see the same sequences.
        values.setdefault(PROCESSES, len(values[GPUS]))
    if PROCESSES in values and not {"distributed_type", "config_file"} & set(imported.settings):
        # _validate_launch_command: without a file, several processes are several GPUs.
        values.setdefault(STRATEGY, "ddp")
    imported.setup, imported.values = values, {}
    imported.settings.clear()


def _as_in_file(imported: Imported, option: Setting, nodes: int) -> Setting:
    name, count = option.name, count_of(option.value)
    if name in table.ENGINES:
        return option.called("distributed_type", table.ENGINES[name])
    if name in ("fp16", "bf16"):
        imported.rename(f"--{name}", f"--mixed_precision {name}", option.line)
        return option.called("mixed_precision", name)
    if name == "include":
        hosts = str(option.value).split("@")
        return option.called("gpu_ids" if len(hosts) == 1 else "", hosts[0].partition(":")[2])
    if name in table.PER_NODE:
        return option.called("num_processes", count * nodes if count else option.value)
    if name in table.NODES or name == "cpu":
        return option.called("num_machines" if name in table.NODES else "use_cpu")
    # "deepspeed_config.zero_stage": the key of the file that the option fills.
    section = re.match(r"(fsdp|dynamo|fp8|megatron_lm|parallelism)_", name)
    inside = f"{section[1]}_config" if section else "deepspeed_config"
    return replace(option, name=f"{inside}.{name}" if section or f"{inside}.{name}" in ACCELERATE else name)


# The JSON of DeepSpeed.

HALVES = ("fp16.enabled", "bf16.enabled", "bfloat16.enabled")
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def read_deepspeed(document: Document, file: str) -> Imported:
    """Every key of the file with its place."""
    imported = Imported("deepspeed", file)
    imported.take(document.flat(DEEPSPEED_SECTIONS.__contains__))
    for setting in imported.settings.values():
        imported.place(setting, _rule(imported, setting), table.AUTO)
    return imported


def _rule(imported: Imported, setting: Setting) -> Rule | Place | None:
    section, _, inside = setting.name.partition(".")
    if section == "zero_optimization" and inside.partition(".")[0] in IN_ZERO:
        # These are not taken for what they would be elsewhere.
        return mark("DeepSpeed rejects it inside zero_optimization.")
    if setting.name.startswith("scheduler.params.") and _schedule(imported) is None:
        return mark("It belongs to a scheduler that trainwiz does not have.")
    return DEEPSPEED.get(setting.name, DEEPSPEED.get(section))


def _schedule(imported: Imported) -> str | None:
    return table.DEEPSPEED_SCHEDULES.get(imported.read("scheduler.type", str) or "")


def _total(imported: Imported, setting: Setting) -> Became:
    """The sequences of a step; where no number of GPUs makes it true, DeepSpeed refuses the file."""
    total, micro, accumulation = (imported.read(name, whole_number) for name in BATCH)
    if total is not None and micro is not None and micro > 0 and total % (micro * max(1, accumulation or 1)):
        return mark("It contradicts micro-batch and gradient accumulation.")
    return {"batch.target_samples": whole_number(setting.value)}


def _half(imported: Imported, setting: Setting) -> Became:
    """fp16 or bf16. Where neither is on, and nothing may switch one on, DeepSpeed computes in fp32."""
    if sum(imported.read(name, yes_or_no) or False for name in HALVES) > 1:
        return mark("Both half-precision formats are enabled, which is not possible.")
    others = [imported.settings[name].value for name in (*HALVES, "amp.enabled") if name in imported.settings]
    if yes_or_no(setting.value):
        return {"engine.precision": setting.name.partition(".")[0].replace("bfloat", "bf")}
    if all(attempt(yes_or_no, value) is False for value in others):
        return {"engine.precision": "fp32"}
    return mark("Off leaves the choice to the other half-precision formats.")


def _optimizer(imported: Imported, setting: Setting) -> Became:
    kind = str(setting.value).strip().lower()
    taken = table.DEEPSPEED_OPTIMIZERS.get(kind)
    if taken is not None and not (kind == "adam" and imported.read("optimizer.params.adam_w_mode", yes_or_no) is False):
        return {"engine.optimizer": taken}
    imported.say(setting, "unsupported_optimizer", optimizer=shown(setting.value), known=table.KNOWN_OPTIMIZERS)
    return table.NOT_OFFERED


def _betas(_: Imported, setting: Setting) -> Became:
    if not isinstance(setting.value, list) or len(setting.value) != 2:
        raise WrongValue
    return {f"training.adam_beta{n}": decimal_number(beta) for n, beta in enumerate(setting.value, 1)}


def _scheduler(imported: Imported, setting: Setting) -> Became:
    schedule = _schedule(imported)
    if schedule is None:
        imported.say(setting, "unsupported_schedule", kind=shown(setting.value), known=table.KNOWN_SCHEDULES)
        return table.NOT_OFFERED
    return {"training.schedule": schedule}


def _rate(imported: Imported, setting: Setting) -> Became:
    """The scheduler sets the rate at every step, so what the optimizer says beside it has no effect."""
    rate = decimal_number(setting.value)
    if _schedule(imported) and imported.read("scheduler.params.warmup_max_lr", decimal_number) not in (None, rate):
        return mark("The scheduler sets the learning rate at every step.")
    return {"training.learning_rate": rate}


DEEPSPEED: Mapping[str, Rule | Place] = {
    **table.DEEPSPEED,
    "train_batch_size": _total,
    "zero_optimization.stage": _stage,
    "zero_optimization.offload_optimizer.device": _offload,
    "zero_optimization.offload_param.device": _offload,
    **dict.fromkeys(HALVES, _half),
    "optimizer.type": _optimizer,
    "optimizer.params.betas": _betas,
    "optimizer.params.lr": _rate,
    "scheduler.type": _scheduler,
}
DEEPSPEED_SECTIONS = frozenset(
    {name.rpartition(".")[0] for name in DEEPSPEED if "." in name}
    | {"optimizer", "scheduler", "zero_optimization", *(f"zero_optimization.{name}" for name in IN_ZERO)}
    | {name for name, rule in DEEPSPEED.items() if isinstance(rule, str) and "." not in name}
)
"""Keys whose keys are settings."""
