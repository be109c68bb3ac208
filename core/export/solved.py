"""What every export asks of a RunConfig: that the plan has filled it in, and which engine it means."""

from __future__ import annotations

from typing import TypeVar

from trainwiz.core.config.run import RunConfig

T = TypeVar("T")

ZERO_STAGES: dict[str, int] = {"zero1": 1, "zero2": 2, "zero3": 3}


def solved(value: T | None, key: str) -> T:
    """`value`, which the plan must have filled in. Raises ValueError naming the key when it has not."""
    if value is None:
        raise ValueError(f"{key} is not solved yet: only the config of a plan can be exported")
    return value


def zero_stage(config: RunConfig) -> int | None:
    """The ZeRO stage, or None where DeepSpeed is not used."""
    return ZERO_STAGES.get(solved(config.engine.strategy, "engine.strategy"))


def uses_deepspeed(config: RunConfig) -> bool:
    return config.engine.deepspeed_file is not None or zero_stage(config) is not None


def uses_fsdp(config: RunConfig) -> bool:
    return config.engine.strategy == "fsdp" and not uses_deepspeed(config)


def processes(config: RunConfig) -> int:
    """Training processes over all nodes."""
    return (config.engine.processes or 1) * config.engine.nodes


def runs_on_cpu(config: RunConfig) -> bool:
    """The run computes on the CPU although nothing forbids it to look for a GPU."""
    return solved(config.engine.device, "engine.device") == "cpu"


def mixed_precision(config: RunConfig) -> str:
    """ "fp16", "bf16" or "no", alike for TrainingArguments and accelerate.

    bf16-true has bf16 weights, so there is nothing to mix; DeepSpeed alone calls it bf16 too.
    """
    precision = solved(config.engine.precision, "engine.precision")
    if precision in ("fp16", "bf16"):
        return precision
    return "bf16" if precision == "bf16-true" and uses_deepspeed(config) else "no"
