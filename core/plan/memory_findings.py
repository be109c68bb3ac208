"""Memory of the device, of the host, and of the disk."""

from __future__ import annotations

from dataclasses import replace

from trainwiz.core.estimate.host import LOW_MEMORY_BYTES
from trainwiz.core.estimate.memory import estimate_evaluation
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.plan.facts import Facts
from trainwiz.core.plan.words import gib

OTHER_SHARE = 0.1
"""A desktop or another job that holds more of the card than this is worth a word."""


def memory_findings(facts: Facts) -> list[Finding]:
    return [
        *_architecture(facts),
        *_device(facts),
        *_context(facts),
        *_evaluation(facts),
        *_room(facts),
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
    message = f"Memory and time are not estimated: {facts.unknown_architecture}."
    return [Finding("unknown_architecture", "warning", "model.name", message)]


def _approximate(facts: Facts, work: Workload) -> list[Finding]:
    if not work.architecture.approximate or facts.estimate.tier != "analytic":
        return []
    message = (
        f"The formulas know no models of type {work.architecture.model_type}: they read its config by the usual names, "
        "and the interval is wider."
    )
    return [Finding("approximate_architecture", "note", "model.name", message)]


def states_text(facts: Facts) -> str:
    """ "weights 2.4, gradients 2.4 and optimizer 4.9 GiB are there before any activation"."""
    peak = facts.estimate.peak
    if peak is None:
        return ""
    states = peak.states
    total = states.weights + states.gradients + states.buckets + states.optimizer
    if states.host:
        return f"weights and gradient buckets take {gib(total)}, with the optimizer in host RAM"
    return f"weights, gradients and optimizer states alone take {gib(total)}"


def _device(facts: Facts) -> list[Finding]:
    memory = facts.memory
    if memory.capacity_bytes is None:
        return []
    verdict = facts.estimate.verdict(facts.share_bytes)
    if verdict not in ("does_not_fit", "tight"):
        return []
    largest = sorted(memory.breakdown.items(), key=lambda part: -part[1])[:3]
    parts = ", ".join(f"{name} {size / 2**30:.1f}" for name, size in largest)
    capacity = f"{gib(memory.capacity_bytes)} of {memory.device}"
    if verdict == "tight":
        message = (
            f"It may not fit: between {gib(memory.low_bytes)} and {gib(memory.high_bytes)} "
            f"of {capacity} ({parts}; peak: {memory.peak_moment})."
        )
        return [Finding("tight", "warning", "memory", message, _fixes(facts))]
    message = (
        f"It does not fit: at least {gib(facts.estimate.needed_bytes)} of {capacity} "
        f"({parts}; peak: {memory.peak_moment}); {states_text(facts)}."
    )
    remedies = _fixes(facts)
    if not remedies:
        message += " No change of the engine makes it fit: take a smaller model or shorter sequences."
    return [Finding("does_not_fit", "error", "memory", message, remedies)]


def _context(facts: Facts) -> list[Finding]:
    if facts.config.planning.context_bytes is None or facts.devices.device == "cuda":
        return []
    where = "an Apple GPU" if facts.devices.device == "mps" else "a CPU"
    message = f"planning.context_bytes is not used: it is of NVIDIA GPUs, and this run computes on {where}."
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
    part = f", of which logits {gib(logits)}" if logits else ""
    message = (
        f"Evaluating {size} sequences at once {'does not fit' if verdict == 'does_not_fit' else 'may not fit'}: "
        f"{gib(estimate.device_used_bytes)} of {gib(memory.capacity_bytes)} ({estimate.peak_moment}{part})."
    )
    remedies = (
        (facts.remedy(f"evaluate {smaller} at once: no other result", {key: smaller}),) if smaller else _fixes(facts)
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


def _room(facts: Facts) -> list[Finding]:
    """Memory that stays free, with what would use it."""
    if not facts.room or facts.time.verdict == "idle":
        return []
    message = (
        f"{gib(facts.estimate.needed_bytes)} of {gib(facts.share_bytes or 0)} are needed. What would use the rest: "
        f"{'; or '.join(fix.words for fix in facts.room)}."
    )
    return [Finding("room", "note", "memory", message, tuple(fix.remedy(facts) for fix in facts.room))]


def _others(facts: Facts) -> list[Finding]:
    findings = []
    for gpu in facts.devices.gpus:
        held, total = gpu.memory_other_bytes, gpu.memory_total_bytes
        if held and total and held > OTHER_SHARE * total:
            message = f"The desktop or other jobs hold {gib(held)} of GPU {gpu.index} now; closing them frees it."
            findings.append(Finding("memory_in_use", "note", "memory", message))
    return findings


def _host(facts: Facts) -> list[Finding]:
    memory = facts.memory
    if memory.host_ram_capacity_bytes is None or facts.devices.device == "cpu":
        return []
    if memory.host_ram_bytes <= memory.host_ram_capacity_bytes:
        return []
    parts = ", ".join(f"{name} {gib(size)}" for name, size in memory.host_ram_parts.items() if size > 2**28)
    message = (
        f"Host RAM: {gib(memory.host_ram_bytes)} needed and {gib(memory.host_ram_capacity_bytes)} free ({parts}). "
        "Loader workers, pinned batches, rows and offloaded states take it, not the micro-batch."
    )
    remedies = []
    missing = memory.host_ram_bytes - memory.host_ram_capacity_bytes
    if facts.config.data.workers:
        saved = memory.host_ram_parts.get("workers", 0)
        remedies.append(facts.remedy(f"no loader workers: {_less(saved, missing)}", {"data.workers": 0}))
    if not facts.config.data.streaming and memory.host_ram_parts.get("data", 0) > 2**28:
        saved = memory.host_ram_parts["data"]
        remedies.append(facts.remedy(f"stream the rows: {_less(saved, missing)}", {"data.streaming": True}))
    fewer = _processes_that_fit(facts)
    if fewer and all("still" in remedy.text for remedy in remedies):
        words = f"{fewer} process{'es' * (fewer != 1)} instead of {facts.devices.processes}"
        remedies.append(facts.remedy(words, {"engine.processes": fewer}))
    return [Finding("host_ram", "error", "host_ram", message, tuple(remedies))]


def _processes_that_fit(facts: Facts) -> int:
    """How many fewer training processes host RAM has room for; 0 where it has not for one, or there is one alone."""
    parts = facts.memory.host_ram_parts
    # Offloaded states are shared out: fewer processes hold more each.
    shared = parts.get("supervisor", 0) + parts.get("offloaded", 0)
    each = (sum(parts.values()) - shared) // facts.devices.processes
    room = (facts.memory.host_ram_capacity_bytes or 0) - shared
    return max(0, min(facts.devices.processes - 1, room // each))


def _less(saved: int, missing: int) -> str:
    still = f", still {gib(missing - saved)} too much" if saved < missing else ""
    return f"{gib(saved)} less{still}"


def _low_memory(facts: Facts) -> list[Finding]:
    if facts.devices.device != "cuda" or facts.machine.ram_total_bytes >= LOW_MEMORY_BYTES:
        return []
    data = facts.config.data
    if not (data.workers or data.pin_memory):
        return []
    message = f"{gib(facts.machine.ram_total_bytes)} of RAM is little: loader workers and pinned memory may use it up."
    changes = {"data.workers": 0, "data.pin_memory": False, "data.streaming": True}
    return [Finding("low_memory", "warning", "data.workers", message, (facts.remedy("low-memory mode", changes),))]


def _disk(facts: Facts) -> list[Finding]:
    memory = facts.memory
    if memory.disk_capacity_bytes is None or memory.disk_bytes <= memory.disk_capacity_bytes:
        return []
    place = f" at {facts.machine.disk_path}" if facts.machine.disk_path else ""
    message = (
        f"The run writes up to {gib(memory.disk_bytes)} (checkpoints, final model, logs) and "
        f"{gib(memory.disk_capacity_bytes)} are free{place}."
    )
    remedies = [Remedy("write to another disk: --output-dir FOLDER")]
    if facts.config.checkpoint.keep > 1:
        remedies.insert(0, facts.remedy("keep one checkpoint", {"checkpoint.keep": 1}))
    return [Finding("disk", "error", "disk", message, tuple(remedies))]
