"""A guide's advice against out-of-memory, checked: does it keep the batch, and does it save what it says?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.batch import accumulation_for, largest_exact
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.findings import Finding
from trainwiz.core.plan.facts import Facts
from trainwiz.core.plan.words import gib, percent

KEPT_SHARE = 0.02
"""Advice that stays this near to the effective batch keeps it."""
NOTABLE_FACTOR = 1.5
"""A promised saving that is off by more than this is wrong."""


def advice_findings(facts: Facts, claims: Mapping[str, Any]) -> list[Finding]:
    findings: list[Finding | None] = []
    for position, advice in enumerate(claims.get("remedies") or ()):
        where = f"claims.remedies.{position}"
        if advice.get("memory_factor") is not None:
            findings.append(_saving(facts, advice, where))
        elif advice.get("against") == "host":
            findings.append(_host(facts, advice, where))
        elif advice.get("effective_samples") is not None:
            findings.append(_other_batch(facts, advice, where))
        else:
            findings.append(_batch(facts, advice, where))
    return [finding for finding in findings if finding is not None]


def _batch(facts: Facts, advice: Mapping[str, Any], where: str) -> Finding | None:
    """A smaller micro-batch, with an accumulation that must make up for it."""
    micro, accumulation = advice.get("micro_batch"), advice.get("accumulation")
    if micro is None or accumulation is None:
        return None
    length = advice.get("sequence_length") or facts.batch.sequence_length
    samples = micro * accumulation * facts.batch.world_size
    tokens, target = samples * length, facts.batch.target_tokens or facts.batch.effective_tokens
    if abs(tokens - target) <= KEPT_SHARE * target:
        return None
    kept = accumulation_for(target / length, micro, facts.batch.world_size)
    if not _keeps(micro, kept, facts, length, target):
        # Another accumulation does not make up for it: a smaller micro-batch may.
        exact = largest_exact(target / length, facts.batch.world_size, micro)
        if exact is not None and 2 * exact.micro_batch >= micro:
            micro, kept = exact.micro_batch, exact.accumulation
    changes: dict[str, Any] = {"batch.micro_batch_size": micro, "batch.gradient_accumulation_steps": kept}
    words = f"micro-batch {micro} × accumulation {kept}"
    if length != facts.batch.sequence_length:
        changes["batch.sequence_length"] = length
    if length != facts.batch.sequence_length or facts.batch.target_tokens:
        words += f" × {length}"
    peak = ""
    if facts.work is not None:
        smaller = replace(facts.work, micro_batch=micro, accumulation=kept, length=length)
        peak = f", {gib(estimate_memory(smaller, facts.evidence).device_used_bytes)}"
    made = f"{tokens:,} tokens a step, {percent(tokens / target, 1)} of {target:,}"
    if not facts.batch.target_tokens and length == facts.batch.sequence_length:
        wanted = target // length
        made = f"{samples:,} sequences a step, {percent(samples / wanted, 1)} of {wanted:,}"
    message = (
        f"The guide's advice {advice.get('text', '')!r} makes {made}: it changes the training, not only the memory."
    )
    keeps = "keeps it" if _keeps(micro, kept, facts, length, target) else "comes nearest to it"
    remedy = facts.remedy(f"{words} {keeps}{peak}", changes)
    return Finding("claim_batch", "warning", where, message, (remedy,))


def _keeps(micro: int, accumulation: int, facts: Facts, length: int, target: int) -> bool:
    """Whether the batch stays within KEPT_SHARE of `target` tokens."""
    return abs(micro * accumulation * facts.batch.world_size * length - target) <= KEPT_SHARE * target


def _saving(facts: Facts, advice: Mapping[str, Any], where: str) -> Finding | None:
    """Fewer micro-batches are said to save memory: gradients are summed in place, so they do not."""
    before, after = advice.get("from_accumulation"), advice.get("accumulation")
    if facts.work is None or before is None or after is None:
        return None
    used = [
        estimate_memory(replace(facts.work, accumulation=count), facts.evidence).device_used_bytes
        for count in (before, after)
    ]
    factor = used[0] / used[1]
    if factor * NOTABLE_FACTOR >= float(advice["memory_factor"]):
        return None
    message = (
        f"The guide's advice {advice.get('text', '')!r} saves nothing on the GPU: {gib(used[0])} with accumulation "
        f"{before} and {gib(used[1])} with {after}, because gradients are summed in place. It makes the batch "
        f"{percent(after / before)} of what it was."
    )
    smaller = max(1, facts.batch.micro_batch // 2)
    kept = accumulation_for(facts.batch.effective_samples, smaller, facts.batch.world_size)
    changes = {"batch.micro_batch_size": smaller, "batch.gradient_accumulation_steps": kept}
    peak = gib(
        estimate_memory(replace(facts.work, micro_batch=smaller, accumulation=kept), facts.evidence).device_used_bytes
    )
    remedy = facts.remedy(f"a smaller micro-batch does: {smaller} × accumulation {kept}, {peak}", changes)
    return Finding("claim_memory", "warning", where, message, (remedy,))


def _host(facts: Facts, advice: Mapping[str, Any], where: str) -> Finding:
    """Against a full host RAM a smaller batch on the GPU does nothing."""
    parts = {name: size for name, size in facts.memory.host_ram_parts.items() if size > 2**28}
    listed = ", ".join(f"{name} {gib(size)}" for name, size in sorted(parts.items(), key=lambda part: -part[1]))
    message = (
        f"The guide's advice {advice.get('text', '')!r} is for another memory: host RAM ({gib(facts.memory.host_ram_bytes)} "
        f"here: {listed}) follows processes, loader workers, pinned batches and rows, not the micro-batch."
    )
    data = facts.config.data
    remedies = []
    if data.workers:
        remedies.append(facts.remedy("no loader workers", {"data.workers": 0}))
    if not data.streaming:
        remedies.append(facts.remedy("stream the rows", {"data.streaming": True}))
    return Finding("claim_host_ram", "warning", where, message, tuple(remedies))


def _other_batch(facts: Facts, advice: Mapping[str, Any], where: str) -> Finding | None:
    """Two effective batches that the guide calls alike."""
    said, planned = int(advice["effective_samples"]), facts.batch.effective_samples
    if abs(said - planned) <= KEPT_SHARE * planned:
        return None
    message = (
        f"The guide's {advice.get('text', '')!r} is not so: {said:,} sequences a step are "
        f"{percent(said / planned - 1, signed=True)} against {planned:,}, another batch with another number of steps."
    )
    return Finding("claim_batch", "warning", where, message)
