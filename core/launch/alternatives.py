"""Which other values of a plan's settings are worth a measurement here, and which are not, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from trainwiz.core.catalog.abilities import has_attention
from trainwiz.core.data.packing import packs_rows
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.export.solved import uses_deepspeed
from trainwiz.core.hardware.choices import AMPERE
from trainwiz.core.language import tr
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import gib

TORCH_ADAMW = ("adamw_torch", "adamw_torch_fused")
MOST_OF_RAM = 0.9
"""Of what is free now."""
FIRST_COMPILED = (7, 0)
"""Compute capability that Triton makes kernels for."""


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
    engine, cards = plan.config.engine, [gpu.capability or (0, 0) for gpu in plan.machine.visible_gpus]
    packed = tr("it cannot take rows end to end (data.packing)") if packs_rows(plan.config) else ""
    for value in ("sdpa", "eager", "flash_attention_2"):
        if value != engine.attention:
            yield Alternative("engine.attention", value, engine.attention, _no_attention(plan, value, packed))
    if engine.optimizer in TORCH_ADAMW:
        deepspeeds = (uses_deepspeed(plan.config) and engine.deepspeed_file is None) or engine.offload != "none"
        note = tr("DeepSpeed's own takes its place") if deepspeeds else ""
        other = TORCH_ADAMW[1 - TORCH_ADAMW.index(engine.optimizer)]
        yield Alternative("engine.optimizer", other, engine.optimizer, note)
    # The precision tf32 says it already.
    if engine.device == "cuda" and engine.precision != "tf32" and min(cards, default=(0, 0)) >= AMPERE:
        yield Alternative("engine.tf32", not engine.tf32, engine.tf32)
    # A GPU's precision follows from its capability.
    if engine.device == "cpu" and engine.precision in ("fp32", "bf16"):
        note = tr("DeepSpeed computes in fp32 on a CPU") if uses_deepspeed(plan.config) else ""
        if not note and plan.machine.cpu_bf16 is False:
            note = tr("this processor has no instructions for bf16")
        yield Alternative("engine.precision", "bf16" if engine.precision == "fp32" else "fp32", engine.precision, note)
    note = packed
    if not note and engine.device == "cuda" and min(cards, default=FIRST_COMPILED) < FIRST_COMPILED:
        note = tr("it needs sm 7.0")
    elif not note and engine.device == "cuda" and not plan.machine.libraries.has("triton"):
        note = tr("Triton is not installed")
    yield Alternative("engine.compile", not engine.compile, engine.compile, note)


def _no_attention(plan: Plan, value: str, packed: str) -> str:
    model, engine = plan.config.model, plan.config.engine
    kind = {**(model.architecture or {}), **model.architecture_overrides}.get("model_type")
    if value == "eager":
        return packed
    if not has_attention(kind, value):
        return tr("transformers has none for {model_type} models", model_type=kind)
    if value == "sdpa":
        return ""
    if engine.device != "cuda":
        return tr("it needs an NVIDIA GPU")
    if any((gpu.capability or (0, 0)) < AMPERE for gpu in plan.machine.visible_gpus):
        return tr("it needs sm 8.0")
    if not plan.machine.libraries.has("flash_attn"):
        return tr("flash-attn is not installed")
    return "" if engine.precision not in ("fp32", "tf32") else tr("it computes in half precision only")


def _chosen(plan: Plan, one: Alternative) -> str:
    return tr("you chose {value}", value=one.base) if plan.config.origin(one.key).origin == "you" else ""


def _beyond_ram(plan: Plan, one: Alternative) -> str:
    """A GPU that is full says so; a computer whose RAM is full ends other programs."""
    memory, free = plan.memory, plan.machine.ram_available_bytes
    needed = round(growth(plan, one) * (memory.host_ram_high_bytes or memory.host_ram_bytes))
    if plan.config.engine.device != "cpu" or plan.config.forced or not free or needed <= MOST_OF_RAM * free:
        return ""
    return tr("it may take {needed} of RAM, and {free} are free", needed=gib(needed), free=gib(free))
