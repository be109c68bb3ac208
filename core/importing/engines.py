"""The file of `accelerate config`, the options of the launchers that mean the same, and the JSON of DeepSpeed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainwiz.core.config.yaml_text import YamlDocument
from trainwiz.core.importing.names import HANDLED, IN_THAT_FILE, NAMES_A_FILE, OFF, ONLY_ENABLES, PRECISION, words
from trainwiz.core.importing.report import (
    Became,
    Imported,
    Rule,
    Setting,
    WrongValue,
    for_each,
    number,
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
MEGATRON = mark("trainwiz has no Megatron-LM engine.")
TUNING = mark("trainwiz sets its own value. To use this file unchanged: --deepspeed FILE.")
NOT_OFFERED = mark("trainwiz has no equivalent. To use this file unchanged: --deepspeed FILE.")
LEFT_TO_TRAINER = mark("auto leaves it to the Trainer arguments.")
AUTO = mark('"auto" leaves it to the Trainer arguments.')
NO_EQUIVALENT = mark("trainwiz has no equivalent.")


def settings_of(
    values: Mapping[Any, Any],
    is_section: Callable[[str], bool] | None = None,
    lines: Mapping[str, int] | None = None,
    above: str = "",
) -> Iterator[Setting]:
    """All settings, those of sections with the section's name in front: "zero_optimization.stage"."""
    is_section = is_section or DEEPSPEED_SECTIONS.__contains__
    for key, value in values.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and is_section(name):
            yield from settings_of(value, is_section, lines, f"{name}.")
        else:
            yield Setting(name, value, (lines or {}).get(name))


def take(imported: Imported, settings: Sequence[Setting], rules: Mapping[str, Rule], auto: str) -> None:
    """Put every setting where its rule says, or for the reason of its section nowhere."""
    imported.settings.update((setting.name, setting) for setting in settings)
    for setting in settings:
        of_section = rules.get(setting.name.partition(".")[0])
        imported.place(setting, rules.get(setting.name, of_section if isinstance(of_section, str) else None), auto)


# The file of accelerate (ClusterConfig of 0.5 to 1.15), with the keys of its sections behind a dot.

TYPES = words("no none mps deepspeed fsdp megatron_lm xla tpu") | {""}
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
    settings = list(settings_of(document.values, ACCELERATE_SECTIONS.__contains__, document.lines))
    for setting in list(settings):
        section = setting.name.partition(".")[0]
        if "." in setting.name and SECTION_OF_TYPE.get(section, kind) != kind:
            settings.remove(setting)
            why = tr("distributed_type is {kind}, so accelerate does not read this section.", kind=kind.upper())
            imported.drop(setting, why)
    take(imported, settings, ACCELERATE, LEFT_TO_TRAINER)
    return imported


def _type(imported: Imported, setting: Setting) -> Became:
    kind = word(setting.value)
    if kind == "deepspeed":
        if not {ZERO_FILE, "deepspeed_config"} & set(imported.settings):
            # DeepSpeedPlugin.zero_stage (accelerate/utils/dataclasses.py).
            imported.defaults[STRATEGY] = "zero2"
        return ONLY_ENABLES
    if kind == "fsdp":
        if imported.word("fsdp_config.fsdp_sharding_strategy") in ("no_shard", "3"):
            return mark("NO_SHARD keeps a whole model on each GPU.")
        return {STRATEGY: "fsdp"}
    if kind.startswith("multi_"):
        return {STRATEGY: "ddp"} | ({"engine.device": "cpu"} if kind == "multi_cpu" else {})
    return {"megatron_lm": MEGATRON, "xla": TPU, "tpu": TPU}.get(kind, {STRATEGY: "single"})


def _processes(imported: Imported, setting: Setting) -> Became:
    """Of all nodes together, or of each (torchrun, deepspeed)."""
    if setting.value in ("gpu", "auto", "-1"):
        return ALL_GPUS
    if imported.word("distributed_type") == "no" and number(setting.value) != 1:
        # It takes the simple launcher.
        return mark("distributed_type NO starts one process, whatever num_processes says.")
    return {PROCESSES: setting.value}


def _gpus(_: Imported, setting: Setting) -> Became:
    """The GPUs of `gpu_ids` or CUDA_VISIBLE_DEVICES ("0,2")."""
    gpus = [part.strip() for part in str(setting.value).split(",") if part.strip() not in ("", "-1", "None")]
    if gpus and gpus != ["all"]:
        return {GPUS: gpus}
    return {"engine.device": "cpu"} if setting.as_written() == "CUDA_VISIBLE_DEVICES" else ALL_GPUS


def _named_file(imported: Imported, setting: Setting) -> Became:
    if setting.name == "deepspeed_config" and imported.word("distributed_type") != "deepspeed":
        return mark("distributed_type does not select DeepSpeed.")
    if not isinstance(setting.value, str):
        raise WrongValue
    role = "accelerate" if setting.name == "config_file" else "deepspeed"
    imported.references.append(Setting(role, setting.value, setting.line))
    return NAMES_A_FILE if role == "accelerate" else IN_THAT_FILE


def _offload(stage: str) -> Rule:
    """Offload of the optimizer or of the parameters, of which that of the parameters stands for both."""

    def rule(imported: Imported, setting: Setting) -> Became:
        device = word(setting.value)
        if device != "cpu":
            return {OFFLOAD: device}
        if imported.number(stage) == 3:
            parameters = imported.word(setting.name.replace("offload_optimizer", "offload_param"))
            return {OFFLOAD: "all" if parameters == "cpu" else "optimizer"}
        if "offload_param" in setting.name:
            return mark("Only ZeRO-3 can offload parameters to RAM.")
        return {OFFLOAD: "optimizer"}

    return rule


STAGE = to(STRATEGY, {"0": "ddp", "1": "zero1", "2": "zero2", "3": "zero3"})
"""DeepSpeed's stage 0 shards nothing."""
SHARDED = {"full_shard": "fsdp", "1": "fsdp", "yes": "fsdp", "no_shard": "ddp", "3": "ddp", "no": "shard_grad_op"}
"""fsdp_sharding_strategy of FSDP 1, by name and number, and fsdp_reshard_after_forward of FSDP 2."""
REASONS: Mapping[str, str] = {
    "compute_environment": "trainwiz runs on the machine where it is started.",
    "machine_rank main_process_ip main_process_port rdzv_backend same_network deepspeed_hostfile standalone "
    "rdzv_endpoint rdzv_id rdzv_conf node_rank master_addr master_port local_addr hostfile ssh_port no_ssh "
    "no_ssh_check deepspeed_config.deepspeed_hostfile deepspeed_config.deepspeed_multinode_launcher "
    "deepspeed_config.deepspeed_inclusion_filter deepspeed_config.deepspeed_exclusion_filter": RENDEZVOUS,
    "main_training_function": "It names a function of the script, but trainwiz does not run the script.",
    "downcast_bf16 tpu_name tpu_zone tpu_use_cluster tpu_use_sudo tpu_cluster tpu_vm tpu_env command_file commands "
    "tpu_config tpu no_tpu_cluster vm env": TPU,
    "quiet debug log_dir logdir redirects tee local_ranks_filter logs_specs event_log_handler role "
    "enable_each_rank_log log_level save_pid": "trainwiz writes its own log.",
    "ipex_config use_xpu ipex fp8_config mpirun_config mpirun_hostfile mpirun_ccl parallelism_config "
    "use_parallelism_config": NO_EQUIVALENT,
    "megatron_lm_config use_megatron_lm": MEGATRON,
    "deepspeed_config.zero3_init_flag deepspeed_config.zero3_save_16bit_model "
    "deepspeed_config.deepspeed_moe_layer_cls_names": "trainwiz sets it automatically for ZeRO-3.",
    "deepspeed_config.offload_optimizer_nvme_path deepspeed_config.offload_param_nvme_path": "trainwiz does not offload to "
    "NVMe.",
    "fsdp_config": "trainwiz decides how FSDP wraps and loads the model.",
    "dynamo_config": "trainwiz compiles with the defaults of torch.compile.",
    "max_restarts": "trainwiz restarts a failed run automatically (recovery.max_restarts).",
    "exclude": "The remaining GPUs depend on the machine; choose the GPUs of a run with --gpus.",
    "module no_python enable_cpu_affinity monitor_interval start_method launcher launcher_args no_local_rank use_env run_path": HANDLED,
}  # fmt: skip
"""Keys, and sections for all their other keys -> why they are left out."""
ACCELERATE: Mapping[str, Rule] = {
    **for_each(REASONS),
    "distributed_type": _type,
    "num_processes": _processes,
    "num_machines": to(NODES),
    "mixed_precision": PRECISION,
    "fp16": to("engine.precision", {"yes": "fp16", "no": "fp32"}),
    "bf16": to("engine.precision", {"yes": "bf16"}, OFF),
    "use_cpu": to("engine.device", {"yes": "cpu"}, mark("A run uses the GPU by default if one is available.")),
    "gpu_ids": _gpus,
    "num_cpu_threads_per_process": positive("engine.cpu_threads", mark("0 leaves it to the plan.")),
    "config_file": _named_file,
    "deepspeed_config": _named_file,
    ZERO_FILE: _named_file,
    ZERO_STAGE: STAGE,
    "deepspeed_config.gradient_accumulation_steps": to("batch.gradient_accumulation_steps"),
    "deepspeed_config.gradient_clipping": to("training.max_grad_norm"),
    "deepspeed_config.offload_optimizer_device": _offload(ZERO_STAGE),
    "deepspeed_config.offload_param_device": _offload(ZERO_STAGE),
    **for_each({
        "fsdp_config.fsdp_sharding_strategy fsdp_config.fsdp_reshard_after_forward fsdp_config.sharding_strategy":
        to(STRATEGY, SHARDED),
        "fsdp_config.fsdp_offload_params fsdp_config.offload_params": to(
            OFFLOAD, {"yes": "all"}, mark("The parameters stay on the GPU, which is the default.")
        ),
        "dynamo_backend dynamo_config.dynamo_backend": lambda _, setting: {
            "engine.compile": word(setting.value) not in ("no", "none", "")
        },
    }),
    "fsdp_config.fsdp_activation_checkpointing": to("engine.checkpointing"),
}  # fmt: skip
ACCELERATE_SECTIONS = frozenset(
    name.partition(".")[0] for name in ACCELERATE if "." in name or name.endswith("_config")
)

# The options of the launchers, as keys of an accelerate file.

ENGINES: Mapping[str, str] = {"multi_gpu": "MULTI_GPU", "use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP"}
"""Flags of accelerate -> distributed_type."""
PER_NODE = words("nproc_per_node num_gpus num_accelerators NPROC_PER_NODE")
MACHINES = words("nnodes num_nodes NNODES")
"""Options of torchrun and DeepSpeed, and variables of LLaMA-Factory."""


def read_launcher(file: str, program: str, options: Sequence[Setting]) -> Imported:
    """What a launcher comes to, with its options and the variables in front of it."""
    imported = Imported("launch_command", file, is_launcher=True, counts_all_nodes=program == "accelerate")
    settings = [_as_in_file(option) for option in options]
    take(imported, settings, ACCELERATE, LEFT_TO_TRAINER)
    if program in ("deepspeed", "python", "framework") and GPUS in imported.values:
        # Plain python feeds every GPU that it sees with DataParallel; as many processes of DDP see the same sequences.
        imported.defaults[PROCESSES] = len(imported.values[GPUS])
    if program == "torchrun" and not {"num_processes", ""} & set(imported.settings):
        # torch.distributed.run: --nproc-per-node is 1 by default.
        imported.defaults[PROCESSES] = 1
    return imported


def _as_in_file(option: Setting) -> Setting:
    name = option.name
    if name in ENGINES:
        return option.called("distributed_type", ENGINES[name])
    if name == "include":
        hosts = str(option.value).split("@")
        return option.called("gpu_ids" if len(hosts) == 1 else "", hosts[0].partition(":")[2])
    if name in PER_NODE or name in MACHINES or name == "cpu":
        return option.called("num_processes" if name in PER_NODE else "use_cpu" if name == "cpu" else "num_machines")
    # "deepspeed_config.zero_stage": the key of the file that the option fills.
    section = re.match(r"(fsdp|dynamo|fp8|megatron_lm|parallelism)_", name)
    inside = f"{section[1] if section else 'deepspeed'}_config.{name}"
    return option.called(inside) if section or inside in ACCELERATE else option


# The JSON of DeepSpeed (0.2 to 0.19), with the keys of its sections behind dots.

HALVES = ("fp16.enabled", "bf16.enabled", "bfloat16.enabled")


def read_deepspeed(settings: Iterator[Setting], file: str) -> Imported:
    """Every key of the file with its place."""
    imported = Imported("deepspeed", file)
    take(imported, list(settings), DEEPSPEED, AUTO)
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


def _rate(imported: Imported, setting: Setting) -> Became:
    if imported.number("scheduler.params.warmup_max_lr") is not None:
        return mark("The scheduler sets the learning rate at every step.")
    return {"training.learning_rate": setting.value}


DEEPSPEED_REASONS: Mapping[str, str] = {
    "steps_per_print wall_clock_breakdown memory_breakdown dump_state tensorboard wandb csv_monitor comet "
    "monitor_config comms_logger flops_profiler timers": "trainwiz has its own measurements and logs.",
    "activation_checkpointing": "DeepSpeed checkpoints activations only where the model calls it; for a run, use "
    "engine.checkpointing.",
    "checkpoint load_universal_checkpoint": "trainwiz decides how checkpoints are written.",
    "zero_optimization optimizer zero_allow_untested_optimizer zero_force_ds_cpu_optimizer communication_data_type "
    "fp32_allreduce prescale_gradients gradient_predivide_factor gradient_allreduce_op sparse_gradients "
    "disable_allgather disable_python_gc graph_harvesting aio dataloader_drop_last": TUNING,
    "autotuning compile amp seq_parallel_communication_data_type sequence_parallel_size tensor_parallel elasticity "
    "data_efficiency curriculum_learning compression_training progressive_layer_drop pld eigenvalue quantize_training "
    "weight_quantization sparse_attention hybrid_engine pipeline nebula datastates_ckpt torch_autocast "
    "use_data_before_expert_parallelism keep_module_on_host train_dtype scheduler": NOT_OFFERED,
    "fp16": "trainwiz scales the fp16 loss dynamically.",
    "bf16 data_types": "trainwiz keeps fp32 copies of the weights and accumulates gradients in fp32.",
    "optimizer.params.adam_w_mode": "A run uses AdamW.",
    "scheduler.params.warmup_min_lr scheduler.params.warmup_min_ratio": "Warmup starts from 0.",
    "scheduler.params.warmup_type": "Warmup is linear.",
}  # fmt: skip
DEEPSPEED: Mapping[str, Rule] = {
    **for_each(DEEPSPEED_REASONS),
    "train_batch_size": to("batch.target_samples"),
    "train_micro_batch_size_per_gpu": to("batch.micro_batch_size"),
    "gradient_accumulation_steps": to("batch.gradient_accumulation_steps"),
    "gradient_clipping": to("training.max_grad_norm"),
    **dict.fromkeys(HALVES, _half),
    "zero_optimization.stage": STAGE,
    "zero_optimization.offload_optimizer.device": _offload("zero_optimization.stage"),
    "zero_optimization.offload_param.device": _offload("zero_optimization.stage"),
    # DeepSpeed's Adam is AdamW unless adam_w_mode is false.
    "optimizer.type": to("engine.optimizer", {
        **dict.fromkeys(("adam", "adamw", "cpuadam", "deepspeedcpuadam"), "adamw_torch"), "fusedadam": "adamw_torch_fused",
        "sgd": "sgd", "adafactor": "adafactor",
    }),
    "optimizer.params.lr": _rate,
    "optimizer.params.betas": _betas,
    "optimizer.params.eps": to("training.adam_epsilon"),
    "optimizer.params.weight_decay": to("training.weight_decay"),
    "scheduler.type": to("training.schedule", {"warmuplr": "constant", "warmupdecaylr": "linear", "warmupcosinelr": "cosine"}),
    "scheduler.params.warmup_max_lr": to("training.learning_rate"),
    "scheduler.params.warmup_num_steps": to("training.warmup"),
    "scheduler.params.total_num_steps": to("training.max_steps"),
}  # fmt: skip
DEEPSPEED_SECTIONS = frozenset(
    {name.rpartition(".")[0] for name in DEEPSPEED if "." in name}
    | {"activation_checkpointing", "checkpoint", "data_types", "fp16", "bf16"}
)
"""Keys whose keys are settings."""
