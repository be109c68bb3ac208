"""Memory of the device, of the host and of the disk, and what would use what is left free."""

from __future__ import annotations

from dataclasses import replace

from trainwiz.core.errors import Finding, Remedy, after
from trainwiz.core.estimate.host import LOW_MEMORY_BYTES
from trainwiz.core.estimate.memory import estimate_evaluation, estimate_memory, largest_micro_batch
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.draft import Facts
from trainwiz.core.plan.remedied import ACCUMULATION, CHECKPOINTING, MICRO, Fix, try_fix
from trainwiz.core.plan.sizes import GPU_CEILING
from trainwiz.core.plan.words import gib, listed, part_word

# Memory of the device, of the host, and of the disk.

OTHER_SHARE = 0.1
"""A desktop or another job that holds more of the card than this is worth a word."""


def memory_findings(facts: Facts) -> list[Finding]:
    return [
        *_architecture(facts),
        *_device(facts),
        *_context(facts),
        *_evaluation(facts),
        *_headroom(facts),
        *_others(facts),
        *_host(facts),
        *_low_memory(facts),
        *_disk(facts),
    ]


def _architecture(facts: Facts) -> list[Finding]:
    if facts.work is not None:
        return _approximate(facts, facts.work)
    if not facts.unknown_architecture:
        return []
    message = tr("Memory and time are not estimated: {reason}.", reason=facts.unknown_architecture)
    return [Finding("unknown_architecture", "warning", "model.name", message)]


def _approximate(facts: Facts, work: Workload) -> list[Finding]:
    if not work.architecture.approximate or facts.estimate.tier != "analytic":
        return []
    message = tr(
        "The formulas know no models of type {model_type}: they read its config by the usual names, "
        "and the interval is wider.",
        model_type=work.architecture.model_type,
    )
    return [Finding("approximate_architecture", "note", "model.name", message)]


def states_text(facts: Facts) -> str:
    """ "weights 2.4, gradients 2.4 and optimizer 4.9 GiB are there before any activation"."""
    peak = facts.estimate.peak
    if peak is None:
        return ""
    states = peak.states
    total = (states.weights + states.gradients + states.buckets + states.optimizer) * facts.processes_sharing
    if states.host:
        return tr("weights and gradient buckets take {total}, with the optimizer in host RAM", total=gib(total))
    return tr("weights, gradients and optimizer states alone take {total}", total=gib(total))


def _device(facts: Facts) -> list[Finding]:
    memory = facts.memory
    if memory.capacity_bytes is None:
        return []
    verdict = facts.estimate.verdict(facts.share_bytes)
    if verdict not in ("does_not_fit", "tight"):
        return []
    largest = sorted(memory.breakdown.items(), key=lambda part: -part[1])[:3]
    parts = listed(f"{part_word(name)} {size / 2**30:.1f}" for name, size in largest)
    capacity = tr("{size} of {device}", size=gib(memory.capacity_bytes), device=tr(memory.device))
    if verdict == "tight":
        message = tr(
            "It may not fit: between {low} and {high} of {capacity} ({parts}; peak: {peak_moment}).",
            low=gib(memory.low_bytes),
            high=gib(memory.high_bytes),
            capacity=capacity,
            parts=parts,
            peak_moment=memory.peak_moment,
        )
        return [Finding("tight", "warning", "memory", message, _fixes(facts))]
    message = tr(
        "Doesn't fit: needs at least {needed}, {device} has {size} ({parts}; peak: {peak_moment}); {states}.",
        needed=gib(facts.estimate.needed_bytes * facts.processes_sharing),
        device=tr(memory.device),
        size=gib(memory.capacity_bytes),
        parts=parts,
        peak_moment=memory.peak_moment,
        states=states_text(facts),
    )
    remedies = _fixes(facts)
    if all(fix.trains_otherwise for fix in facts.fixes):
        message += after(tr("No engine setting makes it fit."))
    return [Finding("does_not_fit", "error", "memory", message, remedies)]


def _context(facts: Facts) -> list[Finding]:
    if facts.config.planning.context_bytes is None or facts.devices.device == "cuda":
        return []
    if facts.devices.device == "mps":
        message = tr("planning.context_bytes is not used: it is of NVIDIA GPUs, and this run computes on an Apple GPU.")
    else:
        message = tr("planning.context_bytes is not used: it is of NVIDIA GPUs, and this run computes on a CPU.")
    return [Finding("context_not_used", "note", "planning.context_bytes", message)]


def _evaluation(facts: Facts) -> list[Finding]:
    """Held-out rows need no gradients, and their logits come all at once."""
    memory, estimate = facts.memory, facts.evaluation
    if estimate is None or facts.work is None or memory.capacity_bytes is None:
        return []
    share = facts.share_bytes
    assert share is not None
    verdict = estimate.verdict(share)
    if verdict not in ("does_not_fit", "tight") or estimate.allocated_bytes <= facts.estimate.allocated_bytes:
        return []
    size = facts.work.eval_micro_batch
    key = "batch.eval_micro_batch_size"
    smaller = size // 2
    while smaller and not _evaluates_in(facts, smaller, share):
        smaller //= 2
    logits = estimate.breakdown.get("logits", 0)
    moment = estimate.peak_moment
    if logits:
        moment = tr("{moment}, of which logits {logits}", moment=moment, logits=gib(logits))
    used, capacity = gib(estimate.device_used_bytes), gib(memory.capacity_bytes)
    if verdict == "does_not_fit":
        message = tr(
            "Evaluating {size} sequences at once does not fit: {used} of {capacity} ({moment}).",
            size=size,
            used=used,
            capacity=capacity,
            moment=moment,
        )
    else:
        message = tr(
            "Evaluating {size} sequences at once may not fit: {used} of {capacity} ({moment}).",
            size=size,
            used=used,
            capacity=capacity,
            moment=moment,
        )
    remedies = (
        (facts.remedy(tr("evaluate {smaller} at once: no other result", smaller=smaller), {key: smaller}),)
        if smaller
        else _fixes(facts)
    )
    if verdict == "tight":
        return [Finding("evaluation_tight", "warning", key, message, remedies)]
    return [Finding("evaluation_does_not_fit", "error", key, message, remedies)]


def _evaluates_in(facts: Facts, size: int, capacity: int) -> bool:
    assert facts.work is not None
    then = estimate_evaluation(replace(facts.work, eval_micro_batch=size), facts.evidence)
    return then is not None and then.safe_bytes <= capacity


def _fixes(facts: Facts) -> tuple[Remedy, ...]:
    return tuple(fix.remedy(facts) for fix in facts.fixes)


def _headroom(facts: Facts) -> list[Finding]:
    """Memory that stays free, with what would use it."""
    if not facts.room or facts.time.verdict == "idle":
        return []
    message = tr(
        "{needed} of {share} are needed. What would use the rest: {fixes}.",
        needed=gib(facts.estimate.needed_bytes),
        share=gib(facts.share_bytes or 0),
        fixes=(tr("; or") + after("")).join(fix.words for fix in facts.room),
    )
    return [Finding("room", "note", "memory", message, tuple(fix.remedy(facts) for fix in facts.room))]


def _others(facts: Facts) -> list[Finding]:
    findings = []
    for gpu in facts.devices.gpus:
        held, total = gpu.memory_other_bytes, gpu.memory_total_bytes
        if held and total and held > OTHER_SHARE * total:
            message = tr(
                "The desktop or other jobs hold {held} of GPU {index} now; closing them frees it.",
                held=gib(held),
                index=gpu.index,
            )
            findings.append(Finding("memory_in_use", "note", "memory", message))
    return findings


def _host(facts: Facts) -> list[Finding]:
    memory = facts.memory
    if memory.host_ram_capacity_bytes is None or facts.devices.device == "cpu":
        return []
    if memory.host_ram_bytes <= memory.host_ram_capacity_bytes:
        return []
    large = ((name, size) for name, size in memory.host_ram_parts.items() if size > 2**28)
    parts = listed(f"{part_word(name)} {gib(size)}" for name, size in large)
    message = tr(
        "Host RAM: {host_ram} needed and {host_ram_capacity} free ({parts}). Loader workers, pinned "
        "batches, rows and offloaded states take it, not the micro-batch.",
        host_ram=gib(memory.host_ram_bytes),
        host_ram_capacity=gib(memory.host_ram_capacity_bytes),
        parts=parts,
    )
    remedies, savings = [], []
    missing = memory.host_ram_bytes - memory.host_ram_capacity_bytes
    if facts.config.data.workers:
        saved = memory.host_ram_parts.get("workers", 0)
        savings.append(saved)
        words = tr("no loader workers: {less}", less=_less(saved, missing))
        remedies.append(facts.remedy(words, {"data.workers": 0}))
    if not facts.config.data.streaming and memory.host_ram_parts.get("data", 0) > 2**28:
        saved = memory.host_ram_parts["data"]
        savings.append(saved)
        words = tr("stream the rows: {less}", less=_less(saved, missing))
        remedies.append(facts.remedy(words, {"data.streaming": True}))
    fewer = _processes_that_fit(facts)
    if fewer and all(saved < missing for saved in savings):
        words = trn(
            "{n} process instead of {all}", "{n} processes instead of {all}", fewer, all=facts.devices.processes
        )
        remedies.append(facts.remedy(words, {"engine.processes": fewer}))
    return [Finding("host_ram", "error", "host_ram", message, tuple(remedies))]


def _processes_that_fit(facts: Facts) -> int:
    """How many fewer training processes host RAM has room for; 0 where it has not for one, or there is one alone."""
    parts = facts.memory.host_ram_parts
    # Offloaded states are shared out: fewer processes hold more each. One process writes the weights.
    shared = parts.get("supervisor", 0) + parts.get("offloaded", 0) + parts.get("saving", 0)
    each = (sum(parts.values()) - shared) // facts.devices.processes
    room = (facts.memory.host_ram_capacity_bytes or 0) - shared
    return max(0, min(facts.devices.processes - 1, room // each))


def _less(saved: int, missing: int) -> str:
    if saved < missing:
        return tr("{saved} less, still {over} too much", saved=gib(saved), over=gib(missing - saved))
    return tr("{saved} less", saved=gib(saved))


def _low_memory(facts: Facts) -> list[Finding]:
    if facts.devices.device != "cuda" or facts.machine.ram_total_bytes >= LOW_MEMORY_BYTES:
        return []
    data = facts.config.data
    if not (data.workers or data.pin_memory):
        return []
    message = tr(
        "{ram_total} of RAM is little: loader workers and pinned memory may use it up.",
        ram_total=gib(facts.machine.ram_total_bytes),
    )
    changes = {"data.workers": 0, "data.pin_memory": False, "data.streaming": True}
    return [Finding("low_memory", "warning", "data.workers", message, (facts.remedy(tr("low-memory mode"), changes),))]


def _disk(facts: Facts) -> list[Finding]:
    memory = facts.memory
    if memory.disk_capacity_bytes is None or memory.disk_bytes <= memory.disk_capacity_bytes:
        return []
    needed, free, path = gib(memory.disk_bytes), gib(memory.disk_capacity_bytes), facts.machine.disk_path
    if path:
        message = tr(
            "The run writes up to {needed} (checkpoints, final model, logs) and {free} are free at {path}.",
            needed=needed,
            free=free,
            path=path,
        )
    else:
        message = tr(
            "The run writes up to {needed} (checkpoints, final model, logs) and {free} are free.",
            needed=needed,
            free=free,
        )
    remedies = [Remedy(tr("write to another disk: --output-dir FOLDER"))]
    if facts.config.checkpoint.keep > 1:
        remedies.insert(0, facts.remedy(tr("keep one checkpoint"), {"checkpoint.keep": 1}))
    return [Finding("disk", "error", "disk", message, tuple(remedies))]


# What would use the memory that a run leaves free: a larger micro-batch, or no checkpointing.

WORTH = 1.5
"""A micro-batch that is larger by less is no advice."""
QUICKER = 0.97
"""Checkpointing that costs less than this is left alone."""


def find_headroom(facts: Facts) -> tuple[Fix, ...]:
    """Changes of what somebody chose by hand, with which the run still fits safely; the quickest first.

    What is open is resolved to use the memory anyway.
    """
    work, share = facts.work, facts.share_bytes
    if work is None or share is None or facts.memory.verdict != "fits" or facts.devices.device == "cpu":
        return ()
    if facts.config.mode.kind != "train":
        return ()
    found = [_larger(facts, work, share), _without_checkpointing(facts, work)]
    fitting = [fix for fix in found if fix is not None and fix.after.memory.verdict == "fits"]
    return tuple(sorted(fitting, key=lambda fix: fix.time_factor or 1.0))


def _larger(facts: Facts, work: Workload, share: int) -> Fix | None:
    """The largest that fits at the same effective batch; without a batch to keep, the largest of all."""
    if facts.config.origin(MICRO).origin == "solved":
        return None
    batch = facts.batch
    samples = batch.micro_batch * batch.accumulation
    targets = (batch.target_samples, batch.target_tokens, batch.target_real_tokens)
    keeps = any(targets) or batch.accumulation > 1
    ceiling = min(GPU_CEILING, samples) if keeps else GPU_CEILING
    several = work.with_micro_batch(work.micro_batch, max(2, work.accumulation) if keeps else work.accumulation)
    largest = largest_micro_batch(several, share, ceiling, facts.evidence)
    if keeps and samples <= ceiling and _fits_at_once(facts, work, samples, share):
        largest = samples
    micro = next((one for one in range(largest, 0, -1) if samples % one == 0), 1) if keeps else largest
    if micro < WORTH * batch.micro_batch:
        return None
    changes = {MICRO: micro}
    if keeps:
        changes[ACCUMULATION] = samples // micro
    return try_fix(facts, "", changes, work.with_micro_batch(micro), any_batch=not keeps)


def _fits_at_once(facts: Facts, work: Workload, samples: int, share: int) -> bool:
    """A single micro-batch meets no gradients of another."""
    return estimate_memory(work.with_micro_batch(samples, 1), facts.evidence).safe_bytes <= share


def _without_checkpointing(facts: Facts, work: Workload) -> Fix | None:
    if not work.checkpointing or facts.config.origin(CHECKPOINTING).origin == "solved":
        return None
    fix = try_fix(facts, tr("without checkpointing"), {CHECKPOINTING: False}, replace(work, checkpointing=False))
    return fix if fix is not None and (fix.time_factor or 1.0) < QUICKER else None
