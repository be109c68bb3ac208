"""What would use the memory that a run leaves free: a larger micro-batch, or no checkpointing."""

from __future__ import annotations

from dataclasses import replace

from trainwiz.core.estimate.memory import estimate_memory, largest_micro_batch
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.language import tr
from trainwiz.core.plan.facts import Facts
from trainwiz.core.plan.remedied import ACCUMULATION, CHECKPOINTING, MICRO, Fix, try_fix
from trainwiz.core.plan.sizes import GPU_CEILING

WORTH = 1.5
"""A micro-batch that is larger by less is no advice."""
QUICKER = 0.97
"""Checkpointing that costs less than this is left alone."""


def find_room(facts: Facts) -> tuple[Fix, ...]:
    """Changes of what somebody chose by hand, with which the run still fits safely; the quickest first.

    What is open is settled to use the memory anyway.
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
