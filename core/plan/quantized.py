"""A frozen base in 4 or 8 bits, and LoRA where all weights cannot train: chosen where nothing else fits, refused where it
does not work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainwiz.core.catalog.model_config import has_checkpointing
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.estimate.quantized import base_bytes
from trainwiz.core.estimate.workload import HALF, SINGLE, Workload
from trainwiz.core.hardware.install import training_line
from trainwiz.core.language import tr
from trainwiz.core.plan.engine import OFFLOAD, STRATEGY
from trainwiz.core.plan.result import Plan, Refusal
from trainwiz.core.plan.sizes import CHECKPOINTING, MICRO
from trainwiz.core.plan.tasks import INIT, learnt_words
from trainwiz.core.plan.words import gib, percent
from trainwiz.core.plan.workload import workload_of

BASE, METHOD, COMPILE = "engine.base_precision", "peft.method", "engine.compile"
ALONE = ("single", "ddp")
"""Strategies in which each process holds its own base."""
TASKS = ("causal-lm", "seq2seq")


def has_bitsandbytes(plan: Plan) -> bool:
    return plan.machine.may_have("bitsandbytes")


# What is chosen where nobody chose.


def resolve_method(plan: Plan) -> None:
    """LoRA where nobody said how to train a pretrained model whose weights and gradients alone are more than the cards
    have: no optimizer would help."""
    config, devices, architecture = plan.config, plan.devices, plan.architecture
    if plan.based_on is not None:
        # A profile is a recipe, which says so where it trains adapters.
        return
    asked = METHOD in config.origins or plan.get(STRATEGY) not in (None, *ALONE) or plan.get(OFFLOAD) != "none"
    asked = asked or plan.get("engine.deepspeed_file") is not None or config.mode.kind == "smoke"
    if asked or plan.get("task") not in TASKS or plan.get(INIT) != "pretrained" or architecture is None:
        return
    if devices.device != "cuda" or devices.capacity_bytes is None:
        return
    element = HALF if plan.get("engine.precision") == "bf16-true" else SINGLE
    needed = 2 * element * architecture.trainable_parameters
    if needed <= devices.capacity_bytes * devices.world_size:
        return
    reason = tr(
        "training all weights needs {needed}; only {capacity} is available",
        needed=gib(needed),
        capacity=gib(devices.capacity_bytes * devices.world_size),
    )
    plan.put(METHOD, "lora", reason)
    if config.origin(INIT).reason == learnt_words(config, plan.spec):
        plan.reasons[INIT] = config.origin(INIT).origin, learnt_words(plan.view(), plan.spec)


def resolve_base(plan: Plan) -> None:
    """The base of adapters in 4 bits where the run does not fit with it as it computes, and fits then."""
    if plan.get(METHOD) != "lora" or not plan.is_open(BASE):
        return
    work, share, precision = workload_of(plan), plan.share_bytes, plan.get("engine.precision")
    if work is None or share is None:
        plan.put(BASE, "none", tr("in {precision}: its memory use is unknown", precision=precision))
        return
    whole, packed = (_smallest(plan, replace(work, base_precision=kind)) for kind in ("none", "nf4"))
    now, then = (estimate_memory(each, plan.evidence) for each in (whole, packed))
    usable = plan.get(INIT) == "pretrained" and plan.get("task") in TASKS and plan.devices.device == "cuda"
    alone = plan.get(STRATEGY) in ALONE and plan.get(OFFLOAD) == "none" and not plan.get(COMPILE)
    if now.verdict(share) == "fits":
        reason = tr("{size} of weights in {precision} fit", size=gib(base_bytes(whole)), precision=precision)
    elif not (usable and alone):
        reason = tr("4 bits is for pretrained models on NVIDIA GPUs, each with a full copy of the base")
    elif not has_bitsandbytes(plan):
        reason = tr("4 bits needs bitsandbytes, which is not installed on this machine")
    elif then.verdict(share) == "does_not_fit":
        reason = tr("it would not fit even in 4 bits")
    else:
        reason = tr(
            "in {precision} it needs {whole}, in 4 bits {packed}; {capacity} is available",
            precision=precision,
            whole=gib(now.safe_bytes),
            packed=gib(then.safe_bytes),
            capacity=gib(share),
        )
        plan.put(BASE, "nf4", reason)
        return
    plan.put(BASE, "none", reason)


def _smallest(plan: Plan, work: Workload) -> Workload:
    """One sequence at once and checkpointing, where nobody chose otherwise."""
    micro = int(plan.get(MICRO) or 1)
    again = bool(plan.get(CHECKPOINTING)) if not plan.is_open(CHECKPOINTING) else has_checkpointing(plan.model_type)
    return replace(work.with_micro_batch(micro, 2), checkpointing=again)


# What bitsandbytes, or what the others make of it, cannot do.


def base_refusals(plan: Plan) -> Iterator[Refusal]:
    """Of a base in fewer bits than the run computes in."""
    engine, kind = plan.config.engine, plan.config.engine.base_precision
    if kind in (None, "none"):
        return
    bits = tr("4 bits") if kind == "nf4" else tr("8 bits")
    whole = tr("keep it in the precision of the run"), {BASE: "none"}
    lora = tr("use LoRA"), {METHOD: "lora"}
    message = tr("Weights in {bits} cannot be trained; they are for the frozen base of LoRA.", bits=bits)
    yield plan.config.peft.method == "none", "quantized_without_adapters", BASE, message, (lora, whole)
    several = plan.devices.world_size > 1
    apart = (
        tr("keep a full base on each GPU (DDP)") if several else tr("train in one process"),
        {STRATEGY: "ddp" if several else "single", OFFLOAD: "none", "engine.deepspeed_file": None},
    )
    message = tr(
        "trainwiz does not shard a base in {bits}: {strategy} would need another storage format (engine.strategy).",
        bits=bits,
        strategy=engine.strategy,
    )
    shared = engine.strategy not in ALONE or engine.offload != "none" or engine.deepspeed_file is not None
    yield shared, "quantized_not_sharded", STRATEGY, message, (apart, whole)
    message = tr("transformers does not train a base in {bits} with torch.compile (engine.compile).", bits=bits)
    yield (
        engine.compile,
        "quantized_not_compiled",
        COMPILE,
        message,
        ((tr("turn torch.compile off"), {COMPILE: False}), whole),
    )
    message = tr(
        "A base in {bits} needs an NVIDIA GPU or a CPU; trainwiz does not support it on Apple GPUs.", bits=bits
    )
    yield plan.devices.device == "mps", "quantized_unsupported", BASE, message, (whole,)
    message = tr(
        "A base in {bits} needs bitsandbytes, which is not installed on this machine (engine.base_precision).",
        bits=bits,
    )
    install = Remedy(tr("install it"), training_line(plan.machine, "[qlora]"))
    yield not has_bitsandbytes(plan), "bitsandbytes_missing", BASE, message, (install, whole)


def base_findings(plan: Plan) -> Iterator[Finding]:
    """Experts that stay as they are."""
    work = plan.work
    experts = sum(block.layers * block.expert_parameters for block in work.architecture.blocks) if work else 0
    if work is None or not work.quantized or not experts:
        return
    message = tr(
        "The experts of {name} stay in {precision}, {share} of its weights: transformers stores them in one tensor, "
        "which bitsandbytes does not quantize.",
        name=plan.config.model.name,
        precision=plan.config.engine.precision,
        share=percent(experts / work.architecture.parameters, 0),
    )
    yield plan.note("experts_not_quantized", BASE, message)
