"""The words of accelerate's and DeepSpeed's files."""

from __future__ import annotations

from collections.abc import Mapping

from trainwiz.core.config.values import Optimizer, Schedule
from trainwiz.core.language import mark

# What accelerate's file may hold beside what a run takes, and why it is left out.
#
# Sources: ClusterConfig and SageMakerConfig (accelerate/commands/config/config_args.py), the questionnaire
# (commands/config/cluster.py) and the options of `accelerate launch` of accelerate 1.15, and the files of 0.5 to 1.x.

RENDEZVOUS = mark("How the nodes find each other is given with the command of each node, not with the settings.")
TPU = mark("It is for TPUs, on which trainwiz does not train.")
WRAPS = mark("trainwiz decides by itself how FSDP wraps and loads the model.")
FP8 = mark("trainwiz does not compute in FP8.")
MEGATRON = mark("trainwiz has no Megatron-LM engine.")
SPLITS = mark("trainwiz splits neither layers nor sequences over GPUs.")
COMPILE = mark("trainwiz compiles with torch's defaults.")
NVME = mark("trainwiz keeps nothing on NVMe.")
ZERO3 = mark("trainwiz decides it for ZeRO-3 by itself.")

DROPPED: Mapping[str, str] = {
    "compute_environment": mark("trainwiz runs on the machine that it is started on."),
    "debug": mark("trainwiz watches the processes by itself."),
    "machine_rank": RENDEZVOUS,
    "main_process_ip": RENDEZVOUS,
    "main_process_port": RENDEZVOUS,
    "rdzv_backend": RENDEZVOUS,
    "same_network": RENDEZVOUS,
    "deepspeed_hostfile": RENDEZVOUS,
    "main_training_function": mark("It names a function of the script, which trainwiz does not run."),
    "enable_cpu_affinity": mark("trainwiz leaves it to the system which cores a process takes."),
    "downcast_bf16": TPU,
    "tpu_name": TPU,
    "tpu_zone": TPU,
    "tpu_use_cluster": TPU,
    "tpu_use_sudo": TPU,
    "tpu_cluster": TPU,
    "tpu_vm": TPU,
    "tpu_env": TPU,
    "command_file": TPU,
    "commands": TPU,
    "ipex_config": mark("trainwiz does not use Intel's extension of PyTorch."),
    "use_xpu": mark("trainwiz does not train on Intel GPUs."),
    "mpirun_config": mark("trainwiz starts its processes with torch, not with MPI."),
    "quiet": mark("trainwiz writes its own log."),
    "num_cpu_threads_per_process": mark("0 leaves it to the plan."),
}
"""Top-level keys -> why they have no place."""

RENAMED: Mapping[str, str] = {
    "fp16": "mixed_precision",
    "dynamo_backend": "dynamo_config.dynamo_backend",
    "fsdp_config.fsdp_backward_prefetch_policy": "fsdp_config.fsdp_backward_prefetch",
    "fsdp_config.fsdp_sharding_strategy": "fsdp_config.fsdp_reshard_after_forward",
    "megatron_lm_config.megatron_lm_tensor_parallel_degree": "megatron_lm_config.megatron_lm_tp_degree",
    "tpu_config": "tpu_env",
}
"""Old names -> those of accelerate 1.15. fsdp_sharding_strategy is of FSDP 1; commands/to_fsdp2.py maps it so."""

DEEPSPEED_DROPPED: Mapping[str, str] = {
    "zero3_init_flag": ZERO3,
    "zero3_save_16bit_model": ZERO3,
    "offload_optimizer_nvme_path": NVME,
    "offload_param_nvme_path": NVME,
    "deepspeed_hostfile": RENDEZVOUS,
    "deepspeed_multinode_launcher": RENDEZVOUS,
    "deepspeed_inclusion_filter": RENDEZVOUS,
    "deepspeed_exclusion_filter": RENDEZVOUS,
    "deepspeed_moe_layer_cls_names": mark("trainwiz finds out about experts from the model."),
}

FSDP_DROPPED: Mapping[str, str] = {
    "fsdp_auto_wrap_policy": WRAPS,
    "fsdp_transformer_layer_cls_to_wrap": WRAPS,
    "fsdp_min_num_params": WRAPS,
    "fsdp_backward_prefetch": WRAPS,
    "fsdp_forward_prefetch": WRAPS,
    "fsdp_state_dict_type": mark("trainwiz decides by itself how checkpoints are written."),
    "fsdp_use_orig_params": WRAPS,
    "fsdp_sync_module_states": WRAPS,
    "fsdp_cpu_ram_efficient_loading": WRAPS,
    "fsdp_ignored_modules": WRAPS,
    "fsdp_activation_checkpointing_offload": mark("trainwiz keeps checkpoints of activations on the GPU."),
    "fsdp_version": mark("trainwiz has one FSDP, that of torch's fully_shard."),
}

DYNAMO_DROPPED: Mapping[str, str] = {
    "dynamo_mode": COMPILE,
    "dynamo_use_dynamic": COMPILE,
    "dynamo_use_fullgraph": COMPILE,
    "dynamo_use_regional_compilation": COMPILE,
}

WHOLE_SECTIONS: Mapping[str, str] = {
    "fp8_config": FP8,
    "megatron_lm_config": MEGATRON,
    "mpirun_config": DROPPED["mpirun_config"],
    "ipex_config": DROPPED["ipex_config"],
}
"""Sections of which nothing has a place: each of their keys is dropped for the same reason."""

SPLITTING = ("tp_size", "cp_size", "sp_size")
"""Sizes of a parallelism_config that take GPUs away from the data."""

OTHER_DEVICES: Mapping[str, str] = {
    "MULTI_XPU": "Intel XPU",
    "MULTI_NPU": "Ascend NPU",
    "MULTI_MLU": "Cambricon MLU",
    "MULTI_SDAA": "SDAA",
    "MULTI_MUSA": "Moore Threads MUSA",
    "MULTI_HPU": "Gaudi HPU",
    "MULTI_NEURON": "AWS Neuron",
    "XLA": "XLA",
    "TPU": "TPU",
}
"""distributed_type -> the devices that it is for. "TPU" is what XLA was called until accelerate 0.26."""


# What a DeepSpeed JSON may hold beside what a run takes, and why it is left out.
#
# Sources: deepspeed/runtime/{config,constants,lr_schedules}.py and zero/config.py of DeepSpeed 0.19.

TUNING = mark("trainwiz writes its own; to use this file as it is: --deepspeed FILE.")
LOGS = mark("trainwiz measures and logs by itself.")
SCALING = mark("trainwiz scales the fp16 loss dynamically.")
NOT_OFFERED = mark("trainwiz has nothing like it; to use this file as it is: --deepspeed FILE.")
MASTER = mark("trainwiz keeps fp32 copies of the weights and sums gradients in fp32.")
CHECKPOINTING = mark("DeepSpeed checkpoints only where the model calls it; in a run engine.checkpointing does it.")

TOP_DROPPED: Mapping[str, str] = {
    "steps_per_print": LOGS,
    "wall_clock_breakdown": LOGS,
    "memory_breakdown": LOGS,
    "dump_state": LOGS,
    "tensorboard": LOGS,
    "wandb": LOGS,
    "csv_monitor": LOGS,
    "comet": LOGS,
    "monitor_config": LOGS,
    "comms_logger": LOGS,
    "flops_profiler": LOGS,
    "timers": LOGS,
    "autotuning": mark("trainwiz finds batch and memory by itself."),
    "activation_checkpointing": CHECKPOINTING,
    "zero_allow_untested_optimizer": TUNING,
    "zero_force_ds_cpu_optimizer": TUNING,
    "communication_data_type": TUNING,
    "fp32_allreduce": TUNING,
    "prescale_gradients": TUNING,
    "gradient_predivide_factor": TUNING,
    "gradient_allreduce_op": TUNING,
    "sparse_gradients": TUNING,
    "disable_allgather": TUNING,
    "disable_python_gc": TUNING,
    "graph_harvesting": TUNING,
    "aio": mark("It is for offload to NVMe, which trainwiz does not plan."),
    "data_types": MASTER,
    "compile": mark("The program must ask DeepSpeed to compile; in a run engine.compile does it."),
    "checkpoint": mark("trainwiz decides by itself how checkpoints are written."),
    "load_universal_checkpoint": mark("trainwiz decides by itself how checkpoints are written."),
    "dataloader_drop_last": mark("trainwiz loads the rows by itself."),
    "seq_parallel_communication_data_type": NOT_OFFERED,
    "sequence_parallel_size": NOT_OFFERED,
    "tensor_parallel": NOT_OFFERED,
    "elasticity": NOT_OFFERED,
    "data_efficiency": NOT_OFFERED,
    "curriculum_learning": NOT_OFFERED,
    "compression_training": NOT_OFFERED,
    "progressive_layer_drop": NOT_OFFERED,
    "pld": NOT_OFFERED,
    "eigenvalue": NOT_OFFERED,
    "quantize_training": NOT_OFFERED,
    "weight_quantization": NOT_OFFERED,
    "sparse_attention": NOT_OFFERED,
    "hybrid_engine": NOT_OFFERED,
    "pipeline": NOT_OFFERED,
    "nebula": NOT_OFFERED,
    "datastates_ckpt": NOT_OFFERED,
    "torch_autocast": NOT_OFFERED,
    "use_data_before_expert_parallelism": NOT_OFFERED,
    "keep_module_on_host": NOT_OFFERED,
    "train_dtype": NOT_OFFERED,
}
"""Keys and sections of the top level."""

OPTIMIZERS: Mapping[str, Optimizer] = {
    "adam": "adamw_torch",
    "adamw": "adamw_torch",
    "fusedadam": "adamw_torch_fused",
    "cpuadam": "adamw_torch",
    "deepspeedcpuadam": "adamw_torch",
    "sgd": "sgd",
    "adafactor": "adafactor",
}
"""optimizer.type in small letters -> engine.optimizer. DeepSpeed's Adam is AdamW unless adam_w_mode is false."""

KNOWN_OPTIMIZERS = frozenset(
    {"adagrad", "lamb", "lion", "muon", "muadam", "muadamw", "musgd", "onebitadam", "onebitlamb", "zerooneadam"}
)
"""Others that DeepSpeed has."""

OPTIMIZER_PARAMS: Mapping[str, str] = {
    "lr": "training.learning_rate",
    "eps": "training.adam_epsilon",
    "weight_decay": "training.weight_decay",
}
OPTIMIZER_DROPPED: Mapping[str, str] = {
    "torch_adam": TUNING,
    "adam_w_mode": mark("AdamW is what a run takes."),
    "fused": TUNING,
    "bias_correction": mark("AdamW corrects its bias anyway."),
    "amsgrad": NOT_OFFERED,
    "momentum": NOT_OFFERED,
    "nesterov": NOT_OFFERED,
    "freeze_step": NOT_OFFERED,
    "cuda_aware": NOT_OFFERED,
    "comm_backend_name": NOT_OFFERED,
    "max_coeff": NOT_OFFERED,
    "min_coeff": NOT_OFFERED,
}

SCHEDULES: Mapping[str, Schedule] = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
KNOWN_SCHEDULERS = frozenset({"LRRangeTest", "OneCycle"})
SCHEDULER_PARAMS: Mapping[str, str] = {
    "warmup_max_lr": "training.learning_rate",
    "warmup_num_steps": "training.warmup",
    "total_num_steps": "training.max_steps",
}
SCHEDULER_DROPPED: Mapping[str, str] = {
    "warmup_min_lr": mark("A run warms up from 0."),
    "warmup_min_ratio": mark("A run warms up from 0."),
    "warmup_type": mark("A run warms up linearly."),
    "last_batch_iteration": mark("a resumed run goes on where it was."),
}

FP16_DROPPED = frozenset(
    {"loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis",
     "min_loss_scale", "auto_cast", "opt_level"}
)  # fmt: skip

OLD_ZERO: Mapping[str, str] = {
    "cpu_offload": "offload_optimizer.device",
    "cpu_offload_params": "offload_param.device",
    "cpu_offload_param": "offload_param.device",
    "cpu_offload_use_pin_memory": "offload_optimizer.pin_memory",
    "stage3_gather_fp16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save",
}
"""Old names inside zero_optimization -> those of today."""

ZERO_SHARDS = frozenset({"zero_hpz_partition_size", "mics_shard_size", "mics_hierarchical_params_gather"})
ZERO_QUANTIZED = frozenset(
    {"zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights", "zeropp_loco_param"}
)
OFFLOAD_SECTIONS = ("offload_optimizer", "offload_param")
OFFLOAD_DROPPED = frozenset({"ratio"})
"""Keys of an offload section, beside those that DeepSpeed 0.19 lists."""
TELLTALES = frozenset(
    {"zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer", "steps_per_print",
     "wall_clock_breakdown", "gradient_clipping", "train_batch_size", "fp16", "bf16", "bfloat16", "optimizer",
     "scheduler", "zero_force_ds_cpu_optimizer"}
)  # fmt: skip
"""Keys that a DeepSpeed JSON has at its top."""
