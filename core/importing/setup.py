"""How processes are started, under accelerate's own names, and what that means for a run.

An accelerate file and the command that names it are laid over each other here (`{**file.setup, **command.setup}`)
before they become `engine.*` values: a command that says `--num_machines 2` halves the processes of each node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.config.values import Precision, Strategy

PRECISIONS: Mapping[str, Precision] = {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}
"""accelerate's mixed_precision -> engine.precision. Beside its fp8 matrix products accelerate computes in bf16
(Accelerator.__init__: `elif self.mixed_precision == "fp8"` enables autocast, whose type is then bf16)."""

SEVERAL_CARDS = frozenset(
    f"MULTI_{name}" for name in ("GPU", "CPU", "NPU", "MLU", "SDAA", "MUSA", "XPU", "HPU", "NEURON")
)
"""Values of distributed_type that are one whole model for each process."""

ZERO: Mapping[int, Strategy] = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}
"""DeepSpeed's stage 0 shards nothing."""

DEFAULT_ZERO_STAGE = 2
"""DeepSpeedPlugin.zero_stage (accelerate/utils/dataclasses.py)."""


def engine_values(setup: Mapping[str, Any]) -> dict[str, Any]:
    """RunConfig values of a setup; what it leaves open, or says in a way that no run can have, is not in it.

    Read: `distributed_type`, `num_processes` (of all nodes), `num_machines`, `mixed_precision`, `use_cpu`, `gpu_ids`
    ("all" or "0,1"), `zero_stage`, `fsdp_sharding_strategy`, `deepspeed_config_file`.
    """
    values: dict[str, Any] = {}
    precision = PRECISIONS.get(str(setup.get("mixed_precision")).lower())
    if precision is not None:
        values["engine.precision"] = precision
    nodes = whole(setup.get("num_machines")) or 1
    if nodes > 1:
        values["engine.nodes"] = nodes
    processes = whole(setup.get("num_processes"))
    if processes is not None and processes % nodes == 0:
        values["engine.processes"] = processes // nodes
    if setup.get("use_cpu") is True:
        values["engine.device"] = "cpu"
    gpus = gpu_list(setup.get("gpu_ids"))
    if gpus:
        values["engine.gpus"] = gpus
    strategy = _strategy(setup, processes)
    if strategy is not None:
        values["engine.strategy"] = strategy
    return values


def _strategy(setup: Mapping[str, Any], processes: int | None) -> Strategy | None:
    kind = str(setup.get("distributed_type")).upper()
    if kind == "DEEPSPEED" and setup.get("deepspeed_config_file"):
        return None  # which stage it is, that file says
    if kind == "DEEPSPEED":
        stage = setup.get("zero_stage", DEFAULT_ZERO_STAGE)
        return ZERO.get(stage) if isinstance(stage, int) and not isinstance(stage, bool) else None
    if kind == "FSDP":
        return "ddp" if str(setup.get("fsdp_sharding_strategy")).upper() in ("NO_SHARD", "3") else "fsdp"
    if kind in SEVERAL_CARDS:
        return "single" if processes == 1 else "ddp"
    # Several processes under NO are the GPUs of one DataParallel process: each gets one of its own.
    return ("single" if (processes or 1) == 1 else "ddp") if kind in ("NO", "MPS") else None


def whole(value: Any) -> int | None:
    """A count of 1 or more, also as text ("8"); None for all else."""
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


def gpu_list(value: Any) -> list[str]:
    """The GPUs of `gpu_ids` or CUDA_VISIBLE_DEVICES ("0,2"); [] where all are meant."""
    if isinstance(value, list):
        return [str(item).strip() for item in value]
    if value is None or isinstance(value, bool) or str(value).strip().lower() in ("", "all"):
        return []
    return [part.strip() for part in str(value).split(",") if part.strip()]
