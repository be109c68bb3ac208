"""RunConfig -> the YAML of accelerate and the environment variables of the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from trainwiz.core.config.keys import ENVIRONMENT
from trainwiz.core.config.run import RunConfig
from trainwiz.core.export.training_arguments import (
    given,
    mixed_precision,
    processes,
    runs_on_cpu,
    uses_deepspeed,
    uses_fsdp,
    zero_stage,
)
from trainwiz.core.language import mark, tr
from trainwiz.core.processes import POLICY, SPINS, WAITING
from trainwiz.core.run.folder import DEEPSPEED_JSON, TENSORBOARD_LOGS

# RunConfig -> the environment variables of the run, each with its reason.

MOST_THREADS = 16
"""More threads in one process do not speed up what runs on the CPU."""

SHUTDOWN_TIMEOUT_S = 24 * 3600
"""torchrun kills workers 30 s after SIGTERM; a step with hundreds of accumulations takes longer to end in a checkpoint."""

INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""Their names differ from machine to machine (core.nodes.address)."""

WHO: dict[str, str] = {
    "you": mark("your choice"),
    "profile": mark("from the profile"),
    "detected": mark("detected"),
    "solved": mark("chosen by trainwiz"),
}


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable of a run."""

    name: str
    value: str
    reason: str
    """One sentence, without its full stop."""


def run_variables(config: RunConfig) -> list[Variable]:
    """All variables of the run, by name. What `engine.environment` says wins over what every run has."""
    found = {variable.name: variable for variable in _of_every_run(config)}
    if POLICY in config.engine.environment:
        # A number of spins would win over the policy.
        del found[SPINS]
    for name, value in config.engine.environment.items():
        if not _is_found_at_meeting(config, name):
            found[name] = Variable(name, value, _chosen(config, name))
    return [found[name] for name in sorted(found)]


def _is_found_at_meeting(config: RunConfig, name: str) -> bool:
    """What the plan chose by looking at one machine, each of several finds for itself when the training starts."""
    origin = config.origins.get(f"{ENVIRONMENT}.{name}")
    return config.engine.nodes > 1 and name in INTERFACES and origin is not None and origin.origin == "solved"


def launch_environment(config: RunConfig) -> dict[str, str]:
    """Environment variables that belong to the run; the same as launch.sh sets."""
    return {variable.name: variable.value for variable in run_variables(config)}


def cpu_threads(config: RunConfig) -> int:
    """Threads of each training process; where the plan named none, this machine's cores shared among the processes."""
    if config.engine.cpu_threads is not None:
        return config.engine.cpu_threads
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MOST_THREADS, cores // (config.engine.processes or 1)))


def visible_gpus(config: RunConfig) -> str | None:
    """The value of CUDA_VISIBLE_DEVICES; None leaves all. With the CPU chosen, none is seen."""
    if runs_on_cpu(config):
        return ""
    if config.engine.gpus:
        return ",".join(config.engine.gpus)
    return "0" if config.engine.device == "cuda" and processes(config) == 1 else None


EVERY_RUN: tuple[tuple[str, str, str], ...] = (
    ("CUDA_DEVICE_ORDER", "PCI_BUS_ID",
     mark("CUDA's default order differs from the driver's, which numbers the GPUs everywhere else")),
    (POLICY, WAITING[POLICY],
     mark("busy-waiting threads make a step 40x slower when another program needs the cores")),
    (SPINS, WAITING[SPINS],
     mark("but busy-wait briefly: with threads that sleep at once, steps of small models take up to 2x as long")),
    ("TENSORBOARD_LOGGING_DIR", TENSORBOARD_LOGS, mark("the logs of the run stay in its folder")),
    ("PYTHONSAFEPATH", "1", mark("modules in the run folder are not imported")),
    ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1", mark("checkpoints are loaded as tensors and values, never as code")),
    ("TOKENIZERS_PARALLELISM", "false", mark("the data loader workers already run in parallel")),
    ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(SHUTDOWN_TIMEOUT_S),
     mark("torchrun would kill the training 30 s after a stop, before its checkpoint is saved")),
)  # fmt: skip
"""Name, value, reason."""


def _of_every_run(config: RunConfig) -> Iterator[Variable]:
    yield from (Variable(name, value, tr(reason)) for name, value, reason in EVERY_RUN)
    gpus = visible_gpus(config)
    if gpus is not None:
        why = tr("a process that sees several GPUs wraps the model in nn.DataParallel, which multiplies the batch")
        if runs_on_cpu(config):
            why = tr("the run is planned for the CPU")
        elif config.engine.gpus:
            why = tr("the GPUs of the run (engine.gpus)")
        yield Variable("CUDA_VISIBLE_DEVICES", gpus, why)
    if uses_deepspeed(config):
        reason = tr("accelerate passes its number of threads on, but not to DeepSpeed")
        yield Variable("OMP_NUM_THREADS", str(cpu_threads(config)), reason)
        if runs_on_cpu(config):
            yield Variable("DS_ACCELERATOR", "cpu", tr("DeepSpeed computes on the CPU"))


def _chosen(config: RunConfig, name: str) -> str:
    origin = config.origins.get(f"{ENVIRONMENT}.{name}") or config.origins.get(ENVIRONMENT)
    who = tr(WHO.get(origin.origin, "")) if origin else tr("changed manually")
    reason = origin.reason if origin else ""
    return tr("{who}: {reason}", who=who, reason=reason) if who and reason else who or reason


# RunConfig -> the YAML of `accelerate launch --config_file`.

FSDP: dict[str, Any] = {
    "fsdp_version": 2,
    # Each block of the model (transformers' `_no_split_modules`), the embedding and the head by themselves.
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_reshard_after_forward": True,
    # final_model and every checkpoint can be read by `from_pretrained`, and by any number of processes.
    "fsdp_state_dict_type": "FULL_STATE_DICT",
    "fsdp_cpu_ram_efficient_loading": False,
    # The one of transformers takes its place (`activation_checkpointing` of TrainingArguments): accelerate 1.15
    # recomputes without the random state of the first pass, so that dropout hides other values in the second.
    "fsdp_activation_checkpointing": False,
}
"""FSDP 2, which is torch's `fully_shard` on each block: keys of accelerate's `fsdp_config` (FullyShardedDataParallelPlugin
reads them from the environment). Mixed precision is the one beside it: it becomes the type of what is gathered, computed
and reduced."""


def accelerate_config(config: RunConfig) -> dict[str, Any]:
    """The keys of accelerate's ClusterConfig (it refuses any other).

    Two processes on a CPU are MULTI_GPU with `use_cpu` (gloo): MULTI_CPU starts one process and says nothing.
    """
    deepspeed, count, nodes = uses_deepspeed(config), processes(config), config.engine.nodes
    kind = "DEEPSPEED" if deepspeed else "FSDP" if uses_fsdp(config) else "MULTI_GPU" if count > 1 else "NO"
    with_deepspeed = {
        "deepspeed_config_file": DEEPSPEED_JSON,
        "zero3_init_flag": zero_stage(config) == 3,
        # Nodes are started separately; the default launcher starts the others from one by ssh (pdsh).
        "deepspeed_multinode_launcher": "standard" if nodes > 1 else None,
    }
    document = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": kind,
        "machine_rank": 0,
        "main_training_function": "main",
        "num_machines": nodes,
        "num_processes": count,
        "rdzv_backend": "static",
        "same_network": True,
        # DeepSpeed on a CPU is chosen by DS_ACCELERATOR; use_cpu would switch DeepSpeed off.
        "use_cpu": runs_on_cpu(config) and not deepspeed,
        # accelerate refuses mixed_precision, or any key of the JSON, beside deepspeed_config_file.
        "deepspeed_config": given(with_deepspeed) if deepspeed else None,
        "mixed_precision": None if deepspeed else mixed_precision(config),
        "fsdp_config": {**FSDP, "fsdp_offload_params": config.engine.offload == "all"} if kind == "FSDP" else None,
    }
    return given(document)


def accelerate_yaml(config: RunConfig) -> str:
    """The text of accelerate.yaml; "NO" comes out quoted, or YAML would read it as false."""
    return yaml.safe_dump(accelerate_config(config), default_flow_style=False, sort_keys=True)
