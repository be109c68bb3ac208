"""What accelerate's file may hold beside what a run takes, and why it is left out.

Sources: ClusterConfig and SageMakerConfig (accelerate/commands/config/config_args.py), the questionnaire
(commands/config/cluster.py) and the options of `accelerate launch` of accelerate 1.15, and the files of 0.5 to 1.x.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainwiz.core.language import mark

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
