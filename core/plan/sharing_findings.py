"""Engines that share weights out among processes: what they cannot do here, or together with another choice."""

from __future__ import annotations

from collections.abc import Iterator

from trainwiz.core.findings import Finding
from trainwiz.core.language import tr
from trainwiz.core.plan.facts import Facts
from trainwiz.core.plan.hardware_findings import BITSANDBYTES_OPTIMIZERS

STRATEGY = "engine.strategy"


def sharing_findings(facts: Facts) -> list[Finding]:
    if facts.config.engine.strategy == "fsdp":
        return list(_fsdp(facts))
    if str(facts.config.engine.strategy).startswith("zero") and facts.devices.device == "mps":
        message = tr("DeepSpeed does not train on an Apple GPU (engine.strategy).")
        changes = {STRATEGY: "single", "engine.offload": "none"}
        remedy = facts.remedy(tr("train on the one GPU"), changes)
        return [Finding("deepspeed_needs_cuda", "error", STRATEGY, message, (remedy,))]
    return []


def _fsdp(facts: Facts) -> Iterator[Finding]:
    """FSDP as accelerate starts it: on several GPUs, whole or not at all in host RAM, with an optimizer of torch."""
    engine, devices = facts.config.engine, facts.devices
    if devices.device != "cuda":
        yield _no_gpu(facts)
        return
    if devices.world_size == 1:
        message = tr("FSDP shares a model out among several GPUs, and this run has one (engine.strategy).")
        changes = (
            {STRATEGY: "single"} if engine.offload == "none" else {STRATEGY: "zero2", "engine.offload": "optimizer"}
        )
        yield Finding("fsdp_needs_gpus", "error", STRATEGY, message, (facts.remedy(tr("train without it"), changes),))
    if facts.config.task == "seq2seq":
        # accelerate 1.15 puts the table into the group of the head alone; torch 2.13 finds it in the root's as well.
        message = tr(
            "FSDP as accelerate starts it cannot share out a model whose encoder and decoder read one table of tokens, "
            "as those of seq2seq do (engine.strategy); ZeRO-3 can."
        )
        changes = {STRATEGY: "zero3"}
        yield Finding("shared_table", "error", STRATEGY, message, (facts.remedy(tr("shard with ZeRO-3"), changes),))
    if engine.offload == "optimizer":
        message = tr(
            "FSDP keeps all states in host RAM or none (engine.offload); the optimizer alone ZeRO can keep there."
        )
        remedies = (
            facts.remedy(tr("shard with ZeRO-3"), {STRATEGY: "zero3"}),
            facts.remedy(tr("keep all in host RAM"), {"engine.offload": "all"}),
        )
        yield Finding("offload_not_supported", "error", "engine.offload", message, remedies)
    if engine.optimizer in BITSANDBYTES_OPTIMIZERS:
        # github.com/bitsandbytes-foundation/bitsandbytes/issues/1633
        message = tr(
            "engine.optimizer {optimizer} does not work on the weights of FSDP 2: bitsandbytes reads beyond its part.",
            optimizer=engine.optimizer,
        )
        remedy = facts.remedy(tr("use torch's AdamW"), {"engine.optimizer": "adamw_torch_fused"})
        yield Finding("optimizer_not_shared", "error", "engine.optimizer", message, (remedy,))


def _no_gpu(facts: Facts) -> Finding:
    device = facts.devices.device
    if device == "mps":
        message = tr("FSDP needs several GPUs of NVIDIA, and an Apple computer has one GPU (engine.strategy).")
        remedy = facts.remedy(tr("train on the one GPU"), {STRATEGY: "single"})
    else:
        message = tr(
            "FSDP needs GPUs: on a CPU accelerate trains with DistributedDataParallel in its place and says nothing "
            "(engine.strategy). ZeRO-3 shares a model out on a CPU too."
        )
        remedy = facts.remedy(tr("shard with ZeRO-3"), {STRATEGY: "zero3"})
    return Finding("fsdp_needs_gpus", "error", STRATEGY, message, (remedy,))
