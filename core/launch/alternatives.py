"""Which other values of a plan's settings are worth a measurement here, and which are not, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwiz.core.catalog.abilities import has_attention
from trainwiz.core.data.packing import packs_rows
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.export.solved import uses_deepspeed
from trainwiz.core.hardware.choices import AMPERE
from trainwiz.core.history.comparison import Alternative
from trainwiz.core.language import tr
from trainwiz.core.launch.arm import with_changes
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import gib

TORCH_ADAMW = ("adamw_torch", "adamw_torch_fused")
MOST_OF_RAM = 0.9
"""Of what is free now."""
FIRST_COMPILED = (7, 0)
"""Compute capability that Triton makes kernels for."""


def alternatives_of(plan: Plan) -> tuple[Alternative, ...]:
    """Those to measure have no note; the others say in theirs why they are not measured. The quickest come first."""
    config = plan.config
    found = (*_attention(plan), *_optimizer(plan), *_tf32(plan), *_precision(plan), *_compile(plan))
    found = tuple(
        _not(one, tr("you chose {value}", value=next(iter(one.base.values()))))
        if config.origin(one.key).origin == "you"
        else one
        for one in found
    )
    return tuple(one if one.note else _not(one, _beyond_ram(plan, one.changes)) for one in found)


def growth(plan: Plan, changes: dict[str, Any]) -> float:
    """Memory with `changes` over that of the plan's own settings, by formulas; at least 1."""
    changed = with_changes(plan, changes).work
    if plan.work is None or changed is None:
        return 1.0
    return max(1.0, estimate_memory(changed).needed_bytes / max(1, estimate_memory(plan.work).needed_bytes))


def _beyond_ram(plan: Plan, changes: dict[str, Any]) -> str:
    """A GPU that is full says so; a computer whose RAM is full ends other programs."""
    if plan.config.engine.device != "cpu" or plan.config.forced:
        return ""
    memory, free = plan.memory, plan.machine.ram_available_bytes
    needed = round(growth(plan, changes) * (memory.host_ram_high_bytes or memory.host_ram_bytes))
    if not free or needed <= MOST_OF_RAM * free:
        return ""
    return tr("it may take {needed} of RAM, and {free} are free", needed=gib(needed), free=gib(free))


def _other(plan: Plan, key: str, value: Any, note: str = "") -> Alternative:
    return Alternative({key: value}, {key: plan.config.value(key)}, "not_measured", note=note)


def _not(one: Alternative, note: str) -> Alternative:
    return Alternative(one.changes, one.base, "not_measured", note=note)


def _attention(plan: Plan) -> Iterator[Alternative]:
    engine, kind = plan.config.engine, _model_type(plan)
    for value in ("sdpa", "eager", "flash_attention_2"):
        if value == engine.attention:
            continue
        note = _of_packed_rows(plan) if value == "eager" else ""
        if value != "eager" and not has_attention(kind, value):
            note = tr("transformers has none for {model_type} models", model_type=kind)
        elif value == "flash_attention_2":
            note = _no_flash(plan)
        yield _other(plan, "engine.attention", value, note)


def _no_flash(plan: Plan) -> str:
    if plan.config.engine.device != "cuda":
        return tr("it needs an NVIDIA GPU")
    if any((gpu.capability or (0, 0)) < AMPERE for gpu in plan.machine.visible_gpus):
        return tr("it needs sm 8.0")
    if not plan.machine.libraries.has("flash_attn"):
        return tr("flash-attn is not installed")
    return "" if plan.config.engine.precision not in ("fp32", "tf32") else tr("it computes in half precision only")


def _optimizer(plan: Plan) -> Iterator[Alternative]:
    engine = plan.config.engine
    if engine.optimizer not in TORCH_ADAMW:
        return
    other = TORCH_ADAMW[1 - TORCH_ADAMW.index(engine.optimizer)]
    yield _other(plan, "engine.optimizer", other, _deepspeeds_own(plan))


def _tf32(plan: Plan) -> Iterator[Alternative]:
    """None where the precision is tf32, which says it."""
    engine, cards = plan.config.engine, plan.machine.visible_gpus
    if (
        engine.precision != "tf32"
        and engine.device == "cuda"
        and all((gpu.capability or (0, 0)) >= AMPERE for gpu in cards)
    ):
        yield _other(plan, "engine.tf32", not engine.tf32)


def _precision(plan: Plan) -> Iterator[Alternative]:
    """On a CPU with instructions for bf16; a GPU's precision follows from its capability."""
    engine = plan.config.engine
    if engine.device != "cpu" or engine.precision not in ("fp32", "bf16"):
        return
    note = _deepspeed_in_bf16(plan)
    if not note and plan.machine.cpu_bf16 is False:
        note = tr("this processor has no instructions for bf16")
    yield _other(plan, "engine.precision", "bf16" if engine.precision == "fp32" else "fp32", note)


def _compile(plan: Plan) -> Iterator[Alternative]:
    engine = plan.config.engine
    note = _of_packed_rows(plan)
    if not note and engine.device == "cuda":
        if any((gpu.capability or (0, 0)) < FIRST_COMPILED for gpu in plan.machine.visible_gpus):
            note = tr("it needs sm 7.0")
        elif not plan.machine.libraries.has("triton"):
            note = tr("Triton is not installed")
    yield _other(plan, "engine.compile", not engine.compile, note)


def _of_packed_rows(plan: Plan) -> str:
    """Of eager attention and torch.compile, as core/plan/packing.py says."""
    return tr("it cannot take rows end to end (data.packing)") if packs_rows(plan.config) else ""


def _deepspeeds_own(plan: Plan) -> str:
    """The file that trainwiz writes for DeepSpeed names AdamW itself, fused or not."""
    engine = plan.config.engine
    own_file = uses_deepspeed(plan.config) and engine.deepspeed_file is None
    return tr("DeepSpeed's own takes its place") if own_file or engine.offload != "none" else ""


def _deepspeed_in_bf16(plan: Plan) -> str:
    return tr("DeepSpeed computes in fp32 on a CPU") if uses_deepspeed(plan.config) else ""


def _model_type(plan: Plan) -> str | None:
    model = plan.config.model
    kind = {**(model.architecture or {}), **model.architecture_overrides}.get("model_type")
    return kind if isinstance(kind, str) else None
