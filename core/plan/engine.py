"""How the step is computed: precision, attention, strategy, optimizer, and over what its loss is a mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainwiz.core.catalog.model_config import NO_LABEL_COUNT, has_attention, has_checkpointing
from trainwiz.core.errors import Finding
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.estimate.traced import NO_EVIDENCE, Evidence
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.hardware.visible import choose_attention, choose_precision, choose_tf32
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft, Facts, type_of_model
from trainwiz.core.plan.words import gib

# Resolves how the step is computed: precision, attention, strategy, optimizer.

INSTALL_DEEPSPEED = "pip install setuptools wheel ninja py-cpuinfo && pip install --no-build-isolation deepspeed"


def resolve_engine(draft: Draft, machine: Machine, devices: Devices) -> tuple[Finding, ...]:
    """Fills the engine section; findings say what a smoke run leaves out."""
    seen = as_seen(machine, devices)
    label = tr("the CPU: no GPU is used") if devices.device == "cpu" else devices.label
    draft.resolve("engine.device", devices.device, label, "detected")
    precision, why = choose_precision(seen)
    draft.resolve("engine.precision", precision, why, "detected")
    tf32, why = choose_tf32(seen)
    draft.resolve("engine.tf32", tf32, why, "detected")
    half = draft.get("engine.precision") not in ("fp32", "tf32")
    attention, why = choose_attention(seen)
    if attention == "flash_attention_2" and not half:
        attention, why = "sdpa", tr("FlashAttention-2 computes in half precision only")
    kind = type_of_model(draft.view())
    attention, why = _that_the_model_has(kind, attention, why)
    draft.resolve("engine.attention", attention, why, "detected")
    if not has_checkpointing(kind):
        reason = tr("off: transformers has no checkpointing for {kind} models", kind=kind)
        draft.resolve("engine.checkpointing", False, reason, "detected")
    draft.resolve("engine.processes", devices.processes, _processes_reason(devices), "detected")
    findings = (
        *_without_deepspeed(draft, machine),
        *_without_fsdp(draft, devices),
        *_one_process(draft, devices),
    )
    _several_processes(draft, devices)
    _strategy(draft, devices)
    _optimizer(draft, devices)
    threads = max(1, machine.cpu_cores // max(1, devices.processes))
    draft.resolve("engine.cpu_threads", threads, cores_shared(machine, devices))
    return findings


def _that_the_model_has(model_type: str | None, attention: str, why: str) -> tuple[str, str]:
    if attention == "flash_attention_2" and not has_attention(model_type, attention):
        attention, why = (
            "sdpa",
            tr("transformers has no FlashAttention-2 for {model_type} models", model_type=model_type),
        )
    if attention == "sdpa" and not has_attention(model_type, attention):
        attention, why = (
            "eager",
            tr("transformers has no other attention for {model_type} models", model_type=model_type),
        )
    return attention, why


def cores_shared(machine: Machine, devices: Devices) -> str:
    """ "12 cores for one process"."""
    cores = trn("{n} core", "{n} cores", machine.cpu_cores)
    return trn("{cores} for one process", "{cores} for {n} processes", devices.processes, cores=cores)


def as_seen(machine: Machine, devices: Devices) -> Machine:
    """The machine with only what the run uses, so that an unused old card decides nothing."""
    if devices.device == "cpu":
        return replace(machine, gpus=(), accelerator="cpu")
    return replace(machine, gpus=devices.gpus)


def _processes_reason(devices: Devices) -> str:
    if devices.device == "cpu":
        if devices.processes == 1:
            return tr("one process uses all cores")
        return tr("processes as on several GPUs, small")
    return tr("one for each GPU") if devices.processes > 1 else tr("one GPU")


def _one_process(draft: Draft, devices: Devices) -> tuple[Finding, ...]:
    """DistributedDataParallel begins with two processes; one alone trains without it."""
    if draft.get("engine.strategy") != "ddp" or devices.world_size > 1:
        return ()
    draft.put("engine.strategy", "single", tr("one process: there is nothing to share"))
    if draft.get("mode.kind") != "smoke":
        return ()
    message = tr("This smoke run has one process, so it does not exercise the engine ddp.")
    return (Finding("engine_not_exercised", "warning", "engine.strategy", message),)


def _several_processes(draft: Draft, devices: Devices) -> None:
    """What runs where several processes are asked for beside "single", as a profile of one device says."""
    if draft.get("engine.strategy") == "single" and devices.world_size > 1 and draft.is_open("engine.deepspeed_file"):
        draft.put(
            "engine.strategy",
            "ddp",
            tr("{world_size} processes, each with the whole model", world_size=devices.world_size),
        )


def _strategy(draft: Draft, devices: Devices) -> None:
    if draft.get("engine.offload") != "none":
        draft.resolve("engine.strategy", "zero2", tr("the engine that can keep the optimizer in host RAM"))
    elif devices.world_size > 1:
        draft.resolve(
            "engine.strategy",
            "ddp",
            tr("{world_size} processes, each with the whole model", world_size=devices.world_size),
        )
    else:
        draft.resolve("engine.strategy", "single", tr("one device"))


def resolve_sharding(
    draft: Draft, machine: Machine, devices: Devices, work: Workload | None, evidence: Evidence = NO_EVIDENCE
) -> None:
    """Shards gradients and optimizer states where several GPUs do not hold them whole, one sequence at a time."""
    key = "engine.strategy"
    chosen = draft.origins.get(key)
    if work is None or devices.capacity_bytes is None or devices.device != "cuda" or devices.world_size == 1:
        return
    if chosen is None or draft.get(key) != "ddp" or not (machine.hypothetical or machine.libraries.has("deepspeed")):
        return
    checkpointing = bool(draft.get("engine.checkpointing")) or draft.is_open("engine.checkpointing")
    whole = replace(work.with_micro_batch(work.micro_batch, 2), checkpointing=checkpointing)
    sharded = replace(whole, strategy="zero2")
    needed, less = (estimate_memory(one, evidence).needed_bytes for one in (whole, sharded))
    if needed > devices.capacity_bytes >= less:
        reason = tr(
            "each process alone would need {needed} of {capacity}; sharded it is {less}",
            needed=gib(needed),
            capacity=gib(devices.capacity_bytes),
            less=gib(less),
        )
        draft.put(key, "zero2", reason)


def _optimizer(draft: Draft, devices: Devices) -> None:
    if devices.device == "cuda" and draft.get("engine.offload") == "none":
        draft.resolve("engine.optimizer", "adamw_torch_fused", tr("one kernel, and no temporary copy of the weights"))
    elif draft.get("engine.offload") != "none":
        draft.resolve("engine.optimizer", "adamw_torch", tr("DeepSpeed's AdamW on the CPU takes its place"))
    else:
        draft.resolve("engine.optimizer", "adamw_torch", tr("works on every device"))


def _without_deepspeed(draft: Draft, machine: Machine) -> tuple[Finding, ...]:
    """A smoke run goes on without the engine that is not installed, and says that it was not exercised."""
    strategy = draft.get("engine.strategy") or ("zero2" if draft.get("engine.offload") != "none" else None)
    if draft.get("mode.kind") != "smoke" or machine.libraries.has("deepspeed") or machine.hypothetical:
        return ()
    if not str(strategy).startswith("zero"):
        return ()
    reason = tr("smoke run: DeepSpeed is not installed here")
    draft.put("engine.strategy", "single" if draft.get("engine.processes") == 1 else "ddp", reason)
    draft.put("engine.offload", "none", reason)
    message = tr(
        "DeepSpeed is not installed, so this smoke run does not exercise the engine {strategy}; "
        "install it with: {command}",
        strategy=strategy,
        command=INSTALL_DEEPSPEED,
    )
    return (Finding("engine_not_exercised", "warning", "engine.strategy", message),)


def _without_fsdp(draft: Draft, devices: Devices) -> tuple[Finding, ...]:
    """A smoke run without GPUs goes on without FSDP, and says that it was not exercised."""
    if draft.get("mode.kind") != "smoke" or draft.get("engine.strategy") != "fsdp" or devices.device == "cuda":
        return ()
    reason = tr("smoke run: FSDP needs GPUs")
    draft.put("engine.strategy", "ddp", reason)
    draft.put("engine.offload", "none", reason)
    message = tr("FSDP needs GPUs, so this smoke run does not exercise it; it trains with DistributedDataParallel.")
    return (Finding("engine_not_exercised", "warning", "engine.strategy", message),)


# Over what the loss of a step is a mean (training.loss_mean), and what that has to do with the order of its rows.

KEY = "training.loss_mean"
ARRANGED = "data.arrange_by_length"


def resolve_loss_mean(draft: Draft) -> None:
    """Token means: the one that does not depend on how a step is cut into micro-batches."""
    if not draft.is_open(KEY):
        return
    # As type_of_model has it, without a view of the whole draft: a plan resolves dozens of them.
    overridden = draft.get("model.architecture_overrides").get("model_type")
    kind = overridden or (draft.get("model.architecture") or {}).get("model_type")
    if kind is None:
        reason = tr("each label of a step weighs the same, however the step is cut")
    elif kind in NO_LABEL_COUNT:
        reason = tr(
            "each label of a step weighs the same, however the step is cut; the Trainer of transformers takes the mean of "
            "the means of micro-batches for {kind} models",
            kind=kind,
        )
    else:
        reason = tr(
            "each label of a step weighs the same, however the step is cut; so does the Trainer of transformers for "
            "{kind} models",
            kind=kind,
        )
    draft.put(KEY, "tokens", reason)


def loss_mean_findings(facts: Facts) -> Iterator[Finding]:
    """What a mean of means meets: rows in another order, and models for which no Trainer of today takes it."""
    config, kind = facts.config, type_of_model(facts.config)
    if config.training.loss_mean != "micro_batches":
        return
    tokens = facts.remedy(tr("take the token mean"), {KEY: "tokens"})
    if config.data.arrange_by_length:
        message = tr(
            "{mean} micro_batches gives a label more weight where its micro-batch has few, and {key} decides which rows "
            "share one: the gradient of a step is not that of the rows as drawn.",
            mean=KEY,
            key=ARRANGED,
        )
        off = facts.remedy(tr("leave the rows as drawn"), {ARRANGED: False})
        yield Finding("weights_by_arrangement", "warning", KEY, message, (tokens, off))
    if kind is not None and kind not in NO_LABEL_COUNT:
        message = tr(
            "The Trainer of transformers takes the token mean for {kind} models; {mean} micro_batches is what its versions "
            "before 4.46 did.",
            kind=kind,
            mean=KEY,
        )
        yield Finding("not_the_stock_mean", "note", KEY, message, (tokens,))
