"""The file of `accelerate config`, of every version, the JSON of DeepSpeed, and what a setup decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.config.values import Strategy
from trainwiz.core.export.deepspeed_check import MISPLACED as IN_ZERO
from trainwiz.core.importing import engine_names as table
from trainwiz.core.importing.names import UNSET, Rule
from trainwiz.core.importing.report import Became, Document, Imported, Place, Setting, refusal
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


# The file of accelerate.


def type_word(value: Any) -> str:
    """A distributed_type as accelerate writes it. NO without quotes is `false` for YAML; TPU is what XLA was called."""
    word = "NO" if value in (False, None) else str(value).rpartition(".")[2].strip().upper()
    return {"TPU": "XLA"}.get(word, word)


def _precision_word(value: Any) -> str:
    return "no" if value in (False, None) else str(value).strip().lower()


def read_accelerate(document: Document, file: str) -> Imported:
    """Raises NotImportable for what is not of accelerate, is incomplete, or is of SageMaker."""
    values, kind = document.values, document.values.get("distributed_type", ...)
    if str(values.get("compute_environment")).upper() == "AMAZON_SAGEMAKER" or "ec2_instance_type" in values:
        raise refusal("not_importable.sagemaker", file)
    if kind is ...:
        raise refusal("not_importable.only_a_part", file)
    if type_word(kind) not in table.KNOWN_TYPES and not type_word(kind).startswith("MULTI_"):
        raise refusal("not_importable.no_such_type", file, document.lines.get("distributed_type"), value=shown(kind))
    imported = document.opened("accelerate", file)
    imported.take(of_today(imported, setting) for setting in document.flat(ACCELERATE_SECTIONS.__contains__))
    imported.setup |= {"launcher": "accelerate", **setup_of(imported)}
    for setting in imported.settings.values():
        place_setting(imported, setting)
    setup, settings = imported.setup, imported.settings
    processes, nodes = setup.get("num_processes"), setup.get("num_machines", 1)
    if processes is not None and processes % nodes:
        imported.say(settings["num_processes"], "contradiction.unequal", processes=processes, nodes=nodes)
    return imported


def of_today(imported: Imported, setting: Setting) -> Setting:
    """A key of the file under its name of today."""
    new = table.ACCELERATE_RENAMED.get(setting.name)
    if new is None:
        return setting
    imported.rename(setting.as_written(), new, setting.line)
    if setting.name == "fp16":
        return setting.called(new, "fp16" if attempt(yes_or_no, setting.value) else "no")
    return setting.called(new)


def setup_of(imported: Imported) -> dict[str, Any]:
    """What the file, or the options that fill it, say of a setup, with today's names and spelling."""
    given = {name: one.value for name, one in imported.settings.items() if not isinstance(one.value, Unresolved)}
    kind = type_word(given["distributed_type"]) if "distributed_type" in given else None
    stage = given.get("deepspeed_config.zero_stage")
    number = attempt(whole_number, stage)
    named = given.get("deepspeed_config.deepspeed_config_file", given.get("deepspeed_config"))
    gpus = gpu_list(given.get("gpu_ids"))
    found = {
        "distributed_type": kind,
        "mixed_precision": _precision_word(given["mixed_precision"]) if "mixed_precision" in given else None,
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


def key_of_option(name: str) -> str:
    """The key of the file that an option of `accelerate launch` fills: "deepspeed_config.zero_stage"."""
    if name == "cpu":
        return "use_cpu"
    if f"deepspeed_config.{name}" in (*table.ACCELERATE, *ACCELERATE):
        return f"deepspeed_config.{name}"
    prefix = next(
        (one for one in ("fsdp", "dynamo", "fp8", "megatron_lm", "parallelism") if name.startswith(f"{one}_")), ""
    )
    return f"{prefix}_config.{name}" if prefix else name


def place_setting(imported: Imported, setting: Setting) -> None:
    """One key of the file, or the option of a launcher that means the same."""
    if isinstance(setting.value, Unresolved) and table.ACCELERATE.get(setting.name) != table.RENDEZVOUS:
        imported.leave_unknown(setting)
        return
    section, _, key = setting.name.partition(".")
    kind = imported.setup.get("distributed_type")
    if key and imported.kind == "accelerate" and table.SECTION_OF_TYPE.get(section, kind) != kind:
        imported.drop(setting, tr("distributed_type is {kind}, so accelerate does not read this section.", kind=kind))
        return
    rule: Rule | Place | None = table.ACCELERATE.get(
        setting.name, ACCELERATE.get(setting.name, table.ACCELERATE.get(section))
    )
    if setting.name in table.SETUP_KEYS:
        try:
            imported.become(setting, _place_setup(imported, setting))
        except WrongValue:
            imported.wrong(setting)
        return
    if "deepspeed_config.deepspeed_config_file" in imported.settings and setting.name in table.NOT_BESIDE_FILE:
        rule = mark("deepspeed_config_file is set too, and its values are used.")
    imported.place(setting, rule, table.LEFT_TO_TRAINER)


def _place_setup(imported: Imported, setting: Setting) -> Became:
    """A key of the setup: what all of them together decide."""
    name, value, decided = setting.name, setting.value, engine_values(imported.setup)
    key, kind = table.SETUP_KEYS[name], type_word(value) if name == "distributed_type" else ""
    if name == "use_cpu" and not attempt(yes_or_no, value):
        return mark("A run uses the GPU by default if one is available.")
    if key in decided:
        if name == "mixed_precision" and _precision_word(value) == "fp8":
            imported.say(setting, "not_offered.no_fp8")
        return {key: decided[key]}
    if kind == "MEGATRON_LM":
        imported.say(setting, "not_offered.no_megatron")
        return table.MEGATRON
    if kind:
        if "deepspeed_config_file" in imported.setup:
            return mark("deepspeed_config_file sets the ZeRO stage.")
        return table.TPU if kind == "XLA" else None
    if name == "gpu_ids" or (name == "num_processes" and value in ("gpu", "auto", "-1")):
        return table.ALL_GPUS
    if name == "num_machines" and count_of(value) == 1:
        return table.ONE_NODE
    if value is None:
        return UNSET
    raise WrongValue


def _named_file(imported: Imported, setting: Setting) -> Became:
    if imported.setup.get("distributed_type") != "DEEPSPEED" and setting.name == "deepspeed_config":
        return mark("distributed_type does not select DeepSpeed.")
    imported.refer("deepspeed", text_value(setting.value), setting.line)
    return table.IN_THAT_FILE


def _stage(imported: Imported, setting: Setting) -> Became:
    """The stage of ZeRO, in either file."""
    if is_auto(setting.value):
        return mark("auto leaves the stage to the accelerate file.")
    stage = attempt(whole_number, setting.value)
    if stage is None or stage not in table.ZERO:
        imported.say(setting, "bad_value.no_such_stage")
        return None
    return {"engine.strategy": table.ZERO[stage]}


def _offload(imported: Imported, setting: Setting) -> Became:
    """Offload of the optimizer or of the parameters, of which that of the parameters stands for both, in either file."""
    device, is_param = str(setting.value).strip().lower(), "offload_param" in setting.name
    in_accelerate = setting.name.startswith("deepspeed_config.")
    stage = imported.read(f"{'deepspeed_config.zero_' if in_accelerate else 'zero_optimization.'}stage", whole_number)
    stage = (DEFAULT_ZERO_STAGE if in_accelerate else 0) if stage is None else stage
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
        return mark("Stage 0 keeps everything on the GPU.")
    both = "all" if is_param or imported.values.get("engine.offload") == "all" else "optimizer"
    imported.set_all("engine.offload", both)
    return {"engine.offload": both}


def _sharding(imported: Imported, setting: Setting) -> Became:
    word = str(setting.value).strip().upper()
    if word not in (*table.SHARDS_NOTHING, "FULL_SHARD", "1", "TRUE"):
        imported.say(setting, "not_offered.shards_less", name=setting.as_written().partition(".")[2])
        return mark("trainwiz shards parameters, gradients and optimizer states across all GPUs.")
    return {"engine.strategy": engine_values(imported.setup).get("engine.strategy")}


def _compile(_: Imported, setting: Setting) -> Became:
    """A backend of torch.compile; "no" is none."""
    backend = str(setting.value).rpartition(".")[2].strip().lower()
    return {"engine.compile": setting.value is not False and backend != "no"}


ACCELERATE: Mapping[str, Place] = {
    "deepspeed_config": _named_file,
    "deepspeed_config.deepspeed_config_file": _named_file,
    "deepspeed_config.zero_stage": _stage,
    "deepspeed_config.offload_optimizer_device": _offload,
    "deepspeed_config.offload_param_device": _offload,
    "fsdp_config.fsdp_reshard_after_forward": _sharding,
    "dynamo_config.dynamo_backend": _compile,
}
ACCELERATE_SECTIONS = frozenset(
    [*(name.partition(".")[0] for name in table.ACCELERATE if "." in name)]
    + [name for name in table.ACCELERATE if name.endswith("_config")]
)


# The JSON of DeepSpeed.

HALVES = ("fp16.enabled", "bf16.enabled")
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def read_deepspeed(document: Document, file: str) -> Imported:
    """Every key of the file with its place."""
    imported = document.opened("deepspeed", file)
    imported.take(_todays(imported, setting) for setting in document.flat(DEEPSPEED_SECTIONS.__contains__))
    for setting in imported.settings.values():
        imported.place(setting, _rule(imported, setting), table.AUTO)
    if "zero_optimization.stage" not in imported.settings and "zero_optimization" in document.values:
        imported.say(document.lines.get("zero_optimization"), "missing_setting")
    total, micro, accumulation = (imported.read(name, whole_number) for name in BATCH)
    accumulation = max(1, accumulation or 1)
    if total is not None and micro is not None and micro > 0 and total % (micro * accumulation):
        figures = {"total": total, "micro": micro, "accumulation": accumulation}
        imported.say(imported.settings[BATCH[0]], "contradiction.no_multiple", **figures)
        imported.take_back("batch.target_samples", mark("It contradicts micro-batch and gradient accumulation."))
    if all(imported.read(name, yes_or_no) for name in HALVES):
        first, second = (imported.settings[name].as_written().partition(".")[0] for name in HALVES)
        imported.say(imported.settings[HALVES[1]], "contradiction.both_halves", first=first, second=second)
        imported.take_back("engine.precision", mark("Both half-precision formats are enabled, which is not possible."))
    return imported


def _todays(imported: Imported, setting: Setting) -> Setting:
    """Under the name of today; what was yes or no is a device."""
    new = table.DEEPSPEED_RENAMED.get(setting.name)
    if setting.name == "zero_optimization" and isinstance(setting.value, bool):
        # The whole section until DeepSpeed 0.2.
        new, setting = "zero_optimization.stage", replace(setting, value=int(setting.value), given=setting.value)
    if new is None:
        return setting
    imported.rename(setting.name, new, setting.line)
    if not new.endswith(".device"):
        return setting.called(new)
    return setting.called(new, "cpu" if attempt(yes_or_no, setting.value) else "none")


def _rule(imported: Imported, setting: Setting) -> Rule | Place | None:
    name, section = setting.name, setting.name.partition(".")[0]
    if name.startswith(MISPLACED):
        # DeepSpeed refuses these here: they are not taken for what they would be elsewhere.
        _, key, *rest = name.split(".")
        if not rest or rest == ["enabled"]:
            imported.say(setting, "misplaced.misplaced_here", name=key, where=".".join([key, *rest]))
        return mark("DeepSpeed rejects it inside zero_optimization.")
    if name.startswith("scheduler.params.") and _schedule(imported) is None:
        return mark("It belongs to a scheduler that trainwiz does not have.")
    return DEEPSPEED.get(name, table.DEEPSPEED.get(name, table.DEEPSPEED.get(section)))


def _schedule(imported: Imported) -> str | None:
    kind = imported.settings.get("scheduler.type")
    return None if kind is None else table.DEEPSPEED_SCHEDULES.get(str(kind.value))


def _half(imported: Imported, setting: Setting) -> Became:
    """fp16 or bf16. Where neither is on, and nothing may switch one on, DeepSpeed computes in fp32."""
    others = [imported.settings[name].value for name in (*HALVES, "amp.enabled") if name in imported.settings]
    if yes_or_no(setting.value):
        return {"engine.precision": setting.name.partition(".")[0]}
    if all(attempt(yes_or_no, value) is False for value in others):
        return {"engine.precision": "fp32"}
    return mark("Off leaves the choice to the other half-precision formats.")


def _optimizer(imported: Imported, setting: Setting) -> Became:
    word = str(setting.value).strip().lower()
    taken = table.DEEPSPEED_OPTIMIZERS.get(word)
    if taken is not None and not (word == "adam" and imported.read("optimizer.params.adam_w_mode", yes_or_no) is False):
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


def _peak(imported: Imported, setting: Setting) -> Became:
    """The scheduler sets the rate at every step, so what the optimizer says beside it has no effect."""
    peak, other = decimal_number(setting.value), imported.values.get("training.learning_rate")
    if other is not None and peak != other:
        imported.say(setting, "contradiction.scheduler_wins", other=f"{other:g}", peak=f"{peak:g}")
        why = mark("The scheduler sets the learning rate at every step.")
        imported.take_back("training.learning_rate", why)
    return {"training.learning_rate": peak}


def _final_ratio(imported: Imported, setting: Setting) -> Became:
    peak = imported.values.get("training.learning_rate")
    if peak is None:
        return table.AUTO
    return {"training.final_learning_rate": float(f"{peak * decimal_number(setting.value):.6g}")}


DEEPSPEED: Mapping[str, Place] = {
    "zero_optimization.stage": _stage,
    "zero_optimization.offload_optimizer.device": _offload,
    "zero_optimization.offload_param.device": _offload,
    "fp16.enabled": _half,
    "bf16.enabled": _half,
    "optimizer.type": _optimizer,
    "optimizer.params.betas": _betas,
    "scheduler.type": _scheduler,
    "scheduler.params.warmup_max_lr": _peak,
    "scheduler.params.cos_min_ratio": _final_ratio,
}
MISPLACED = tuple(f"zero_optimization.{name}" for name in sorted(IN_ZERO))
DEEPSPEED_SECTIONS = frozenset(
    {name.rpartition(".")[0] for name in (*table.DEEPSPEED, *DEEPSPEED, *table.DEEPSPEED_RENAMED) if "." in name}
    | {"optimizer", "scheduler", "zero_optimization", *MISPLACED}
    | {name for name, rule in table.DEEPSPEED.items() if isinstance(rule, str) and "." not in name}
)
"""Keys whose keys are settings."""
