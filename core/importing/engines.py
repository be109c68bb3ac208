"""The file of `accelerate config`, the options of the launchers that mean the same, and the JSON of DeepSpeed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainwiz.core.config.yaml_text import YamlDocument
from trainwiz.core.importing.names import HANDLED, IN_THAT_FILE, NAMES_A_FILE, ONLY_ENABLES, PRECISION
from trainwiz.core.importing.report import (
    OFF,
    Became,
    Imported,
    Rule,
    Setting,
    WrongValue,
    for_each,
    places,
    positive,
    refusal,
    to,
    word,
)
from trainwiz.core.language import mark, tr

STRATEGY, OFFLOAD, GPUS = "engine.strategy", "engine.offload", "engine.gpus"
PROCESSES, NODES = "engine.processes", "engine.nodes"

RENDEZVOUS = mark("How the nodes find each other is set in the command of each node, not in the settings.")
TPU = mark("It is for TPUs, which trainwiz does not support.")
ALL_GPUS = mark("A run uses all GPUs by default.")
NOT_OFFERED = mark("trainwiz sets its own value or has no equivalent. To use this file unchanged: --deepspeed FILE.")
NO_EQUIVALENT = mark("trainwiz has no equivalent.")


def settings_of(
    values: Mapping[Any, Any], lines: Mapping[str, int], is_section: Callable[[str], bool], above: str = ""
) -> Iterator[Setting]:
    """All settings, those of sections with the section's name in front: "zero_optimization.stage"."""
    for key, value in values.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and is_section(name):
            yield from settings_of(value, lines, is_section, f"{name}.")
        else:
            yield Setting(name, value, lines.get(name))


def rule_in(rules: Mapping[str, Rule], name: str) -> Rule | None:
    """Of the setting, else the reason of its section."""
    of_section = rules.get(name.partition(".")[0])
    return rules.get(name, of_section if isinstance(of_section, str) else None)


# The file of accelerate (ClusterConfig of 0.5 to 1.15), with the keys of its sections behind a dot.

KINDS: Mapping[str, Became] = {
    "fsdp": {STRATEGY: "fsdp"}, "multi_cpu": {STRATEGY: "ddp", "engine.device": "cpu"},
    **dict.fromkeys(("megatron_lm", "xla", "tpu"), NO_EQUIVALENT),
}  # fmt: skip
TYPES = {"no", "none", "", "mps", "deepspeed", *KINDS}
"""distributed_type, besides MULTI_GPU, MULTI_CPU and the like: one whole model for each process."""
SECTION_OF_TYPE: Mapping[str, str] = {"deepspeed_config": "deepspeed", "fsdp_config": "fsdp"}
"""Sections that are read with one distributed_type only."""
ZERO_FILE, ZERO_STAGE = "deepspeed_config.deepspeed_config_file", "deepspeed_config.zero_stage"


def read_accelerate(document: YamlDocument, file: str) -> Imported:
    """Raises NotImportable for what is incomplete, or of a kind that accelerate does not have."""
    # NO without quotes is `false` for YAML.
    kind = word(document.values.get("distributed_type", "missing"))
    if kind not in TYPES and not kind.startswith("multi_"):
        raise refusal("not_importable.only_a_part", file)
    imported = Imported("accelerate", file, counts_all_nodes=True)
    settings = list(settings_of(document.values, document.lines, ACCELERATE_SECTIONS.__contains__))
    names_a_file = any(setting.name == ZERO_FILE for setting in settings)

    def rule_of(setting: Setting) -> Rule | None:
        section = setting.name.partition(".")[0]
        if SECTION_OF_TYPE.get(section, kind) != kind:
            return tr("distributed_type is {kind}, so accelerate does not read this section.", kind=kind.upper())
        if names_a_file and section == "deepspeed_config" and setting.name != ZERO_FILE:
            return IN_THAT_FILE
        return rule_in(ACCELERATE, setting.name)

    imported.take(settings, rule_of)
    return imported


def _type(imported: Imported, setting: Setting) -> Became:
    kind = word(setting.value)
    if kind == "deepspeed":
        if not {ZERO_FILE, "deepspeed_config"} & set(imported.settings):
            # DeepSpeedPlugin.zero_stage (accelerate/utils/dataclasses.py).
            imported.defaults[STRATEGY] = "zero2"
        return ONLY_ENABLES
    if kind == "no" and len(gpus := _gpu_list(imported)) > 1 and imported.word("use_cpu") != "yes":
        imported.say(setting, "data_parallel", program="distributed_type NO")
        return {STRATEGY: "ddp", PROCESSES: len(gpus)}
    return KINDS.get(kind, {STRATEGY: "ddp"} if kind.startswith("multi_") else {STRATEGY: "single"})


def _processes(imported: Imported, setting: Setting) -> Became:
    """Of all nodes together, or of each (torchrun, deepspeed)."""
    if setting.value in ("gpu", "auto", "-1"):
        return ALL_GPUS
    if imported.word("distributed_type") == "no" and (setting.value != 1 or len(_gpu_list(imported)) > 1):
        return mark("distributed_type NO starts one process, whatever num_processes says.")
    return {PROCESSES: setting.value}


def _gpu_list(imported: Imported) -> list[str]:
    """The GPUs of `gpu_ids` or CUDA_VISIBLE_DEVICES ("0,2"); none where all are meant."""
    named = str(imported.settings["gpu_ids"].value).strip("[]").split(",") if "gpu_ids" in imported.settings else []
    return [part.strip() for part in named if part.strip() not in ("", "-1", "None", "all")]


def _gpus(imported: Imported, setting: Setting) -> Became:
    if gpus := _gpu_list(imported):
        return {GPUS: gpus}
    return {"engine.device": "cpu"} if setting.as_written() == "CUDA_VISIBLE_DEVICES" else ALL_GPUS


def named_file(imported: Imported, setting: Setting) -> Became:
    if not isinstance(setting.value, str):
        raise WrongValue
    role = "accelerate" if setting.name == "config_file" else "deepspeed"
    imported.references.append(Setting(role, setting.value, setting.line))
    return NAMES_A_FILE


def _offload(imported: Imported, setting: Setting) -> Became:
    """Offload of the optimizer or of the parameters, of which that of the parameters stands for both, in either file."""
    device = word(setting.value)
    if device != "cpu":
        return {OFFLOAD: device}
    if imported.number(ZERO_STAGE) == 3 or imported.number("zero_optimization.stage") == 3:
        parameters = imported.word(setting.name.replace("offload_optimizer", "offload_param"))
        return {OFFLOAD: "all" if parameters == "cpu" else "optimizer"}
    if "offload_param" in setting.name:
        return mark("Only ZeRO-3 can offload parameters to RAM.")
    return {OFFLOAD: "optimizer"}


STAGE = to(STRATEGY, {"0": "ddp", "1": "zero1", "2": "zero2", "3": "zero3"})
"""DeepSpeed's stage 0 shards nothing."""
SHARDED = {"full_shard": "fsdp", "1": "fsdp", "yes": "fsdp", "no": "shard_grad_op"}
"""fsdp_sharding_strategy of FSDP 1, by name and number, and fsdp_reshard_after_forward of FSDP 2."""
REASONS: Mapping[str, str] = {
    "compute_environment": "trainwiz runs on the machine where it is started.",
    "machine_rank main_process_ip main_process_port rdzv_backend same_network deepspeed_hostfile standalone "
    "rdzv_endpoint rdzv_id rdzv_conf node_rank master_addr master_port local_addr hostfile ssh_port no_ssh "
    "no_ssh_check deepspeed_config.deepspeed_hostfile deepspeed_config.deepspeed_multinode_launcher "
    "deepspeed_config.deepspeed_inclusion_filter deepspeed_config.deepspeed_exclusion_filter": RENDEZVOUS,
    "main_training_function": "It names a function of the script, but trainwiz does not run the script.",
    "downcast_bf16 tpu_name tpu_zone tpu_use_cluster tpu_use_sudo tpu_env command_file commands": TPU,
    "quiet debug log_dir log_level redirects tee": "trainwiz writes its own log.",
    "ipex_config fp8_config mpirun_config parallelism_config use_parallelism_config use_xpu ipex megatron_lm_config "
    "use_megatron_lm deepspeed_config.offload_optimizer_nvme_path deepspeed_config.offload_param_nvme_path": NO_EQUIVALENT,
    "deepspeed_config.zero3_init_flag deepspeed_config.zero3_save_16bit_model "
    "deepspeed_config.deepspeed_moe_layer_cls_names": "trainwiz sets it automatically for ZeRO-3.",
    "fsdp_config": "trainwiz decides how FSDP wraps and loads the model.",
    "dynamo_config": "trainwiz compiles with the defaults of torch.compile.",
    "max_restarts": "trainwiz restarts a failed run automatically (recovery.max_restarts).",
    "exclude": "The remaining GPUs depend on the machine; choose the GPUs of a run with --gpus.",
    "module no_python enable_cpu_affinity monitor_interval start_method launcher launcher_args no_local_rank use_env run_path": HANDLED,
}  # fmt: skip
"""Keys, and sections for all their other keys -> why they are left out."""
ACCELERATE = for_each({
    **REASONS,
    **places({
        "num_machines": NODES,
        "deepspeed_config.gradient_accumulation_steps": "batch.gradient_accumulation_steps",
        "deepspeed_config.gradient_clipping": "training.max_grad_norm",
        "fsdp_config.fsdp_activation_checkpointing": "engine.checkpointing",
    }),
    "distributed_type": _type,
    "num_processes": _processes,
    "mixed_precision": PRECISION,
    "fp16": to("engine.precision", {"yes": "fp16", "no": "fp32"}),
    "bf16": to("engine.precision", {"yes": "bf16"}, OFF),
    "use_cpu": to("engine.device", {"yes": "cpu"}, mark("A run uses the GPU by default if one is available.")),
    "gpu_ids": _gpus,
    "num_cpu_threads_per_process": positive("engine.cpu_threads", mark("0 leaves it to the plan.")),
    f"config_file deepspeed_config {ZERO_FILE}": named_file,
    ZERO_STAGE: STAGE,
    "deepspeed_config.offload_optimizer_device deepspeed_config.offload_param_device": _offload,
        "fsdp_config.fsdp_sharding_strategy fsdp_config.fsdp_reshard_after_forward fsdp_config.sharding_strategy":
        to(STRATEGY, SHARDED),
        "fsdp_config.fsdp_offload_params fsdp_config.offload_params": to(
            OFFLOAD, {"yes": "all"}, mark("The parameters stay on the GPU, which is the default.")
        ),
        "dynamo_backend dynamo_config.dynamo_backend": lambda _, setting: {
            "engine.compile": word(setting.value) not in ("no", "none", "")
        },
})  # fmt: skip
ACCELERATE_SECTIONS = {name.partition(".")[0] for name in ACCELERATE if "." in name or name.endswith("_config")}

# The options of the launchers, as keys of an accelerate file.

ENGINES: Mapping[str, str] = {"multi_gpu": "MULTI_GPU", "use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP"}
"""Flags of accelerate -> distributed_type."""
SHORT: Mapping[str, str] = {"H": "hostfile", "i": "include", "e": "exclude"}
CALLED: Mapping[str, str] = {
    "nproc_per_node": "num_processes", "nproc": "num_processes", "num_gpus": "num_processes", "num_accelerators":
    "num_processes", "nnodes": "num_machines", "num_nodes": "num_machines", "cpu": "use_cpu", "m": "module",
    "CUDA_VISIBLE_DEVICES": "gpu_ids", "OMP_NUM_THREADS": "num_cpu_threads_per_process",
}  # fmt: skip
"""Options of torchrun, DeepSpeed and accelerate, and variables that they read."""


def read_launcher(file: str, program: str, options: Sequence[Setting]) -> Imported:
    """What a launcher comes to, with its options and the variables in front of it."""
    imported = Imported("launch_command", file, is_launcher=True, counts_all_nodes=program == "accelerate")
    settings = [_as_in_file(option) for option in options]
    imported.take(settings, lambda setting: rule_in(ACCELERATE, setting.name))
    if program in ("deepspeed", "python", "llamafactory", "axolotl") and GPUS in imported.values:
        imported.defaults[PROCESSES] = len(imported.values[GPUS])
    if program == "torchrun" and "num_processes" not in imported.settings:
        # torch.distributed.run: --nproc-per-node is 1 by default.
        imported.defaults[PROCESSES] = 1
    return imported


def _as_in_file(option: Setting) -> Setting:
    name = SHORT.get(option.name, option.name)
    if name in ENGINES:
        return option.called("distributed_type", ENGINES[name])
    if name == "include":
        hosts = str(option.value).split("@")
        return option.called("gpu_ids" if len(hosts) == 1 else "", hosts[0].partition(":")[2])
    # "deepspeed_config.zero_stage": the key of the file that the option fills.
    section = re.match(r"(fsdp|dynamo|fp8|megatron_lm|parallelism)_", name)
    inside = f"{section[1] if section else 'deepspeed'}_config.{name}"
    return option.called(inside if section or inside in ACCELERATE else CALLED.get(name, name))


# The JSON of DeepSpeed (0.2 to 0.19), with the keys of its sections behind dots.

HALVES = ("fp16.enabled", "bf16.enabled", "bfloat16.enabled")


def read_deepspeed(document: YamlDocument, file: str) -> Imported:
    """Every key of the file with its place."""
    imported = Imported("deepspeed", file)
    settings = list(settings_of(document.values, document.lines, DEEPSPEED_SECTIONS.__contains__))
    # The scheduler sets the rate at every step: what it says stands over the optimizer's, wherever that is written.
    settings.sort(key=lambda setting: setting.name.startswith("scheduler."))
    imported.take(settings, lambda setting: rule_in(DEEPSPEED, setting.name) or NOT_OFFERED)
    return imported


def _half(imported: Imported, setting: Setting) -> Became:
    """fp16 or bf16. Where neither is on, and nothing may switch one on, DeepSpeed computes in fp32."""
    if word(setting.value) != "no":
        return {"engine.precision": setting.name.partition(".")[0].replace("bfloat", "bf")}
    if any(imported.word(name) not in ("", "no") for name in HALVES):
        return mark("Off leaves the choice to the other half-precision formats.")
    return {"engine.precision": "fp32"}


def _betas(_: Imported, setting: Setting) -> Became:
    if not isinstance(setting.value, list) or len(setting.value) != 2:
        raise WrongValue
    return {f"training.adam_beta{n}": beta for n, beta in enumerate(setting.value, 1)}


DEEPSPEED = for_each({
    "steps_per_print wall_clock_breakdown memory_breakdown dump_state tensorboard wandb csv_monitor comet "
    "comms_logger flops_profiler": mark("trainwiz has its own measurements and logs."),
    "activation_checkpointing": mark(
        "DeepSpeed checkpoints activations only where the model calls it; for a run, use engine.checkpointing."
    ),
    "fp16": mark("trainwiz scales the fp16 loss dynamically."),
    "optimizer.params.adam_w_mode": mark("A run uses AdamW."),
    "scheduler.params.warmup_min_lr scheduler.params.warmup_min_ratio scheduler.params.warmup_type": mark(
        "Warmup is linear, from 0."
    ),
    **places({
        "train_batch_size": "batch.target_samples",
        "train_micro_batch_size_per_gpu": "batch.micro_batch_size",
        "gradient_accumulation_steps": "batch.gradient_accumulation_steps",
        "gradient_clipping": "training.max_grad_norm",
        "optimizer.params.lr": "training.learning_rate",
        "optimizer.params.eps": "training.adam_epsilon",
        "optimizer.params.weight_decay": "training.weight_decay",
        "scheduler.params.warmup_max_lr": "training.learning_rate",
        "scheduler.params.warmup_num_steps": "training.warmup",
        "scheduler.params.total_num_steps": "training.max_steps",
    }),
    " ".join(HALVES): _half,
    "zero_optimization.stage": STAGE,
    "zero_optimization.offload_optimizer.device zero_optimization.offload_param.device": _offload,
    # DeepSpeed's Adam is AdamW unless adam_w_mode is false.
    "optimizer.type": to("engine.optimizer", {
        **dict.fromkeys(("adam", "adamw", "cpuadam", "deepspeedcpuadam"), "adamw_torch"), "fusedadam": "adamw_torch_fused",
        "sgd": "sgd", "adafactor": "adafactor",
    }),
    "optimizer.params.betas": _betas,
    "scheduler.type": to("training.schedule", {"warmuplr": "constant", "warmupdecaylr": "linear", "warmupcosinelr": "cosine"}),
})  # fmt: skip
DEEPSPEED_SECTIONS = {"optimizer", "scheduler", *(name.rpartition(".")[0] for name in DEEPSPEED if "." in name)}
"""Keys whose keys are settings."""
