"""What makes a run fit: changes at the same effective batch, each computed again, the cheapest in time first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainwiz.core.batch import accumulation_for
from trainwiz.core.estimate.memory import MemoryEstimate, estimate_evaluation, estimate_memory, largest_micro_batch
from trainwiz.core.estimate.states import states_of
from trainwiz.core.estimate.time import step_time
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.findings import Remedy
from trainwiz.core.plan.facts import Facts
from trainwiz.core.plan.words import gib

MOST = 4
LOSS_CHUNK = 512
LARGE_SHARE = 0.25
"""Logits that are more of the peak than this are worth a loss in slices."""


@dataclass(frozen=True, slots=True)
class Fix:
    """One way to fit."""

    words: str
    work: Workload
    estimate: MemoryEstimate
    changes: Mapping[str, Any]
    time_factor: float | None


def fixes(facts: Facts) -> list[Fix]:
    """Ways that fit safely (at worst tight when none does), at most four, the least extra time first."""
    work, capacity = facts.work, facts.memory.capacity_bytes
    if work is None or capacity is None:
        return []
    found: list[Fix] = []
    before = step_time(work, facts.rate).step.likely if facts.rate else None
    for words, changed, changes in _candidates(facts, work):
        fitted = _fitted(changed, capacity, keep=_keeps_micro_batch(changes))
        if fitted is None or not _host_holds(facts, work, changed):
            continue
        smaller, estimate = fitted
        if smaller.micro_batch != work.micro_batch:
            changes = {
                **changes,
                "batch.micro_batch_size": smaller.micro_batch,
                "batch.gradient_accumulation_steps": smaller.accumulation,
            }
            words = f"{words}, " if words else ""
            words += f"micro-batch {smaller.micro_batch} × accumulation {smaller.accumulation}"
        evaluated = smaller.eval_micro_batch if _solves_evaluation(facts) else _evaluated_at_once(smaller, capacity)
        if evaluated is None:
            continue
        if evaluated != smaller.eval_micro_batch:
            changes = {**changes, "batch.eval_micro_batch_size": evaluated}
            words += f", {evaluated} evaluated at once"
            smaller = replace(smaller, eval_micro_batch=evaluated)
        factor = None
        if facts.rate is not None and before:
            factor = step_time(smaller, facts.rate).step.likely / before
        found.append(Fix(words, smaller, estimate, changes, factor))
    found = _distinct(found)
    safe = [fix for fix in found if fix.estimate.verdict(capacity) == "fits"]
    chosen = safe or found
    return sorted(chosen, key=lambda fix: (fix.time_factor or 1.0, len(fix.changes)))[:MOST]


def fix_remedies(facts: Facts) -> tuple[Remedy, ...]:
    """The fixes as remedies: "checkpointing: 5.4 GiB, about 33 % more time"."""
    return tuple(
        facts.remedy(
            f"{fix.words}: {gib(fix.estimate.device_used_bytes)}{_cost(fix, facts.batch.micro_batch)}", fix.changes
        )
        for fix in fixes(facts)
    )


def _cost(fix: Fix, micro_batch: int) -> str:
    if fix.time_factor is None:
        return ""
    more = round((fix.time_factor - 1) * 100)
    if more > 1:
        return f", about {more} % more time"
    if more < -1:
        return f", about {-more} % less time"
    return ", the same work in smaller pieces" if fix.work.micro_batch < micro_batch else ", the same time"


def _candidates(facts: Facts, work: Workload) -> Iterator[tuple[str, Workload, dict[str, Any]]]:
    """(words, workload, changes). Combinations come after what they are made of."""
    checkpointed = replace(work, checkpointing=True)
    if work.attention == "eager":
        yield "sdpa attention", replace(work, attention="sdpa"), {"engine.attention": "sdpa"}
    yield "", work, {}
    if not work.checkpointing:
        yield "checkpointing", checkpointed, {"engine.checkpointing": True}
    if work.optimizer == "adamw_torch" and work.device == "cuda" and not work.deepspeed:
        yield (
            "fused AdamW",
            replace(work, optimizer="adamw_torch_fused"),
            {"engine.optimizer": "adamw_torch_fused"},
        )
    if work.loss_chunk is None and facts.memory.breakdown.get("logits", 0) > LARGE_SHARE * facts.memory.allocated_bytes:
        yield (
            f"loss in slices of {LOSS_CHUNK:,} tokens",
            replace(work, loss_chunk=LOSS_CHUNK),
            {"training.loss_chunk": LOSS_CHUNK},
        )
    if work.device != "cuda" or work.lora:
        return
    machine = facts.machine
    if not work.deepspeed and (machine.hypothetical or machine.libraries.has("bitsandbytes")):
        eight = replace(work, optimizer="adamw_bnb_8bit")
        changes: dict[str, Any] = {"engine.optimizer": "adamw_bnb_8bit"}
        yield "8-bit AdamW", eight, changes
        yield (
            "8-bit AdamW, checkpointing",
            replace(eight, checkpointing=True),
            {**changes, "engine.checkpointing": True},
        )
    if work.offload == "none":
        away = replace(work, strategy="zero2", offload="optimizer", optimizer="adamw_torch")
        changes = {
            "engine.strategy": "zero2",
            "engine.offload": "optimizer",
            "engine.optimizer": "adamw_torch",
        }
        if len(machine.visible_gpus) > facts.devices.processes:
            # A sharding strategy would take every card, and the batch with them.
            changes["engine.processes"] = facts.devices.processes
        words = "optimizer in host RAM (ZeRO-2)"
        if not (machine.hypothetical or machine.libraries.has("deepspeed")):
            words += ", once DeepSpeed is installed"
        yield words, away, changes
        both = {**changes, "engine.checkpointing": True}
        yield f"{words}, checkpointing", replace(away, checkpointing=True), both


def _keeps_micro_batch(changes: Mapping[str, Any]) -> bool:
    """The bare candidate is the smaller micro-batch itself."""
    return bool(changes)


def _host_holds(facts: Facts, before: Workload, after: Workload) -> bool:
    """Whether the host has room for what the change moves there; a host that is too small already is judged elsewhere."""
    more = (states_of(after).host - states_of(before).host) * facts.devices.processes
    free = facts.memory.host_ram_capacity_bytes
    return more <= 0 or free is None or facts.memory.host_ram_bytes + more <= free


def _solves_evaluation(facts: Facts) -> bool:
    """Whether nobody chose the size of evaluation's batches: the remedied plan finds its own."""
    return facts.config.origin("batch.eval_micro_batch_size").origin == "solved"


def _evaluated_at_once(work: Workload, capacity: int) -> int | None:
    """As many as now where they fit, else the largest half, quarter, ... that does; None where not one fits."""
    size = work.eval_micro_batch
    while size:
        estimate = estimate_evaluation(replace(work, eval_micro_batch=size))
        if estimate is None or estimate.needed_bytes <= estimate_memory(work).needed_bytes:
            return size
        if estimate.verdict(capacity) == "fits":
            return size
        size //= 2
    return None if work.eval_micro_batch else 0


def _fitted(work: Workload, capacity: int, *, keep: bool) -> tuple[Workload, MemoryEstimate] | None:
    """The workload at its micro-batch where that fits, else at the largest that does; None where nothing does."""
    estimate = estimate_memory(work)
    if keep and estimate.verdict(capacity) == "fits":
        return work, estimate
    micro = largest_micro_batch(work, capacity, max(1, work.micro_batch - 1))
    if micro == 0 or (micro == work.micro_batch and not keep):
        return None
    samples = work.micro_batch * work.accumulation
    # A divisor keeps the batch exact, where one is near.
    exact = next((one for one in range(micro, micro // 2, -1) if samples % one == 0), micro)
    smaller = work.with_micro_batch(exact, accumulation_for(samples, exact, 1))
    estimate = estimate_memory(smaller)
    return None if estimate.verdict(capacity) == "does_not_fit" else (smaller, estimate)


def _distinct(found: list[Fix]) -> list[Fix]:
    """A combination is dropped where a part of it alone fits at the same micro-batch."""
    kept: list[Fix] = []
    for fix in found:
        covered = any(other.work.micro_batch >= fix.work.micro_batch and _means(other) < _means(fix) for other in kept)
        if not covered:
            kept.append(fix)
    return kept


def _means(fix: Fix) -> set[str]:
    """What it changes beside the sizes of batches."""
    return {key for key in fix.changes if not key.startswith("batch.")}
