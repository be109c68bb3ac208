"""A guide's advice against out-of-memory, checked: does it keep the batch, and does it save what it says?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.batch import accumulation_for, largest_exact
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr
from trainwiz.core.plan.facts import Facts
from trainwiz.core.plan.remedied import changed
from trainwiz.core.plan.words import gib, listed, part_word, percent

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
    words = tr("micro-batch {micro} × accumulation {kept}", micro=micro, kept=kept)
    if length != facts.batch.sequence_length:
        changes["batch.sequence_length"] = length
    if length != facts.batch.sequence_length or facts.batch.target_tokens:
        words += f" × {length}"
    peak = ""
    then = changed(facts, changes) if facts.work is not None else None
    if then is not None:
        peak = tr(", ") + gib(then.memory.device_used_bytes)
    made = tr(
        "{tokens} tokens a step, {share} of {target}",
        tokens=f"{tokens:,}",
        share=percent(tokens / target, 1),
        target=f"{target:,}",
    )
    if not facts.batch.target_tokens and length == facts.batch.sequence_length:
        wanted = target // length
        made = tr(
            "{samples} sequences a step, {share} of {wanted}",
            samples=f"{samples:,}",
            share=percent(samples / wanted, 1),
            wanted=f"{wanted:,}",
        )
    message = tr(
        "The guide's advice {text} makes {made}: it changes the training, not only the memory.",
        text=repr(tr(str(advice.get("text", "")))),
        made=made,
    )
    if _keeps(micro, kept, facts, length, target):
        text = tr("{batch} keeps it{peak}", batch=words, peak=peak)
    else:
        text = tr("{batch} comes nearest to it{peak}", batch=words, peak=peak)
    remedy = facts.remedy(text, changes)
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
    message = tr(
        "The guide's advice {text} saves nothing on the GPU: {used} with accumulation {before} and "
        "{used_after} with {after}, because gradients are summed in place. It makes the batch {share} "
        "of what it was.",
        text=repr(tr(str(advice.get("text", "")))),
        used=gib(used[0]),
        before=before,
        used_after=gib(used[1]),
        after=after,
        share=percent(after / before),
    )
    smaller = max(1, facts.batch.micro_batch // 2)
    kept = accumulation_for(facts.batch.effective_samples, smaller, facts.batch.world_size)
    changes = {"batch.micro_batch_size": smaller, "batch.gradient_accumulation_steps": kept}
    then = changed(facts, changes)
    if then is None:
        return Finding("claim_memory", "warning", where, message)
    peak = gib(then.memory.device_used_bytes)
    remedy = facts.remedy(
        tr(
            "a smaller micro-batch does: {smaller} × accumulation {kept}, {peak}", smaller=smaller, kept=kept, peak=peak
        ),
        changes,
    )
    return Finding("claim_memory", "warning", where, message, (remedy,))


def _host(facts: Facts, advice: Mapping[str, Any], where: str) -> Finding:
    """Against a full host RAM a smaller batch on the GPU does nothing."""
    parts = {name: size for name, size in facts.memory.host_ram_parts.items() if size > 2**28}
    largest = sorted(parts.items(), key=lambda part: -part[1])
    parts_words = listed(f"{part_word(name)} {gib(size)}" for name, size in largest)
    message = tr(
        "The guide's advice {text} is for another memory: host RAM ({host_ram} here: {parts}) "
        "follows processes, loader workers, pinned batches and rows, not the micro-batch.",
        text=repr(tr(str(advice.get("text", "")))),
        host_ram=gib(facts.memory.host_ram_bytes),
        parts=parts_words,
    )
    data = facts.config.data
    remedies = []
    if data.workers:
        remedies.append(facts.remedy(tr("no loader workers"), {"data.workers": 0}))
    if not data.streaming:
        remedies.append(facts.remedy(tr("stream the rows"), {"data.streaming": True}))
    return Finding("claim_host_ram", "warning", where, message, tuple(remedies))


def _other_batch(facts: Facts, advice: Mapping[str, Any], where: str) -> Finding | None:
    """Two effective batches that the guide calls alike."""
    said, planned = int(advice["effective_samples"]), facts.batch.effective_samples
    if abs(said - planned) <= KEPT_SHARE * planned:
        return None
    message = tr(
        "The guide's {text} is not so: {said} sequences a step are {difference} against {planned}, "
        "another batch with another number of steps.",
        text=repr(tr(str(advice.get("text", "")))),
        said=f"{said:,}",
        difference=percent(said / planned - 1, signed=True),
        planned=f"{planned:,}",
    )
    return Finding("claim_batch", "warning", where, message)
