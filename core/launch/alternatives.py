"""Which other values of a plan's settings are worth a measurement here, and which are not, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from trainwiz.core.data.packing import packs_rows
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.export.solved import uses_deepspeed
from trainwiz.core.language import tr
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import gib

TORCH_ADAMW = ("adamw_torch", "adamw_torch_fused")
MOST_OF_RAM = 0.9
"""Of what is free now."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another value of one setting against the plan's own; with a note it is not measured."""

    key: str
    value: Any
    base: Any
    note: str = ""


def alternatives_of(plan: Plan) -> tuple[Alternative, ...]:
    """The quickest to measure come first."""
    return tuple(replace(one, note=_chosen(plan, one) or one.note or _beyond_ram(plan, one)) for one in _all(plan))


def with_value(plan: Plan, one: Alternative) -> Plan:
    """The plan with another value of a setting that leaves batch, lengths and rows as they are."""
    name = one.key.removeprefix("engine.")
    work = plan.work
    if work is not None and name in ("precision", "attention", "optimizer"):
        work = replace(work, **{name: one.value})
    return replace(plan, config=plan.config.with_values({one.key: one.value}, "solved", {}), work=work)


def growth(plan: Plan, one: Alternative) -> float:
    """Its memory over that of the plan's own settings, by formulas; at least 1."""
    changed = with_value(plan, one).work
    if plan.work is None or changed is None:
        return 1.0
    return max(1.0, estimate_memory(changed).needed_bytes / max(1, estimate_memory(plan.work).needed_bytes))


def _all(plan: Plan) -> Iterator[Alternative]:
    """What this machine cannot run fails at its first step, and says why."""
    engine = plan.config.engine
    packed = tr("it cannot take rows end to end (data.packing)") if packs_rows(plan.config) else ""
    flash = "" if plan.machine.libraries.has("flash_attn") else tr("flash-attn is not installed")
    notes = {"sdpa": "", "eager": packed}
    if engine.device == "cuda" and engine.precision not in ("fp32", "tf32"):
        notes["flash_attention_2"] = flash
    for value, note in notes.items():
        if value != engine.attention:
            yield Alternative("engine.attention", value, engine.attention, note)
    # DeepSpeed has its own AdamW, and computes in fp32 on a CPU.
    if engine.optimizer in TORCH_ADAMW and engine.offload == "none" and not uses_deepspeed(plan.config):
        other = TORCH_ADAMW[1 - TORCH_ADAMW.index(engine.optimizer)]
        yield Alternative("engine.optimizer", other, engine.optimizer)
    if engine.device == "cpu" and engine.precision in ("fp32", "bf16") and not uses_deepspeed(plan.config):
        yield Alternative("engine.precision", "bf16" if engine.precision == "fp32" else "fp32", engine.precision)
    without_triton = engine.device == "cuda" and not plan.machine.libraries.has("triton")
    note = packed or (tr("Triton is not installed") if without_triton else "")
    yield Alternative("engine.compile", not engine.compile, engine.compile, note)


def _chosen(plan: Plan, one: Alternative) -> str:
    return tr("you chose {value}", value=one.base) if plan.config.origin(one.key).origin == "you" else ""


def _beyond_ram(plan: Plan, one: Alternative) -> str:
    """A GPU that is full says so; a computer whose RAM is full ends other programs."""
    memory, free = plan.memory, plan.machine.ram_available_bytes
    needed = round(growth(plan, one) * (memory.host_ram_high_bytes or memory.host_ram_bytes))
    if plan.config.engine.device != "cpu" or plan.config.forced or not free or needed <= MOST_OF_RAM * free:
        return ""
    return tr("it may take {needed} of RAM, and {free} are free", needed=gib(needed), free=gib(free))
