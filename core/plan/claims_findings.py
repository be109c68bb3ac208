"""What a guide promises, checked: pace, total time, peak memory, and advice against out-of-memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.batch import accumulation_for
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.estimate.time import share_of_peak, verdict_of
from trainwiz.core.findings import Finding
from trainwiz.core.plan.facts import Facts, duration_range, gib, percent
from trainwiz.core.plan.memory_findings import states_text
from trainwiz.core.profile.size import parse_size

KEPT_SHARE = 0.02
"""Advice that stays this near to the effective batch keeps it."""
LONG_S = 365.25 * 86400


def claim_findings(facts: Facts) -> list[Finding]:
    if facts.profile is None or not facts.profile.claims or facts.config.mode.kind != "train":
        return []
    claims = facts.profile.claims
    return [*_pace(facts, claims), *_peak(facts, claims), *_advice(facts, claims)]


def _pace(facts: Facts, claims: Mapping[str, Any]) -> list[Finding]:
    """Tokens a second times tokens a step times steps: the guide's own numbers, multiplied out."""
    pace = claims.get("tokens_per_s")
    steps, tokens = facts.time.steps, facts.batch.effective_tokens
    if not pace or steps is None:
        return []
    slow, fast = (float(pace[0]), float(pace[-1])) if isinstance(pace, list | tuple) else (float(pace), float(pace))
    step = (tokens / fast, tokens / slow)
    span = duration_range(step[0] * steps, step[1] * steps)
    said = f"{slow:,.0f} to {fast:,.0f}" if slow != fast else f"{slow:,.0f}"
    share = ""
    if facts.work is not None and facts.rate is not None:
        part = share_of_peak(facts.work, facts.rate, fast)
        share = f"; it is {percent(part)} of the card's peak ({verdict_of(part)})"
    message = (
        f"The guide's {said} tokens/s mean {step[0]:,.0f} to {step[1]:,.0f} s for a step of {tokens:,} tokens, "
        f"and {span} for its {steps:,} steps{share}."
    )
    if step[1] * steps < LONG_S and not share:
        return []
    return [Finding("claim_time", "warning", "claims.tokens_per_s", message)]


def _peak(facts: Facts, claims: Mapping[str, Any]) -> list[Finding]:
    claimed = parse_size(str(claims["peak_memory"])) if claims.get("peak_memory") else None
    if claimed is None or facts.estimate.peak is None or facts.estimate.needed_bytes <= claimed:
        return []
    message = (
        f"The guide's {claims['peak_memory']} do not hold: the peak is between {gib(facts.memory.low_bytes)} and "
        f"{gib(facts.memory.high_bytes)} ({facts.memory.peak_moment}); {states_text(facts)}, before any activation."
    )
    return [Finding("claim_memory", "warning", "claims.peak_memory", message)]


def _advice(facts: Facts, claims: Mapping[str, Any]) -> list[Finding]:
    findings = []
    for position, advice in enumerate(claims.get("remedies") or ()):
        micro, accumulation = advice.get("micro_batch"), advice.get("accumulation")
        if micro is None or accumulation is None:
            continue
        length = advice.get("sequence_length") or facts.batch.sequence_length
        samples = micro * accumulation * facts.batch.world_size
        tokens, target = samples * length, facts.batch.target_tokens or facts.batch.effective_tokens
        if abs(tokens - target) <= KEPT_SHARE * target:
            continue
        kept = accumulation_for(target / length, micro, facts.batch.world_size)
        changes: dict[str, Any] = {"batch.micro_batch_size": micro, "batch.gradient_accumulation_steps": kept}
        if length != facts.batch.sequence_length:
            changes["batch.sequence_length"] = length
        peak = ""
        if facts.work is not None:
            smaller = replace(facts.work, micro_batch=micro, accumulation=kept, length=length)
            peak = f", {gib(estimate_memory(smaller).device_used_bytes)}"
        text = f"micro-batch {micro} × accumulation {kept} × {length} keeps it{peak}"
        message = (
            f"The guide's advice {advice.get('text', '')!r} makes {tokens:,} tokens a step, "
            f"{percent(tokens / target, 1)} of {target:,}: it changes the training, not only the memory."
        )
        remedy = facts.remedy(text, changes)
        findings.append(Finding("claim_batch", "warning", f"claims.remedies.{position}", message, (remedy,)))
    return findings
