"""The file of `accelerate config`, of every version, the JSON of DeepSpeed, and what a setup decides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainwiz.core.config.values import Strategy
from trainwiz.core.export.deepspeed import MISPLACED as IN_ZERO
from trainwiz.core.importing import names as table
from trainwiz.core.importing.names import UNSET, Rule
from trainwiz.core.importing.report import SENTENCES, Became, Document, Imported, Place, Reference, Setting, refusal
from trainwiz.core.importing.values import (
    Unresolved,
    WrongValue,
    attempt,
    count_of,
    decimal_number,
    gpu_list,
    is_auto,
    shown,
    text_value,
    whole_number,
    word,
    yes_or_no,
)
from trainwiz.core.language import mark, tr

DEFAULT_ZERO_STAGE = 2
"""DeepSpeedPlugin.zero_stage (accelerate/utils/dataclasses.py)."""

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
    if kind == "DEEPSPEED":
        # Which stage a file has, the file says.
        stage = None if setup.get("deepspeed_config_file") else setup.get("zero_stage", DEFAULT_ZERO_STAGE)
        return table.ZERO.get(stage) if type(stage) is int else None
    if kind == "FSDP":
        return "ddp" if str(setup.get("fsdp_sharding_strategy")).upper() in table.SHARDS_NOTHING else "fsdp"
    if kind.startswith("MULTI_"):
        return "single" if processes == 1 else "ddp"
    # Several processes under NO are the GPUs of one DataParallel process: each gets one of its own.
    return ("single" if (processes or 1) == 1 else "ddp") if kind in ("NO", "MPS") else None


def say_data_parallel(merged: Imported) -> None:
    """A training that plain python starts on several GPUs, or may.

    Source: Trainer._wrap_model and TrainingArguments.train_batch_size (transformers 5.23): with more than one visible GPU
    and no process group, the model is wrapped in torch.nn.DataParallel, and the batch of the one process is
    per_device_train_batch_size x GPUs.
    """
    setup, values = merged.setup, merged.values
    one = len(gpu_list(setup.get("gpu_ids"))) == 1 or values.get("engine.device") in ("cpu", "mps")
    if setup.get("launcher") != "python" or one:
        return
    window = (values.get("batch.micro_batch_size") or 0) * (values.get("batch.gradient_accumulation_steps") or 1)
    said = tr(SENTENCES[f"data_parallel.wraps{'_batch' if window else ''}"], window=window, four=window * 4)
    merged.say(None, "data_parallel.each_its_own", said=said)


# The file of accelerate.


def type_word(value: Any) -> str:
    """A distributed_type as accelerate writes it. NO without quotes is `false` for YAML; TPU is what XLA was called."""
    name = "NO" if value in (False, None) else str(value).rpartition(".")[2].strip().upper()
    return "XLA" if name == "TPU" else name


def read_accelerate(document: Document, file: str) -> Imported:
    """Raises NotImportable for what is not of accelerate, is incomplete, or is of SageMaker."""
    values, kind = document.values, document.values.get("distributed_type", ...)
    if str(values.get("compute_environment")).upper() == "AMAZON_SAGEMAKER" or "ec2_instance_type" in values:
        raise refusal("not_importable.sagemaker", file)
    if kind is ...:
        raise refusal("not_importable.only_a_part", file)
    if type_word(kind) not in table.KNOWN_TYPES and not type_word(kind).startswith("MULTI_"):
        raise refusal("not_importable.no_such_type", file, document.lines.get("distributed_type"), value=shown(kind))
    imported = Imported("accelerate", file)
    imported.take(_of_today(imported, setting) for setting in document.flat(ACCELERATE_SECTIONS.__contains__))
    imported.setup |= {"launcher": "accelerate", **_setup_of(imported)}
    for setting in imported.settings.values():
        _place_setting(imported, setting)
    return imported


def _of_today(imported: Imported, setting: Setting) -> Setting:
    today = imported.of_today(setting, table.ACCELERATE_RENAMED)
    if setting.name == "fp16":
        return today.called(today.name, "fp16" if attempt(yes_or_no, setting.value) else "no")
    return today


def _setup_of(imported: Imported) -> dict[str, Any]:
    """What the file, or the options that fill it, say of a setup, with today's names and spelling."""
    given = {name: one.value for name, one in imported.settings.items() if not isinstance(one.value, Unresolved)}
    kind = type_word(given["distributed_type"]) if "distributed_type" in given else None
    stage = given.get("deepspeed_config.zero_stage")
    number = attempt(whole_number, stage)
    named = given.get("deepspeed_config.deepspeed_config_file", given.get("deepspeed_config"))
    gpus = gpu_list(given.get("gpu_ids"))
    found = {
        "distributed_type": kind,
        "mixed_precision": type_word(given["mixed_precision"]).lower() if "mixed_precision" in given else None,
        "num_processes": count_of(given.get("num_processes")),
        "num_machines": count_of(given.get("num_machines")),
        "use_cpu": attempt(yes_or_no, given.get("use_cpu")) or kind == "MULTI_CPU" or None,
        "gpu_ids": ",".join(gpus) or None,
        # What is not a number is kept as written; it selects no stage.
        "zero_stage": stage if number is None else number,
        "fsdp_sharding_strategy": given.get("fsdp_config.fsdp_reshard_after_forward"),
        "deepspeed_config_file": named or None if kind == "DEEPSPEED" and isinstance(named, str) else None,
    }
    setup: dict[str, Any] = {name: value for name, value in found.items() if value is not None}
    if kind == "NO" and len(gpus) > 1 and "use_cpu" not in setup:
        # One process on several GPUs, for which the Trainer takes DataParallel (Trainer._wrap_model).
        imported.say(imported.settings["gpu_ids"], "data_parallel", count=len(gpus))
        setup["num_processes"] = len(gpus)
    elif kind in ("NO", "MPS") and setup.get("num_processes", 1) != 1:
        # NO takes the simple launcher, which starts one process whatever num_processes says.
        imported.say(imported.settings["num_processes"], "contradiction.one_process", count=setup["num_processes"])
        setup["num_processes"] = 1
    return setup


def _key_of_option(name: str) -> str:
    """The key of the file that an option of `accelerate launch` fills: "deepspeed_config.zero_stage"."""
    if name == "cpu":
        return "use_cpu"
    if f"deepspeed_config.{name}" in ACCELERATE:
        return f"deepspeed_config.{name}"
    section = re.match(r"(fsdp|dynamo|fp8|megatron_lm|parallelism)_", name)
    return name if section is None else f"{section[1]}_config.{name}"


def _place_setting(imported: Imported, setting: Setting) -> None:
    """One key of the file, or the option of a launcher that means the same."""
    section, _, key = setting.name.partition(".")
    kind = imported.setup.get("distributed_type")
    rule: Rule | Place | None = ACCELERATE.get(setting.name, table.ACCELERATE.get(section))
    if key and imported.kind == "accelerate" and table.SECTION_OF_TYPE.get(section, kind) != kind:
        rule = tr("distributed_type is {kind}, so accelerate does not read this section.", kind=kind)
    elif "deepspeed_config.deepspeed_config_file" in imported.settings and key in table.NOT_BESIDE_FILE:
        rule = mark("deepspeed_config_file is set too, and its values are used.")
    imported.place(setting, rule, table.LEFT_TO_TRAINER)


def _setup(imported: Imported, setting: Setting) -> Became:
    """A key of the setup: what all of them together decide."""
    name, value, decided = setting.name, setting.value, engine_values(imported.setup)
    key, kind = table.SETUP_KEYS[name], type_word(value) if name == "distributed_type" else ""
    if name == "use_cpu" and not yes_or_no(value):
        return mark("A run uses the GPU by default if one is available.")
    if key in decided:
        if name == "mixed_precision" and type_word(value).lower() == "fp8":
            imported.say(setting, "not_offered.no_fp8")
        return {key: decided[key]}
    if kind:
        in_file = mark("deepspeed_config_file sets the ZeRO stage.")
        return {"DEEPSPEED": in_file, "MEGATRON_LM": table.MEGATRON, "XLA": table.TPU}.get(kind)
    if name == "gpu_ids" or value in ("gpu", "auto", "-1"):
        return table.ALL_GPUS
    if name == "num_machines" and count_of(value) == 1:
        return table.ONE_NODE
    if value is None:
        return UNSET
    raise WrongValue


def _named_file(imported: Imported, setting: Setting) -> Became:
    if setting.name == "config_file":
        imported.references.append(Reference("accelerate", text_value(setting.value), setting.line))
        return table.NAMES_A_FILE
    if imported.setup.get("distributed_type") != "DEEPSPEED" and setting.name == "deepspeed_config":
        return mark("distributed_type does not select DeepSpeed.")
    imported.references.append(Reference("deepspeed", text_value(setting.value), setting.line))
    return table.IN_THAT_FILE


def _stage(_: Imported, setting: Setting) -> Became:
    """The stage of ZeRO, in either file."""
    if is_auto(setting.value):
        return mark("auto leaves the stage to the accelerate file.")
    stage = attempt(whole_number, setting.value)
    if stage is None or stage not in table.ZERO:
        raise WrongValue
    return {"engine.strategy": table.ZERO[stage]}


def _offload(imported: Imported, setting: Setting) -> Became:
    """Offload of the optimizer or of the parameters, of which that of the parameters stands for both, in either file."""
    device, is_param = word(setting.value), "offload_param" in setting.name
    in_accelerate = setting.name.startswith("deepspeed_config.")
    stage = imported.read(f"{'deepspeed_config.zero_' if in_accelerate else 'zero_optimization.'}stage", whole_number)
    stage = (DEFAULT_ZERO_STAGE if in_accelerate else 0) if stage is None else stage
    if device == "auto":
        return mark("auto leaves it to the accelerate file.")
    if device == "none":
        return mark("none keeps it on the GPU, which is the default.")
    if device == "nvme":
        return table.NVME
    if device != "cpu":
        raise WrongValue
    if is_param and stage != 3:
        return mark("Only ZeRO-3 can offload parameters to RAM.")
    if stage == 0:
        return mark("Stage 0 keeps everything on the GPU.")
    parameters = imported.read(setting.name.replace("offload_optimizer", "offload_param"), word)
    return {"engine.offload": "all" if stage == 3 and parameters == "cpu" else "optimizer"}


def _sharding(imported: Imported, setting: Setting) -> Became:
    if str(setting.value).strip().upper() not in (*table.SHARDS_NOTHING, "FULL_SHARD", "1", "TRUE"):
        imported.say(setting, "not_offered.shards_less", name=setting.as_written().partition(".")[2])
        return mark("trainwiz shards parameters, gradients and optimizer states across all GPUs.")
    return {"engine.strategy": engine_values(imported.setup).get("engine.strategy")}


def _compile(_: Imported, setting: Setting) -> Became:
    """A backend of torch.compile; "no" is none."""
    backend = str(setting.value).rpartition(".")[2].strip().lower()
    return {"engine.compile": setting.value is not False and backend != "no"}


ACCELERATE: Mapping[str, Rule | Place] = {
    **table.ACCELERATE,
    **dict.fromkeys(table.SETUP_KEYS, _setup),
    "config_file": _named_file,
    "deepspeed_config": _named_file,
    "deepspeed_config.deepspeed_config_file": _named_file,
    "deepspeed_config.zero_stage": _stage,
    "deepspeed_config.offload_optimizer_device": _offload,
    "deepspeed_config.offload_param_device": _offload,
    "fsdp_config.fsdp_reshard_after_forward": _sharding,
    "dynamo_config.dynamo_backend": _compile,
}
ACCELERATE_SECTIONS = frozenset(
    name.partition(".")[0] for name in ACCELERATE if "." in name or name.endswith("_config")
)


# The options of the launchers.


def place_launcher(imported: Imported, program: str, options: Sequence[Setting]) -> None:
    """The options as keys of an accelerate file, whatever the launcher; those of DeepSpeed's and torchrun's count per node."""
    nodes = next((count_of(option.value) for option in options if option.name in table.NODES), 1) or 1
    settings = [_of_today(imported, _as_in_file(imported, option, nodes)) for option in options]
    imported.take(setting for setting in settings if setting.name)
    imported.setup |= _setup_of(imported)
    if program == "torchrun" and not {"num_processes", ""} & {setting.name for setting in settings}:
        # torch.distributed.run: --nproc-per-node is 1 by default.
        imported.setup["num_processes"] = nodes
    if program == "deepspeed" and imported.setup.get("gpu_ids"):
        imported.setup["num_processes"] = len(gpu_list(imported.setup["gpu_ids"]))
    processes = imported.setup.get("num_processes")
    if processes is not None and not {"distributed_type", "config_file"} & set(imported.settings):
        # _validate_launch_command: without a file, several processes are several GPUs.
        imported.setup["distributed_type"] = "MULTI_GPU" if processes > 1 else "NO"
    for setting in settings:
        _place_setting(imported, setting)
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
    return option.called("num_machines") if name in table.NODES else replace(option, name=_key_of_option(name))


# The JSON of DeepSpeed.

HALVES = ("fp16.enabled", "bf16.enabled")
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
PEAK = "scheduler.params.warmup_max_lr"


def read_deepspeed(document: Document, file: str) -> Imported:
    """Every key of the file with its place."""
    imported = Imported("deepspeed", file)
    imported.take(_todays(imported, setting) for setting in document.flat(DEEPSPEED_SECTIONS.__contains__))
    for setting in imported.settings.values():
        imported.place(setting, _rule(imported, setting), table.AUTO)
    return imported


def _todays(imported: Imported, setting: Setting) -> Setting:
    """Under the name of today; what was yes or no is a device."""
    today = imported.of_today(setting, table.DEEPSPEED_RENAMED)
    if today is not setting and today.name.endswith(".device"):
        return today.called(today.name, "cpu" if attempt(yes_or_no, setting.value) else "none")
    return today


def _rule(imported: Imported, setting: Setting) -> Rule | Place | None:
    name, section = setting.name, setting.name.partition(".")[0]
    if name.startswith(MISPLACED):
        # DeepSpeed refuses these here: they are not taken for what they would be elsewhere.
        where = name.partition(".")[2]
        if where.removesuffix(".enabled") in IN_ZERO:
            imported.say(setting, "misplaced.misplaced_here", name=where.removesuffix(".enabled"), where=where)
        return mark("DeepSpeed rejects it inside zero_optimization.")
    if name.startswith("scheduler.params.") and _schedule(imported) is None:
        return mark("It belongs to a scheduler that trainwiz does not have.")
    return DEEPSPEED.get(name, DEEPSPEED.get(section))


def _schedule(imported: Imported) -> str | None:
    kind = imported.settings.get("scheduler.type")
    return None if kind is None else table.DEEPSPEED_SCHEDULES.get(str(kind.value))


def _total(imported: Imported, setting: Setting) -> Became:
    """The sequences of a step; where no number of GPUs makes it true, DeepSpeed refuses the file."""
    total, micro, accumulation = (imported.read(name, whole_number) for name in BATCH)
    if total is not None and micro is not None and micro > 0 and total % (micro * max(1, accumulation or 1)):
        return mark("It contradicts micro-batch and gradient accumulation.")
    return {"batch.target_samples": whole_number(setting.value)}


def _half(imported: Imported, setting: Setting) -> Became:
    """fp16 or bf16. Where neither is on, and nothing may switch one on, DeepSpeed computes in fp32."""
    if all(imported.read(name, yes_or_no) for name in HALVES):
        return mark("Both half-precision formats are enabled, which is not possible.")
    others = [imported.settings[name].value for name in (*HALVES, "amp.enabled") if name in imported.settings]
    if yes_or_no(setting.value):
        return {"engine.precision": setting.name.partition(".")[0]}
    if all(attempt(yes_or_no, value) is False for value in others):
        return {"engine.precision": "fp32"}
    return mark("Off leaves the choice to the other half-precision formats.")


def _optimizer(imported: Imported, setting: Setting) -> Became:
    kind = str(setting.value).strip().lower()
    taken = table.DEEPSPEED_OPTIMIZERS.get(kind)
    if taken is not None and not (kind == "adam" and imported.read("optimizer.params.adam_w_mode", yes_or_no) is False):
        return {"engine.optimizer": taken}
    imported.say(setting, "not_offered.no_optimizer", name=shown(setting.value))
    return table.NOT_OFFERED


def _betas(_: Imported, setting: Setting) -> Became:
    if not isinstance(setting.value, list) or len(setting.value) != 2:
        raise WrongValue
    first, second = map(decimal_number, setting.value)
    return {"training.adam_beta1": first, "training.adam_beta2": second}


def _scheduler(imported: Imported, setting: Setting) -> Became:
    schedule = _schedule(imported)
    if schedule is None:
        imported.say(setting, "not_offered.no_scheduler", name=shown(setting.value))
        return table.NOT_OFFERED
    linear = str(imported.read("scheduler.params.warmup_type", str) or "log").lower() == "linear"
    if not linear and imported.read("scheduler.params.warmup_num_steps", whole_number) not in (0, 1):
        imported.say(setting, "not_offered.logarithm", "note")
    return {"training.schedule": schedule}


def _rate(imported: Imported, setting: Setting) -> Became:
    """The scheduler sets the rate at every step, so what the optimizer says beside it has no effect."""
    rate = decimal_number(setting.value)
    if _schedule(imported) is not None and imported.read(PEAK, decimal_number) not in (None, rate):
        return mark("The scheduler sets the learning rate at every step.")
    return {"training.learning_rate": rate}


def _final_ratio(imported: Imported, setting: Setting) -> Became:
    peak = imported.values.get("training.learning_rate")
    if peak is None:
        return table.AUTO
    return {"training.final_learning_rate": float(f"{peak * decimal_number(setting.value):.6g}")}


DEEPSPEED: Mapping[str, Rule | Place] = {
    **table.DEEPSPEED,
    "train_batch_size": _total,
    "zero_optimization.stage": _stage,
    "zero_optimization.offload_optimizer.device": _offload,
    "zero_optimization.offload_param.device": _offload,
    "fp16.enabled": _half,
    "bf16.enabled": _half,
    "optimizer.type": _optimizer,
    "optimizer.params.betas": _betas,
    "optimizer.params.lr": _rate,
    "scheduler.type": _scheduler,
    "scheduler.params.cos_min_ratio": _final_ratio,
}
MISPLACED = tuple(f"zero_optimization.{name}" for name in sorted(IN_ZERO))
DEEPSPEED_SECTIONS = frozenset(
    {name.rpartition(".")[0] for name in (*DEEPSPEED, *table.DEEPSPEED_RENAMED) if "." in name}
    | {"optimizer", "scheduler", "zero_optimization", *MISPLACED}
    | {name for name, rule in DEEPSPEED.items() if isinstance(rule, str) and "." not in name}
)
"""Keys whose keys are settings."""
