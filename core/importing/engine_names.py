"""The words of accelerate, DeepSpeed and launch commands: the keys they mean, and why the rest is left out."""

from __future__ import annotations

from collections.abc import Mapping

from trainwiz.core.config.values import Precision, Strategy
from trainwiz.core.importing.names import NAMES_A_FILE, Rule, for_each, words
from trainwiz.core.language import mark

RENDEZVOUS = mark("How the nodes find each other is set in the command of each node, not in the settings.")
TPU = mark("It is for TPUs, which trainwiz does not support.")
OWN_LOG = mark("trainwiz writes its own log.")
ALL_GPUS = mark("A run uses all GPUs by default.")
ONE_NODE = mark("A run uses one machine by default.")
FP8 = mark("trainwiz does not support FP8.")
MEGATRON = mark("trainwiz has no Megatron-LM engine.")
TUNING = mark("trainwiz sets its own value. To use this file unchanged: --deepspeed FILE.")
NOT_OFFERED = mark("trainwiz has no equivalent. To use this file unchanged: --deepspeed FILE.")
LEFT_TO_TRAINER = mark("auto leaves it to the Trainer arguments.")
AUTO = mark('"auto" leaves it to the Trainer arguments.')
OF_LAUNCHER = mark("It tells the launcher how to start processes; trainwiz handles this itself.")
IN_THAT_FILE = mark("The settings in that file are used.")

# accelerate: its file (ClusterConfig of 0.5 to 1.15), with the keys of its sections behind a dot.

PRECISIONS: Mapping[str, Precision] = {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}
"""accelerate's mixed_precision -> engine.precision. Beside its fp8 matrix products accelerate computes in bf16
(Accelerator.__init__: `elif self.mixed_precision == "fp8"` enables autocast, whose type is then bf16)."""
ZERO: Mapping[int, Strategy] = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}
"""DeepSpeed's stage 0 shards nothing."""
KNOWN_TYPES = words("NO MPS XLA DEEPSPEED FSDP MEGATRON_LM")
"""Values of distributed_type, besides MULTI_GPU, MULTI_CPU and the like: one whole model for each process."""
SETUP_KEYS: Mapping[str, str] = {
    "distributed_type": "engine.strategy",
    "num_processes": "engine.processes",
    "num_machines": "engine.nodes",
    "mixed_precision": "engine.precision",
    "use_cpu": "engine.device",
    "gpu_ids": "engine.gpus",
}
"""What accelerate's settings decide together."""
SECTION_OF_TYPE: Mapping[str, str] = {"deepspeed_config": "DEEPSPEED", "fsdp_config": "FSDP"}
"""Sections that are read with one distributed_type only."""

NVME = mark("trainwiz does not offload to NVMe.")
SHARDS_NOTHING = ("NO_SHARD", "3")
"""fsdp_sharding_strategy, by name and by number."""
ACCELERATE_REASONS: Mapping[str, str] = {
    "compute_environment": "trainwiz runs on the machine where it is started.",
    "machine_rank main_process_ip main_process_port rdzv_backend same_network deepspeed_hostfile standalone rdzv_endpoint "
    "rdzv_id rdzv_conf node_rank master_addr master_port local_addr hostfile ssh_port no_ssh no_ssh_check "
    "deepspeed_config.deepspeed_hostfile deepspeed_config.deepspeed_multinode_launcher "
    "deepspeed_config.deepspeed_inclusion_filter deepspeed_config.deepspeed_exclusion_filter": RENDEZVOUS,
    "main_training_function": "It names a function of the script, but trainwiz does not run the script.",
    "enable_cpu_affinity": "trainwiz leaves CPU affinity to the system.",
    "downcast_bf16 tpu_name tpu_zone tpu_use_cluster tpu_use_sudo tpu_cluster tpu_vm tpu_env command_file commands "
    "tpu_config tpu no_tpu_cluster vm env": TPU,
    "quiet debug log_dir logdir redirects tee local_ranks_filter logs_specs event_log_handler role enable_each_rank_log "
    "log_level save_pid": OWN_LOG,
    "ipex_config use_xpu ipex": "trainwiz does not train on Intel GPUs.",
    "mpirun_config mpirun_hostfile mpirun_ccl": "trainwiz launches its processes with torch, not with MPI.",
    "fp8_config": FP8, "megatron_lm_config use_megatron_lm": MEGATRON,
    "parallelism_config use_parallelism_config": "trainwiz splits neither layers nor sequences across GPUs.",
    "deepspeed_config.zero3_init_flag deepspeed_config.zero3_save_16bit_model": "trainwiz sets it automatically for "
    "ZeRO-3.",
    "deepspeed_config.offload_optimizer_nvme_path deepspeed_config.offload_param_nvme_path": NVME,
    "deepspeed_config.deepspeed_moe_layer_cls_names": "trainwiz reads the experts (MoE) from the model.",
    "fsdp_config": "trainwiz decides how FSDP wraps and loads the model.",
    "fsdp_config.fsdp_state_dict_type": "trainwiz decides how checkpoints are written.",
    "dynamo_config": "trainwiz compiles with the defaults of torch.compile.",
    "config_file": NAMES_A_FILE,
    "max_restarts": "trainwiz restarts a failed run automatically (recovery.max_restarts).",
    "module": "It means that the script is a module.",
    "no_python": "It means that the script is an executable program.",
    "exclude": "The remaining GPUs depend on the machine; choose the GPUs of a run with --gpus.",
    "monitor_interval start_method launcher launcher_args no_local_rank use_env run_path": OF_LAUNCHER,
}  # fmt: skip
"""Keys, and sections for all their other keys -> why they are left out."""
ACCELERATE: Mapping[str, Rule] = {
    "num_cpu_threads_per_process": ("engine.cpu_threads", "threads"),
    "deepspeed_config.gradient_accumulation_steps": ("batch.gradient_accumulation_steps", "count"),
    "deepspeed_config.gradient_clipping": ("training.max_grad_norm", "number"),
    "fsdp_config.fsdp_activation_checkpointing": ("engine.checkpointing", "yes"),
    "fsdp_config.fsdp_offload_params": ("engine.offload", "offload"),
    **for_each(ACCELERATE_REASONS),
}
ACCELERATE_RENAMED: Mapping[str, str] = {
    "fp16": "mixed_precision",
    "dynamo_backend": "dynamo_config.dynamo_backend",
    "fsdp_config.fsdp_backward_prefetch_policy": "fsdp_config.fsdp_backward_prefetch",
    "fsdp_config.sharding_strategy": "fsdp_config.fsdp_reshard_after_forward",
    "fsdp_config.offload_params": "fsdp_config.fsdp_offload_params",
    "fsdp_config.min_num_params": "fsdp_config.fsdp_min_num_params",
    "fsdp_config.fsdp_sharding_strategy": "fsdp_config.fsdp_reshard_after_forward",
    "tpu_config": "tpu_env",
}
"""Old names -> those of accelerate 1.15. fsdp_sharding_strategy is of FSDP 1; commands/to_fsdp2.py maps it so."""
NOT_BESIDE_FILE = frozenset(f"deepspeed_config.{name}" for name in words(
    "gradient_accumulation_steps gradient_clipping zero_stage offload_optimizer_device offload_param_device "
    "offload_optimizer_nvme_path offload_param_nvme_path zero3_save_16bit_model"
))  # fmt: skip
"""What accelerate refuses beside deepspeed_config_file (DeepSpeedPlugin._deepspeed_config_checks)."""
ACCELERATE_TELLTALES = words(
    "compute_environment distributed_type machine_rank main_training_function num_machines num_processes rdzv_backend "
    "same_network tpu_use_cluster fsdp_config downcast_bf16 deepspeed_config mixed_precision use_cpu ec2_instance_type"
)

# The JSON of DeepSpeed (0.2 to 0.19), with the keys of its sections behind dots.

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
"""The same of DeepSpeed."""
DEEPSPEED: Mapping[str, Rule] = {
    "train_batch_size": ("batch.target_samples", "count"),
    "train_micro_batch_size_per_gpu": ("batch.micro_batch_size", "count"),
    "gradient_accumulation_steps": ("batch.gradient_accumulation_steps", "count"),
    "gradient_clipping": ("training.max_grad_norm", "number"),
    "optimizer.params.lr": ("training.learning_rate", "number"),
    "optimizer.params.eps": ("training.adam_epsilon", "number"),
    "optimizer.params.weight_decay": ("training.weight_decay", "number"),
    "scheduler.params.warmup_num_steps": ("training.warmup", "number"),
    "scheduler.params.total_num_steps": ("training.max_steps", "count"),
    **for_each(DEEPSPEED_REASONS),
}
DEEPSPEED_RENAMED: Mapping[str, str] = {
    "bfloat16.enabled": "bf16.enabled",
    "zero_optimization.cpu_offload": "zero_optimization.offload_optimizer.device",
    "zero_optimization.cpu_offload_params": "zero_optimization.offload_param.device",
    "zero_optimization.cpu_offload_param": "zero_optimization.offload_param.device",
    "zero_optimization.cpu_offload_use_pin_memory": "zero_optimization.offload_optimizer.pin_memory",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save": "zero_optimization."
    "stage3_gather_16bit_weights_on_model_save",
}
DEEPSPEED_OPTIMIZERS: Mapping[str, str] = {
    "adam": "adamw_torch", "adamw": "adamw_torch", "fusedadam": "adamw_torch_fused", "cpuadam": "adamw_torch",
    "deepspeedcpuadam": "adamw_torch", "sgd": "sgd", "adafactor": "adafactor",
}  # fmt: skip
"""optimizer.type in small letters -> engine.optimizer. DeepSpeed's Adam is AdamW unless adam_w_mode is false."""
DEEPSPEED_SCHEDULES: Mapping[str, str] = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
DEEPSPEED_TELLTALES = words(
    "zero_optimization train_micro_batch_size_per_gpu zero_allow_untested_optimizer steps_per_print wall_clock_breakdown "
    "gradient_clipping train_batch_size fp16 bf16 bfloat16 optimizer scheduler zero_force_ds_cpu_optimizer"
)
"""Keys that a DeepSpeed JSON has at its top."""

# The launchers: options without a value (accelerate 1.15, torch 2.13, DeepSpeed 0.19 and older releases; a test compares
# them with what is installed; all others have one), what options mean, and why the rest is left out.

FLAGS = words(
    "help quiet cpu multi_gpu tpu enable_cpu_affinity dynamo_use_fullgraph dynamo_use_dynamic "
    "dynamo_use_regional_compilation use_deepspeed use_fsdp use_parallelism_config use_megatron_lm same_network module "
    "no_python tpu_cluster no_tpu_cluster tpu_use_sudo downcast_bf16 fp8_use_autocast_during_eval debug fp16 bf16 use_xpu "
    "ipex use_mps_device standalone run_path virtual_local_rank use_env no_local_rank no_ssh no_ssh_check force_multi "
    "save_pid bind_cores_to_rank elastic_training disable_python enable_elastic_training"
)
SHORT: Mapping[str, str] = {"h": "help", "m": "module", "H": "hostfile", "i": "include", "e": "exclude"}
ENGINES: Mapping[str, str] = {"multi_gpu": "MULTI_GPU", "use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP"}
"""Flags of accelerate -> distributed_type."""
PER_NODE = words("nproc_per_node num_gpus num_accelerators NPROC_PER_NODE")
NODES = words("nnodes num_nodes NNODES")
"""Options of torchrun and DeepSpeed, and variables of LLaMA-Factory."""

FRAMEWORKS = words("llamafactory-cli lmf axolotl")
"""Programs that start their processes by themselves, with the command `train`."""
NOT_TRAINING = words(
    "mypy ruff black pylint coverage twine timeit cProfile wandb vllm axolotl.cli.preprocess pip venv http.server json.tool "
    "ipykernel setup.py manage.py build pytest unittest tensorboard jupyter conda huggingface_hub spacy"
)
"""Scripts and modules that prepare things."""
STARTS_NOTHING = words("pip pip3 install apt apt-get yum dnf brew npm git wget curl") | {"echo", "which"}
"""Words behind which a launcher's name is that of a package, or only a text."""
