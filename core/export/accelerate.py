"""RunConfig -> the YAML of `accelerate launch --config_file`."""

from __future__ import annotations

from typing import Any

import yaml
from trainwiz.core.config.run import RunConfig
from trainwiz.core.export.fsdp import fsdp_config
from trainwiz.core.export.solved import mixed_precision, processes, runs_on_cpu, uses_deepspeed, uses_fsdp, zero_stage
from trainwiz.core.run.folder import DEEPSPEED_JSON


def accelerate_config(config: RunConfig) -> dict[str, Any]:
    """The keys of accelerate's ClusterConfig (it refuses any other).

    Two processes on a CPU are MULTI_GPU with `use_cpu` (gloo): MULTI_CPU starts one process and says nothing.
    """
    deepspeed = uses_deepspeed(config)
    count = processes(config)
    document: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": _distributed_type(config),
        "machine_rank": 0,
        "main_training_function": "main",
        "num_machines": config.engine.nodes,
        "num_processes": count,
        "rdzv_backend": "static",
        "same_network": True,
        # DeepSpeed on a CPU is chosen by DS_ACCELERATOR; use_cpu would switch DeepSpeed off.
        "use_cpu": runs_on_cpu(config) and not deepspeed,
    }
    if deepspeed:
        # accelerate refuses mixed_precision, or any key of the JSON, beside deepspeed_config_file.
        document["deepspeed_config"] = {
            "deepspeed_config_file": DEEPSPEED_JSON,
            "zero3_init_flag": zero_stage(config) == 3,
        }
        if config.engine.nodes > 1:
            # Each node is started by itself; the default starts the others from one by ssh (pdsh).
            document["deepspeed_config"]["deepspeed_multinode_launcher"] = "standard"
    else:
        document["mixed_precision"] = mixed_precision(config)
    if uses_fsdp(config):
        document["fsdp_config"] = fsdp_config(config)
    return document


def _distributed_type(config: RunConfig) -> str:
    if uses_deepspeed(config):
        return "DEEPSPEED"
    if uses_fsdp(config):
        return "FSDP"
    return "MULTI_GPU" if processes(config) > 1 else "NO"


def accelerate_yaml(config: RunConfig) -> str:
    """The text of accelerate.yaml; "NO" comes out quoted, or YAML would read it as false."""
    return yaml.safe_dump(accelerate_config(config), default_flow_style=False, sort_keys=True)
